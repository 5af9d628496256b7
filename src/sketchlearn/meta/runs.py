"""From a configuration to a trained module, by the name of its task."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from sketchlearn.errors import ConfigError, MissingFileError, TrainingError
from sketchlearn.files.models import packaged_weights, read_index
from sketchlearn.files.weights import Weights, holds_weights, load_weights
from sketchlearn.meta.backend import Tensor, nn
from sketchlearn.meta.checkpoint import best_weights
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset, load_folder, split_datasets
from sketchlearn.meta.evolution import EvolveResult
from sketchlearn.meta.paper_sets import paper_sets
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.progress import ReadingLine
from sketchlearn.meta.steps import load_state
from sketchlearn.meta.tasks.base import Task, find_tasks
from sketchlearn.meta.trainer import TrainResult, train
from sketchlearn.registry import find_builders
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
    known = {data.name for data in datasets} | {one.name for one in paper_sets()}
    unknown = sorted(set(settings.leave_out) - known)
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
    held_out = settings.held_out
    if not isinstance(held_out, int | float):
        names = {data.name for data in usable}
        missing = [name for name in held_out if name not in names]
        held_out = [name for name in held_out if name in names]
        if missing and not held_out:
            raise ConfigError(
                f"cannot hold out {missing[0]!r} or any other set of held_out in "
                "[data]: none is in the folder. Name some that are, or a fraction."
            )
        if missing:
            warnings.warn(
                f"not in the folder, and so not held out: {', '.join(missing)}.",
                UserWarning,
                stacklevel=3,
            )
    return split_datasets(usable, held_out, seed=settings.seed)


def train_run(
    config: RunConfig,
    datasets: Sequence[MetaDataset],
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    start_from: str | os.PathLike[str] | Mapping[str, Tensor] | None = None,
) -> TrainedRun:
    """Train what a configuration describes; arguments as for ``train``.

    A search without gradients comes first where the task has one. What it measured is
    kept in the folder and not measured again, so that a resumed training starts from
    the same model. Ctrl-C during the search ends the run before its first step.
    Which dataset is being read is said on the standard error stream.

    Parameters
    ----------
    start_from : str, path or mapping, optional
        As for ``train``, or weights of a finished training: a ``.safetensors`` file, or
        the name of a model of the package. They must be of the same kind and sizes as
        the configuration makes.
    """
    finished = _finished(start_from)
    reading = ReadingLine(len(datasets))
    run = build_run(config, [data.announced(reading.show) for data in datasets])
    reading.close()
    if start_from is not None:
        _refuse_search(config, run.task)
        start_from = _begun(run, finished, start_from)
    searched = None
    if run.task.search is not None:
        searched = run.task.search(
            run.model,
            run.problem,
            config.train,
            about=_about(config, run),
            folder=folder,
            resume=resume,
        )
    if searched is not None and searched.is_interrupted:
        result = TrainResult(searched.best_score, 0, 0, 0.0, "interrupt", 0, ())
    else:
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
    if finished is not None:
        card["started_from"] = {"model": finished.model, "checksum": finished.digest}
    if searched is not None:
        card["search"] = _search_card(config, searched)
    return TrainedRun(run.model, card, result, searched)


def _begun(
    run: Run,
    finished: Weights | None,
    start_from: str | os.PathLike[str] | Mapping[str, Tensor],
) -> str | os.PathLike[str] | Mapping[str, Tensor]:
    """Where to start from, known to the module where a task learns from its weights."""
    if finished is not None:
        start_from = _thawed_state(run.model, finished)
    if run.task.finish is not None:
        start_from = best_weights(start_from)
        load_state(run.model, start_from)
        run.task.finish(run.model, run.problem)
    return start_from


def _refuse_search(config: RunConfig, task: Task) -> None:
    """Weights to start from would overwrite those of the model that a search chose."""
    if task.search is not None and config.problem.get("search_steps"):
        raise ConfigError(
            "a search chooses the model that the training starts from, and start_from "
            "would overwrite its weights. Set search_steps = 0 in [problem], or leave "
            "start_from (--start-from) out."
        )


def _finished(source: Any) -> Weights | None:
    """Weights of a finished training, if it is those that are named."""
    if not isinstance(source, str | os.PathLike):
        return None
    if source in read_index():
        return packaged_weights(os.fspath(source))
    try:
        return load_weights(source) if holds_weights(source) else None
    except MissingFileError as error:
        raise MissingFileError(
            f"cannot start from {os.fspath(source)!r}: there is no such file, and it "
            f"is none of the models: {', '.join(read_index())}."
        ) from error


def _thawed_state(model: Any, weights: Weights) -> Mapping[str, Tensor]:
    """The state of a module of the same kind and sizes that has these weights."""
    own = model.to_weights()
    if weights.kind != own.kind:
        raise TrainingError(
            f"cannot start from weights of kind {weights.kind!r}: this configuration "
            f"trains {own.kind!r}."
        )
    found = find_builders()[weights.kind].from_weights(weights)
    frozen = getattr(found, "network", found)  # a decoder has its network inside
    state: Mapping[str, Tensor] = type(model).thaw(frozen).state_dict()
    theirs = {**frozen.to_weights().spec, **_shapes(state)}
    wanted = {**own.spec, **_shapes(model.state_dict())}
    different = [key for key in wanted if theirs.get(key) != wanted[key]]
    if different:
        key = different[0]
        raise TrainingError(
            f"cannot start from these weights: their {key} is {theirs.get(key)}, and "
            f"this configuration makes {wanted[key]}. Set [model] to the sizes of "
            "the weights; sketchlearn inspect shows them."
        )
    return state


def _shapes(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Shapes of tensors, for sizes that are in no spec: the rows of a basis."""
    return {name: f"of shape {tuple(part.shape)}" for name, part in state.items()}


def _about(config: RunConfig, run: Run) -> dict[str, Any]:
    """What module and problem of a run were made from."""
    tables = asdict(config)
    return {
        **{name: tables[name] for name in ("task", "model", "problem", "data")},
        "train_datasets": list(run.datasets),
        "held_out_datasets": list(run.held_out),
    }


def _card(config: RunConfig, run: Run, result: TrainResult) -> dict[str, Any]:
    """What to know of the weights: task, data, settings, seed, time and results."""
    return {
        "task": config.task,
        "sketchlearn": __version__,
        "settings": asdict(config),
        "train_datasets": list(run.datasets),
        "held_out_datasets": list(run.held_out),
        "steps": result.steps,
        "seconds": round(result.seconds, 1),
        "stopped": result.stopped,
        "validation": {
            "best_step": result.best_step,
            "score": _finite(result.best_score),
        },
    }


def _search_card(config: RunConfig, searched: EvolveResult) -> dict[str, Any]:
    """What to know of the search before the training."""
    tried = [{**cell, "score": _finite(cell["score"])} for cell in searched.tried]
    return {
        "optimizer": "NGOpt",
        "seed": config.train.seed,
        "evaluations": searched.evaluations,
        "score": _finite(searched.best_score),
        "seconds": round(searched.seconds, 1),
        "settings": dict(searched.settings),
        "tried": tried,
    }


def _finite(score: float) -> float | None:
    """A score as JSON can have it."""
    return score if math.isfinite(score) else None
