"""What ``sketchlearn train`` can train: a task has a name and says how it is built.

A task is a :class:`Task` at the top level of a module of this folder; there is no list
to put it into.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from sketchlearn.discovery import values_declared
from sketchlearn.meta.backend import nn
from sketchlearn.meta.config import RunConfig, TrainConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.evolution import EvolveResult
from sketchlearn.meta.problems import AbstractProblem

__all__ = ["Task", "find_tasks"]

Builder = Callable[
    [RunConfig, Sequence[MetaDataset], Sequence[MetaDataset]],
    tuple[nn.Module, AbstractProblem],
]
Finish = Callable[[Any, Any], None]


class Search(Protocol):
    """How a task is searched before it is trained."""

    def __call__(
        self,
        model: Any,
        problem: Any,
        config: TrainConfig,
        *,
        about: Mapping[str, Any],
        folder: str | os.PathLike[str] | None,
        resume: bool,
    ) -> EvolveResult | None:
        """Search in place; None if the configuration asks for no search."""


@final
@dataclass(frozen=True, eq=False)
class Task:
    """A kind of training."""

    name: str
    """What a configuration file calls it."""

    build: Builder
    """Module and problem of a configuration, its training and its held-out datasets."""

    search: Search | None = None
    """What to search in place before the training, if anything."""

    finish: Finish | None = None
    """What to learn in place of module and problem: of weights that are started from,
    and after the training."""

    takes_datasets: bool = True
    """Whether it learns from datasets; others draw all they need from a law."""


def find_tasks() -> dict[str, Task]:
    """All tasks by name.

    Examples
    --------
    >>> "correlations" in find_tasks()
    True
    """
    return {task.name: task for task in values_declared(Task, "sketchlearn.meta.tasks")}
