"""From a configuration to a trained module, by the name of its task."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset, load_folder, split_datasets
from sketchlearn.meta.evolution import EvolveResult
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.tasks.base import Task, find_tasks
from sketchlearn.meta.trainer import TrainResult, train
from sketchlearn.version import __version__

__all__ = ["Run", "TrainedRun", "build_run", "load_datasets", "train_run"]


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A module, the problem it is to be trained for, and the datasets of both."""

    task: Task
    model: nn.Module
    problem: AbstractProblem
    datasets: tuple[str, ...]
    held_out: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A trained module with the card that says how it came about."""

    model: nn.Module
    card: Mapping[str, Any]
    result: TrainResult
    search: EvolveResult | None = None
    """Of the search before the training, for tasks that have one."""


def load_datasets(config: RunConfig, path: str | os.PathLike[str]) -> list[MetaDataset]:
    """The datasets of a folder that a configuration asks for.

    Parameters
    ----------
    config : RunConfig
        Those it names, of either split, or else all training datasets.
    path : path
        As for :func:`~sketchlearn.meta.datasets.load_folder`.
    """
    names = config.data.only
    if not names:
        return load_folder(path, split="train")
    both = [*load_folder(path, split="train"), *load_folder(path, split="test")]
    found = {data.name: data for data in both}
    missing = [name for name in names if name not in found]
    if missing:
        raise ConfigError(f"there is no dataset {missing[0]!r} in {os.fspath(path)!r}.")
    return [found[name] for name in names]


def build_run(config: RunConfig, datasets: Sequence[MetaDataset]) -> Run:
    """Module and problem of a configuration, not trained yet.

    Parameters
    ----------
    config : RunConfig
        As read by :func:`~sketchlearn.meta.config.load_config`.
    datasets : sequence of MetaDataset
        All datasets to train on and to hold out, as :func:`load_datasets` gives them.
        None for tasks that take no datasets.
    """
    tasks = find_tasks()
    if config.task not in tasks:
        raise ConfigError(
            f"there is no task {config.task!r}; the tasks are: {', '.join(tasks)}."
        )
    task = tasks[config.task]
    if task.takes_datasets != bool(datasets):
        needs = "learns from datasets: give" if task.takes_datasets else "takes no"
        raise ConfigError(
            f"task {config.task!r} {needs} datasets (--data); got {len(datasets)}."
        )
    training, held_out = _split(config, datasets) if datasets else ([], [])
    model, problem = task.build(config, training, held_out)
    names = [tuple(data.name for data in part) for part in (training, held_out)]
    return Run(task, model, problem, *names)


def _split(
    config: RunConfig, datasets: Sequence[MetaDataset]
) -> tuple[list[MetaDataset], list[MetaDataset]]:
    settings = config.data
    unknown = sorted(set(settings.leave_out) - {data.name for data in datasets})
    if unknown:
        raise ConfigError(
            f"cannot leave out {unknown[0]!r}: there is no such dataset. Correct "
            "leave_out in [data]."
        )
    usable = [
        data
        for data in datasets
        if (data.real or not settings.real_only) and data.name not in settings.leave_out
    ]
    return split_datasets(usable, settings.held_out, seed=settings.seed)


def train_run(
    config: RunConfig,
    datasets: Sequence[MetaDataset],
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    start_from: str | os.PathLike[str] | Mapping[str, Tensor] | None = None,
) -> TrainedRun:
    """Train what a configuration describes; arguments as for ``train``.

    A search without gradients comes first where the task has one. It is a function of
    the configuration alone, so that a resumed training starts from the same model.
    """
    run = build_run(config, datasets)
    searched = None
    if run.task.search is not None:
        searched = run.task.search(run.model, run.problem, config.train)
    result = train(
        run.model,
        run.problem,
        config.train,
        folder=folder,
        resume=resume,
        start_from=start_from,
    )
    if run.task.finish is not None:
        run.task.finish(run.model, run.problem)
    card = _card(config, run, result)
    if searched is not None:
        card["search"] = {
            "evaluations": searched.evaluations,
            "score": searched.best_score,
            "seconds": round(searched.seconds, 1),
            "settings": dict(searched.settings),
        }
    return TrainedRun(run.model, card, result, searched)


def _card(config: RunConfig, run: Run, result: TrainResult) -> dict[str, Any]:
    """What to know of the weights: task, data, settings, seed, time and results."""
    score = result.best_score if math.isfinite(result.best_score) else None
    return {
        "task": config.task,
        "sketchlearn": __version__,
        "settings": asdict(config),
        "train_datasets": list(run.datasets),
        "held_out_datasets": list(run.held_out),
        "steps": result.steps,
        "seconds": round(result.seconds, 1),
        "stopped": result.stopped,
        "validation": {"best_step": result.best_step, "score": score},
    }
