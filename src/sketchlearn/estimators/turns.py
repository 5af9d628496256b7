"""Turns: threads that change one estimator, one after the other and wholly or not.

Threads may add rows to an estimator at the same time: rows are sketched side by side,
and what changes the estimator waits for its turn. What belongs to that, locks and names
of passes, stays in this process: copies, clones and pickles begin with their own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

from sketchlearn.decoders.base import require_finite
from sketchlearn.sketching.passes import Passes
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractTurns"]


class _Turns:
    """What belongs to one estimator in this process, and not to copies of it.

    Attributes
    ----------
    lock : RLock
        Held by whoever changes the estimator.
    passes : mapping
        Names of the passes over rows that were added later, or were to be forgotten,
        apart for each class: they are intervals of numbers, however many.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.passes: defaultdict[tuple[str, Any], Passes] = defaultdict(Passes)


_turns: WeakKeyDictionary[Any, _Turns] = WeakKeyDictionary()
_turns_lock = Lock()


def _start_anew() -> None:
    """Leave locks behind that threads of a parent process held when it forked."""
    global _turns, _turns_lock
    _turns, _turns_lock = WeakKeyDictionary(), Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


def _in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that sets all fitted attributes, finite ones, or none of them."""

    @wraps(method)
    def whole(self: AbstractTurns, *args: Any, **options: Any) -> Any:
        with self._all_or_nothing():
            found = method(self, *args, **options)
            fitted = {k: v for k, v in vars(self).items() if k.endswith("_")}
            require_finite(fitted)
            return found

    return whole


class AbstractTurns:
    """An estimator that threads change in turn; all of it is fitted, or nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {"fit_sketch", "fit_sketches"} & vars(cls).keys():
            setattr(cls, name, _in_turn(vars(cls)[name]))

    def _own_turns(self) -> _Turns:
        with _turns_lock:
            return _turns.setdefault(self, _Turns())

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other thread changes the estimator, and keep them waiting."""
        with self._own_turns().lock:
            yield

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Undo every change of the estimator in the end."""
        with self._turn():
            before = dict(self.__dict__)
            try:
                yield
            finally:
                self.__dict__.clear()
                self.__dict__.update(before)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo every change of the estimator if something fails."""
        with self._turn():
            before = dict(self.__dict__)
            try:
                yield
            except BaseException:
                self.__dict__.clear()
                self.__dict__.update(before)
                raise

    def _named_pass(self, sketch: Sketch, verb: str, label: Any = None) -> Sketch:
        """A sketch that nobody else has, as one more pass of this estimator."""
        passes = self._own_turns().passes[verb, label]
        return replace(sketch, lineage=passes.next())

    def _named_passes(
        self, sketches: Mapping[Any, Sketch], verb: str
    ) -> dict[Any, Sketch]:
        """The same for the sketch of each class."""
        return {c: self._named_pass(one, verb, c) for c, one in sketches.items()}
