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
from dataclasses import fields as dataclass_fields
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.prior_network import PriorSpec
from sketchlearn.errors import ConfigError
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import RunConfig, refuse_unknown
from sketchlearn.meta.correlation_losses import log_area_ratio, stein_loss
from sketchlearn.meta.correlation_matrices import (
    dataset_correlations,
    random_correlation,
)
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.tasks.base import Task
from sketchlearn.metrics import leading_components, pca_log_relative_error

__all__ = ["CorrelationConfig", "CorrelationProblem"]

CHECKED_SIZES = (100, 500, 1000, 2000)
"""Sketch sizes of the validation, as in the paper's figures."""

SYNTHETIC, SIMULATED = "synthetic", "simulated"

KINDS = ("image", "tabular", "genotype", SIMULATED)
"""Kinds of datasets that folders of the paper's sets may have."""


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

    stein: float = 0.3
    """Weight of Stein's loss beside the log ratio of areas."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        refuse_unknown(
            fields, [entry.name for entry in dataclass_fields(cls)], "[problem]"
        )
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
            case for data in held_out for case in _cases(data, config.max_features)
        ]
        if self._largest < 4 or self._largest**2 / 2 <= config.min_numbers:
            raise ConfigError(
                f"{self._largest} features fit in a sketch of {config.min_numbers:g} "
                "numbers: nothing is left to learn. Lower min_numbers or take wider "
                "datasets."
            )

    @override
    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        d, columns = self._shape(rng)
        count = self.config.episodes * (1 if d > 60 else 2)
        matrices = torch.stack([self._episode(d, rng) for _ in range(count)])
        seeds = rng.integers(2**62, size=count)
        omega = np.stack([random_groups(d, columns, int(seed)) for seed in seeds])
        if rng.random() < self.config.uneven:
            spread = rng.uniform(0, 1) * rng.normal(size=(count, d, 1))
            omega = omega * np.exp(spread)
        return matrices, torch.from_numpy(omega.astype(np.float32))

    @override
    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        matrices, omega = batch
        found = model(omega, matrices @ omega)
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
        for size, matrix, kept, omega in self._cases:
            inner = matrix[np.ix_(kept, kept)]
            known = torch.from_numpy(np.stack([omega, inner @ omega])[:, None])
            completed = model(*beside(model, known))[0].cpu().numpy()
            found = np.eye(len(matrix))
            found[np.ix_(kept, kept)] = completed
            error = pca_log_relative_error(matrix, leading_components(found))
            scores.setdefault(f"lre_{size}", []).append(error)
        means = {name: float(np.mean(values)) for name, values in scores.items()}
        return {"score": float(np.mean(list(means.values()))), **means}

    def _shape(self, rng: np.random.Generator) -> tuple[int, int]:
        """Number of features and of columns: a sketch that does not hold all."""
        largest, low = self._largest, math.log(self.config.min_numbers)
        while True:
            d = int(rng.integers(largest // 2, largest + 1))
            if rng.random() < 0.55:
                smallest = math.log(min(12.0, largest / 2))
                d = int(np.exp(rng.uniform(smallest, math.log(0.75 * largest))))
            size = np.exp(rng.uniform(low, math.log(self.config.max_numbers)))
            columns = max(int(size // d), 1)
            if columns < (d + 1) / 2:
                return d, columns

    def _episode(self, d: int, rng: np.random.Generator) -> Tensor:
        matrix, dice = self._one(d, rng), rng.random() / max(self.config.augment, 1e-9)
        if dice < 0.4:
            share = float(rng.uniform(0.2, 0.8))
            matrix = share * matrix + (1 - share) * self._one(d, rng)
        elif dice < 0.7 and d >= 20:
            cut = int(rng.integers(d // 4, 3 * d // 4))
            left, right = self._one(cut, rng), self._one(d - cut, rng)
            matrix = torch.block_diag(left, right)  # type: ignore[no-untyped-call]
        elif dice < 1.0:
            matrix = matrix * self._one(d, rng)
        if rng.random() < self.config.flips:
            signs = torch.from_numpy(rng.choice([-1.0, 1.0], d)).to(matrix)
            matrix = matrix * signs * signs[:, None]
        return matrix

    def _one(self, d: int, rng: np.random.Generator) -> Tensor:
        """Correlations of d random features of one dataset."""
        while True:
            group = self._groups[rng.choice(len(self._groups), p=self._shares)]
            if group == SYNTHETIC:
                return torch.from_numpy(random_correlation(d, rng))
            wide = [matrix for matrix in self._pools[group] if len(matrix) >= d]
            if wide:
                matrix = wide[int(rng.integers(len(wide)))]
                chosen = torch.from_numpy(rng.permutation(len(matrix))[:d])
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


Case = tuple[int, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def _cases(data: MetaDataset, max_features: int) -> list[Case]:
    """Sketch size, correlations, kept features and Ω: always the same."""
    whole = dataset_correlations(data, active_only=True).astype(np.float64)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(whole))[:max_features]
    matrix, d = whole[np.ix_(chosen, chosen)], len(chosen)
    cases: list[Case] = []
    for size in CHECKED_SIZES:
        if d * (d + 1) // 2 > size:
            kept = np.sort(rng.permutation(d)[:size])
            columns = max(size // len(kept), 1)
            omega = random_groups(len(kept), columns, int(rng.integers(2**62)))
            cases.append((size, matrix, kept, omega))
    return cases


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[PriorNetwork, CorrelationProblem]:
    problem = CorrelationProblem(
        training, held_out, CorrelationConfig.from_dict(config.problem)
    )
    spec = PriorSpec.from_dict(config.model)
    return PriorNetwork(spec, seed=config.train.seed), problem


TASK = Task("correlations", _build)
