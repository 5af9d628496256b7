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
from threading import Lock
from types import TracebackType
from typing import ClassVar, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowThreads"]

_T = TypeVar("_T")

_FEWEST = 2048
"""Rows that a thread is started for."""


@final
class RowThreads:
    """As many threads as torch may use, for as long as the context lasts.

    Examples
    --------
    >>> with RowThreads() as threads:
    ...     parts = threads.map(lambda rows, first: (first, len(rows)),
    ...                         np.zeros((3, 1)), multiple=512)
    >>> parts
    [(0, 3)]
    """

    _lock: ClassVar[Lock] = Lock()
    _users: ClassVar[int] = 0
    _threads_before: ClassVar[int] = 1

    def __init__(self) -> None:
        self.count = 1
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        cls, torch = type(self), sys.modules.get("torch")
        with cls._lock:
            if not cls._users and torch is not None:
                cls._threads_before = torch.get_num_threads()
                torch.set_num_threads(1)
            cls._users += 1
            self.count = cls._threads_before
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cls, torch = type(self), sys.modules.get("torch")
        if self._pool is not None:
            self._pool.shutdown()
        with cls._lock:
            cls._users -= 1
            if not cls._users and torch is not None and cls._threads_before > 1:
                torch.set_num_threads(cls._threads_before)

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
            self._pool = ThreadPoolExecutor(self.count)
        size = -(-len(rows) // count)
        size += -size % multiple
        starts = range(0, len(rows), size)
        parts = [rows[start : start + size] for start in starts]
        return list(self._pool.map(function, parts, starts))
