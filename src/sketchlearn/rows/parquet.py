"""Parquet files: columns streamed in bounded memory, and what their index says.

Row groups carry the least and the largest value of each column, and can be read one
by one; both let a plan look at a whole file without reading it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.rows.pieces import Index, Piece, Spans, guarded, index_columns

__all__ = ["parquet_piece"]

BUFFER_BYTES = 1 << 18
"""Bytes read ahead for each column, so that memory does not grow with row groups."""

_TOLD = {
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "float",
    "double",
}
"""Types whose extremes in the index are their values."""


def parquet_piece(
    path: Path, *, blaming: Callable[[], AbstractContextManager[None]]
) -> Piece:
    """Open a Parquet file.

    Parameters
    ----------
    path : Path
        An existing file.
    blaming : callable
        Context in which errors of the reader name the file.
    """
    parquet = importlib.import_module("pyarrow.parquet")

    def start() -> Any:
        # Without pre-buffering, memory is bounded by the buffers, not the row groups.
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [schema.names[position] for position in positions]
        with blaming():
            file = start()
            batches = file.iter_batches(batch_size=batch_rows, columns=names)
        with file:
            for batch in guarded(batches, blaming):
                yield batch.select(names)

    def take(
        positions: Sequence[int], spans: Spans, batch_rows: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        names = [schema.names[position] for position in positions]
        with blaming():
            file = start()
        with file:
            for group, row in enumerate((np.cumsum(sizes) - sizes).tolist()):
                inside = _within(spans, row, row + int(sizes[group]))
                batches = file.iter_batches(
                    batch_size=batch_rows, row_groups=[group], columns=names
                )
                for batch in guarded(batches, blaming) if inside else ():
                    for begin, end in _within(inside, row, row + len(batch)):
                        part = batch.slice(begin - row, end - begin)
                        yield begin, part.select(names)
                    row += len(batch)
                    if row >= inside[-1][1]:
                        break

    def extremes(positions: Sequence[int]) -> NDArray[np.float64] | None:
        with blaming(), start() as file:
            return _extremes(file.metadata, [schema.field(i) for i in positions])

    with blaming(), start() as file:
        schema, metadata = file.schema_arrow, file.metadata
        names, types = tuple(schema.names), tuple(map(str, schema.types))
        left_out = index_columns(schema)
        n_rows = metadata.num_rows
        groups = range(metadata.num_row_groups)
        sizes = np.array([metadata.row_group(i).num_rows for i in groups], np.int64)
    return Piece(
        repr(str(path)),
        names,
        types,
        read,
        n_rows,
        index=Index(extremes, take),
        left_out=left_out,
    )


def _within(spans: Spans, start: int, stop: int) -> Spans:
    """The parts of spans of rows that lie between two rows."""
    cut = [(max(begin, start), min(end, stop)) for begin, end in spans]
    return [(begin, end) for begin, end in cut if begin < end]


def _extremes(metadata: Any, columns: Sequence[pa.Field]) -> NDArray[np.float64] | None:
    """Least and largest value of each column, if every row group tells them."""
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found = np.empty((2, len(columns)))
    found[0], found[1] = np.inf, -np.inf
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for i, field in enumerate(columns):
            place = places.get(field.name)
            if str(field.type) not in _TOLD or place is None:
                return None
            told = group.column(place).statistics
            if not group.num_rows:
                continue
            if told is None or not told.has_min_max:
                return None
            low, high = float(told.min), float(told.max)
            if not (isfinite(low) and isfinite(high)):
                return None
            found[0, i] = min(found[0, i], low)
            found[1, i] = max(found[1, i], high)
    return found if np.isfinite(found).all() else None
