"""Rows: arrays, frames, iterators and files become batches of shape (n, d).

A batch holds exactly the values of the input, as float32 when every column fits it
and as float64 otherwise; what cannot be represented is refused by row and column
(:mod:`sketchlearn.rows.columns`), and files are streamed from disk.
Feature maps are not known here.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, final

import click
import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.columns import (
    Columns,
    Floats,
    Plan,
    Where,
    check_columns,
    check_encodings,
    plan_columns,
    to_floats,
)
from sketchlearn.rows.files import file_piece, find_files
from sketchlearn.rows.pieces import Piece, to_piece

__all__ = ["Batches", "open_rows"]

LONG_INPUT = 200_000
"""Rows from which a progress bar is shown on a terminal without being asked for."""


_BATCH_NUMBERS = 2**22


@final
class Batches:
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

    def __init__(self, source: _Source, options: _Options) -> None:
        first, pieces = source.start()
        self.source = source.text
        self.n_rows = source.n_rows
        self._options = options
        self._first = (first.names, first.types, first.source)
        self._plan = plan_columns(first, options.columns, options.encodings)
        self.names = self._plan.names
        self.n_features = self._plan.width
        usual = min(32_768, max(2048, _BATCH_NUMBERS // max(self.n_features, 1)))
        self._batch_rows = options.batch_rows or usual
        self._require_width(self._plan, options.n_features, first)
        if self.n_rows == 0:
            _refuse_empty(self.source)
        self._again = None if source.once else source.start
        self._stream = self._batches(pieces) if source.once else None
        self._held: list[Floats] = []

    def __iter__(self) -> Iterator[Floats]:
        batches = self._open()
        if self._again is None:
            batches = itertools.chain(self._held, batches)
            self._held, self._stream = [], None
        return _with_progress(batches, self.n_rows, self._options.progress)

    def peek(self, n_rows: int) -> Floats:
        """Up to ``n_rows`` first rows, which iteration still yields afterwards."""
        held = self._held if self._again is None else []
        batches = self._open()
        count = sum(map(len, held))
        while count < n_rows and (batch := next(batches, None)) is not None:
            held.append(batch)
            count += len(batch)
        if not held:
            return np.empty((0, self.n_features), self._plan.dtype)
        return np.concatenate(held)[:n_rows]

    def _open(self) -> Iterator[Floats]:
        if self._again is not None:
            return self._batches(self._again()[1])
        if self._stream is None:
            raise RowsError(
                f"{self.source} was already read and cannot be read twice. Open it "
                "again, or pass an array, a frame or files."
            )
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
                    block = self._finite(to_floats(part, plan, where), where)
                    row += len(part)
                    kept += len(block)
                    if len(block):
                        yield block
        if not kept:
            _refuse_empty(self.source, dropped=row)

    def _plan_next(self, piece: Piece) -> Plan:
        """Plan a later piece by the names of the first one."""
        names, types, source = self._first
        columns = self._options.columns
        if (piece.names, piece.types) == (names, types):
            return self._plan
        if columns is not None or names is None or piece.names is None:
            plan = plan_columns(piece, columns, self._options.encodings)
        else:
            plan = plan_columns(piece, names, self._options.encodings)
            extra = sorted(set(piece.names) - set(names))
            if extra:
                raise RowsError(
                    f"{piece.source} has a column {extra[0]!r} that {source} does "
                    "not have. Select the common columns with columns=[...]."
                )
        self._require_width(plan, self.n_features, piece)
        return plan

    def of_width(self, n_features: int | None) -> Batches:
        """These rows, after checking that they have so many features."""
        if n_features is not None and n_features != self.n_features:
            raise RowsError(
                f"rows of {self.source} have {self.n_features} features, but "
                f"{n_features} were expected. Select columns with columns=[...]."
            )
        return self

    def _require_width(self, plan: Plan, expected: int | None, piece: Piece) -> None:
        if expected is not None and plan.width != expected:
            raise RowsError(
                f"rows of {piece.source} have {plan.width} features, but {expected} "
                "were expected. Nothing was added. Pass rows of that width, or select "
                "columns with columns=[...]."
            )

    def _finite(self, block: Floats, where: Where) -> Floats:
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
            "Nothing was added. Leave such rows out with on_invalid='drop', or impute "
            "the missing values first."
        )


def open_rows(
    data: Any,
    *,
    columns: Columns = None,
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
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
        Numbers of a CSV file are read as float64.
    columns : sequence of str (or of int, for data without names), optional
        Columns to read, in this order; all of them by default.
    encodings : mapping of column name to categories, optional
        Columns to replace, in place, by one 0/1 column per category, named
        ``"column=category"``.
    on_invalid : {"raise", "drop"}
        What to do with rows that hold NaN, infinities or missing values.
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
        if columns is not None or encodings is not None or on_invalid != "raise":
            raise RowsError(
                "these rows are open already; pass columns, encodings and on_invalid "
                "where they are opened."
            )
        return data.of_width(n_features)
    if on_invalid not in ("raise", "drop"):
        raise RowsError(f"on_invalid must be 'raise' or 'drop'; got {on_invalid!r}.")
    if batch_rows is not None and batch_rows < 1:
        raise RowsError(f"batch_rows must be at least 1; got {batch_rows}.")
    known = check_encodings(encodings)
    options = _Options(
        columns=check_columns(columns),
        encodings=known,
        on_invalid=on_invalid,
        progress=progress,
        n_features=n_features,
        batch_rows=batch_rows,
    )
    return Batches(_open_source(data, known), options)


@dataclass(frozen=True)
class _Options:
    columns: tuple[str, ...] | tuple[int, ...] | None
    encodings: Mapping[str, pa.Array]
    on_invalid: str
    progress: bool | None
    n_features: int | None
    batch_rows: int | None


@dataclass(frozen=True)
class _Source:
    """An input: a stream of pieces, and whether it can be streamed only once."""

    text: str
    pieces: Callable[[], Iterator[Piece]]
    once: bool = False
    n_rows: int | None = None

    def start(self) -> tuple[Piece, Iterator[Piece]]:
        """The first piece, and all of them."""
        pieces = self.pieces()
        first = next(pieces, None)
        if first is None:
            _refuse_empty(self.text)
        return first, itertools.chain([first], pieces)


def _refuse_empty(source: str, dropped: int = 0) -> NoReturn:
    if dropped:
        raise RowsError(
            f"0 rows are left of {source}: all {dropped} contain NaN or infinity, and "
            "on_invalid='drop' leaves them out. Nothing was added."
        )
    raise RowsError(f"0 rows in {source}; at least 1 is needed. Nothing was added.")


def _open_source(data: Any, encodings: Mapping[str, pa.Array]) -> _Source:
    listed = isinstance(data, list | tuple)
    head = data[0] if listed and data else data
    if isinstance(head, str | os.PathLike):
        return _file_source(data, encodings)
    lazy = isinstance(head, pa.RecordBatchReader) or hasattr(head, "collect_batches")
    if listed and (lazy or len(getattr(head, "shape", ())) >= 2):
        return _batch_source(data)
    piece = to_piece(data)
    if piece is not None:
        return _Source(piece.source, lambda: iter([piece]), piece.once, piece.n_rows)
    text = isinstance(data, bytes | bytearray)
    if isinstance(data, Iterable) and not (text or isinstance(data, Mapping)):
        return _batch_source(data)
    return _refuse_kind(data)


def _file_source(data: Any, encodings: Mapping[str, pa.Array]) -> _Source:
    paths, text = find_files(data)
    encoded = {name: _text_type(known.type) for name, known in encodings.items()}

    def pieces() -> Iterator[Piece]:
        return (file_piece(path, encoded) for path in paths)

    n_rows: int | None = None
    if not any(".csv" in Path(path).name.lower() for path in paths):
        counts = [piece.n_rows for piece in pieces()]
        known = [count for count in counts if count is not None]
        n_rows = sum(known) if len(known) == len(counts) else None
    return _Source(text, pieces, n_rows=n_rows)


def _text_type(kind: pa.DataType) -> pa.DataType:
    """Type in which text files hold categories of a type."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return pa.float64() if number else kind


def _batch_source(data: Iterable[Any]) -> _Source:
    once = isinstance(data, Iterator)
    if isinstance(data, list | tuple):
        once = any(isinstance(batch, pa.RecordBatchReader) for batch in data)

    def pieces() -> Iterator[Piece]:
        for number, batch in enumerate(data):
            try:
                piece = to_piece(batch) or _refuse_kind(batch)
            except RowsError as error:
                raise RowsError(f"batch {number}: {error}") from error
            source = f"batch {number} ({piece.source})"
            yield dataclasses.replace(piece, source=source)

    return _Source(f"a {type(data).__name__} of batches", pieces, once)


def _slices(chunk: Any, size: int) -> Iterator[Any]:
    if isinstance(chunk, np.ndarray):
        yield chunk
        return
    for start in range(0, len(chunk), size):
        yield chunk.slice(start, size)


def _refuse_kind(data: Any) -> NoReturn:
    if isinstance(data, Mapping):
        raise RowsError(
            "a dict is not a table of rows. Pass pandas.DataFrame(data), or an array."
        )
    raise RowsError(
        f"cannot read rows from a {type(data).__name__}. Pass a NumPy array, a nested "
        "list, a pandas or polars frame, an Arrow table, a SciPy sparse matrix, a "
        "torch tensor, a generator of such batches, or a path, glob or folder of "
        "Parquet, CSV, Arrow or .npy files."
    )


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
