r"""The equivariant prior behind PCA and ridge, learned without ever drawing a row.

The sketch of quadratic features is a function of :math:`R = E[xx^\top]` alone, so the
correlations of every dataset are computed once, and an episode is a random choice of
features: a sub-matrix. What is trained is the prior of
:mod:`sketchlearn.decoders.moments.equivariant`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.moments.prior_network import PriorSpec
from sketchlearn.errors import ConfigError
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.correlation_episodes import Episodes, checked_cases, thinned
from sketchlearn.meta.correlation_losses import log_area_ratio, stein_loss
from sketchlearn.meta.correlation_matrices import (
    dataset_correlations,
    random_correlation,
    random_raster,
)
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.settings import require_settings
from sketchlearn.meta.tasks.base import Task
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.registry import load_model

__all__ = ["CorrelationConfig", "CorrelationProblem"]

SYNTHETIC, SIMULATED = "synthetic", "simulated"

KINDS = ("image", "tabular", "genotype", SIMULATED)
"""Kinds of datasets that folders of the paper's sets may have."""

NOISE_LEVELS = (0.003, 1.0)
"""Range of noise on a sketch, in units of the length of the columns of Ω."""


@final
@dataclass(frozen=True)
class CorrelationConfig:
    """How episodes of correlations are drawn."""

    episodes: int = 8
    """Datasets in a batch; twice as many where there are at most 60 features."""

    max_features: int = 196
    """Most features of an episode."""

    min_numbers: float = 100.0
    """Smallest sketch of an episode."""

    max_numbers: float = 2600.0
    """Largest sketch of an episode."""

    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of each kind of dataset, with ``"simulated"`` for all that are not real
    and ``"synthetic"`` for matrices without data; all datasets alike by default."""

    augment: float = 0.23
    """Share of episodes that blend, join or multiply two correlation matrices."""

    flips: float = 0.15
    """Share of episodes whose features change sign at random."""

    uneven: float = 0.4
    """Share of batches whose Ω weighs features unequally."""

    shuffled: float = 1.0
    """Share of episodes whose features are in random order."""

    thinned: float = 0.0
    """Share of batches in which some features have no room in the sketch. If there are
    any, so has every batch whose sketch is smaller than the number of features."""

    runs: int = 1
    """Most neighbours that stay together in a group of Ω; drawn for each batch."""

    noisy: float = 0.0
    """Share of batches with noise on the sketch."""

    stein: float = 0.3
    """Weight of Stein's loss beside the log ratio of areas."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(fields, cls, "[problem]")
        return cls(**fields)


@final
class CorrelationProblem(AbstractProblem):
    """Correlations of any number of features from any number of columns of P Ω.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Their correlations are computed now.
    config : CorrelationConfig
        How episodes are drawn.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        config: CorrelationConfig,
    ) -> None:
        self.config = config
        self._pools: dict[str, list[Tensor]] = {}
        for data in training:
            group = data.kind if data.real else SIMULATED
            group = group if config.shares else "all"
            matrix = torch.from_numpy(dataset_correlations(data, active_only=True))
            self._pools.setdefault(group, []).append(matrix)
        shares = _shares_of(config.shares, [*self._pools, SYNTHETIC])
        self._groups = list(shares)
        self._shares = np.array(list(shares.values())) / sum(shares.values())
        widest = max(len(matrix) for pool in self._pools.values() for matrix in pool)
        self._largest = config.max_features
        if SYNTHETIC not in shares:
            self._largest = min(self._largest, widest)
        self._cases = [
            case
            for data in held_out
            for case in checked_cases(
                data, config.max_features, in_order=config.shuffled < 1
            )
        ]
        if self._largest < 4 or self._largest**2 / 2 <= config.min_numbers:
            raise ConfigError(
                f"{self._largest} features fit in a sketch of {config.min_numbers:g} "
                "numbers: nothing is left to learn. Lower min_numbers or take wider "
                "datasets."
            )

    @override
    def draw(self, rng: np.random.Generator) -> Episodes:
        d, p, columns = self._shape(rng)
        count = self.config.episodes * (1 if d > 60 else 2)
        matrices = torch.stack([self._episode(d, rng) for _ in range(count)])
        run = int(rng.integers(1, self.config.runs + 1))
        omega = np.stack(
            [
                random_groups(p, columns, int(seed), run=run)
                for seed in rng.integers(2**62, size=count)
            ]
        )
        if rng.random() < self.config.uneven:
            spread = rng.uniform(0, 1) * rng.normal(size=(count, p, 1))
            omega = omega * np.exp(spread)
        places = torch.arange(d) if p == d else torch.from_numpy(thinned(d, p, rng))
        tests = torch.from_numpy(omega.astype(np.float32))
        inner = matrices[:, places[:, None], places]
        noise = torch.zeros(count)
        if rng.random() < self.config.noisy:
            low, high = np.log(NOISE_LEVELS)
            levels = np.exp(rng.uniform(low, high, count))
            noise = torch.from_numpy(levels).float() * tests.norm(dim=1).mean(dim=1)
        drawn = torch.from_numpy(rng.normal(size=tests.shape)).float()
        seen = inner @ tests + noise[:, None, None] * drawn
        return Episodes(matrices, tests, seen, places, noise)

    @override
    def loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        matrices, omega, seen, places, noise = batch
        found = model(
            omega, seen, places=places, n_features=matrices.shape[1], noise=noise
        )
        ratio = log_area_ratio(found, matrices)
        return (ratio + self.config.stein * stein_loss(found, matrices)).mean()

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean LRE of PCA on held-out datasets, by sketch size and over sizes."""
        if not self._cases:
            raise ConfigError(
                "every held-out dataset fits whole in the smallest sketch; hold out "
                "wider ones."
            )
        scores: dict[str, list[float]] = {}
        for size, matrix, places, omega in self._cases:
            seen = matrix[np.ix_(places, places)] @ omega
            known = torch.from_numpy(np.stack([omega, seen])[:, None])
            found = model(
                *beside(model, known),
                places=beside(model, torch.from_numpy(places)),
                n_features=len(matrix),
            )[0]
            components = leading_components(found.cpu().numpy())
            error = pca_log_relative_error(matrix, components)
            scores.setdefault(f"lre_{size}", []).append(error)
        means = {name: float(np.mean(values)) for name, values in scores.items()}
        return {"score": float(np.mean(list(means.values()))), **means}

    def _shape(self, rng: np.random.Generator) -> tuple[int, int, int]:
        """Features, features with room, columns: a sketch that does not hold all."""
        largest, low = self._largest, math.log(self.config.min_numbers)
        thins = self.config.thinned
        while True:
            d = int(rng.integers(largest // 2, largest + 1))
            if rng.random() < 0.55:
                smallest = math.log(min(12.0, largest / 2))
                d = int(np.exp(rng.uniform(smallest, math.log(0.75 * largest))))
            size = np.exp(rng.uniform(low, math.log(self.config.max_numbers)))
            p = d
            if thins and (size < d or rng.random() < thins):
                p = int(min(d, size) * np.exp(-(rng.uniform(0, 1) ** 2)))
            columns = max(int(size // max(p, 1)), 1)
            if p >= 3 and columns < (p + 1) / 2:
                return d, p, columns

    def _episode(self, d: int, rng: np.random.Generator) -> Tensor:
        shuffle = rng.random() < self.config.shuffled
        one = partial(self._one, rng=rng, shuffle=shuffle)
        matrix, dice = one(d), rng.random() / max(self.config.augment, 1e-9)
        if dice < 0.4:
            share = float(rng.uniform(0.2, 0.8))
            matrix = share * matrix + (1 - share) * one(d)
        elif dice < 0.7 and d >= 20:
            cut = int(rng.integers(d // 4, 3 * d // 4))
            left, right = one(cut), one(d - cut)
            matrix = torch.block_diag(left, right)  # type: ignore[no-untyped-call]
        elif dice < 1.0:
            matrix = matrix * one(d)
        if rng.random() < self.config.flips:
            signs = torch.from_numpy(rng.choice([-1.0, 1.0], d)).to(matrix)
            matrix = matrix * signs * signs[:, None]
        return matrix

    def _one(self, d: int, rng: np.random.Generator, shuffle: bool) -> Tensor:
        """Correlations of d random features of one dataset."""
        while True:
            group = self._groups[rng.choice(len(self._groups), p=self._shares)]
            if group == SYNTHETIC:
                in_order = not shuffle and rng.random() < 0.6
                law = random_raster if in_order else random_correlation
                return torch.from_numpy(law(d, rng))
            wide = [matrix for matrix in self._pools[group] if len(matrix) >= d]
            if wide:
                matrix = wide[int(rng.integers(len(wide)))]
                drawn = rng.permutation(len(matrix))[:d]
                chosen = torch.from_numpy(drawn if shuffle else np.sort(drawn))
                return matrix[chosen[:, None], chosen]


def _shares_of(
    shares: Mapping[str, float], there: Sequence[str]
) -> Mapping[str, float]:
    """Shares of the kinds that there are; a kind that nobody knows is refused."""
    if not shares:
        return {"all": 1.0}
    absent = [kind for kind in shares if kind not in there]
    unknown = [kind for kind in absent if kind not in KINDS]
    if unknown or len(absent) == len(shares):
        kind = (unknown or absent)[0]
        raise ConfigError(f"no dataset is of kind {kind!r}; there are {list(there)}.")
    if absent:
        warnings.warn(
            f"no dataset of the folder is {' or '.join(absent)}: episodes are of "
            "other kinds instead.",
            UserWarning,
            stacklevel=4,
        )
    return {kind: share for kind, share in shares.items() if kind in there}


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[PriorNetwork, CorrelationProblem]:
    problem = CorrelationProblem(
        training, held_out, CorrelationConfig.from_dict(config.problem)
    )
    fields = dict(config.model)
    start = fields.pop("start", None)
    require_settings({"start": start}, None, "[model]", start=str | None)
    spec = PriorSpec.from_dict(fields)
    network = PriorNetwork(spec, seed=config.train.seed)
    if start is not None:
        network = PriorNetwork.thaw(load_model(start).network, spec)
    return network, problem


TASK = Task("correlations", _build)
