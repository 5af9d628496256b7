"""Values: a float32 or float64 holds exactly the value of the input.

Otherwise the row and column are named and refused. Messages never repeat a value.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.columns import ColumnLayout

__all__ = ["Floats", "Location", "as_record_batch", "require_exact_digits", "to_floats"]

Floats = NDArray[np.floating[Any]]


@final
@dataclass(frozen=True)
class Location:
    """Place of a block of rows, for messages."""

    source: str
    row: int
    columns: tuple[str, ...] | None

    def cell(self, row: int, column: int) -> str:
        """Name one cell of the block."""
        name = column if self.columns is None else repr(self.columns[column])
        return f"row {self.row + row} of the input, column {name} of {self.source}"


def to_floats(rows: Any, layout: ColumnLayout, where: Location) -> Floats:
    """Turn an array or Arrow record batch into a C-contiguous array of floats.

    Parameters
    ----------
    rows : NumPy array or Arrow record batch
        The columns of the layout, in its order.
    layout : ColumnLayout
        What each column is.
    where : Location
        Place of the rows in the input, for messages.
    """
    if isinstance(rows, np.ndarray):
        if any(known is not None for known in layout.categories):
            return to_floats(as_record_batch(rows), layout, where)
        _require_exact(rows, where)
        return np.ascontiguousarray(rows, layout.dtype)
    floats: Floats = np.empty((len(rows), layout.width), layout.dtype)
    start = 0
    for index, known in enumerate(layout.categories):
        column = rows.column(index)
        if known is None:
            _fill(floats[:, start], column, where, index)
            start += 1
        else:
            codes, missing = _codes(column, known, where, index)
            floats[:, start : start + len(known)] = 0
            floats[np.arange(len(rows)), start + codes] = 1
            floats[missing, start : start + len(known)] = np.nan
            start += len(known)
    return floats


def as_record_batch(rows: NDArray[Any]) -> pa.RecordBatch:
    """An array as columns, NaN being a missing value of them."""
    columns = [pa.array(column, from_pandas=True) for column in rows.T]
    return pa.RecordBatch.from_arrays(columns, list(map(str, range(len(columns)))))


def require_exact_digits(
    batch: pa.RecordBatch, names: Sequence[str], row: int, source: str
) -> None:
    """Refuse whole numbers of text files that float64 may have rounded.

    Parameters
    ----------
    batch : Arrow record batch
        Rows of which the first has number ``row`` in its file.
    names : sequence of str
        Columns of float64 that hold whole numbers, as far as one has seen.
    source : str
        The file, for messages.
    """
    for name in names:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        large = np.abs(values) >= 2**53
        if large.any():
            raise RowsError(
                f"row {row + int(large.argmax())} of {source!r}, column {name!r}: "
                "a whole number of 2**53 or more cannot be represented exactly as "
                "float64 for certain. Nothing was added. Write this column with a "
                "decimal point to accept rounding, or leave it out with "
                "open_rows(path, columns=[...])."
            )


def _require_exact(values: NDArray[Any], where: Location, column: int = 0) -> None:
    """Refuse integers and long doubles that float64 would round."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if size < 8 or kind not in "iuf" or (kind == "f" and size == 8) or not values.size:
        return
    if kind == "f":
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float64) != values
        rounded &= ~np.isnan(values)
    elif values.max() <= 2**53 and (kind == "u" or values.min() >= -(2**53)):
        return
    else:
        size_of = values if kind == "u" else np.abs(values)  # abs wraps to 2**63
        digits = size_of.astype(np.uint64)
        odd = digits // np.maximum(digits & (~digits + np.uint64(1)), np.uint64(1))
        rounded = odd > np.uint64(2**53)
    if rounded.any():
        row, *rest = np.argwhere(rounded)[0].tolist()
        raise RowsError(
            f"{where.cell(row, rest[0] if rest else column)}: a value of type "
            f"{values.dtype} cannot be represented exactly as float64. Nothing was "
            "added. Cast the column to float64 to accept rounding, or leave it out."
        )


def _fill(target: Floats, column: pa.Array, where: Location, index: int) -> None:
    """Copy one numeric Arrow column; missing values become NaN."""
    if pa.types.is_null(column.type):
        target[:] = np.nan
        return
    missing = None
    if column.null_count and not pa.types.is_floating(column.type):
        missing = column.is_null().to_numpy(zero_copy_only=False)
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = column.to_numpy(zero_copy_only=False)
    _require_exact(values, where, index)
    target[:] = values
    if missing is not None:
        target[missing] = np.nan


def _codes(
    column: pa.Array, known: pa.Array, where: Location, index: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Position of each value among the known categories, and which are missing."""
    name = "" if where.columns is None else where.columns[index]
    try:
        codes = _find(column, known)
    except pa.ArrowException as error:
        raise RowsError(
            f"the categories declared for column {name!r} do not fit its type "
            f"{column.type} in {where.source}. Nothing was added. Declare them as "
            f"values of that type in encodings={{{name!r}: [...]}}."
        ) from error
    unknown = codes < 0
    missing = unknown & _missing(column) if unknown.any() else unknown
    if (unknown & ~missing).any():
        raise RowsError(
            f"{where.cell(int((unknown & ~missing).argmax()), index)}: holds a value "
            "outside the declared categories. Nothing was added. Complete "
            f"encodings={{{name!r}: [...]}}, or leave such rows out beforehand."
        )
    return np.where(missing, 0, codes), missing


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    """Which categories are missing: null, NaN or, as in text files, an empty text."""
    compute = importlib.import_module("pyarrow.compute")
    if pa.types.is_dictionary(column.type):
        listed = np.append(_missing(column.dictionary), True)
        places = column.indices.cast(pa.int64()).fill_null(-1)  # the appended True
        found: NDArray[np.bool_] = listed[places.to_numpy(zero_copy_only=False)]
        return found
    missing = np.array(compute.is_null(column, nan_is_null=True), np.bool_)
    if any(is_text(column.type) for is_text in _IS_TEXT):
        lengths = compute.binary_length(column.cast(pa.large_string())).fill_null(0)
        missing |= np.asarray(lengths) == 0
    return missing


_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _find(column: pa.Array, known: pa.Array) -> NDArray[np.int64]:
    """Position of each value in ``known``, or -1."""
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int64)
    if pa.types.is_dictionary(column.type):
        listed = np.append(_find(column.dictionary, known), -1)
        places = column.indices.cast(pa.int64()).fill_null(-1)  # the appended -1
        found: NDArray[np.int64] = listed[places.to_numpy(zero_copy_only=False)]
        return found
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    wanted = known.cast(column.type)
    if len(wanted.unique()) < len(wanted):
        raise pa.ArrowInvalid("two categories are the same value of this type")
    compute = importlib.import_module("pyarrow.compute")
    codes = compute.index_in(column, value_set=wanted).fill_null(-1)
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
