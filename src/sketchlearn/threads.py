"""Threads that share the rows of a batch.

Products and cosines of a block of rows are too small to be cut between threads, and
waiting for one another at each of them costs more than it brings. So every thread has
rows of its own, and torch computes with one thread in each. Totals are integers: how
rows are shared out does not change a bit of them. Maps that do without torch are
light, and one thread does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowThreads"]

_T = TypeVar("_T")

_FEWEST = 2048
"""Rows that a thread is started for."""


@final
class RowThreads:
    """As many threads as torch may use, for as long as the context lasts.

    How many threads torch uses is a setting of each thread, and so is what is put back
    at the end.

    Examples
    --------
    >>> with RowThreads() as threads:
    ...     parts = threads.map(lambda rows, first: (first, len(rows)),
    ...                         np.zeros((3, 1)), multiple=512)
    >>> parts
    [(0, 3)]
    """

    def __init__(self) -> None:
        self.count = 1
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        torch = sys.modules.get("torch")
        if torch is not None:
            self.count = torch.get_num_threads()
            torch.set_num_threads(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if self.count > 1:
            sys.modules["torch"].set_num_threads(self.count)

    def map(
        self,
        function: Callable[[NDArray[np.floating], int], _T],
        rows: NDArray[np.floating],
        *,
        multiple: int,
    ) -> list[_T]:
        """Results for consecutive parts of the rows, in their order.

        Parameters
        ----------
        function : callable
            Of some rows and the number of the first of them; pure.
        rows : array of shape (n, d)
        multiple : int
            Parts start at multiples of this.
        """
        count = min(self.count, len(rows) // _FEWEST)
        if count < 2:
            return [function(rows, 0)]
        if self._pool is None:
            one = partial(sys.modules["torch"].set_num_threads, 1)
            self._pool = ThreadPoolExecutor(self.count, initializer=one)
        size = -(-len(rows) // count)
        size += -size % multiple
        starts = range(0, len(rows), size)
        parts = [rows[start : start + size] for start in starts]
        return list(self._pool.map(function, parts, starts))
