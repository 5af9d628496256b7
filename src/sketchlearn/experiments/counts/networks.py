"""The paper's networks of counts, as weights in a folder or in the package.

What a file holds is read from it: its specification says which network it is, its card
which question it was trained for, how long, and how well it did on its validation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import ConfigError
from sketchlearn.experiments.counts.answers import Answers, bits_of
from sketchlearn.experiments.counts.sets import N_ITEMS, Question, SetBatch
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import Weights, load_weights
from sketchlearn.registry import list_models
from sketchlearn.sqnet import SQNet

__all__ = [
    "NO_NETWORKS",
    "TrainedNetwork",
    "TrainedNetworks",
    "find_networks",
    "network_answers",
]

_FLOAT_BITS = 32

_AS_FLOATS = ("log-sum-exp", "p-norm")
"""Poolings that are precise near the bound of a map only, which networks stay far
from: they are compared as floats."""


@final
@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """One network and how it was trained."""

    net: SQNet
    question: str
    score: float
    """On its validation; the smaller the better."""

    seconds: float
    """Of its training."""

    is_tuned: bool = False
    """Whether it was trained on with rows of a dataset."""

    @property
    def family(self) -> str:
        """Which of the paper's networks it is, as methods are named."""
        if self.is_tuned:
            return "sq-tuned"
        spec = self.net.spec
        if spec.random:
            return "rfq"
        network = spec.feature_network
        windows = "parallel" if network.windows > 1 else ""
        if network.kind == "linear":
            return f"sq-{windows or 'linear'}"
        kind = network.kind if network.is_flat else "nonlinear"
        return f"sq-{kind}-{windows}" if windows else f"sq-{kind}"

    @property
    def pooling(self) -> str:
        """How its sketches are pooled."""
        return self.net.spec.pooling

    @property
    def activation(self) -> str:
        """Of random features; nothing for networks that have none."""
        return str(self.net.spec.random.get("activation", ""))

    @property
    def reads_means(self) -> bool:
        """Whether the sketch of rows is a function of their mean alone."""
        spec = self.net.spec
        if spec.pooling != "mean" or spec.random:
            return False
        return spec.feature_network.is_affine


@final
@dataclass(frozen=True, eq=False)
class TrainedNetworks:
    """All networks at hand."""

    found: tuple[TrainedNetwork, ...] = ()

    def best(
        self,
        question: str,
        size: int,
        *,
        family: str = "",
        pooling: str = "",
        activation: str = "",
        learned: bool | None = None,
    ) -> TrainedNetwork | None:
        """The one of the best score, of those that have what is asked.

        ``learned`` asks for a Sketch Network, or for random features.
        """
        wanted = {"family": family, "pooling": pooling, "activation": activation}
        matching = [
            one
            for one in self.found
            if one.question == question
            and one.net.spec.sketch_size == size
            and all(getattr(one, k) == value for k, value in wanted.items() if value)
            and learned in (None, not one.activation)
        ]
        return min(matching, key=lambda one: one.score, default=None)

    def with_one(self, network: TrainedNetwork) -> TrainedNetworks:
        """These, and another one."""
        return TrainedNetworks((*self.found, network))

    def kinds(self, question: str, size: int, attribute: str) -> list[str]:
        """The poolings, or activations, that there are networks of."""
        found = {
            str(getattr(one, attribute))
            for one in self.found
            if one.question == question and one.net.spec.sketch_size == size
        }
        return sorted(found - {""})


NO_NETWORKS = TrainedNetworks()


def find_networks(folder: str | os.PathLike[str] | None = None) -> TrainedNetworks:
    """Networks of counts of the package, and of a folder.

    Parameters
    ----------
    folder : path, optional
        Files ``*.safetensors`` as ``sketchlearn train`` writes them; those of other
        tasks are passed over.
    """
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"there is no folder {os.fspath(folder)!r} of weights.")
    paths = sorted(Path(folder).glob("*.safetensors")) if folder is not None else []
    packaged = [
        packaged_weights(model.name)
        for model in list_models()
        if model.kind == SQNet.weights_kind and model.task in get_args(Question)
    ]
    weights = [*packaged, *(load_weights(path) for path in paths)]
    return TrainedNetworks(tuple(_networks(weights)))


def _networks(weights: Iterable[Weights]) -> Iterable[TrainedNetwork]:
    for one in weights:
        question = str(one.card.get("task", ""))
        if one.kind != SQNet.weights_kind or question not in get_args(Question):
            continue
        net = SQNet.from_weights(one)
        if net.spec.n_features == N_ITEMS:
            score = float(one.card.get("validation", {}).get("score", np.inf))
            yield TrainedNetwork(net, question, score, float(one.card["seconds"]))


def network_answers(
    batch: SetBatch, seed: int, *, network: TrainedNetwork, question: Question
) -> Answers:
    """Sketch and decode each set; narrow rows are padded with zeros, as in the paper.

    Networks that are affine and pool by mean see the means of the rows, the others the
    rows themselves, as exact sketches.
    """
    net = network.net
    if network.reads_means:
        means = _padded(batch.frequencies, net.spec.n_features)
        sketches = net.feature_network(means)
    else:
        sketches = _exact_sketches(net, batch, seed)
    answers = net.decoder_network(sketches)[:, : batch.n_items]
    bits = _FLOAT_BITS
    if net.spec.is_table and network.reads_means:
        table = net.feature_map().weights()["table"]
        bits = bits_of(batch.counts @ table[: batch.n_items])
    return Answers(answers.clip(0.0, 1.0), net.spec.sketch_size, bits)


def _exact_sketches(net: SQNet, batch: SetBatch, seed: int) -> NDArray[np.float64]:
    """Pooled sketches of the rows of each set, in units of the Query Network."""
    pooling, units = net.spec.pooling, net.decoder().units
    sets = [
        _padded(rows, net.spec.n_features).astype(np.float32)
        for rows in batch.rows(np.random.default_rng(seed))
    ]
    if pooling.startswith(_AS_FLOATS):
        return np.stack([_pooled(net.feature_network(w), pooling) for w in sets])
    phi, found = net.feature_map(), []
    for wide in sets:
        pooled = sketch_rows(wide, phi, pooling=pooling, progress=False).pooled
        found.append(pooled if units is None else units(pooled))
    return np.stack(found)


def _pooled(features: NDArray[np.float64], pooling: str) -> NDArray[np.float64]:
    """Features of the rows of a set as one vector."""
    if pooling == "log-sum-exp":
        return np.asarray(logsumexp(features, axis=0), np.float64)
    power = float(pooling.removeprefix("p-norm:"))
    norms: NDArray[np.float64] = np.linalg.norm(features, ord=power, axis=0)
    return norms


def _padded(values: NDArray[Any], width: int) -> NDArray[Any]:
    missing = width - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing))) if missing else values
