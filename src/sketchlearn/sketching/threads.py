"""Threads that share rows.

Products and look-ups of a block of rows are too small to be cut between threads, and
waiting for one another at each of them costs more than it brings. So every thread has
rows of its own, and BLAS computes with one thread in each. Totals are integers: how
rows are shared out does not change a bit of them. Threads live as long as the context,
so that a process forked later finds none to wait for.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar, final

import threadpoolctl
from threadpoolctl import ThreadpoolController

__all__ = ["RowThreads", "cores"]

_P = TypeVar("_P")
_T = TypeVar("_T")


@final
class RowThreads:
    """As many threads as BLAS may use, for as long as the context lasts.

    ``OMP_NUM_THREADS`` or ``OPENBLAS_NUM_THREADS``, and ``threadpoolctl``, say how many
    that is; the setting is put back at the end.

    Parameters
    ----------
    n_jobs : int, optional
        How many threads to use instead; -1 for one per core of this process.

    Examples
    --------
    >>> with RowThreads() as threads:
    ...     list(threads.stream(abs, [-3, 2, -1]))
    [3, 2, 1]
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.count = 1
        self._wanted = n_jobs
        self._stack = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._wanted is None:
            found = _controller().select(user_api="blas").lib_controllers
            self.count = max((library.num_threads for library in found), default=1)
            return self
        self.count = cores() if self._wanted < 0 else self._wanted
        if self.count == 1:  # BLAS, too, is to leave the other cores alone
            self._stack.enter_context(_SINGLE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def stream(self, function: Callable[[_P], _T], parts: Iterable[_P]) -> Iterator[_T]:
        """Results for parts, in their order.

        Parts are asked for in this thread, while others are worked on by those of
        the pool; few are waiting at any time.

        Parameters
        ----------
        function : callable
            Of one part; pure.
        parts : iterable
        """
        rest, waiting = iter(parts), deque[Future[_T]]()
        try:
            first = list(itertools.islice(rest, 2 if self.count > 1 else 1))
            if len(first) < 2:  # of one thread, or of one part
                for part in itertools.chain(first, rest):
                    yield function(part)
                return
            pool = self._started()
            for part in itertools.chain(first, rest):
                waiting.append(pool.submit(function, part))
                if len(waiting) > self.count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            getattr(rest, "close", lambda: None)()  # an error may be kept for long

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


def cores() -> int:
    """Cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


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
                _let_go()
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users = max(self._users - 1, 0)
            if not self._users:
                self._before.restore_original_limits()
                _let_go()

    def forget(self) -> None:
        """In a forked child, where the threads that would put it back do not exist."""
        self._lock, self._users = Lock(), 0


_SINGLE = _SingleThreadedBlas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SINGLE.forget)


def _let_go() -> None:
    """Let any thread set the number next.

    Since version 3.8 of threadpoolctl it is the first one's, as long as that lives and
    has not left the context in which it was set; here another one may put it back.
    """
    owned = getattr(threadpoolctl, "CONTROLLING_THREAD_OWNERSHIP", None)
    if owned is not None:
        owned.increment()
        owned.decrement()


@cache
def _controller() -> ThreadpoolController:
    """The libraries that have threads of their own; looking for them takes a while."""
    return ThreadpoolController()
