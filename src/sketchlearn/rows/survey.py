"""Survey: the range of each column, and some rows from all over the input.

A plan made from rows should be the same whether they come as an array, in files or
from an iterator. So the range is that of all rows, the sample is told by row numbers
alone, and values are float64. Only an iterator, which cannot be read twice, is judged
by its first rows; they are all of them if it is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowRangeError
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.pieces import Spans
from sketchlearn.rows.values import Floats

__all__ = [
    "LARGEST",
    "Survey",
    "block_rows",
    "name_large_value",
    "plan_extremes",
    "require_moderate_rows",
    "sample_spans",
    "survey_rows",
]

LARGEST = 2.0**480
"""Values beyond have no variance in float64."""

BLOCKS = 8
"""Blocks of rows in a sample, at most."""

BLOCK_ROWS = 512
_BLOCK_NUMBERS = 2**19


@final
@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of rows before they are sketched.

    Parameters
    ----------
    low, high : float64 arrays of shape (n_features,)
        Least and largest value of each column.
    some : float64 array of shape (n, n_features)
        Rows from all over the input: every s-th block of 512 rows (fewer if they are
        wide), s being the least power of two that leaves at most eight blocks.
    n_rows : int
        How many rows were looked at.
    is_whole : bool
        Whether these are all rows.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    some: NDArray[np.float64]
    n_rows: int
    is_whole: bool


def survey_rows(
    batches: Batches, *, first_rows: int, reading: Iterable[Floats] | None = None
) -> Survey:
    """Look at rows before they are sketched.

    Parameters
    ----------
    batches : Batches
        They can still be read afterwards. Those that can be read again are read
        once for this, except Parquet files whose index tells enough.
    first_rows : int
        How many rows of an iterator to look at.
    reading : iterable of the batches, optional
        What to read them through, where somebody wants to watch.
    """
    size = block_rows(batches.n_features)
    found = _Sample(size)
    if not batches.is_repeatable:
        first = batches.peek(first_rows + 1)
        found.add(first[:first_rows])
        return found.survey(is_whole=len(first) <= first_rows)
    index = batches.index()
    if index is None:
        for batch in batches if reading is None else reading:
            if len(batch):  # and not all of them left out
                found.add(batch)
        if found.is_empty:
            next(iter(batches))  # says that there are none, or that all are left out
        return found.survey(is_whole=True)
    some = index.take(sample_spans(index.n_rows, size)).astype(np.float64)
    low, high = index.extremes + 0.0  # -0.0 becomes 0.0
    return Survey(low, high, some, index.n_rows, is_whole=True)


def block_rows(n_features: int) -> int:
    """Rows in a block of a sample: fewer if they are wide."""
    return max(1, min(BLOCK_ROWS, _BLOCK_NUMBERS // n_features))


def sample_spans(n_rows: int, size: int) -> Spans:
    """Where the blocks of a sample lie: (start, stop), the last of them cut short.

    Examples
    --------
    >>> sample_spans(35, 4)
    [(0, 4), (8, 12), (16, 20), (24, 28), (32, 35)]
    """
    step = size
    while n_rows > BLOCKS * step:
        step *= 2
    return [(at, min(at + size, n_rows)) for at in range(0, n_rows, step)]


def plan_extremes(
    low: NDArray[np.float64], high: NDArray[np.float64], some: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What a plan may know of rows: their range, and the quartiles of a sample."""
    quartiles = np.quantile(some, [0.25, 0.75], axis=0, method="nearest")
    return np.concatenate([low[None], high[None], quartiles])


def name_large_value(batches: Batches, *, first_rows: int, source: str) -> None:
    """Name the first value whose square is no number, and refuse it.

    Parameters
    ----------
    batches : Batches
        Rows that hold such a value.
    first_rows : int
        How many rows of an iterator to look at.
    source : str
        Short description of the input.
    """
    row, rows = 0, batches if batches.is_repeatable else [batches.peek(first_rows)]
    for batch in rows:
        require_moderate_rows(batch, row, batches.names, source)
        row += len(batch)


def require_moderate_rows(
    batch: Floats, row: int, names: Sequence[str] | None, source: str
) -> None:
    """Refuse rows, of which the first has a number, with a value that is too large."""
    large = np.argwhere(np.abs(batch) > LARGEST)
    if len(large):
        index, column = large[0].tolist()
        name = column if names is None else repr(names[column])
        raise RowRangeError(
            f"row {row + index} of {source}, column {name}: the magnitude is beyond "
            f"{LARGEST:.0e}, and its square is no number in the units of the rows. "
            "Nothing was added. Divide this column by its scale, or leave such rows "
            "out."
        )


class _Sample:
    """Extremes and every s-th block of the rows so far."""

    def __init__(self, size: int) -> None:
        self._size, self._stride, self._row = size, 1, 0
        self._blocks: dict[int, list[Floats]] = {}
        self._low: Floats | None = None
        self._high: Floats | None = None

    def add(self, batch: Floats) -> None:
        low, high = batch.min(axis=0), batch.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)
        begin, end = self._row, self._row + len(batch)
        while end > BLOCKS * self._stride * self._size:
            self._stride *= 2
        step = self._stride * self._size
        self._blocks = {b: k for b, k in self._blocks.items() if not b % self._stride}
        for start in range(begin // step * step, end, step):
            rows = batch[max(start - begin, 0) : max(start + self._size - begin, 0)]
            if len(rows):
                self._blocks.setdefault(start // self._size, []).append(rows.copy())
        self._row = end

    @property
    def is_empty(self) -> bool:
        return self._low is None

    def survey(self, *, is_whole: bool) -> Survey:
        assert self._low is not None, "batches are never empty"
        assert self._high is not None
        some = np.concatenate([part for kept in self._blocks.values() for part in kept])
        low, high = (ends.astype(np.float64) + 0.0 for ends in (self._low, self._high))
        return Survey(low, high, some.astype(np.float64), self._row, is_whole)
