"""Mixed tables: numbers and text of a frame, whole and in memory.

Sketches are of numbers alone (:mod:`sketchlearn.rows.values`). Encoders read text as
well, and all rows at once; this is where a frame of any library becomes one array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.columns import find_positions
from sketchlearn.rows.sources import open_source
from sketchlearn.rows.values import as_record_batch

__all__ = ["mixed_table"]

_FRAME_ROWS = 1 << 16
"""Rows to ask a frame for at once."""


def mixed_table(frame: Any) -> NDArray[Any]:
    """All rows of a frame as an array: of numbers, or of objects if there is text.

    Columns of text and of declared categories hold text, and None where it is missing;
    a missing number is an error.

    Parameters
    ----------
    frame : pandas or polars frame, or Arrow table
        Columns of numbers, truth values, text or categories.

    Examples
    --------
    >>> mixed_table(pa.table({"age": [30, 41], "city": ["Oslo", None]}))
    array([[30, 'Oslo'],
           [41, None]], dtype=object)
    """
    source = open_source(frame, {})
    piece = source.first
    positions = find_positions(piece, None)
    batches = [
        as_record_batch(batch) if isinstance(batch, np.ndarray) else batch
        for batch in piece.read(positions, _FRAME_ROWS)
    ]
    if not batches:
        return np.empty((0, len(positions)))
    names = None if piece.names is None else [piece.names[i] for i in positions]
    table = pa.Table.from_batches(batches)
    columns = [
        _as_array(column, str(number if names is None else names[number]), source.text)
        for number, column in enumerate(table.columns)
    ]
    if not any(column.dtype.kind == "O" for column in columns):
        return np.column_stack(columns)
    mixed = np.empty((len(table), len(columns)), object)
    for number, column in enumerate(columns):
        mixed[:, number] = column
    return mixed


def _as_array(column: pa.ChunkedArray, name: str, source: str) -> NDArray[Any]:
    """Numbers, or objects that are text or None."""
    kind = column.type
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_null(kind)
    ):
        found = [None if item is None else str(item) for item in column.to_pylist()]
        return np.array([*found, None], object)[:-1]
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (numeric or pa.types.is_boolean(kind)):
        raise RowsError(
            f"column {name!r} of {source} has type {kind}, which is neither a number "
            "nor text. Cast it with astype(float) or astype(str), or leave it out."
        )
    if column.null_count:
        raise RowsError(
            f"column {name!r} of {source} has missing numbers (NaN). Leave those rows "
            "out, or fill them beforehand."
        )
    return np.asarray(column.to_numpy())
