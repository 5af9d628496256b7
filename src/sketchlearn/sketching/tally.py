"""Tallies: items of small keys are counted, and hashed once at the end.

Sums over rows of one item each depend on how often every item comes, and on nothing
else. Counting a small key takes less than hashing it. The size of the table is fixed:
memory does not grow with the stream.
"""

from __future__ import annotations

from typing import final

import numpy as np

from sketchlearn.rows.items import ItemRows

__all__ = ["StreamTally"]

TALLY_KEYS = 2**20
"""Keys below it are counted, in 8 MiB: those of a vocabulary of a million items."""

_TOLD_BY = 2**16
"""So many keys tell whether items come again, so that counting them pays."""


@final
class StreamTally:
    """How often each of the items of a stream came.

    Examples
    --------
    >>> tally = StreamTally()
    >>> rows = ItemRows(np.array([4, 7, 4], np.uint64), 3)
    >>> tally.add(rows), tally.add(ItemRows(np.array([2**60], np.uint64), 1))
    (True, False)
    >>> counted = tally.take()
    >>> counted.keys.tolist(), counted.values.tolist()
    ([4, 7], [2, 1])
    """

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int64)
        self._is_used, self._seen, self._next_look = True, 0, _TOLD_BY

    def add(self, rows: ItemRows) -> bool:
        """Count some rows, if all of them hold one item of a small key."""
        if not self._is_used or not rows.is_stream or not len(rows.keys):
            return False
        largest = int(rows.keys.max())
        if largest >= TALLY_KEYS:
            return False
        if largest >= len(self._counts):
            size = 1 << largest.bit_length()
            self._counts = np.pad(self._counts, (0, size - len(self._counts)))
        times = 1 if rows.values is None else rows.values
        np.add.at(self._counts, rows.keys.view(np.int64), times)
        self._seen += rows.n_rows
        if self._seen >= self._next_look:
            self._next_look = 2 * self._seen
            self._is_used = 2 * int(np.count_nonzero(self._counts)) < self._seen
        return True

    def take(self) -> ItemRows:
        """The rows that were counted."""
        found = np.flatnonzero(self._counts)
        times = self._counts[found]
        return ItemRows(found.astype(np.uint64), int(times.sum()), None, times)
