r"""Rows of items: each row names the few items it holds, of a vocabulary of any size.

A stream of ids is rows of one item each; a basket, a document or a row of zeros and
ones is a row of several. An item is known by a **key** of 64 bits. What a row costs is
what it holds: nothing here is as long as the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["ItemRows", "Keys"]

Keys = NDArray[np.uint64]


@final
@dataclass(frozen=True, eq=False)
class ItemRows:
    """Some rows and the items they hold.

    Parameters
    ----------
    keys : uint64 array
        Items: those of the first row, then those of the second, and so on.
    n_rows : int
        How many rows there are; some may be empty.
    starts : int64 array of length n_rows + 1, or None
        Row i holds ``keys[starts[i]:starts[i + 1]]``. None for rows of one item each,
        of which ``values[i]`` hold ``keys[i]``: their order does not matter.
    values : int64 array, or None
        How often the row holds the item, or how many rows hold it; None is once.

    Examples
    --------
    >>> stream = ItemRows(np.array([7, 9, 7], np.uint64), 3)
    >>> [part.tolist() for part in stream.tally]
    [[7, 9], [2, 1]]
    >>> baskets = ItemRows(np.array([7, 9, 7], np.uint64), 2, np.array([0, 2, 3]))
    >>> baskets.row_sizes.tolist()
    [2, 1]
    """

    keys: Keys
    n_rows: int
    starts: NDArray[np.int64] | None = None
    values: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        assert self.keys.dtype == np.uint64
        assert self.values is None or len(self.values) == len(self.keys)
        if self.starts is None:
            held = len(self.keys) if self.values is None else int(self.values.sum())
            assert held == self.n_rows, "a row of a stream holds one item"
        else:
            assert len(self.starts) == self.n_rows + 1

    def __len__(self) -> int:
        return self.n_rows

    @cached_property
    def tally(self) -> tuple[Keys, NDArray[np.int64]]:
        """Different items, and how often all rows together hold each."""
        keys, places = np.unique(self.keys, return_inverse=True)
        totals = np.zeros(len(keys), np.int64)
        np.add.at(totals, places, 1 if self.values is None else self.values)
        return keys, totals

    @property
    def n_held(self) -> int:
        """Items that all rows together hold."""
        if self.values is None:
            return len(self.keys)
        return int(self.values.astype(np.float64).sum())

    @property
    def is_stream(self) -> bool:
        """Whether every row holds one item, once."""
        return self.starts is None

    @property
    def row_sizes(self) -> NDArray[np.int64]:
        """How many items each row holds, those it holds twice counted twice."""
        if self.starts is None:
            return np.ones(self.n_rows, np.int64)
        ends = np.concatenate([[0], np.cumsum(self._times)])
        return np.diff(ends[self.starts])

    @property
    def _times(self) -> NDArray[np.int64]:
        if self.values is None:
            return np.ones(len(self.keys), np.int64)
        return self.values

    def pieces(self, size: int) -> Iterator[tuple[Keys, NDArray[np.int64] | None]]:
        """Items of all rows, so many at a time, and how often they are held."""
        for first in range(0, len(self.keys), size):
            part = slice(first, first + size)
            yield self.keys[part], None if self.values is None else self.values[part]

    def matrix(self) -> tuple[Keys, sp.csr_array]:
        """Different items, and rows by items: how often a row holds an item."""
        keys, places = np.unique(self.keys, return_inverse=True)
        if self.starts is None:
            repeats = self._times
            places, times = np.repeat(places, repeats), np.ones(self.n_rows, np.int64)
            starts = np.arange(self.n_rows + 1)
        else:
            times, starts = self._times, self.starts
        shape = (self.n_rows, len(keys))
        rows = sp.csr_array((times, places, starts), shape=shape, copy=True)
        rows.sum_duplicates()
        return keys, rows

    def distinct(self) -> ItemRows:
        """Of a stream, one row for each item; other rows as they are."""
        if self.starts is not None:
            return self
        keys = self.tally[0]
        return ItemRows(keys, len(keys))

    def blocks(self, n_rows: int) -> Iterator[tuple[int, ItemRows]]:
        """The same rows, so many at a time, and the number of the first of each."""
        if self.starts is None:
            whole = np.repeat(self.keys, self._times)
            for first in range(0, self.n_rows, n_rows):
                part = whole[first : first + n_rows]
                yield first, ItemRows(part, len(part))
            return
        for first in range(0, self.n_rows, n_rows):
            starts = self.starts[first : first + n_rows + 1]
            inside = slice(int(starts[0]), int(starts[-1]))
            values = None if self.values is None else self.values[inside]
            part = self.keys[inside]
            yield first, ItemRows(part, len(starts) - 1, starts - starts[0], values)
