"""Episodes of clustering: how they are drawn, and what is in them.

Datasets have their features scaled to [-1, 1] and are padded to one width. What is
done with a sketch of the rows is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self, final, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from sketchlearn.decoders.clusters.ckm_units import MAX_PADDED, draw_units
from sketchlearn.decoders.clusters.descent import InnerOptimiser
from sketchlearn.errors import ConfigError
from sketchlearn.features.activation import UNBOUNDED, Activation
from sketchlearn.meta.backend import Tensor, torch
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.settings import require_at_least, require_settings

__all__ = [
    "ClusteringConfig",
    "ClusteringEpisodes",
    "draw_episodes",
    "gaussian_dataset",
    "log_uniform",
    "padded_width",
]

_SYNTHETIC_ROWS = 4096
_NARROW_EPISODE = 48


@final
@dataclass(frozen=True)
class ClusteringConfig:
    """How episodes of clustering are drawn and judged."""

    episodes: int = 4
    """Datasets in a batch, from the narrowest to the widest."""

    n_rows: int = 512
    """Rows sketched, and as many fresh rows for the loss."""

    clusters: tuple[int, int] = (4, 20)
    """Fewest and most centroids of a batch, drawn log-uniformly."""

    sizes: tuple[int, int] = (200, 2000)
    """Smallest and largest sketch of a batch, drawn log-uniformly."""

    synthetic: int = 0
    """Datasets of Gaussian clusters to train on beside the others; a quarter as many,
    and one at least, are added to those held out."""

    kmeans: float = 1.0
    """Weight of the k-means loss: the log of its ratio to that of Lloyd's centroids."""

    hungarian: float = 0.0
    """Weight of the Hungarian loss to Lloyd's centroids, over their k-means loss."""

    backward_steps: int = 10
    """Last steps of the descent that a gradient flows through."""

    epsilon: float | None = None
    """Train with the noise of a release at this ε; None for no noise."""

    delta: float = 0.01
    """δ of that release."""

    released_rows: int = 60_000
    """Rows of the dataset whose release is imitated."""

    search_steps: int = 0
    """Evaluations of NGOpt before any gradient step, over all choices: of the learned
    numbers, and of the law that W of the paper's form is drawn from."""

    matrix_steps: int = 0
    """Evaluations after those, of the entries of W, for the paper's form."""

    search_batches: int = 6
    """Batches of one evaluation."""

    activations: Sequence[Activation] = ("fourier",)
    """What NGOpt chooses among; those without Gaussian atoms with points."""

    optimisers: Sequence[InnerOptimiser] = ("adam", "sgd")
    """What NGOpt chooses among."""

    def __post_init__(self) -> None:
        require_at_least(1, episodes=self.episodes, n_rows=self.n_rows)
        require_at_least(1, **{"numbers of sizes": min(self.sizes, default=1)})
        _require_known("activations", self.activations, get_args(Activation))
        _require_known("optimisers", self.optimisers, get_args(InnerOptimiser))
        for name in set(UNBOUNDED).intersection(self.activations):
            if self.epsilon is not None:
                raise ConfigError(
                    f"{name!r} has no norm bound: leave it out with epsilon."
                )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(fields, cls, "[problem]")
        return cls(**fields)


@final
@dataclass(frozen=True, eq=False)
class ClusteringEpisodes:
    """A batch; datasets of fewer features are padded with zeros to one width."""

    support: Tensor
    """Rows to sketch, (episodes, n, width)."""

    query: Tensor
    """Rows for the loss."""

    n_features: Tensor
    """Features of each dataset, (episodes,)."""

    directions: Tensor
    """Of the units, as many as numbers in the sketch: (episodes, width, size)."""

    positions: Tensor
    """Of the units in their law, (episodes, size)."""

    start: Tensor
    """Unit noise for the first centroids, (episodes, k, width)."""

    reference: Tensor
    """Lloyd's centroids for the sketched rows, (episodes, k, width)."""

    noise_seed: int
    """Seed of the noise of a release."""

    widths: tuple[int, ...]
    """Features of each dataset once more, wherever the tensors are."""

    def parts(self) -> list[tuple[Tensor, Self]]:
        """Narrow episodes and wide ones apart, each with its places in the batch.

        Narrow ones are padded to the widest of them alone: most of the work is saved.
        """
        is_narrow = np.array(self.widths) <= _NARROW_EPISODE
        return [
            self._at(places)
            for places in (np.flatnonzero(is_narrow), np.flatnonzero(~is_narrow))
            if len(places)
        ]

    def _at(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Self]:
        places = torch.from_numpy(numbers).to(self.n_features.device)
        widths = tuple(self.widths[number] for number in numbers)
        width = max(widths)
        part = replace(
            self,
            support=self.support[places, :, :width],
            query=self.query[places, :, :width],
            n_features=self.n_features[places],
            widths=widths,
            directions=self.directions[places, :width],
            positions=self.positions[places],
            start=self.start[places, :, :width],
            reference=self.reference[places, :, :width],
        )
        return places, part


def draw_episodes(
    datasets: Sequence[MetaDataset],
    *,
    n_rows: int,
    n_clusters: int,
    size: int,
    rng: np.random.Generator,
) -> ClusteringEpisodes:
    """A batch: an episode of each dataset.

    Parameters
    ----------
    datasets : sequence of MetaDataset
        One for each episode.
    n_rows : int
        Rows to sketch, and as many for the loss.
    n_clusters, size : int
        Centroids, and numbers of the sketch.
    rng : numpy.random.Generator
        Source of randomness.
    """
    tables = [_unit_rows(data, 2 * n_rows, rng) for data in datasets]
    shape, width = (len(tables),), max(table.shape[1] for table in tables)
    rows = torch.zeros(*shape, 2 * n_rows, width)
    directions, positions = (
        torch.zeros(*shape, width, size),
        torch.zeros(*shape, size),
    )
    start, reference = torch.zeros(2, *shape, n_clusters, width)
    for i, table in enumerate(tables):
        d = table.shape[1]
        rows[i, :, :d] = torch.from_numpy(table)
        drawn = draw_units(d, size, rng)
        directions[i, :d], positions[i] = map(torch.from_numpy, drawn)
        noise = rng.standard_normal((n_clusters, d), np.float32)
        start[i, :, :d] = torch.from_numpy(noise)
        found = _lloyd(table[:n_rows], n_clusters, rng)
        reference[i, :, :d] = torch.from_numpy(found)
    support, query = rows.chunk(2, dim=1)
    counts = torch.tensor([float(table.shape[1]) for table in tables])
    seed = int(rng.integers(2**63))
    return ClusteringEpisodes(
        support,
        query,
        counts,
        directions,
        positions,
        start,
        reference,
        seed,
        tuple(int(count) for count in counts),
    )


def _lloyd(
    rows: NDArray[np.float32], n_clusters: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    seed = int(rng.integers(2**31))
    fit = KMeans(n_clusters, n_init=2, random_state=seed).fit(rows)
    centers: NDArray[np.float32] = fit.cluster_centers_
    return centers


def _unit_rows(
    data: MetaDataset, n_rows: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Random rows and up to 196 random features that vary, scaled to [-1, 1].

    Features keep their order. The first and second half share no row, as long as there
    are enough.
    """
    low, high = _bounds(data)
    varying = np.sort(rng.permutation(np.flatnonzero(high > low))[:MAX_PADDED])
    order = rng.permutation(data.n_rows)
    half = max(1, min(n_rows // 2, data.n_rows // 2))
    chosen = [np.resize(part, n_rows // 2) for part in (order[:half], order[-half:])]
    values = data.take(np.concatenate(chosen), varying, standardize=False)
    least, most = low[varying], high[varying]
    scaled: NDArray[np.float32] = 2 * (values - least) / (most - least) - 1
    return scaled


def gaussian_dataset(rng: np.random.Generator) -> MetaDataset:
    """Unit Gaussian clusters around centers that are further apart."""
    d, k = log_uniform(2, 64, rng), log_uniform(4, 20, rng)
    spread = math.exp(rng.uniform(math.log(1.2), math.log(4)))
    centers = spread * rng.standard_normal((k, d), np.float32)
    rows = centers[rng.integers(k, size=_SYNTHETIC_ROWS)]
    rows += rng.standard_normal(rows.shape, np.float32)
    return MetaDataset.from_arrays(f"gaussian-{d}-{k}", rows, real=False)


@lru_cache(maxsize=256)
def _bounds(data: MetaDataset) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    low, high = data.rows.min(axis=0), data.rows.max(axis=0)
    return low.astype(np.float32), high.astype(np.float32)


def padded_width(data: MetaDataset) -> int:
    """Features that an episode of a dataset can have."""
    return min(data.n_features, MAX_PADDED)


def log_uniform(low: int, high: int, rng: np.random.Generator) -> int:
    """A whole number whose logarithm is uniform between two others."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _require_known(name: str, found: Sequence[str], known: Sequence[str]) -> None:
    unknown = [value for value in found if value not in known]
    if isinstance(found, str) or unknown:
        got = found if isinstance(found, str) else unknown[0]
        raise ConfigError(
            f"{name} must be a list of some of {', '.join(known)}; got {got!r}."
        )
