"""Names of passes over rows, drawn and counted so that sums of many are short.

A place where rows come in has a run and numbers its passes from 0: a process, or an
estimator that is given rows for ever. A job that many workers share has a run, too, and
a part of it for each partition.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from typing import final

import numpy as np

from sketchlearn.sketching.lineage import (
    PARTS_END,
    PASSES_END,
    POINT,
    Lineage,
    point_of,
)

__all__ = ["Passes", "new_lineage", "new_run", "part_of_run"]

_JOB_START, _UNNUMBERED = 2**63, 3 * 2**62
"""Parts of jobs begin here; those that have no small number, there."""


@final
class Passes:
    """Names for passes over rows that come in at one place: a run, and numbers.

    Copies made by forking the process name theirs anew.
    """

    def __init__(self) -> None:
        self._now = self._start()

    @staticmethod
    def _start() -> tuple[str, Iterator[int], int]:
        return new_run(), itertools.count(), os.getpid()

    def next(self) -> Lineage:
        """The lineage of one more pass."""
        run, numbers, process = self._now
        number = next(numbers)
        if process != os.getpid() or number >= PASSES_END:
            self._now = run, numbers, process = self._start()
            number = next(numbers)
        points = point_of(run, number) + point_of(run, number + 1)
        return Lineage(np.frombuffer(points, POINT), np.array([1, 0], np.int8))


def new_run() -> str:
    """A fresh 128-bit identifier."""
    return os.urandom(16).hex()


_OF_PROCESS = Passes()


def new_lineage() -> Lineage:
    """The lineage of a sketch made in a pass of its own."""
    return _OF_PROCESS.next()


def part_of_run(run: str, partition: int | None) -> str:
    """Name of the part of a job that a partition of its rows is.

    Parameters
    ----------
    run : str
        The run of the whole job.
    partition : int or None
        The number of the partition: sketched twice, it has one name. Where nobody
        knows a number, the name is drawn.

    Examples
    --------
    >>> run = "0" * 32
    >>> part_of_run(run, 7) == part_of_run(run, 7) != part_of_run(run, 8)
    True
    """
    if partition is not None and 0 <= partition < _UNNUMBERED - _JOB_START:
        return f"{run}{_JOB_START + partition:016x}"
    drawn = os.urandom(8)
    if partition is not None:
        drawn = hashlib.sha256(f"{run}:{partition}".encode()).digest()[:8]
    number = int.from_bytes(drawn) % (PARTS_END - _UNNUMBERED)
    return f"{run}{_UNNUMBERED + number:016x}"
