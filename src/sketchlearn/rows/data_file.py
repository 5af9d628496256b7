"""Data files: a file of rows, on this machine or behind a URL.

What a suffix says of a file is told here, and how its bytes are reached; what they
mean is left to the readers of each format. A file is opened anew for every reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, NoReturn, final

import pyarrow as pa

from sketchlearn.errors import MissingFileError, RowsError, SketchlearnError

__all__ = ["DataFile", "blaming", "readable_names", "refuse_suffix", "suffix_of"]

_TABLE_SUFFIXES = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".npy": "NumPy",
}
_TEXT_SUFFIXES = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PACKED = {
    f"{text}{codec}": kind for text, kind in _TEXT_SUFFIXES.items() for codec in _CODECS
}
_FORMATS = _TABLE_SUFFIXES | _TEXT_SUFFIXES | _PACKED

READABLE = (
    f"{', '.join((*_TABLE_SUFFIXES, *_TEXT_SUFFIXES))}, or compressed text "
    f"({', '.join(f'.csv{codec}' for codec in _CODECS)}, and so on)"
)
"""Suffixes that are read, for messages."""

_HINTS = {
    "CSV": (
        "It must be text in UTF-8 (packed as its suffix says, and whole), with a "
        "header, equally long lines, and each column of one type (the first rows "
        "decide). To leave a column out, open_rows(path, columns=[...]); to read it "
        "as categories, encodings={...}."
    ),
    "JSON Lines": (
        "Each line must be one JSON object, with each name once, and each column of "
        "one type (the first lines decide). To leave a column out, open_rows(path, "
        "columns=[...])."
    ),
}

_DAMAGED = (
    pa.ArrowException,
    OSError,
    EOFError,
    UnicodeDecodeError,
    JSONDecodeError,
    RecursionError,
)
"""What readers raise of files they cannot read."""


@final
@dataclass(frozen=True)
class DataFile(os.PathLike[str]):
    """A file of rows.

    Parameters
    ----------
    address : str
        Its path, or its URL.
    text : str
        The same for messages: without passwords and queries.
    name : str
        Last part of it, whose suffix tells the format.
    same : hashable
        Equal for two names of one file.
    fetch : callable, optional
        ``fetch(cache)`` opens what is behind a URL as a binary file, with one of the
        caches of fsspec; without it the file is on this machine.
    """

    address: str = field(repr=False)
    text: str
    name: str
    same: Hashable = field(repr=False)
    fetch: Callable[[str], Any] | None = field(default=None, repr=False)

    def __fspath__(self) -> str:
        return self.address

    def __str__(self) -> str:
        return self.text

    @property
    def format(self) -> str:
        """What the suffix says it is."""
        return _FORMATS[suffix_of(self.name)]

    @property
    def is_text(self) -> bool:
        """Whether it is read line by line, and does not know how many it has."""
        return self.format in _TEXT_SUFFIXES.values()

    @property
    def is_remote(self) -> bool:
        """Whether it is behind a URL."""
        return self.fetch is not None

    @property
    def is_tabbed(self) -> bool:
        """Whether tabs are between its values."""
        return suffix_of(self.name).startswith(".tsv")

    def open(self, *, mapped: bool = False) -> Any:
        """Its bytes, as a file of Arrow that is read at any place."""
        if self.fetch is not None:
            return pa.PythonFile(self.fetch("none"), mode="r")
        return pa.memory_map(self.address) if mapped else pa.OSFile(self.address)

    def open_text(self) -> Any:
        """Its text, decompressed, as a stream of Arrow."""
        codec = _CODECS.get(os.path.splitext(self.name.lower())[1])
        if self.fetch is None:
            return pa.input_stream(self.address, compression=codec)
        file = pa.PythonFile(self.fetch("readahead"), mode="r")
        return pa.input_stream(file, compression=codec)


@contextmanager
def blaming(file: DataFile) -> Iterator[None]:
    """Turn errors of a reader into one that names the file, and no value of it."""
    hint = _HINTS.get(file.format, "The file is damaged or not of this format.")
    try:
        yield
    except _DAMAGED as error:
        raise RowsError(
            f"cannot read {file.text!r} as {file.format}. {hint}"
        ) from error
    except Exception as error:  # of file systems, which have errors of their own
        if isinstance(error, SketchlearnError) or not file.is_remote:
            raise
        raise RowsError(
            f"cannot read {file.text!r}: {type(error).__name__} while it was fetched. "
            "Check the address and your access to it, and try again."
        ) from error


def suffix_of(name: str) -> str:
    """The suffix of a name, if it is one that is read."""
    lower = name.lower()
    return next((suffix for suffix in _FORMATS if lower.endswith(suffix)), "")


def refuse_suffix(text: str) -> NoReturn:
    """Refuse a file that is none of those that are read."""
    raise RowsError(
        f"cannot read {text!r}: its suffix is none of {READABLE}. Convert it, or pass "
        "it as an array or frame."
    )


def readable_names(folder: str, names: Iterable[str]) -> list[str]:
    """The names of files of a folder that are read, sorted, if they are of one kind.

    Parameters
    ----------
    folder : str
        Its path or URL, for messages.
    names : iterable of str
        What it holds; hidden files and those that start with an underscore are left
        out.
    """
    shown = [name for name in names if not name.startswith((".", "_"))]
    readable = sorted(name for name in shown if suffix_of(name))
    folder = folder.rstrip("/")
    if not readable:
        raise MissingFileError(
            f"the folder {folder!r} holds no file ending in one of {READABLE}. For "
            f"files in its subfolders pass a glob such as {folder + '/**/*.parquet'!r}."
        )
    kinds = sorted({suffix_of(name) for name in readable})
    if len(kinds) > 1:
        raise RowsError(
            f"the folder {folder!r} holds files of several kinds ({', '.join(kinds)}). "
            f"Choose one with a glob such as {folder + '/*' + kinds[0]!r}."
        )
    return readable
