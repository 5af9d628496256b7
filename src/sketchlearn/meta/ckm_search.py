r"""What NGOpt looks for in Iterative CKM (paper, section 4.2).

A law of units is searched in its few numbers, for every activation and inner optimiser.
The paper's form has a matrix W of many: first the law it is drawn from, with the rate
and the variance of the first centroids, for every activation and optimiser; then,
from the best of these, its entries themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from sketchlearn.decoders.clusters.ckm_descent import DAMPED, CKMSpec
from sketchlearn.decoders.clusters.ckm_units import MatrixLaw
from sketchlearn.decoders.clusters.descent import InnerOptimiser
from sketchlearn.errors import ConfigError
from sketchlearn.features.activation import Activation
from sketchlearn.meta.backend import nn, torch
from sketchlearn.meta.ckm import PRINTED, TrainableCKM
from sketchlearn.meta.clustering import ClusteringConfig
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.evolution import EvolveResult, evolve
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.search_space import SearchSpace, Setting

__all__ = ["AbstractClustering", "evolve_ckm"]

_NUMBER_SCALE, _ENTRY_SCALE = 0.3, 0.02
"""Typical size of a first change of a learned number, and of an entry of W."""

_PLAIN_STEP = 20.0
"""A plain step is searched among rates so many times as large as one of Adam."""

_LAW_RANGES = {
    "radius": (0.5, 8.0),
    "spread": (0.1, 1.0),
    "falloff": (0.2, 1.5),
    "share": (0.03, 1.0),
    "length": (2.0, 100.0),
}
_STEP_RANGES = {"rate": (0.01, 0.5), "initial_std": (0.01, 0.6)}


class AbstractClustering(AbstractProblem):
    """A problem that says what to search and for how long."""

    config: ClusteringConfig


def evolve_ckm(
    model: TrainableCKM,
    problem: AbstractClustering,
    config: TrainConfig,
    *,
    about: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
) -> EvolveResult | None:
    """Search activation, optimiser, learned numbers and W with NGOpt, in place.

    Parameters
    ----------
    model : TrainableCKM
        Where the search starts; has the best found at the end.
    problem : AbstractClustering
        Its configuration says what to choose among, and for how long; None is returned
        if for no time.
    config : TrainConfig
        For its seed.
    about : mapping, optional
        What model and problem were made from; records of others are refused.
    folder : path, optional
        Keeps the records of the search, from which it goes on.
    resume : bool
        Go on from the records if there are some, or refuse them.
    """
    settings, is_printed = problem.config, bool(model.spec.sketch_size)
    if not settings.search_steps:
        return None
    _require_units(model.spec, settings)
    choices = {"activation": settings.activations, "optimiser": settings.optimisers}
    by_law = SearchSpace(
        choices=choices, log_scalars={**_LAW_RANGES, **_STEP_RANGES}, weight_scale=0.0
    )
    by_numbers = SearchSpace(choices=choices, weight_scale=_NUMBER_SCALE)
    budget = TrainConfig(
        steps=settings.search_steps,
        accumulate=settings.search_batches,
        validate_every=10,
        seed=config.seed,
    )
    found = evolve(
        model,
        problem,
        budget,
        space=by_law if is_printed else by_numbers,
        configure=partial(_configure, first=model.spec, seed=config.seed),
        about=about,
        folder=folder,
        resume=resume,
    )
    if not is_printed or not settings.matrix_steps or found.is_interrupted:
        return found
    entries = evolve(
        model,
        problem,
        replace(budget, steps=settings.matrix_steps),
        space=SearchSpace(weight_scale=_ENTRY_SCALE),
        about=about,
        folder=None if folder is None else Path(folder, "entries"),
        resume=resume,
    )
    return _joined(found, entries)


def _configure(
    model: nn.Module, settings: Mapping[str, Setting], *, first: CKMSpec, seed: int
) -> None:
    """Apply settings to the spec that the search began with, not to the last one."""
    ckm, activation = (
        cast(TrainableCKM, model),
        cast(Activation, settings["activation"]),
    )
    optimiser = cast(InnerOptimiser, settings["optimiser"])
    ckm.spec = replace(
        first,
        activation=activation,
        optimiser=optimiser,
        atoms=first.atoms if activation in DAMPED else "point",
    )
    if not first.sketch_size:
        return
    law = MatrixLaw(**{name: float(settings[name]) for name in _LAW_RANGES})
    weight = law.draw(ckm.weight.shape[1], np.random.default_rng(seed))
    longer = _PLAIN_STEP if optimiser == "sgd" else 1.0
    scales = {"rate": longer, "initial_std": 1.0}
    with torch.no_grad():
        ckm.weight.copy_(torch.from_numpy(weight))
        for name in PRINTED:
            ckm.numbers[name].fill_(np.log(scales[name] * float(settings[name])))


def _joined(settings: EvolveResult, entries: EvolveResult) -> EvolveResult:
    """Two searches as one, with what the second began with among what was tried."""
    return replace(
        entries,
        settings=settings.settings,
        evaluations=settings.evaluations + entries.evaluations,
        seconds=settings.seconds + entries.seconds,
        history=(*settings.history, *entries.history),
        tried=(*settings.tried, {"searched": "entries of W", **entries.tried[0]}),
    )


def _require_units(spec: CKMSpec, settings: ClusteringConfig) -> None:
    """One matrix has the units of some activations; a law has those of any."""
    size = spec.sketch_size
    for name in settings.activations:
        if size and (name == "fourier") != (spec.activation == "fourier"):
            raise ConfigError(
                f"activations of one matrix need as many units as {spec.activation!r} "
                f"of [model]; {name!r} has others. Search 'fourier' on its own."
            )
