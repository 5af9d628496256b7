"""Lineage: which passes over rows are inside a sketch, exactly, however many.

Every pass over rows is a *part* of a *run*: a run is named by 128 random bits, a part
of it by 64 bits more. A sketch is a sum of parts, each taken once: merging adds them,
subtracting takes them away, and a part that was subtracted without having been added
(rows sketched again, to forget them) counts -1 until it is added again. What would
count twice is refused, since a row that counts twice is twice as visible. Lineage never
leaves the data holder: the number of passes is an exact count.

* A process has a run of its own and numbers its passes from 0; so does every estimator
  for the rows it is given later. What comes in one after the other is an interval of
  numbers and takes as little room as one pass, with a million passes as with two.
* A job that many workers share is one run as well, and what each of them has sketched
  a part of it. Once all are together, the whole run stands for them.

Kept are the ends of the intervals, in order: 50 bytes for each interval.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import PrivacyError, SketchFileError

__all__ = [
    "MOST_LISTED",
    "Lineage",
    "Passes",
    "format_lineage",
    "gathered_lineage",
    "is_plain",
    "merged_lineage",
    "new_lineage",
    "new_run",
    "parse_lineage",
    "part_of_run",
    "recorded_runs",
    "remaining_lineage",
]

MOST_LISTED = 4096
"""Files of the first versions, and entries of ledgers, list so many runs and parts."""

_MINUS = "-"
"""Mark of what was taken away and never added."""

_TOKEN = re.compile(
    "(-?)([0-9a-f]{32})(?:([0-9a-f]{16})(?::([0-9a-f]{16}))?)?", re.ASCII
)
"""A run; or a part of it; or all parts from one on and before another one."""

_END = 2**64 - 1
"""Parts of a run have numbers below this one."""

_PASSES_END = 2**32
"""Numbers of passes are below; a part of a job has a larger one."""

_JOB_START, _UNNUMBERED = 2**63, 3 * 2**62
"""Parts of jobs begin here; those that have no small number, there."""

_POINT = np.dtype("S24")
"""A run and a number, most significant byte first: in the order of their bytes."""

_NO_POINTS, _NO_LEVELS = np.zeros(0, _POINT), np.zeros(0, np.int8)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Lineage:
    """How often each part of each run is in a sketch: 1, 0 or -1 times.

    Iterating gives texts: a run (32 hexadecimal digits), a part of one (48), or the
    parts from one on and before another (48, ``:`` and 16); ``-`` stands before what
    was taken away.

    Parameters
    ----------
    points : array of bytes of shape (n,)
        Where the level changes, in order: runs and numbers of parts.
    levels : array of int8 of shape (n,)
        How often parts are in the sketch from each point to the next. The last is 0.

    Examples
    --------
    >>> run = "0" * 32
    >>> first, second = (Lineage.of([part_of_run(run, i)]) for i in (0, 1))
    >>> len(merged_lineage(first, second)), first <= merged_lineage(first, second)
    (1, True)
    """

    points: NDArray[np.bytes_] = field(default_factory=_NO_POINTS.copy)
    levels: NDArray[np.int8] = field(default_factory=_NO_LEVELS.copy)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lineage:
        """The lineage of runs and parts, as iterating gives them."""
        ends = bytearray()
        signs = []
        for text in texts:
            match = _TOKEN.fullmatch(text)
            if match is None:
                raise _malformed()
            minus, run, start, stop = match.groups()
            low = 0 if start is None else int(start, 16)
            high = _END if start is None else int(stop, 16) if stop else low + 1
            if not low < high <= _END:
                raise _malformed()
            ends += _point(run, low) + _point(run, high)
            signs.append(-1 if minus else 1)
        points = np.frombuffer(bytes(ends), _POINT)
        deltas = np.outer(signs, [1, -1]).ravel().astype(np.int64)
        summed = _summed(points, deltas)
        if _first_wrong(summed) is not None:
            raise _malformed()
        return summed

    @property
    def added(self) -> Lineage:
        """Parts that are in the sketch, without those that were only taken away."""
        return _stepped(self.points, np.maximum(self.levels, 0))

    @property
    def unsigned(self) -> Lineage:
        """All parts, added or taken away."""
        return _stepped(self.points, np.abs(self.levels))

    def __iter__(self) -> Iterator[str]:
        names = self.points.tobytes().hex()
        size = 2 * _POINT.itemsize
        signs = self.levels.tolist()
        runs: dict[str, list[tuple[int, str, str]]] = {}
        for i in np.flatnonzero(self.levels).tolist():
            start, stop = names[size * i : size * (i + 1)], size * (i + 1) + 32
            steps = runs.setdefault(start[:32], [])
            steps.append((signs[i], start[32:], names[stop : stop + 16]))
        return iter(sorted(text for run in runs.items() for text in _texts_of(*run)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return len(self.points) > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lineage):
            return NotImplemented
        same = np.array_equal(self.points, other.points)
        return same and np.array_equal(self.levels, other.levels)

    def __hash__(self) -> int:
        return hash((self.points.tobytes(), self.levels.tobytes()))

    def __le__(self, other: Lineage) -> bool:
        """Whether all parts of this one are in the other, with the same sign."""
        both = np.union1d(self.points, other.points)
        mine, theirs = self._levels_at(both), other._levels_at(both)
        return bool(np.all((mine == 0) | (mine == theirs)))

    def __or__(self, other: Lineage) -> Lineage:
        """All parts of both, once."""
        both = np.union1d(self.points, other.points)
        levels = self._levels_at(both).astype(np.int64) + other._levels_at(both)
        return _stepped(both, np.clip(levels, -1, 1))

    @property
    def _words(self) -> NDArray[np.uint64]:
        """Points as whole numbers, shape (n, 3): a run in two, and a part of it."""
        return self.points.view(">u8").reshape(-1, 3)

    def _levels_at(self, points: NDArray[np.bytes_]) -> NDArray[np.int8]:
        at = np.searchsorted(self.points, points, side="right")
        return np.append(np.int8(0), self.levels)[at]

    def _plus(self, other: Lineage, sign: int) -> Lineage:
        """The sum with another, or the difference; levels may be beyond 1."""
        if not other:
            return self
        if len(other.points) > len(self.points):
            back = other._plus(Lineage(self.points, sign * self.levels), 1)
            return Lineage(back.points, sign * back.levels)
        # Only what is between the ends of the shorter one is looked at.
        start = int(np.searchsorted(self.points, other.points[0]))
        stop = int(np.searchsorted(self.points, other.points[-1], side="right"))
        before = int(self.levels[start - 1]) if start else 0
        mine = _changes(self.levels[start:stop], before)
        theirs = sign * _changes(other.levels, 0)
        between = _summed(
            np.concatenate([self.points[start:stop], other.points]),
            np.concatenate([mine, theirs]),
            before,
        )
        points = self.points[:start], between.points, self.points[stop:]
        levels = self.levels[:start], between.levels, self.levels[stop:]
        return Lineage(np.concatenate(points), np.concatenate(levels))

    def __repr__(self) -> str:
        return f"Lineage({len(self)} runs or parts)"


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
        if process != os.getpid() or number >= _PASSES_END:
            self._now = run, numbers, process = self._start()
            number = next(numbers)
        points = _point(run, number) + _point(run, number + 1)
        return Lineage(np.frombuffer(points, _POINT), np.array([1, 0], np.int8))


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
    number = int.from_bytes(drawn) % (_END - _UNNUMBERED)
    return f"{run}{_UNNUMBERED + number:016x}"


def merged_lineage(left: Lineage | None, right: Lineage | None) -> Lineage | None:
    """Lineage of a sum; None where one of them is not known.

    Raises
    ------
    PrivacyError
        If a part is in both: its rows would count twice.

    Examples
    --------
    >>> a, b, c = (new_lineage() for _ in range(3))
    >>> merged_lineage(remaining_lineage(a, b), merged_lineage(b, c)) == a | c
    True
    """
    if left is None or right is None:
        return None
    return _require_once(left._plus(right, 1))


def remaining_lineage(whole: Lineage | None, part: Lineage | None) -> Lineage | None:
    """Lineage of a difference; None where one of them is not known.

    Raises
    ------
    PrivacyError
        If a part was taken away before, and never added.
    """
    if whole is None or part is None:
        return None
    rest = whole._plus(part, -1)
    run = _first_wrong(rest)
    if run is not None:
        raise PrivacyError(
            f"the run {run[:6]}.. was taken out of this sketch before: the same rows "
            "would be forgotten twice. If they are different rows, say so with "
            "left - right.with_new_lineage()."
        )
    return rest


def gathered_lineage(
    lineages: Iterable[Lineage | None], *, are_all: bool = True
) -> Lineage | None:
    """Lineage of the sum of many sketches, in which the parts of a job become one.

    Parameters
    ----------
    lineages : iterable of lineages
    are_all : bool
        Whether these are all parts of their jobs: the run stands for them, unless
        there is one part alone.

    Raises
    ------
    PrivacyError
        If a part is in two of them.

    Examples
    --------
    >>> run = "0" * 32
    >>> parts = [Lineage.of([part_of_run(run, i)]) for i in range(9000)]
    >>> gathered_lineage(parts) == Lineage.of([run])
    True
    """
    points, levels = [_NO_POINTS], [_NO_LEVELS]
    for one in lineages:
        if one is None:
            return None
        points.append(one.points)
        levels.append(one.levels)
    # Every lineage ends at level 0, where the next one starts.
    deltas = _changes(np.concatenate(levels), 0)
    found = _require_once(_summed(np.concatenate(points), deltas))
    return _with_whole_runs(found) if are_all else found


def _with_whole_runs(lineage: Lineage) -> Lineage:
    """The lineage, with the whole run instead of some parts of a job."""
    if not lineage:
        return lineage
    *runs, numbers = lineage._words.T
    first = np.flatnonzero(_differ(runs[0]) | _differ(runs[1]))
    last = np.append(first[1:], len(numbers)) - 1
    # The first point of a run is a pass of a process, or else the run is a job's.
    jobs = (numbers[first] >= _PASSES_END) & (numbers[last] - numbers[first] > 1)
    jobs &= np.minimum.reduceat(lineage.levels, first) >= 0
    whole = [_run_of(lineage.points, i) for i in first[jobs].tolist()]
    return lineage | Lineage.of(whole) if whole else lineage


def is_plain(text: str) -> bool:
    """Whether the first versions of files can hold it: few runs and single parts."""
    return ":" not in text and text.count(",") < MOST_LISTED


def recorded_runs(lineage: Lineage | None) -> tuple[str, ...]:
    """What a ledger keeps: all runs and parts, or the digest of a long list of them."""
    texts = tuple(() if lineage is None else lineage.unsigned)
    if len(texts) <= MOST_LISTED:
        return texts
    return (f"sha256:{hashlib.sha256(','.join(texts).encode()).hexdigest()}",)


def format_lineage(lineage: Lineage | None) -> str:
    """Text for a file: ``*`` where the lineage is not known."""
    return "*" if lineage is None else ",".join(lineage)


def parse_lineage(text: str) -> Lineage | None:
    """Undo :func:`format_lineage`."""
    if text == "*":
        return None
    return Lineage.of(text.split(",") if text else ())


def _point(run: str, number: int) -> bytes:
    return bytes.fromhex(run) + number.to_bytes(8)


def _summed(
    points: NDArray[np.bytes_], deltas: NDArray[Any], before: int = 0
) -> Lineage:
    """Levels that change by so much at these points, in any order."""
    order = np.argsort(points, kind="stable")
    points, deltas = points[order], deltas[order]
    is_last = _differ(points[::-1])[::-1]  # of equal points
    levels = before + np.cumsum(deltas)
    return _stepped(points[is_last], levels[is_last], before)


def _stepped(
    points: NDArray[np.bytes_], levels: NDArray[Any], before: int = 0
) -> Lineage:
    """These levels, without the points at which they do not change."""
    changes = _changes(levels, before) != 0
    # Two are as wrong as many, and fit in a byte.
    few = np.minimum(np.maximum(levels[changes], -2), 2).astype(np.int8)
    return Lineage(points[changes], few)


def _changes(levels: NDArray[Any], before: int) -> NDArray[np.int64]:
    """By how much each level is above the one before."""
    found = levels.astype(np.int64)
    found[1:] -= levels[:-1]
    found[:1] -= before
    return found


def _differ(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are not those before them."""
    found = np.ones(len(values), np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found


def _first_wrong(lineage: Lineage) -> str | None:
    """A run of which parts count twice; None where all is well.

    That is a level beyond 1; or, where a whole run counts once, a part of it that is
    not just missing, but was taken away twice.
    """
    points, levels, numbers = lineage.points, lineage.levels, lineage._words[:, 2]
    beyond = np.flatnonzero(np.abs(levels) > 1)
    if len(beyond):
        return _run_of(points, int(beyond[0]))
    whole = (numbers[1:] == _END) & (numbers[:-1] > 0)
    for last in np.flatnonzero(whole).tolist():  # of a run with parts missing
        run = _run_of(points, last)
        first = np.searchsorted(points, bytes.fromhex(run))
        if (levels[first:last] == -levels[last]).any():
            return run
    return None


def _run_of(points: NDArray[np.bytes_], place: int) -> str:
    return points[place : place + 1].tobytes()[:16].hex()


def _require_once(lineage: Lineage) -> Lineage:
    run = _first_wrong(lineage)
    if run is not None:
        raise PrivacyError(
            f"these sketches share the run {run[:6]}..: the same rows would count "
            "twice. If they are different rows, say so with "
            "left + right.with_new_lineage()."
        )
    return lineage


def _texts_of(run: str, steps: list[tuple[int, str, str]]) -> Iterator[str]:
    """Texts of the levels of one run, given from which part to which they hold.

    Where the last part is there, the run is, and what is missing is taken from it.
    """
    end = f"{_END:016x}"
    sign, _, last = steps[-1]
    if last == end:
        yield _signed(sign, run)
        ends = ["0" * 16, *(point for _, *ends in steps for point in ends), end]
        gaps = zip(ends[::2], ends[1::2], strict=True)
        steps = [(-sign, low, high) for low, high in gaps if low != high]
    for level, start, stop in steps:
        single = int(start, 16) + 1 == int(stop, 16)
        yield _signed(level, run + start + ("" if single else f":{stop}"))


def _signed(level: int, text: str) -> str:
    return text if level > 0 else _MINUS + text


def _malformed() -> SketchFileError:
    return SketchFileError("has a malformed lineage; get the original file.")
