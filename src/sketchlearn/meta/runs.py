"""From a configuration to a trained module: the table of tasks by name.

To add a task, write a function that builds its module and its problem and put it
into ``TASKS``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from sketchlearn.decoders.moments.prior_network import PriorSpec
from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn
from sketchlearn.meta.clustering import build_ckm, evolve_ckm
from sketchlearn.meta.config import RunConfig, TrainConfig, refuse_unknown
from sketchlearn.meta.datasets import MetaDataset, split_datasets
from sketchlearn.meta.evolution import EvolveResult
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.second_moments import (
    CorrelationConfig,
    CorrelationProblem,
    PaddedMomentProblem,
)
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.trainer import TrainResult, train
from sketchlearn.sqnet import SQNetSpec
from sketchlearn.version import __version__

__all__ = ["SEARCHES", "TASKS", "Run", "TrainedRun", "build_run", "train_run"]


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A module, the problem it is to be trained for, and the datasets of both."""

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


def build_run(config: RunConfig, datasets: Sequence[MetaDataset]) -> Run:
    """Module and problem of a configuration, not trained yet.

    Parameters
    ----------
    config : RunConfig
        As read by :func:`~sketchlearn.meta.config.load_config`.
    datasets : sequence of MetaDataset
        All datasets to train on and to hold out; never those of a test split.
    """
    if config.task not in TASKS:
        raise ConfigError(
            f"there is no task {config.task!r}; the tasks are: {', '.join(TASKS)}."
        )
    usable = [data for data in datasets if data.real or not config.data.real_only]
    training, held_out = split_datasets(
        usable, config.data.held_out, seed=config.data.seed
    )
    model, problem = TASKS[config.task](config, training, held_out)
    names = [tuple(data.name for data in part) for part in (training, held_out)]
    return Run(model, problem, *names)


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
    if config.task in SEARCHES:
        searched = SEARCHES[config.task](run.model, run.problem, config.train)
    result = train(
        run.model,
        run.problem,
        config.train,
        folder=folder,
        resume=resume,
        start_from=start_from,
    )
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


def _correlations(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[nn.Module, AbstractProblem]:
    """The equivariant prior behind PCA and ridge, from correlations."""
    problem = CorrelationProblem(
        training, held_out, CorrelationConfig.from_dict(config.problem)
    )
    spec = PriorSpec.from_dict(config.model)
    return PriorNetwork(spec, seed=config.train.seed), problem


def _second_moment(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[nn.Module, AbstractProblem]:
    """The paper's SQNet for PCA and ridge, from second moments: no rows are drawn."""
    refuse_unknown(config.problem, ["n_features", "episodes"], "[problem]")
    problem = PaddedMomentProblem(training, held_out, **config.problem)
    width = config.problem.get("n_features", 196)
    spec = SQNetSpec.from_dict({"n_features": width, **config.model})
    return TrainableSQNet(spec, seed=config.train.seed), problem


Builder = Callable[
    [RunConfig, Sequence[MetaDataset], Sequence[MetaDataset]],
    tuple[nn.Module, AbstractProblem],
]

TASKS: dict[str, Builder] = {
    "correlations": _correlations,
    "iterative-ckm": build_ckm,
    "second-moment": _second_moment,
}
"""Builders by the name a configuration file uses: called with the configuration, the
training datasets and the held-out datasets."""

Search = Callable[[Any, Any, TrainConfig], EvolveResult | None]

SEARCHES: dict[str, Search] = {"iterative-ckm": evolve_ckm}
"""Searches in place before a training: called with module, problem and settings of the
trainer; None if the configuration asks for none."""
