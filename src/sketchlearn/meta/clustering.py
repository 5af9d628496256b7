"""Episodes of clustering: rows of datasets, random units and Lloyd's centroids.

Datasets have their features scaled to [-1, 1] and are padded to one width. What is
done with a sketch of the rows is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from sketchlearn.decoders.clusters.ckm_units import MAX_PADDED, draw_units
from sketchlearn.meta.backend import Tensor, torch
from sketchlearn.meta.datasets import MetaDataset

__all__ = [
    "ClusteringEpisodes",
    "draw_episodes",
    "gaussian_dataset",
    "log_uniform",
    "padded_width",
]

_SYNTHETIC_ROWS = 4096


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
        support, query, counts, directions, positions, start, reference, seed
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

    The first and second half share no row, as long as there are enough.
    """
    low, high = _bounds(data)
    varying = rng.permutation(np.flatnonzero(high > low))[:MAX_PADDED]
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
