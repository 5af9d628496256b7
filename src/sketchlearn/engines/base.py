"""What is asked of an engine: one function, run where the rows are.

A *task* is a function that can be pickled, from the batches of one partition to at most
one byte string. It counts on nothing but its arguments and its result, so that a worker
that dies is replaced, a partition that is tried again gives the same bytes, and one of
two speculative copies is as good as the other.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sketchlearn import errors
from sketchlearn.engines.allocation import kept_memory
from sketchlearn.errors import SketchlearnError
from sketchlearn.rows.pieces import Dataset
from sketchlearn.rows.sources import Delivered

__all__ = ["AbstractEngine", "AbstractTask", "SECOND_STAGE", "told_by_workers"]

SECOND_STAGE = 256
"""So many results come to the driver one by one; more are joined by workers before, as
many at once."""

_WORKERS_ERROR = re.compile(r"sketchlearn\.errors\.(\w+): (.+)")
"""How an error of ours stands in the text of an engine's."""


class AbstractTask(ABC):
    """What a worker makes of the rows of one partition."""

    is_ordered: bool = False
    """Whether results are wanted in the order of the partitions."""

    is_joined: bool = False
    """Whether workers may join the results of several partitions."""

    @abstractmethod
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        """The result for one partition; None if it has no rows.

        Parameters
        ----------
        batches : iterator
            Arrow record batches or tables, frames or arrays.
        partition : int or None
            Its number, where the engine tells.
        """

    def joined(self, results: Iterable[bytes]) -> bytes:
        """One result for the partitions of several, in any order."""
        raise TypeError(f"results of a {type(self).__name__} are not joined.")

    def __call__(self, batches: Iterable[Any], partition: int | None) -> bytes | None:
        """The result for one partition; errors say which one it is."""
        try:
            with kept_memory():
                return self.result_of(Delivered(batches), partition)
        except SketchlearnError as error:
            where = "a partition" if partition is None else f"partition {partition}"
            raise type(error)(f"{where}: {error}") from None


class AbstractEngine(ABC):
    """Runs tasks over the partitions of a dataset."""

    name: str
    """As in :class:`~sketchlearn.rows.pieces.Dataset`."""

    @abstractmethod
    def run(
        self, dataset: Dataset, task: AbstractTask, columns: Sequence[str] | None
    ) -> Iterator[bytes]:
        """Results of a task for all partitions that have one.

        Parameters
        ----------
        dataset : Dataset
            Of this engine.
        task : AbstractTask
            Unless it says otherwise, results may come in any order, and stay apart.
        columns : sequence of str, optional
            All that the task reads; the engine need not give more.
        """


@contextmanager
def told_by_workers() -> Iterator[None]:
    """Turn an engine's error into the one that a worker raised, if it is ours.

    Engines wrap what a worker raises, some of them as text only.
    """
    try:
        yield
    except SketchlearnError:
        raise
    except Exception as error:
        told = _WORKERS_ERROR.findall(str(error))
        if not told:
            raise
        name, text = told[-1]
        kind = getattr(errors, name, SketchlearnError)
        raise kind(text.strip()) from error
