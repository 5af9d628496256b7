"""Paths: the files meant by a path, URL, glob or folder."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.rows.data_file import (
    DataFile,
    readable_names,
    refuse_suffix,
    suffix_of,
)
from sketchlearn.rows.urls import is_url, local_path, shown, url_files

__all__ = ["find_files"]

_FLATTENED = re.compile(r"[a-z][a-z0-9+.\-]+:/[^/]", re.IGNORECASE)
"""What pathlib makes of a URL."""


def find_files(data: Any) -> tuple[list[DataFile], str]:
    """Find the files meant by a path, URL, glob, folder or list of these.

    Parameters
    ----------
    data : str, os.PathLike or sequence of these
        Files of a folder are those of its one supported suffix; hidden files and
        files that start with an underscore are left out.

    Returns
    -------
    files : list of DataFile
        At least one, sorted within each glob or folder; none is there twice.
    source : str
        Short description for messages.
    """
    if isinstance(data, str | os.PathLike):
        files = _expand(data)
        _require_different(files)
        count = "" if len(files) == 1 else f" ({len(files)} files)"
        return files, f"{shown(os.fspath(data))!r}{count}"
    for item in data:
        if not isinstance(item, str | os.PathLike):
            raise RowsError(
                f"a list of paths holds a {type(item).__name__}; pass paths only."
            )
    files = [file for item in data for file in _expand(item)]
    _require_different(files)
    return files, f"{len(files)} files ({shown(os.fspath(data[0]))!r}, ..)"


def _expand(item: str | os.PathLike[str]) -> list[DataFile]:
    if isinstance(item, DataFile):
        return [item]
    text = os.fspath(item)
    if not text:
        raise MissingFileError("the path is empty. Pass '.' for the working folder.")
    if is_url(text) and not os.path.exists(text):
        path = local_path(text)
        return url_files(text) if path is None else _expand_path(path)
    return _expand_path(os.path.expanduser(text))


def _expand_path(text: str) -> list[DataFile]:
    path = Path(text)
    try:
        is_folder = path.is_dir()
    except OSError as error:  # such as a name that is too long
        raise MissingFileError(f"no file {text[:80]!r}: {error.strerror}.") from error
    if is_folder:
        inside = [entry.name for entry in path.iterdir() if entry.is_file()]
        return [_data_file(path / name) for name in readable_names(str(path), inside)]
    paths = [path] if path.exists() else []
    if not paths and glob.has_magic(text):
        found = map(Path, sorted(glob.glob(text, recursive=True)))
        paths = [path for path in found if path.is_file()]
    if not paths:
        raise MissingFileError(_missing_text(path))
    for path in paths:
        if not suffix_of(path.name):
            refuse_suffix(str(path))
    return [_data_file(path) for path in paths]


def _data_file(path: Path) -> DataFile:
    about = path.stat()
    return DataFile(str(path), str(path), path.name, (about.st_dev, about.st_ino))


def _require_different(files: Sequence[DataFile]) -> None:
    """Refuse a file that is named twice: its rows would count twice."""
    seen: dict[Hashable, DataFile] = {}
    for file in files:
        first = seen.setdefault(file.same, file)
        if first is not file:
            same = "" if first.text == file.text else f" (also as {first.text!r})"
            raise RowsError(
                f"the file {file.text!r} is named twice{same}: each of its rows would "
                "count twice. Nothing was added. Name every file once; where globs or "
                "folders overlap, or one file is a link to another, leave one out."
            )


def _missing_text(path: Path) -> str:
    if _FLATTENED.match(str(path)):
        url = shown(str(path).replace(":/", "://", 1))
        return f"no file {url!r} as a Path, which drops a slash. Pass the URL as text."
    text = f"no file {str(path)!r}"
    if not path.parent.is_dir():
        what = "matches no folder" if glob.has_magic(str(path.parent)) else "is missing"
        return f"{text}: the folder {str(path.parent)!r} {what}."
    names = [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, 1, 0.5)
    if not close:
        return f"{text}. Check the path; the working folder is {os.getcwd()!r}."
    return f"{text}; did you mean {str(path.parent / close[0])!r}?"
