"""CSV files: numbers as float64, and a first line that is not mistaken for names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.data_file import DataFile, blaming
from sketchlearn.rows.pieces import Piece, guarded, schema_piece
from sketchlearn.rows.values import require_exact_digits

__all__ = ["csv_piece"]

CSV_BLOCK_BYTES = 1 << 20
"""Text parsed at once; the first block decides the types of the columns."""

_MISSING = ("", "na", "n/a", "#n/a", "null", "none", "?", "-")


def csv_piece(
    file: DataFile,
    encoded: Mapping[str, pa.DataType],
    header: bool | None,
    ids: str | int | None = None,
) -> Piece:
    """Open an existing CSV file; see :func:`sketchlearn.rows.files.file_piece`."""
    csv = importlib.import_module("pyarrow.csv")
    options = _options(file, header)
    with blaming(file), csv.open_csv(file.open_text(), **options) as first:
        found = first.schema
        wide = _beyond_int64(next(iter(first), None))
    if header is None and _may_be_row(found.names):
        raise RowsError(
            f"the first line of {file.text!r} holds numbers: names, or a row? Open it "
            "with open_rows(path, header=False) if it is a row (columns are then named "
            "f0, f1 and so on), or header=True if these are names."
        )
    whole = {field.name for field in found if pa.types.is_integer(field.type)}
    wide = {name for name in wide if _is_whole(file, options, name)}
    types = {field.name: encoded.get(field.name, _read_as(field)) for field in found}
    if ids in types:
        types[ids] = pa.uint64() if ids in wide else _ids_as(found.field(ids))

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [found.names[position] for position in positions]
        convert = csv.ConvertOptions(
            include_columns=names,
            column_types={name: types[name] for name in names},
            **_missing_ids(names == [ids] and types[names[0]] == pa.string()),
        )
        checked = [n for n in names if n in (whole | wide) - {*encoded, ids}]
        row = 0
        with blaming(file):
            text = file.open_text()
            batches = csv.open_csv(text, convert_options=convert, **options)
        with batches:
            for batch in guarded(iter(batches), partial(blaming, file)):
                require_exact_digits(batch, checked, row, file.text)
                row += len(batch)
                yield batch
        text.close()  # not before the end: the reader reads ahead of what it yields

    schema = pa.schema([(name, types[name]) for name in found.names])
    with blaming(file):  # a damaged name cannot be decoded
        return schema_piece(repr(file.text), schema, read)


def _options(file: DataFile, header: bool | None) -> dict[str, Any]:
    """How to read the lines of a file, and what is between their values."""
    csv = importlib.import_module("pyarrow.csv")
    return {
        "read_options": csv.ReadOptions(
            block_size=CSV_BLOCK_BYTES, autogenerate_column_names=header is False
        ),
        "parse_options": csv.ParseOptions(delimiter="\t" if file.is_tabbed else ","),
    }


def _beyond_int64(first: pa.RecordBatch | None) -> set[str]:
    """Columns of decimals of which some are so large that integers may look like it."""
    found = set()
    columns = () if first is None else zip(first.schema.names, first, strict=True)
    for name, column in columns:
        if pa.types.is_floating(column.type):
            values = np.abs(column.to_numpy(zero_copy_only=False))
            if ((values >= 2.0**63) & (values < np.inf)).any():
                found.add(name)
    return found


def _is_whole(file: DataFile, options: dict[str, Any], name: str) -> bool:
    """Whether all values of the first block of a column are written as integers."""
    csv, compute = map(importlib.import_module, ("pyarrow.csv", "pyarrow.compute"))
    convert = csv.ConvertOptions(
        include_columns=[name],
        column_types={name: pa.string()},
        strings_can_be_null=True,
    )
    with (
        blaming(file),
        csv.open_csv(file.open_text(), convert_options=convert, **options) as first,
    ):
        written = next(iter(first)).column(0).drop_null()
    digits = compute.match_substring_regex(written, r"^\s*[+-]?[0-9]+\s*$")
    return bool(compute.all(digits).as_py())


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
