"""Reading ahead: threads read files while what they gave before is worked on.

Items come in the order of their units, whatever reader was first, and an error is
raised where its item would have come. A reader holds a few items at most, so that
memory does not grow with what is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Generic, TypeVar, final

__all__ = ["read_ahead"]

_T = TypeVar("_T")

_READ_AHEAD = 2
"""Items that a reader holds and nobody has taken."""

_PATIENCE = 0.1
"""Seconds after which a reader looks whether anybody still listens."""


def read_ahead(
    units: Iterable[Callable[[], Iterator[_T]]], n_readers: int
) -> Iterator[_T]:
    """Items of all units in their order, read by threads in advance.

    Parameters
    ----------
    units : iterable of callable
        Each begins an iterator that one thread reads to its end.
    n_readers : int
        Units that are read at once.

    Examples
    --------
    >>> units = [lambda: iter("ab"), lambda: iter(""), lambda: iter("c")]
    >>> "".join(read_ahead(units, 2))
    'abc'
    """
    waiting, reading = iter(units), deque[_Reader[_T]]()
    try:
        while True:
            while len(reading) < n_readers and (unit := next(waiting, None)):
                reading.append(_Reader(unit))
            if not reading:
                return
            yield from reading[0].items()
            reading.popleft()
    finally:
        for reader in reading:
            reader.stop()
        for reader in reading:
            reader.join()


@final
class _Reader(Generic[_T]):
    """A thread that reads one unit."""

    def __init__(self, unit: Callable[[], Iterator[_T]]) -> None:
        self._items: Queue[tuple[bool, Any]] = Queue(_READ_AHEAD)
        self._stopped = Event()
        self._thread = Thread(target=self._read, args=(unit,), daemon=True)
        self._thread.start()

    def items(self) -> Iterator[_T]:
        """What was read; an error of the reader is raised at its place."""
        while True:
            is_item, value = self._items.get()
            if is_item:
                yield value
            elif value is None:
                return
            else:
                raise value

    def stop(self) -> None:
        """Tell the thread that nobody takes its items any more."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for its end."""
        while self._thread.is_alive():
            try:
                self._items.get(timeout=_PATIENCE)
            except Empty:
                continue

    def _read(self, unit: Callable[[], Iterator[_T]]) -> None:
        end: BaseException | None = None
        try:
            items = unit()
            for item in items:
                if not self._put(True, item):
                    getattr(items, "close", lambda: None)()
                    return
        except BaseException as error:  # raised where the items are taken
            end = error
        self._put(False, end)

    def _put(self, is_item: bool, value: Any) -> bool:
        """Hand something over, unless nobody listens."""
        while not self._stopped.is_set():
            try:
                self._items.put((is_item, value), timeout=_PATIENCE)
            except Full:
                continue
            return True
        return False
