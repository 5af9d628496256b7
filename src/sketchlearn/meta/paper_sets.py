"""The datasets of the paper: their names, splits and sizes, and which OpenML has.

A list in the package, from the paper's tables of datasets. Where rows come from, and
what is done with them, is not known here.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, final

__all__ = ["SUITES", "PaperSet", "as_ranges", "paper_sets"]

Suite = Literal["paper", "train", "test"]

SUITES: tuple[Suite, ...] = ("paper", "train", "test")
"""All sets, those the paper's networks learn from, and those it reports on."""


@final
@dataclass(frozen=True, kw_only=True)
class PaperSet:
    """What the paper says of one of its datasets; None where it says nothing."""

    name: str
    """As in the paper, with subscripts as digits."""

    split: Literal["train", "test"]
    """Of meta-training, or of the paper's evaluations."""

    kind: str
    """``"image"``, ``"genotype"`` or ``"tabular"``."""

    rows: int | None
    """As printed."""

    features: int | None
    """As printed."""

    classes: int | None
    """As printed."""

    openml: int | None
    """Number of the dataset at OpenML, if it is there."""


def paper_sets(suite: Suite = "paper") -> list[PaperSet]:
    """The datasets of a suite, in the order of the paper's tables.

    Parameters
    ----------
    suite : {"paper", "train", "test"}
        All of them, or those of one split.

    Examples
    --------
    >>> len(paper_sets("train")), len(paper_sets("test"))
    (79, 84)
    >>> next(one.openml for one in paper_sets() if one.name == "vowel")
    307
    """
    return [one for one in _all_sets() if suite in ("paper", one.split)]


def as_ranges(names: Iterable[str]) -> list[str]:
    """Names for a message; numbered ones that follow one another are a range.

    Examples
    --------
    >>> as_ranges(["a2", "a3", "b", "a5"])
    ['a2..3', 'b', 'a5']
    """
    shown: list[tuple[str, int, int]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = int(name[len(stem) :] or -1)
        last = shown[-1] if shown else ("", -1, -1)
        if number > 0 and (stem, number - 1) == (last[0], last[2]):
            shown[-1] = (stem, last[1], number)
        else:
            shown.append((stem, number, number))
    return [_range(*one) for one in shown]


def _range(stem: str, first: int, last: int) -> str:
    if first < 0:
        return stem
    return f"{stem}{first}" if first == last else f"{stem}{first}..{last}"


@cache
def _all_sets() -> tuple[PaperSet, ...]:
    file = importlib.resources.files("sketchlearn") / "meta" / "paper_sets.json"
    entries = json.loads(file.read_text("utf-8"))
    return tuple(PaperSet(**entry) for entry in entries)
