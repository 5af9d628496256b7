"""Lineage: which passes over rows are inside a sketch.

Every pass draws a random identifier, its *run*. A sketch is a sum of runs, each taken
once: merging adds them, subtracting takes them away, and a run that was subtracted
without having been added (rows sketched again, to forget them) stands there with a
minus until it is added again. What would have to stand there twice is refused, since a
row that counts twice is twice as visible. Runs never leave the data holder: their
number is an exact count.

A pass that many workers share is one run as well. What each of them has sketched is a
*part* of it, named by the run and 64 bits more: parts of one run are added, but none of
them twice, and none to the whole run. Once all are together, the run stands for them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from sketchlearn.errors import PrivacyError, SketchFileError

__all__ = [
    "MAX_LINEAGE",
    "MINUS",
    "Lineage",
    "format_lineage",
    "gathered_lineage",
    "merged_lineage",
    "new_lineage",
    "new_run",
    "parse_lineage",
    "part_of_run",
    "remaining_lineage",
    "runs_of",
]

Lineage = frozenset[str] | None
"""Runs inside a sketch; None when they are not known, or more than can be listed."""

MAX_LINEAGE = 4096
"""A sketch merged from more runs than this no longer lists them."""

MINUS = "-"
"""Mark of a run that was taken away and never added."""

_RUN = r"-?[0-9a-f]{32}([0-9a-f]{16})?"
_RUNS = re.compile(f"({_RUN}(,{_RUN})*)?", re.ASCII)

_RUN_DIGITS = 32
"""Hexadecimal digits of a run."""

_PART_DIGITS = 48
"""Those of a part, of which the first are its run's."""


def new_run() -> str:
    """A fresh 128-bit identifier for one pass over rows."""
    return os.urandom(16).hex()


def new_lineage() -> frozenset[str]:
    """The lineage of a sketch made in a pass of its own."""
    return frozenset({new_run()})


def part_of_run(run: str, partition: int | None) -> str:
    """Name of the part of a run that a partition of its rows is.

    Parameters
    ----------
    run : str
        The run of the whole pass.
    partition : int or None
        The number of the partition: sketched twice, it has one name. Where nobody
        knows a number, the name is drawn.

    Examples
    --------
    >>> run = "0" * 32
    >>> part_of_run(run, 7) == part_of_run(run, 7) != part_of_run(run, 8)
    True
    """
    if partition is None:
        return run + os.urandom(8).hex()
    return run + hashlib.sha256(f"{run}:{partition}".encode()).hexdigest()[:16]


def runs_of(lineage: Lineage) -> frozenset[str]:
    """The runs, added or taken away, without marks; none where not known."""
    return frozenset(run.removeprefix(MINUS) for run in lineage or ())


def merged_lineage(left: Lineage, right: Lineage) -> Lineage:
    """Runs of a sum.

    Raises
    ------
    PrivacyError
        If a run is in both: its rows would count twice.

    Examples
    --------
    >>> merged_lineage(frozenset({"a", "-b"}), frozenset({"b", "c"})) == {"a", "c"}
    True
    """
    if left is None or right is None:
        return None
    _require_apart(left, _starts_of_parts(left), right)
    return _united(left, right)


def gathered_lineage(lineages: Iterable[Lineage], *, are_all: bool = True) -> Lineage:
    """Runs of the sum of many sketches, in which parts of a run become one.

    Parameters
    ----------
    lineages : iterable of lineages
    are_all : bool
        Whether these are all parts of their runs: the run stands for them. Otherwise
        a larger part does. One part alone stays what it is.

    Raises
    ------
    PrivacyError
        If a run, or a part of one, is in two of them.

    Examples
    --------
    >>> run = "0" * 32
    >>> gathered_lineage(frozenset({part_of_run(run, i)}) for i in range(9000)) == {run}
    True
    """
    found: set[str] = set()
    starts: set[str] = set()
    for lineage in lineages:
        if lineage is None:
            return None
        _require_apart(found, starts, lineage)
        gone = {_opposite(run) for run in lineage} & found
        found -= gone
        found |= lineage - {_opposite(run) for run in gone}
        starts |= _starts_of_parts(lineage)
    parts: dict[str, list[str]] = {}
    for part in found:
        if len(part) == _PART_DIGITS:
            parts.setdefault(part[:_RUN_DIGITS], []).append(part)
    for run, inside in parts.items():
        if len(inside) > 1:
            found -= set(inside)
            found.add(run if are_all else _joined_part(run, sorted(inside)))
    return frozenset(found) if len(found) <= MAX_LINEAGE else None


def _joined_part(run: str, parts: list[str]) -> str:
    return run + hashlib.sha256(",".join(parts).encode()).hexdigest()[:16]


def _require_apart(
    left: AbstractSet[str], starts: AbstractSet[str], right: AbstractSet[str]
) -> None:
    """Refuse what is in both: a run, a part, or a run and a part of it.

    Parameters
    ----------
    left, right : sets of str
        Runs and parts.
    starts : set of str
        Runs that ``left`` has parts of.
    """
    shared = right & left
    if not shared:
        added = {run for run in right if _opposite(run) not in left}
        shared = added & starts or _starts_of_parts(added) & left
    if shared:
        raise PrivacyError(
            f"these sketches share the run {min(shared)[:6]}..: the same rows would "
            "count twice. If they are different rows, say so with "
            "left + right.with_new_lineage()."
        )


def _starts_of_parts(runs: AbstractSet[str]) -> set[str]:
    """Runs that some parts, added and not taken away, are of."""
    return {run[:_RUN_DIGITS] for run in runs if len(run) == _PART_DIGITS}


def remaining_lineage(whole: Lineage, part: Lineage) -> Lineage:
    """Runs of a difference.

    Raises
    ------
    PrivacyError
        If a run was taken away before, and never added.

    Examples
    --------
    >>> remaining_lineage(frozenset({"a", "b"}), frozenset({"b", "c"})) == {"a", "-c"}
    True
    """
    if whole is None or part is None:
        return None
    gone = frozenset(_opposite(run) for run in part)
    shared = whole & gone
    if shared:
        run = min(shared).removeprefix(MINUS)
        raise PrivacyError(
            f"the run {run[:6]}.. was taken out of this sketch before: the same rows "
            "would be forgotten twice. If they are different rows, say so with "
            "left - right.with_new_lineage()."
        )
    return _united(whole, gone)


def _united(left: frozenset[str], right: frozenset[str]) -> Lineage:
    """Both, without the runs that are added in one and taken away in the other."""
    fewer, more = (left, right) if len(left) < len(right) else (right, left)
    kept = frozenset(run for run in fewer if _opposite(run) not in more)
    if len(kept) < len(fewer):
        more -= frozenset(_opposite(run) for run in fewer - kept)
    both = more | kept
    return both if len(both) <= MAX_LINEAGE else None


def _opposite(run: str) -> str:
    return run[1:] if run.startswith(MINUS) else MINUS + run


def format_lineage(lineage: Lineage) -> str:
    """As text for a file: ``*`` where the runs are not known."""
    return "*" if lineage is None else ",".join(sorted(lineage))


def parse_lineage(text: str) -> Lineage:
    """Undo :func:`format_lineage`."""
    if text == "*":
        return None
    runs = frozenset(text.split(",")) if text else frozenset()
    plain = _RUNS.fullmatch(text) is not None and len(runs) <= MAX_LINEAGE
    if not plain or len(runs_of(runs)) < len(runs):
        raise SketchFileError("has a malformed lineage; get the original file.")
    return runs
