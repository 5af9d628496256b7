"""CSV files: numbers as float64, and a first line that is not mistaken for names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.paths import blaming
from sketchlearn.rows.pieces import Piece, guarded, schema_piece

__all__ = ["csv_piece"]

CSV_BLOCK_BYTES = 1 << 20
"""Text parsed at once; the first block decides the types of the columns."""

_MISSING = ("", "na", "n/a", "#n/a", "null", "none", "?", "-")


def csv_piece(
    path: Path,
    encoded: Mapping[str, pa.DataType],
    header: bool | None,
    ids: str | int | None = None,
) -> Piece:
    """Open an existing CSV file; see :func:`sketchlearn.rows.files.file_piece`."""
    csv = importlib.import_module("pyarrow.csv")
    reading = csv.ReadOptions(
        block_size=CSV_BLOCK_BYTES, autogenerate_column_names=header is False
    )
    with blaming(path), csv.open_csv(path, read_options=reading) as first:
        found = first.schema
        names = list(found.names)
    if header is None and _may_be_row(names):
        raise RowsError(
            f"the first line of {str(path)!r} holds numbers: names, or a row? Open it "
            "with open_rows(path, header=False) if it is a row (columns are then named "
            "f0, f1 and so on), or header=True if these are names."
        )
    whole = {field.name for field in found if pa.types.is_integer(field.type)}
    types = {field.name: encoded.get(field.name, _read_as(field)) for field in found}
    if ids in types:
        types[ids] = _ids_as(found.field(ids))

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [found.names[position] for position in positions]
        convert = csv.ConvertOptions(
            include_columns=names,
            column_types={name: types[name] for name in names},
            **_missing_ids(names == [ids] and types[names[0]] == pa.string()),
        )
        kept = {*encoded, ids}
        checked = [name for name in names if name in whole and name not in kept]
        row = 0
        with blaming(path):
            file = csv.open_csv(path, read_options=reading, convert_options=convert)
        with file:
            for batch in guarded(iter(file), partial(blaming, path)):
                _require_exact(batch, checked, row, path)
                row += len(batch)
                yield batch

    schema = pa.schema([(name, types[name]) for name in found.names])
    with blaming(path):  # a damaged name cannot be decoded
        return schema_piece(repr(str(path)), schema, read)


def _read_as(field: pa.Field) -> pa.DataType:
    """Type of a column whose first block looks like this.

    A later block may have decimals where the first has whole numbers or none.
    """
    is_unsure = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
    return pa.float64() if is_unsure else field.type


def _ids_as(field: pa.Field) -> pa.DataType:
    """Type of a column of ids: integers if the first block has no others, or text."""
    return pa.int64() if pa.types.is_integer(field.type) else pa.string()


def _missing_ids(is_text: bool) -> dict[str, Any]:
    """Of ids that are texts an empty one is missing, and NA is one like others."""
    return {"strings_can_be_null": True, "null_values": [""]} if is_text else {}


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
