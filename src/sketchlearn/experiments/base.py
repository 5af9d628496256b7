"""What an experiment is: a name, a plan, and what to do with it.

An experiment is an :class:`Experiment` at the top level of a module of this folder, or
of a folder in it: ``sketchlearn reproduce`` finds it, and there is no list to put it
into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol, final

import click

from sketchlearn.discovery import values_declared

__all__ = ["RESULTS_FILE", "TABLES_FILE", "Experiment", "find_experiments"]

RESULTS_FILE, TABLES_FILE = "results.json", "tables.txt"
"""What every experiment writes into its output folder, beside figures."""


class PlanType(Protocol):
    """A frozen dataclass with ``sizes``, ``n_seeds``, ``methods`` and ``datasets``."""

    def __call__(self) -> Any:
        """All that the paper shows."""

    def quick(self) -> Any:
        """So little that it shows in a minute that everything runs."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Experiment:
    """One command of ``sketchlearn reproduce``."""

    name: str
    """What the command line calls it."""

    summary: str
    """What it makes, in a sentence."""

    quick: str
    """What ``--quick`` leaves of it."""

    sets: Callable[[], Collection[str]]
    """Names of the sets of the paper that it is about."""

    plan: PlanType
    """What to do: everything by default."""

    run: Callable[..., str]
    """Called with the folder of the data, the folder to write into and a plan, then by
    name ``say`` and those of ``options`` that are no fields of the plan; writes
    results, tables and figures and returns what is to be shown."""

    options: tuple[click.Option, ...] = ()
    """Options of its own; those named like fields of the plan go into it."""


def find_experiments() -> dict[str, Experiment]:
    """All experiments by name; imports them."""
    found = values_declared(Experiment, "sketchlearn.experiments")
    return {experiment.name: experiment for experiment in found}
