"""Rows: arrays, frames, iterators and files become batches of shape (n, d).

A batch holds exactly the values of the input, as float32 when every column fits it
and as float64 otherwise; what cannot be represented is refused by row and column
(:mod:`sketchlearn.rows.values`), and files are streamed from disk.
Feature maps are not known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.chunks import Chunk, RowPart, grouped, slices
from sketchlearn.rows.columns import (
    ColumnLayout,
    lay_out_columns,
    select_features,
)
from sketchlearn.rows.kinds import OpenedRows
from sketchlearn.rows.options import RowOptions
from sketchlearn.rows.pieces import Dataset, Piece, Reader, Spans
from sketchlearn.rows.read_ahead import read_ahead
from sketchlearn.rows.sources import Source, refuse_empty
from sketchlearn.rows.values import Floats, Location

__all__ = ["Batches", "RowIndex", "require_width"]

_BATCH_NUMBERS = 2**22

_PART_NUMBERS, _MOST_NUMBERS = 2**19, 2**27
"""Numbers that a thread is given at once, if there are as many; and at most."""

FEWEST_ROWS = 2048
"""Rows that a thread is given in any case, if there are as many."""


@final
class Batches(OpenedRows):
    """Rows of one input, as float arrays of shape (n, n_features).

    Made by :func:`~sketchlearn.rows.open_rows.open_rows`. Every batch has
    ``batch_rows`` rows but the last. Arrays, frames and files can be iterated again;
    generators and Arrow readers cannot.

    Attributes
    ----------
    n_features : int
        Number of columns, after selection and encoding.
    names : tuple of str, or None
        Their names, if the input has names.
    source : str
        Short description of the input.
    n_rows : int or None
        Number of rows of the input, if it is known without reading it.
    progress : bool or None
        Whether progress is to be shown while they are sketched.
    n_jobs : int or None
        Threads to sketch them with.
    is_learned : bool
        Whether columns were learned from rows, as far as they were read.
    """

    def __init__(self, source: Source, options: RowOptions) -> None:
        self.source = source.text
        self.n_rows = source.n_rows
        self.progress, self.n_jobs = options.progress, options.n_jobs
        self._source, self._options = source, options
        first = source.first
        self.is_learned = first.is_learned
        self._layout = lay_out_columns(first, options.columns, options.encodings)
        names, self._order = self._layout.names, options.order
        if names is not None and self._order is not None:
            names = tuple(names[i] for i in self._order)
        self.names = names
        width = self._layout.width if self._order is None else len(self._order)
        self.n_features = width
        columns = max(self.n_features, 1)
        fewest = max(1, min(FEWEST_ROWS, _MOST_NUMBERS // columns))
        usual = min(32_768, max(fewest, _BATCH_NUMBERS // columns))
        self._batch_rows = options.batch_rows or usual
        if options.n_features is not None:
            require_width(width, options.n_features, first.source)
        if self.n_rows == 0:
            refuse_empty(self.source)
        self._stream: Iterator[Floats] | None = None
        self._held: list[Floats] = []

    def __iter__(self) -> Iterator[Floats]:
        batches = self._open()
        if self._source.once:
            batches = itertools.chain(self._held, batches)
            self._held, self._stream = [], None
        return batches

    def parts(self, n_threads: int) -> Iterator[RowPart]:
        """The rows as they are read, for threads to turn into floats.

        Rows of files are read ahead by as many threads; those of an iterator, which
        may belong to the thread it was made in, by the one that asks.
        """
        size = self._part_rows(n_threads)
        chunks: Iterable[Chunk | Floats]
        if self._source.once:
            chunks = (part for batch in self for part in slices(batch, size))
        else:
            chunks = self._chunks(self._source.pieces(), size, n_threads)
        return grouped(chunks, size)

    @property
    def is_repeatable(self) -> bool:
        """Whether the rows can be read more than once."""
        return not self._source.once

    @property
    def above(self) -> float | None:
        """From where on numbers were made ones, if they were made zeros and ones."""
        return self._options.above

    @property
    def dataset(self) -> Dataset | None:
        """The dataset of an engine whose rows these are: they are not read here."""
        return self._source.first.dataset

    @property
    def options(self) -> RowOptions:
        """What was said of them where they were opened, with their columns."""
        return replace(self._options, columns=self._columns, is_whole=False)

    @property
    def _columns(self) -> tuple[str, ...] | tuple[int, ...] | None:
        layout = self._layout
        return layout.positions if layout.columns is None else layout.columns

    def peek(self, n_rows: int) -> Floats:
        """Up to ``n_rows`` first rows, which iteration still yields afterwards."""
        held = self._held if self._source.once else []
        batches = self._open()
        count = sum(map(len, held))
        while count < n_rows and (batch := next(batches, None)) is not None:
            held.append(batch)
            count += len(batch)
        if not held:
            return np.empty((0, self.n_features), self._layout.dtype)
        return np.concatenate(held)[:n_rows]

    def select(self, names: Sequence[str]) -> Batches:
        """The same rows with these features only, in this order.

        The input is not opened again: of an iterator, nothing is lost. Its rows are
        then read from the new batches, and no longer from these.

        Parameters
        ----------
        names : sequence of str
            Some of :attr:`names`.

        Examples
        --------
        >>> import pandas, sketchlearn as sl
        >>> frames = (pandas.DataFrame({"a": [i], "b": [-i]}) for i in (1, 2))
        >>> np.concatenate(list(sl.open_rows(frames).select(["b", "a"]))).tolist()
        [[-1.0, 1.0], [-2.0, 2.0]]
        """
        if self._source.is_spent:
            raise RowsError(
                f"columns of {self.source} are selected before its rows are read, "
                "which happens only once. Select them when it is opened."
            )
        if self.names == tuple(names):
            return self
        columns, order = select_features(self._layout, self.names, names, self.source)
        known = self._options.encodings
        options = replace(
            self._options,
            columns=columns,
            encodings={name: known[name] for name in columns if name in known},
            order=order,
            n_features=None,
        )
        return Batches(self._source, options)

    def index(self) -> RowIndex | None:
        """What files say of their rows; None if not all do, or rows may be dropped."""
        if self._source.once or self._options.on_invalid == "drop":
            return None
        if self._options.encodings or self.n_rows is None:
            return None
        if self._options.above is not None:  # files know other numbers
            return None
        pieces, extremes, row = [], [], 0
        for piece in self._source.pieces():
            if piece.index is None or piece.n_rows is None:
                return None
            layout = self._layout_of(piece)
            if piece.n_rows:
                found = piece.index.extremes(layout.positions)
                if found is None:
                    return None
                extremes.append(found)
            pieces.append((row, piece, layout))
            row += piece.n_rows
        ends = np.stack(extremes)
        both = np.stack([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)])
        if self._order is not None:
            both = both[:, self._order]
        return RowIndex(row, both, partial(self._take, pieces))

    def _take(
        self, pieces: list[tuple[int, Piece, ColumnLayout]], spans: Spans
    ) -> Floats:
        """Rows of indexed pieces, given with their first rows."""
        parts = []
        for first, piece, layout in pieces:
            assert piece.index is not None
            inside = [(max(i - first, 0), j - first) for i, j in spans if j > first]
            chunks = piece.index.take(layout.positions, inside, self._batch_rows)
            for row, chunk in chunks:
                where = Location(piece.source, first + row, layout.columns)
                parts.append(Chunk(chunk, layout, where, self._options).floats())
        return np.concatenate(parts)

    def _part_rows(self, n_threads: int) -> int:
        """Rows for one thread at once: all threads have some, and few wait for any."""
        size = min(self._batch_rows, _PART_NUMBERS // self.n_features)
        if self.n_rows is not None:
            size = min(size, -(-self.n_rows // n_threads))
        return max(size, min(FEWEST_ROWS, self._batch_rows))

    def _open(self) -> Iterator[Floats]:
        if not self._source.once:
            return self._batches(self._source.pieces())
        if self._stream is None:
            self._stream = self._batches(self._source.pieces())
        return self._stream

    def _batches(self, pieces: Iterator[Piece]) -> Iterator[Floats]:
        """Join and cut blocks into batches of equal size."""
        size, pending, held = self._batch_rows, list[Floats](), 0
        for block in self._blocks(pieces):
            if not held and len(block) == size:
                yield block
                continue
            pending.append(block)
            held += len(block)
            if held >= size:
                joined = np.concatenate(pending)
                yield joined[:size]
                held -= size
                pending = [joined[size:]] if held else []
        if held:
            yield np.concatenate(pending) if len(pending) > 1 else pending[0]

    def _blocks(self, pieces: Iterator[Piece]) -> Iterator[Floats]:
        row = kept = 0
        for chunk in self._chunks(pieces, self._batch_rows):
            block = chunk.floats()
            row += len(chunk)
            kept += len(block)
            if len(block):
                yield block
        if not kept:
            refuse_empty(self.source, dropped=row)

    def _chunks(
        self, pieces: Iterator[Piece], size: int, n_readers: int = 1
    ) -> Iterator[Chunk]:
        """Rows as they are read, at most so many at once."""
        row = 0
        for piece, layout, rows in self._read(pieces, size, n_readers):
            for part in slices(rows, size):
                where = Location(piece.source, row, layout.columns)
                row += len(part)
                yield Chunk(part, layout, where, self._options, row == self.n_rows)

    def _read(
        self, pieces: Iterator[Piece], size: int, n_readers: int
    ) -> Iterator[tuple[Piece, ColumnLayout, Any]]:
        """What is read of each piece, by threads if they are files."""

        def unit(piece: Piece, layout: ColumnLayout, read: Reader) -> Iterator[Any]:
            for rows in read(layout.positions, size):
                yield piece, layout, rows

        units = (
            partial(unit, piece, layout, read)
            for piece in pieces
            for layout in [self._layout_of(piece)]
            for read in piece.readers
        )
        if n_readers > 1 and self._source.first.is_file:
            return read_ahead(units, n_readers)
        return itertools.chain.from_iterable(begin() for begin in units)

    def _layout_of(self, piece: Piece) -> ColumnLayout:
        """Lay out a later piece by the names of the first one."""
        self.is_learned |= piece.is_learned
        first, options = self._source.first, self._options
        same = (piece.names, piece.types, piece.left_out)
        if same == (first.names, first.types, first.left_out):
            return self._layout
        names = first.usual_names
        named = options.columns is None and piece.names is not None
        columns = names if named else options.columns
        layout = lay_out_columns(piece, columns, options.encodings)
        extra = set() if names is None else set(piece.usual_names or ()) - set(names)
        if extra and options.is_whole:
            raise RowsError(
                f"{piece.source} has a column {min(extra)!r} that {first.source} does "
                "not have. Select the common columns: open_rows(data, columns=[...])."
            )
        require_width(layout.width, self._layout.width, piece.source)
        return layout


def require_width(n_features: int, expected: int, source: str) -> None:
    """Refuse rows of another number of features than expected."""
    if n_features != expected:
        raise RowsError(
            f"rows of {source} have {n_features} features, but {expected} were "
            "expected. Nothing was added. Pass rows of that width, or select columns "
            "with open_rows(data, columns=[...])."
        )


@final
@dataclass(frozen=True)
class RowIndex:
    """What files know of their rows without reading them.

    Parameters
    ----------
    n_rows : int
        How many there are.
    extremes : float64 array of shape (2, n_features)
        Least and largest value of each feature.
    take : callable
        ``take(spans)`` reads those in some spans (start, stop).
    """

    n_rows: int
    extremes: NDArray[np.float64]
    take: Callable[[Spans], Floats]
