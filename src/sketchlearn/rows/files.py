"""Files: paths, globs and folders of tables, read piece by piece out of core.

This module finds files and streams the columns it is asked for; what a value means,
and whether it may become a feature, is decided in :mod:`sketchlearn.rows.columns`.
"""

from __future__ import annotations

import difflib
import glob
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.rows.parquet import parquet_piece
from sketchlearn.rows.pieces import Piece, Reader, array_piece, guarded, index_columns

__all__ = ["file_piece", "find_files"]

CSV_BLOCK_BYTES = 1 << 20
"""Text parsed at once; the first block decides the types of the columns."""

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


def file_piece(
    path: Path, encoded: Mapping[str, pa.DataType], header: bool | None = None
) -> Piece:
    """Open one file by its suffix.

    Parameters
    ----------
    path : Path
        An existing file.
    encoded : mapping of column name to Arrow type
        Types in which to read columns of text files that will be one-hot encoded.
    header : bool, optional
        Whether a text file begins with names; refused where that is in doubt.
    """
    kind = SUFFIXES[_suffix(path)]
    if header is not None and kind != "CSV":
        raise RowsError(f"header is for CSV files; {str(path)!r} is none.")
    if kind == "Parquet":
        return parquet_piece(path, blaming=partial(_blaming, path))
    if kind == "CSV":
        return _csv_piece(path, encoded, header)
    return _arrow_piece(path) if kind == "Arrow" else _npy_piece(path)


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
        if not _suffix(path):
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
    paths = [p for p in inside if _suffix(p) and not p.name.startswith((".", "_"))]
    if not paths:
        raise MissingFileError(
            f"the folder {str(folder)!r} holds no file ending in one of "
            f"{', '.join(SUFFIXES)}. For files in its subfolders pass a glob such as "
            f"{str(folder / '**' / '*.parquet')!r}."
        )
    kinds = sorted({_suffix(path) for path in paths})
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


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn errors of a reader into one that names the file, and no value of it."""
    kind = SUFFIXES[_suffix(path)]
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


def _schema_piece(
    path: Path, schema: pa.Schema, read: Reader, n_rows: int | None
) -> Piece:
    with _blaming(path):  # a damaged name cannot be decoded
        names, types = tuple(schema.names), tuple(map(str, schema.types))
        index = index_columns(schema)
    return Piece(repr(str(path)), names, types, read, n_rows, left_out=index)


_MISSING = ("", "na", "n/a", "#n/a", "null", "none", "?", "-")


def _csv_piece(
    path: Path, encoded: Mapping[str, pa.DataType], header: bool | None
) -> Piece:
    csv = importlib.import_module("pyarrow.csv")
    reading = csv.ReadOptions(
        block_size=CSV_BLOCK_BYTES, autogenerate_column_names=header is False
    )
    with _blaming(path), csv.open_csv(path, read_options=reading) as first:
        found = first.schema
        names = list(found.names)
    if header is None and _may_be_row(names):
        raise RowsError(
            f"the first line of {str(path)!r} holds numbers: names, or a row? Open it "
            "with open_rows(path, header=False) if it is a row (columns are then named "
            "f0, f1 and so on), or header=True if these are names."
        )
    whole = {field.name for field in found if pa.types.is_integer(field.type)}
    types = {field.name: field.type for field in found}
    for name, found_type in types.items():
        # A later block may have decimals where the first has whole numbers or none.
        if name in whole or pa.types.is_null(found_type):
            types[name] = pa.float64()
    types |= {name: kind for name, kind in encoded.items() if name in types}

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [found.names[position] for position in positions]
        convert = csv.ConvertOptions(
            include_columns=names, column_types={name: types[name] for name in names}
        )
        checked = [name for name in names if name in whole and name not in encoded]
        row = 0
        with _blaming(path):
            file = csv.open_csv(path, read_options=reading, convert_options=convert)
        with file:
            for batch in guarded(iter(file), partial(_blaming, path)):
                _require_exact(batch, checked, row, path)
                row += len(batch)
                yield batch

    schema = pa.schema([(name, types[name]) for name in found.names])
    return _schema_piece(path, schema, read, None)


def _may_be_row(names: Sequence[str]) -> bool:
    """Whether a first line may be a row and not names.

    All of it are values, or one is a number that nobody would call a column: years
    are names, decimals are not.
    """
    values = [name for name in names if _looks_like_data(name)]
    odd = [name for name in values if name.strip() and not name.strip().isdecimal()]
    return len(values) == len(names) or any(map(_is_number, odd))


def _looks_like_data(name: str) -> bool:
    """Whether a cell of a first line may be a value: a number, or a missing one."""
    if name.strip().lower() in _MISSING:
        return True
    return _is_number(name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require_exact(
    batch: pa.RecordBatch, names: Sequence[str], row: int, path: Path
) -> None:
    for name in names:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        large = np.abs(values) >= 2**53
        if large.any():
            raise RowsError(
                f"row {row + int(large.argmax())} of {str(path)!r}, column {name!r}: "
                "a whole number of 2**53 or more cannot be represented exactly as "
                "float64 for certain. Nothing was added. Write this column with a "
                "decimal point to accept rounding, or leave it out with "
                "open_rows(path, columns=[...])."
            )


def _arrow_piece(path: Path) -> Piece:
    def start(source: Callable[[str], Any], **options: Any) -> Any:
        chosen = pa.ipc.IpcReadOptions(**options)
        try:
            return pa.ipc.open_file(source(str(path)), options=chosen)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(source(str(path)), options=chosen)

    with _blaming(path), start(pa.memory_map) as file:
        schema = file.schema
        indexed = hasattr(file, "get_batch")
        n_rows = file.count_rows() if indexed else None
        # One batch is mapped, as it may not fit; many are read and freed in turn.
        source = pa.OSFile
        if indexed and file.num_record_batches == 1:
            source = pa.memory_map

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [schema.names[position] for position in positions]
        with _blaming(path):
            file = start(source, included_fields=list(positions))
        if indexed:
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            batches = iter(file)
        with file:
            for batch in guarded(batches, partial(_blaming, path)):
                yield batch.select(names)

    return _schema_piece(path, schema, read, n_rows)


def _npy_piece(path: Path) -> Piece:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header raises errors of many kinds
        raise RowsError(
            f"cannot read {str(path)!r} as NumPy: it is damaged, or holds objects "
            "instead of numbers. Save it again with numpy.save(path, float_array)."
        ) from error
    source = f"{str(path)!r}"
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{source} is not one array; save it with numpy.save.")

    def take(start: int, stop: int) -> Any:
        return np.asarray(array[start:stop])

    return array_piece(source, array.shape, array.dtype.name, take)
