"""Parquet files: columns streamed in bounded memory, and what their index says.

Row groups carry the least and the largest value of each column, and can be read one
by one; both let a plan look at a whole file without reading it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.rows.data_file import DataFile, blaming
from sketchlearn.rows.pieces import (
    Index,
    Piece,
    Reader,
    Spans,
    guarded,
    schema_piece,
)

__all__ = ["parquet_piece"]

BUFFER_BYTES = 1 << 18
"""Bytes read ahead for each column, so that memory does not grow with row groups."""

CUT_ROWS = 1 << 16
"""Row groups of fewer rows are read together: to open a file takes its time."""

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


def parquet_piece(file: DataFile) -> Piece:
    """Open an existing Parquet file."""
    with blaming(file):
        found = _ParquetFile(file)
        piece = schema_piece(repr(file.text), found.schema, found.read, found.n_rows)
    return replace(piece, index=Index(found.extremes, found.take), cuts=found.readers())


@final
class _ParquetFile:
    """A file that is opened anew for everything that is asked of it."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        with self._open() as opened:
            self.schema, metadata = opened.schema_arrow, opened.metadata
            self.n_rows: int = metadata.num_rows
            groups = range(metadata.num_row_groups)
            self._sizes = [metadata.row_group(i).num_rows for i in groups]

    def read(self, positions: Sequence[int], batch_rows: int) -> Iterator[Any]:
        """Stream columns, in this order."""
        return self._read(range(len(self._sizes)), positions, batch_rows)

    def readers(self) -> tuple[Reader, ...]:
        """Readers of row groups, or of several small ones, that together read all."""
        found, some, n_rows = list[Reader](), list[int](), 0
        for group, size in enumerate(self._sizes):
            some.append(group)
            n_rows += size
            if n_rows >= CUT_ROWS or group == len(self._sizes) - 1:
                found.append(partial(self._read, some))
                some, n_rows = [], 0
        return tuple(found)

    def _read(
        self, groups: Sequence[int], positions: Sequence[int], batch_rows: int
    ) -> Iterator[Any]:
        names = self._names(positions)
        with self._opened() as opened:
            # What is fetched in advance is one row group, and not the whole file.
            parts = [[group] for group in groups] if self._file.is_remote else [groups]
            for part in parts:
                batches = opened.iter_batches(
                    batch_size=batch_rows, row_groups=part, columns=names
                )
                for batch in guarded(batches, partial(blaming, self._file)):
                    yield batch.select(names)

    def take(
        self, positions: Sequence[int], spans: Spans, batch_rows: int
    ) -> Iterator[tuple[int, Any]]:
        """Rows in some spans, from the row groups that hold them."""
        names = self._names(positions)
        with self._opened() as opened:
            row = 0
            for group, size in enumerate(self._sizes):
                inside = _within(spans, row, row + size)
                if inside:
                    batches = opened.iter_batches(
                        batch_size=batch_rows, row_groups=[group], columns=names
                    )
                    yield from self._cut(batches, names, inside, row)
                row += size

    def extremes(self, positions: Sequence[int]) -> NDArray[np.float64] | None:
        """Least and largest value of each column, if the index tells them."""
        with blaming(self._file), self._open() as opened:
            fields = [self.schema.field(position) for position in positions]
            return _extremes(opened.metadata, fields)

    def _cut(
        self, batches: Iterator[Any], names: list[str], spans: Spans, row: int
    ) -> Iterator[tuple[int, Any]]:
        """The parts of batches, the first of them at a row, that lie in spans."""
        for batch in guarded(batches, partial(blaming, self._file)):
            for begin, end in _within(spans, row, row + len(batch)):
                yield begin, batch.slice(begin - row, end - begin).select(names)
            row += len(batch)
            if row >= spans[-1][1]:
                return

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file, with an error of opening it, and no other, told as one of it."""
        with ExitStack() as stack:
            with blaming(self._file):
                opened = stack.enter_context(self._open())
            yield opened

    @contextmanager
    def _open(self) -> Iterator[Any]:
        parquet = importlib.import_module("pyarrow.parquet")
        # Without pre-buffering, memory is bounded by the buffers, not the row groups;
        # far away, where every read takes its time, it is by a row group.
        size = 0 if self._file.is_remote else BUFFER_BYTES
        with (
            self._file.open() as source,
            parquet.ParquetFile(
                source, pre_buffer=self._file.is_remote, buffer_size=size
            ) as opened,
        ):
            yield opened

    def _names(self, positions: Sequence[int]) -> list[str]:
        return [self.schema.names[position] for position in positions]


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
