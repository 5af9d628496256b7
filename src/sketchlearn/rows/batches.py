"""Rows: arrays, frames, iterators and files become batches of shape (n, d).

A batch holds exactly the values of the input, as float32 when every column fits it
and as float64 otherwise; what cannot be represented is refused by row and column
(:mod:`sketchlearn.rows.columns`), and files are streamed from disk.
Feature maps are not known here.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, final

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.columns import (
    Columns,
    Floats,
    Plan,
    Where,
    check_columns,
    check_encodings,
    plan_columns,
    select_features,
    to_floats,
)
from sketchlearn.rows.kinds import OpenedRows
from sketchlearn.rows.pieces import Piece, Spans
from sketchlearn.rows.sources import Source, open_source, refuse_empty

__all__ = ["Batches", "RowIndex", "open_rows"]

LONG_INPUT = 200_000
"""Rows from which a progress bar is shown on a terminal without being asked for."""


_BATCH_NUMBERS = 2**22


@final
class Batches(OpenedRows):
    """Rows of one input, as float arrays of shape (n, n_features).

    Made by :func:`open_rows`. Every batch has ``batch_rows`` rows but the last.
    Arrays, frames and files can be iterated again; generators and Arrow readers
    cannot.

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
    """

    def __init__(self, source: Source, options: _Options) -> None:
        self.source = source.text
        self.n_rows = source.n_rows
        self._source, self._options = source, options
        first = source.first
        self._plan = plan_columns(first, options.columns, options.encodings)
        names, self._order = self._plan.names, options.order
        if names is not None and self._order is not None:
            names = tuple(names[i] for i in self._order)
        self.names = names
        width = self._plan.width if self._order is None else len(self._order)
        self.n_features = width
        usual = min(32_768, max(2048, _BATCH_NUMBERS // max(self.n_features, 1)))
        self._batch_rows = options.batch_rows or usual
        self._require_width(width, options.n_features, first)
        if self.n_rows == 0:
            refuse_empty(self.source)
        self._stream: Iterator[Floats] | None = None
        self._held: list[Floats] = []

    def __iter__(self) -> Iterator[Floats]:
        batches = self._open()
        if self._source.once:
            batches = itertools.chain(self._held, batches)
            self._held, self._stream = [], None
        return _with_progress(batches, self.n_rows, self._options.progress)

    @property
    def is_repeatable(self) -> bool:
        """Whether the rows can be read more than once."""
        return not self._source.once

    def peek(self, n_rows: int) -> Floats:
        """Up to ``n_rows`` first rows, which iteration still yields afterwards."""
        held = self._held if self._source.once else []
        batches = self._open()
        count = sum(map(len, held))
        while count < n_rows and (batch := next(batches, None)) is not None:
            held.append(batch)
            count += len(batch)
        if not held:
            return np.empty((0, self.n_features), self._plan.dtype)
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
        >>> import pandas
        >>> frames = (pandas.DataFrame({"a": [i], "b": [-i]}) for i in (1, 2))
        >>> np.concatenate(list(open_rows(frames).select(["b", "a"]))).tolist()
        [[-1.0, 1.0], [-2.0, 2.0]]
        """
        if self._source.is_spent:
            raise RowsError(
                f"columns of {self.source} are selected before its rows are read, "
                "which happens only once. Select them when it is opened."
            )
        if self.names == tuple(names):
            return self
        columns, order = select_features(self._plan, self.names, names, self.source)
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
        pieces, extremes, row = [], [], 0
        for piece in self._source.pieces():
            if piece.index is None or piece.n_rows is None:
                return None
            plan = self._plan_next(piece)
            if piece.n_rows:
                found = piece.index.extremes(plan.positions)
                if found is None:
                    return None
                extremes.append(found)
            pieces.append((row, piece, plan))
            row += piece.n_rows
        ends = np.stack(extremes)
        both = np.stack([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)])
        if self._order is not None:
            both = both[:, self._order]
        return RowIndex(row, both, partial(self._take, pieces))

    def _take(self, pieces: list[tuple[int, Piece, Plan]], spans: Spans) -> Floats:
        """Rows of indexed pieces, given with their first rows."""
        parts = []
        for first, piece, plan in pieces:
            assert piece.index is not None
            inside = [(max(i - first, 0), j - first) for i, j in spans if j > first]
            chunks = piece.index.take(plan.positions, inside, self._batch_rows)
            for row, chunk in chunks:
                where = Where(piece.source, first + row, plan.columns)
                parts.append(self._floats(chunk, plan, where))
        return np.concatenate(parts)

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
        for piece in pieces:
            plan = self._plan_next(piece)
            for chunk in piece.read(plan.positions, self._batch_rows):
                for part in _slices(chunk, self._batch_rows):
                    where = Where(piece.source, row, plan.columns)
                    block = self._floats(part, plan, where)
                    row += len(part)
                    kept += len(block)
                    if len(block):
                        yield block
        if not kept:
            refuse_empty(self.source, dropped=row)

    def _plan_next(self, piece: Piece) -> Plan:
        """Plan a later piece by the names of the first one."""
        first, options = self._source.first, self._options
        same = (piece.names, piece.types, piece.left_out)
        if same == (first.names, first.types, first.left_out):
            return self._plan
        names = first.usual_names
        named = options.columns is None and piece.names is not None
        columns = names if named else options.columns
        plan = plan_columns(piece, columns, options.encodings)
        extra = set() if names is None else set(piece.usual_names or ()) - set(names)
        if extra and options.is_whole:
            raise RowsError(
                f"{piece.source} has a column {min(extra)!r} that {first.source} does "
                "not have. Select the common columns: open_rows(data, columns=[...])."
            )
        self._require_width(plan.width, self._plan.width, piece)
        return plan

    def of_width(self, n_features: int | None) -> Batches:
        """These rows, after checking that they have so many features."""
        if n_features is not None and n_features != self.n_features:
            raise RowsError(
                f"rows of {self.source} have {self.n_features} features, but "
                f"{n_features} were expected. Select columns with open_rows(data, "
                "columns=[...])."
            )
        return self

    def _require_width(self, width: int, expected: int | None, piece: Piece) -> None:
        if expected is not None and width != expected:
            raise RowsError(
                f"rows of {piece.source} have {width} features, but {expected} "
                "were expected. Nothing was added. Pass rows of that width, or select "
                "columns with open_rows(data, columns=[...])."
            )

    def _floats(self, chunk: Any, plan: Plan, where: Where) -> Floats:
        """Features of a chunk, all of them finite."""
        block = to_floats(chunk, plan, where)
        if self._order is not None:
            block = np.ascontiguousarray(block[:, self._order])
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()
        if np.isfinite(total):
            return block
        bad = ~np.isfinite(block).all(axis=1)  # a sum of finite values may overflow
        count = int(bad.sum())
        if count == 0:
            return block
        if self._options.on_invalid == "drop":
            return block[~bad]
        more = "" if where.row + len(block) == self.n_rows else "at least "
        rows = "1 row contains" if count == 1 else f"{count} rows contain"
        raise RowsError(
            f"{more}{rows} NaN or infinity (first: row "
            f"{where.row + int(bad.argmax())} of the input, in {where.source}). "
            "Nothing was added. Leave such rows out with open_rows(data, "
            "on_invalid='drop'), or impute the missing values first."
        )


def open_rows(
    data: Any,
    *,
    columns: Columns = None,
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
    header: bool | None = None,
    progress: bool | None = None,
    n_features: int | None = None,
    batch_rows: int | None = None,
) -> Batches:
    """Open any supported input as batches of rows, without reading it yet.

    Parameters
    ----------
    data : rows
        NumPy array, nested list, pandas or polars frame, polars LazyFrame, Arrow
        table, reader or dataset, anything with ``__arrow_c_stream__``, SciPy sparse
        matrix, torch tensor; a generator or list of such batches; or a path, glob,
        folder or list of paths of Parquet, CSV, Arrow (Feather) or ``.npy`` files.
        Numbers of a CSV file are read as float64. An iterator is opened only once;
        of those over lists, maps and zips, which Python does not let one watch, the
        last eight that were not read to their end are remembered.
    columns : sequence of str (or of int, for data without names), optional
        Columns to read, in this order; by default all of them but the index that
        pandas wrote beside a frame.
    encodings : mapping of column name to categories, optional
        Columns to replace, in place, by one 0/1 column per category, named
        ``"column=category"``.
    on_invalid : {"raise", "drop"}
        What to do with rows that hold NaN, infinities or missing values.
    header : bool, optional
        Whether the first line of CSV files holds the names of the columns; without
        one they are named f0, f1 and so on. By default it does, and a first line
        that may be a row (of numbers alone, or with a decimal) is refused.
    progress : bool, optional
        Show progress on stderr if that is a terminal; by default for long inputs.
    n_features : int, optional
        Expected number of features; any other is an error.
    batch_rows : int, optional
        Rows in each batch but the last; by default about four million numbers, and
        from 2,048 to 32,768 rows.

    Returns
    -------
    Batches

    Raises
    ------
    RowsError
        If the input, now or while it is iterated, cannot be represented exactly.
    MissingFileError
        If a path or glob matches no file.

    Examples
    --------
    >>> batches = open_rows([[1, 2], [3, 4], [5, 6]], batch_rows=2)
    >>> batches.n_features, batches.n_rows, [len(batch) for batch in batches]
    (2, 3, [2, 1])
    """
    if isinstance(data, Batches):
        given = columns is not None or encodings is not None or header is not None
        if given or on_invalid != "raise":
            raise RowsError(
                "these rows are open already; pass columns, encodings, header and "
                "on_invalid where they are opened."
            )
        return data.of_width(n_features)
    if on_invalid not in ("raise", "drop"):
        raise RowsError(f"on_invalid must be 'raise' or 'drop'; got {on_invalid!r}.")
    if batch_rows is not None and batch_rows < 1:
        raise RowsError(f"batch_rows must be at least 1; got {batch_rows}.")
    known = check_encodings(encodings)
    options = _Options(
        columns=check_columns(columns),
        is_whole=columns is None,
        encodings=known,
        on_invalid=on_invalid,
        progress=progress,
        n_features=n_features,
        batch_rows=batch_rows,
    )
    return Batches(open_source(data, known, header=header), options)


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


@dataclass(frozen=True)
class _Options:
    columns: tuple[str, ...] | tuple[int, ...] | None
    is_whole: bool
    """Whether all columns were asked for: a later one too many is an error."""
    encodings: Mapping[str, pa.Array]
    on_invalid: str
    progress: bool | None
    n_features: int | None
    batch_rows: int | None
    order: tuple[int, ...] | None = None
    """Features to take, where not all of them in the order of the columns."""


def _slices(chunk: Any, size: int) -> Iterator[Any]:
    if isinstance(chunk, np.ndarray):
        yield chunk
        return
    for start in range(0, len(chunk), size):
        yield chunk.slice(start, size)


def _with_progress(
    batches: Iterator[Floats], n_rows: int | None, wanted: bool | None
) -> Iterator[Floats]:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    long = n_rows is None or n_rows > LONG_INPUT
    if not terminal or wanted is False or (wanted is None and not long):
        return batches
    if n_rows is None:
        return _counter(batches, delay=0.0 if wanted else 1.0)
    return _bar(batches, n_rows)


def _bar(batches: Iterator[Floats], n_rows: int) -> Iterator[Floats]:
    with click.progressbar(length=n_rows, label="rows", file=sys.stderr) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
        bar.update(n_rows - bar.pos)  # rows that were left out


def _counter(batches: Iterator[Floats], delay: float) -> Iterator[Floats]:
    count, shown, due = 0, False, time.monotonic() + delay
    try:
        for batch in batches:
            yield batch
            count += len(batch)
            if time.monotonic() >= due:
                click.echo(f"\r{count:,} rows", file=sys.stderr, nl=False)
                shown, due = True, time.monotonic() + 0.2
    finally:
        if shown:
            click.echo(f"\r{count:,} rows", file=sys.stderr)
