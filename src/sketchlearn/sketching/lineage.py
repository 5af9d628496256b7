"""Lineage: which passes over rows are inside a sketch.

Every pass draws a random identifier, its *run*. A sketch is a sum of runs, each taken
once: merging adds them, subtracting takes them away, and a run that was subtracted
without having been added (rows sketched again, to forget them) stands there with a
minus until it is added again. What would have to stand there twice is refused, since a
row that counts twice is twice as visible. Runs never leave the data holder: their
number is an exact count.
"""

from __future__ import annotations

import os
import re

from sketchlearn.errors import PrivacyError, SketchFileError

__all__ = [
    "MAX_LINEAGE",
    "MINUS",
    "Lineage",
    "format_lineage",
    "merged_lineage",
    "new_lineage",
    "parse_lineage",
    "remaining_lineage",
    "runs_of",
]

Lineage = frozenset[str] | None
"""Runs inside a sketch; None when they are not known, or more than can be listed."""

MAX_LINEAGE = 4096
"""A sketch merged from more runs than this no longer lists them."""

MINUS = "-"
"""Mark of a run that was taken away and never added."""

_RUNS = re.compile(r"(-?[0-9a-f]{32}(,-?[0-9a-f]{32})*)?", re.ASCII)


def new_lineage() -> frozenset[str]:
    """A fresh 128-bit identifier for one accumulation run."""
    return frozenset({os.urandom(16).hex()})


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
    shared = left & right
    if shared:
        raise PrivacyError(
            f"these sketches share the run {min(shared)[:6]}..: the same rows would "
            "count twice. If they are different rows, say so with "
            "left + right.with_new_lineage()."
        )
    return _united(left, right)


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
