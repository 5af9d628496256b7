"""Threads that share the rows of a batch.

Products and look-ups of a block of rows are too small to be cut between threads, and
waiting for one another at each of them costs more than it brings. So every thread has
rows of its own, and BLAS computes with one thread in each. Totals are integers: how
rows are shared out does not change a bit of them. Threads live as long as the context,
so that a process forked later finds none to wait for.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

__all__ = ["RowThreads"]

_P = TypeVar("_P")
_T = TypeVar("_T")

_FEWEST = 2048
"""Rows that a thread is started for."""


@final
class RowThreads:
    """As many threads as BLAS may use, for as long as the context lasts.

    ``OMP_NUM_THREADS`` or ``OPENBLAS_NUM_THREADS``, and ``threadpoolctl``, say how many
    that is; the setting is put back at the end.

    Examples
    --------
    >>> with RowThreads() as threads:
    ...     threads.map(lambda rows, first: (first, len(rows)), np.zeros((3, 1)))
    [(0, 3)]
    """

    def __init__(self) -> None:
        self.count = 1
        self._stack = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        found = _controller().select(user_api="blas")
        self.count = max((lib.num_threads for lib in found.lib_controllers), default=1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(
        self,
        function: Callable[[NDArray[np.floating], int], _T],
        rows: NDArray[np.floating],
    ) -> list[_T]:
        """Results for consecutive parts of the rows, in their order.

        Parameters
        ----------
        function : callable
            Of some rows and the number of the first of them; pure.
        rows : array of shape (n, d)
        """
        count = min(self.count, len(rows) // _FEWEST)
        if count < 2:
            return [function(rows, 0)]
        pool = self._started()
        size = -(-len(rows) // count)
        starts = range(0, len(rows), size)
        parts = [rows[start : start + size] for start in starts]
        return list(pool.map(function, parts, starts))

    def map_parts(
        self, functions: Sequence[Callable[[_P], _T]], parts: Iterable[_P]
    ) -> Iterator[_T]:
        """Results for parts, in their order.

        As many as there are functions are read before they are all worked on: readers
        and workers that hold Python's lock in turn would only wait for one another.

        Parameters
        ----------
        functions : sequence of callable
            Of one part each; none is called by two threads at once.
        parts : iterable
        """
        rest = iter(parts)
        while some := list(itertools.islice(rest, len(functions))):
            if len(some) < 2:
                yield functions[0](some[0])
            else:
                yield from self._started().map(lambda f, x: f(x), functions, some)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._stack.enter_context(_SINGLE)
            self._pool = self._stack.enter_context(ThreadPoolExecutor(self.count))
        return self._pool


@final
class _SingleThreadedBlas:
    """BLAS with one thread in each of ours, as long as anybody wants it.

    The number is a setting of the whole process: whoever comes first takes it down,
    and whoever leaves last puts it back.
    """

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._before: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._before = _controller().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users = max(self._users - 1, 0)
            if not self._users:
                self._before.restore_original_limits()

    def forget(self) -> None:
        """In a forked child, where the threads that would put it back do not exist."""
        self._lock, self._users = Lock(), 0


_SINGLE = _SingleThreadedBlas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SINGLE.forget)


@cache
def _controller() -> ThreadpoolController:
    """The libraries that have threads of their own; looking for them takes a while."""
    return ThreadpoolController()
