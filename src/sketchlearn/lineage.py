"""Lineage: which passes over rows are inside a sketch.

Every pass draws a random identifier, its *run*. Merging unites runs and refuses those
that would count twice; subtracting takes them away. A run of which some rows were
forgotten by sketching these again is only partly inside, and is marked with ``~``.
Runs never leave the data holder: their number is an exact count.
"""

from __future__ import annotations

import os
import re

from sketchlearn.errors import PrivacyError, SketchFileError

__all__ = [
    "MAX_LINEAGE",
    "Lineage",
    "format_lineage",
    "merged_lineage",
    "new_lineage",
    "parse_lineage",
    "remaining_lineage",
    "runs_of",
]

Lineage = frozenset[str] | None
"""Runs inside a sketch; None when there are more than can be listed."""

MAX_LINEAGE = 4096
"""A sketch merged from more runs than this no longer lists them."""

PART = "~"
"""Mark of a run that is only partly inside."""

_RUNS = re.compile(r"(~?[0-9a-f]{32}(,~?[0-9a-f]{32})*)?", re.ASCII)


def new_lineage() -> frozenset[str]:
    """A fresh 128-bit identifier for one accumulation run."""
    return frozenset({os.urandom(16).hex()})


def runs_of(lineage: Lineage) -> frozenset[str]:
    """The runs, whole or partly inside, without marks; none where not known."""
    return frozenset(run.removeprefix(PART) for run in lineage or ())


def merged_lineage(left: Lineage, right: Lineage) -> Lineage:
    """Runs of a sum.

    Raises
    ------
    PrivacyError
        If a run is in both: its rows would count twice.
    """
    if left is None or right is None:
        return None
    fewer, more = (left, right) if len(left) < len(right) else (right, left)
    shared = [run for run in runs_of(fewer) if run in more or PART + run in more]
    if shared:
        raise PrivacyError(
            f"these sketches share the run {min(shared)[:6]}..: the same rows would "
            "count twice. If they are different rows, say so with "
            "left + right.with_new_lineage()."
        )
    both = left | right
    return both if len(both) <= MAX_LINEAGE else None


def remaining_lineage(whole: Lineage, part: Lineage) -> Lineage:
    """Runs of a difference.

    Whole runs of ``part`` are gone. Where it has others than ``whole`` (rows sketched
    again, to forget them), any run of ``whole`` may have lost rows.
    """
    if whole is None:
        return None
    gone = frozenset() if part is None else part
    inside = runs_of(whole)
    rest = frozenset(run for run in whole if run.removeprefix(PART) not in gone)
    if part is not None and gone <= inside:
        return rest
    return frozenset(PART + run.removeprefix(PART) for run in rest)


def format_lineage(lineage: Lineage) -> str:
    """As text for a file: ``*`` where the runs are not known."""
    return "*" if lineage is None else ",".join(sorted(lineage))


def parse_lineage(text: str) -> Lineage:
    """Undo :func:`format_lineage`."""
    if text == "*":
        return None
    runs = text.split(",") if text else []
    if _RUNS.fullmatch(text) is None or len(runs) > MAX_LINEAGE:
        raise SketchFileError("has a malformed lineage; get the original file.")
    return frozenset(runs)
