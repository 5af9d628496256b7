"""Paths: the files meant by a path, glob or folder, and what a suffix means."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sketchlearn.errors import MissingFileError, RowsError

__all__ = ["blaming", "find_files", "format_of"]

SUFFIXES = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".npy": "NumPy",
}


def find_files(data: Any) -> tuple[list[Path], str]:
    """Find the files meant by a path, glob, folder or list of these.

    Parameters
    ----------
    data : str, os.PathLike or sequence of these
        Files of a folder are those of its one supported suffix; hidden files and
        files that start with an underscore are left out.

    Returns
    -------
    paths : list of Path
        At least one, sorted within each glob or folder; none is there twice.
    source : str
        Short description for messages.
    """
    if isinstance(data, str | os.PathLike):
        paths = _expand(data)
        _require_different(paths)
        files = "" if len(paths) == 1 else f" ({len(paths)} files)"
        return paths, f"{os.fspath(data)!r}{files}"
    for item in data:
        if not isinstance(item, str | os.PathLike):
            raise RowsError(
                f"a list of paths holds a {type(item).__name__}; pass paths only."
            )
    paths = [path for item in data for path in _expand(item)]
    _require_different(paths)
    return paths, f"{len(paths)} files ({os.fspath(data[0])!r}, ..)"


def format_of(path: Path) -> str:
    """What the suffix of a file says it is."""
    return SUFFIXES[_suffix_of(path)]


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn errors of a reader into one that names the file, and no value of it."""
    kind = format_of(path)
    hint = "The file is damaged or not of this format."
    if kind == "CSV":
        hint = (
            "It must have a header and equally long lines, and each column one type "
            "(the first rows decide). To leave a column out, open_rows(path, "
            "columns=[...]); to read it as categories, encodings={...}."
        )
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise RowsError(f"cannot read {str(path)!r} as {kind}. {hint}") from error


def _expand(item: str | os.PathLike[str]) -> list[Path]:
    text = os.path.expanduser(os.fspath(item))
    path = Path(text)
    if path.is_dir():
        return _folder_files(path)
    paths = [path] if path.exists() else []
    if not paths and glob.has_magic(text):
        found = map(Path, sorted(glob.glob(text, recursive=True)))
        paths = [path for path in found if path.is_file()]
    if not paths:
        raise MissingFileError(_missing_text(path))
    for path in paths:
        if not _suffix_of(path):
            raise RowsError(
                f"cannot read {str(path)!r}: its suffix is none of "
                f"{', '.join(SUFFIXES)}. Convert it, or pass it as an array or frame."
            )
    return paths


def _require_different(paths: Sequence[Path]) -> None:
    """Refuse a file that is named twice: its rows would count twice."""
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        about = path.stat()
        first = seen.setdefault((about.st_dev, about.st_ino), path)
        if first is not path:
            same = "" if first == path else f" (also as {str(first)!r})"
            raise RowsError(
                f"the file {str(path)!r} is named twice{same}: each of its rows would "
                "count twice. Nothing was added. Name every file once; where globs or "
                "folders overlap, or one file is a link to another, leave one out."
            )


def _folder_files(folder: Path) -> list[Path]:
    inside = [path for path in sorted(folder.iterdir()) if path.is_file()]
    paths = [p for p in inside if _suffix_of(p) and not p.name.startswith((".", "_"))]
    if not paths:
        raise MissingFileError(
            f"the folder {str(folder)!r} holds no file ending in one of "
            f"{', '.join(SUFFIXES)}. For files in its subfolders pass a glob such as "
            f"{str(folder / '**' / '*.parquet')!r}."
        )
    kinds = sorted({_suffix_of(path) for path in paths})
    if len(kinds) > 1:
        raise RowsError(
            f"the folder {str(folder)!r} holds files of several kinds "
            f"({', '.join(kinds)}). Choose one with a glob such as "
            f"{str(folder / ('*' + kinds[0]))!r}."
        )
    return paths


def _missing_text(path: Path) -> str:
    text = f"no file {str(path)!r}"
    if not path.parent.is_dir():
        what = "matches no folder" if glob.has_magic(str(path.parent)) else "is missing"
        return f"{text}: the folder {str(path.parent)!r} {what}."
    names = [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, 1, 0.5)
    if not close:
        return f"{text}. Check the path; the working folder is {os.getcwd()!r}."
    return f"{text}; did you mean {str(path.parent / close[0])!r}?"


def _suffix_of(path: Path) -> str:
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
