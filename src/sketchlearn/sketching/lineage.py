"""Lineage: which passes over rows are inside a sketch, exactly, however many.

Every pass over rows is a *part* of a *run*: a run is named by 128 random bits, a part
of it by 64 bits more. A sketch is a sum of parts, each taken once: merging adds them,
subtracting takes them away, and a part that was subtracted without having been added
(rows sketched again, to forget them) counts -1 until it is added again. What would
count twice is refused, since a row that counts twice is twice as visible. Lineage never
leaves the data holder: the number of passes is an exact count.

Kept are intervals of parts, 50 bytes for each: passes that are numbered as they come
(:mod:`sketchlearn.sketching.passes`) take as little room as one, a million as well as
two. Once all parts of a job are together, its whole run stands for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import PrivacyError, SketchFileError

__all__ = [
    "MOST_LISTED",
    "PARTS_END",
    "PASSES_END",
    "POINT",
    "Lineage",
    "format_lineage",
    "gathered_lineage",
    "merged_lineage",
    "parse_lineage",
    "point_of",
    "remaining_lineage",
]

MOST_LISTED = 4096
"""Files of the first versions, and entries of ledgers, list so many runs and parts."""

_TOKEN = re.compile(
    "(-?)([0-9a-f]{32})(?:([0-9a-f]{16})(?::([0-9a-f]{16}))?)?", re.ASCII
)
"""A run; or a part of it; or all parts from one on and before another one."""

PASSES_END, PARTS_END = 2**32, 2**64 - 1
"""Numbers of passes are below the first, and those of parts of jobs between both."""

POINT = np.dtype("S24")
"""A run and a number, most significant byte first: in the order of their bytes."""

_COUNTED_TWICE = (
    "these sketches share the run {}..: the same rows would count twice. If they are "
    "different rows, say so with left + right.with_new_lineage()."
)
_MALFORMED = "has a malformed lineage; get the original file."

_NO_POINTS, _NO_LEVELS = np.zeros(0, POINT), np.zeros(0, np.int8)


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
    >>> first, second = (Lineage.of(["0" * 47 + digit]) for digit in "01")
    >>> both = merged_lineage(first, second)
    >>> list(both) == ["0" * 48 + ":" + "0" * 15 + "2"], first <= both
    (True, True)
    """

    points: NDArray[np.bytes_] = field(default_factory=_NO_POINTS.copy)
    levels: NDArray[np.int8] = field(default_factory=_NO_LEVELS.copy)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lineage:
        """The lineage of runs and parts, as iterating gives them."""
        ends, signs = bytearray(), []
        for text in texts:
            match = _TOKEN.fullmatch(text)
            if match is None:
                raise SketchFileError(_MALFORMED)
            minus, run, start, stop = match.groups()
            low = int(start or "0", 16)
            high = int(stop, 16) if stop else low + 1 if start else PARTS_END
            if not low < high <= PARTS_END:
                raise SketchFileError(_MALFORMED)
            ends += point_of(run, low) + point_of(run, high)
            signs.append(-1 if minus else 1)
        deltas = np.outer(signs, [1, -1]).ravel().astype(np.int64)
        summed = _summed(np.frombuffer(bytes(ends), POINT), deltas)
        if _first_wrong(summed):
            raise SketchFileError(_MALFORMED)
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
        names, size = self.points.tobytes().hex(), 2 * POINT.itemsize
        runs: dict[str, list[tuple[int, str, str]]] = {}
        for i in np.flatnonzero(self.levels).tolist():
            start, stop = names[size * i : size * (i + 1)], size * (i + 1) + 32
            steps = runs.setdefault(start[:32], [])
            steps.append((int(self.levels[i]), start[32:], names[stop : stop + 16]))
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


def merged_lineage(left: Lineage | None, right: Lineage | None) -> Lineage | None:
    """Lineage of a sum, unless a part is in both; None where one is not known.

    Examples
    --------
    >>> a, b, c = (Lineage.of([digit * 32]) for digit in "abc")
    >>> merged_lineage(remaining_lineage(a, b), merged_lineage(b, c)) == a | c
    True
    """
    if left is None or right is None:
        return None
    return _checked(left._plus(right, 1), _COUNTED_TWICE)


def remaining_lineage(whole: Lineage | None, part: Lineage | None) -> Lineage | None:
    """Lineage of a difference, unless a part would be taken away twice."""
    if whole is None or part is None:
        return None
    return _checked(
        whole._plus(part, -1),
        "the run {}.. was taken out of this sketch before: the same rows would be "
        "forgotten twice. If they are different rows, say so with "
        "left - right.with_new_lineage().",
    )


def gathered_lineage(
    lineages: Iterable[Lineage | None], *, are_all: bool = True
) -> Lineage | None:
    """Lineage of the sum of many sketches, unless a part is in two of them.

    With ``are_all`` these are all parts of their jobs: the run stands for them, unless
    there is one part alone.

    Examples
    --------
    >>> parts = [Lineage.of([f"{'0' * 32}8{i:015x}"]) for i in range(9000)]
    >>> list(gathered_lineage(parts)) == ["0" * 32]
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
    found = _checked(_summed(np.concatenate(points), deltas), _COUNTED_TWICE)
    return _with_whole_runs(found) if are_all and found else found


def _with_whole_runs(lineage: Lineage) -> Lineage:
    """The lineage, with the whole run instead of some parts of a job."""
    *runs, numbers = lineage._words.T
    first = np.flatnonzero(_differ(runs[0]) | _differ(runs[1]))
    last = np.append(first[1:], len(numbers)) - 1
    # The first point of a run is a pass of a process, or else the run is a job's.
    jobs = (numbers[first] >= PASSES_END) & (numbers[last] - numbers[first] > 1)
    jobs &= np.minimum.reduceat(lineage.levels, first) >= 0
    whole = [_run_of(lineage.points, i) for i in first[jobs].tolist()]
    return lineage | Lineage.of(whole) if whole else lineage


def format_lineage(lineage: Lineage | None) -> str:
    """Text for a file: ``*`` where the lineage is not known."""
    return "*" if lineage is None else ",".join(lineage)


def parse_lineage(text: str) -> Lineage | None:
    """Undo :func:`format_lineage`."""
    if text == "*":
        return None
    return Lineage.of(text.split(",") if text else ())


def point_of(run: str, number: int) -> bytes:
    """A part of a run as bytes, in the order of runs and numbers."""
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
    """These levels, 2 at most, without the points at which they do not change."""
    changes = _changes(levels, before) != 0
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
    whole = (numbers[1:] == PARTS_END) & (numbers[:-1] > 0)
    for last in np.flatnonzero(whole).tolist():  # of a run with parts missing
        run = _run_of(points, last)
        first = np.searchsorted(points, bytes.fromhex(run))
        if (levels[first:last] == -levels[last]).any():
            return run
    return None


def _run_of(points: NDArray[np.bytes_], place: int) -> str:
    return points[place : place + 1].tobytes()[:16].hex()


def _checked(lineage: Lineage, complaint: str) -> Lineage:
    run = _first_wrong(lineage)
    if run:
        raise PrivacyError(complaint.format(run[:6]))
    return lineage


def _texts_of(run: str, steps: list[tuple[int, str, str]]) -> Iterator[str]:
    """Texts of the levels of one run, given from which part to which they hold.

    Where the last part is there, the run is, and what is missing is taken from it.
    """
    end, marks = f"{PARTS_END:016x}", {1: "", -1: "-"}
    sign, _, last = steps[-1]
    if last == end:
        yield marks[sign] + run
        ends = ["0" * 16, *(point for _, *ends in steps for point in ends), end]
        gaps = zip(ends[::2], ends[1::2], strict=True)
        steps = [(-sign, low, high) for low, high in gaps if low != high]
    for level, start, stop in steps:
        single = int(start, 16) + 1 == int(stop, 16)
        yield marks[level] + run + start + ("" if single else f":{stop}")
