"""Correlation matrices to learn from: of datasets, and without data.

Those without data are smooth fields, factor models and clusters; they widen what a
decoder is trained on beyond the datasets at hand.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sketchlearn.meta.datasets import MetaDataset

__all__ = ["dataset_correlations", "random_correlation", "random_raster"]


@lru_cache(maxsize=256)
def dataset_correlations(
    data: MetaDataset, *, active_only: bool = False
) -> NDArray[np.float32]:
    """Correlations of all features; constant ones have zeros, or are left out."""
    columns = data.varying if active_only else np.arange(data.n_features)
    rows = data.take(np.arange(data.n_rows), columns)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for part in np.array_split(rows, max(1, len(rows) // 4096)):
        total += part.T @ part
    matrix = (total / len(rows)).astype(np.float32)
    if active_only:
        np.fill_diagonal(matrix, 1.0)
    return matrix


def random_correlation(
    n_features: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """A correlation matrix of one of three laws, drawn with equal chance.

    Parameters
    ----------
    n_features : int
        Size of the matrix.
    rng : numpy.random.Generator
        Source of randomness.

    Examples
    --------
    >>> P = random_correlation(5, np.random.default_rng(0))
    >>> bool(np.allclose(np.diag(P), 1)), bool(np.linalg.eigvalsh(P).min() > -1e-5)
    (True, True)
    """
    laws = (_smooth_field, _factor_model, _clusters)
    covariance = laws[int(rng.integers(3))](n_features, rng)
    return _unit_diagonal(covariance)


def random_raster(n_features: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Correlations of features in an order that means something.

    A field over a line or over the rows of a picture, of which some points are
    features, in order; neighbours are alike up to a random distance.

    Parameters
    ----------
    n_features : int
        Size of the matrix.
    rng : numpy.random.Generator
        Source of randomness.

    Examples
    --------
    >>> P = random_raster(50, np.random.default_rng(0))
    >>> bool(np.diag(P, 1).mean() > np.diag(P, 25).mean())
    True
    """
    d = n_features
    points = np.sort(rng.permutation(int(d * np.exp(rng.uniform(0, 1.8))))[:d])
    places: NDArray[np.float64] = points[:, None].astype(np.float64)
    if rng.random() < 0.7:
        columns = int(np.exp(rng.uniform(0, math.log(40))))
        places = np.stack([points % columns, points // columns], axis=1).astype(float)
    reach = np.exp(rng.uniform(math.log(0.6), math.log(12), places.shape[1]))
    if rng.random() < 0.5:
        reach[:] = reach[0]
    apart = np.linalg.norm((places[:, None] - places) / reach, axis=2)
    matrix = np.exp(-(apart ** (1.0 if rng.random() < 0.6 else 1.7)))
    if rng.random() < 0.5:  # alike in some places only
        matrix *= _cosines(matrix @ rng.normal(size=(d, int(rng.integers(1, 4)))))
    if rng.random() < 0.5:
        share = rng.uniform(0, 0.6)
        matrix = (1 - share) * matrix + share * _cosines(rng.normal(size=(d, 2)))
    noise = rng.uniform(0, 0.4)
    matrix = (1 - noise) * matrix + noise * np.eye(d)
    return _unit_diagonal(matrix)


def _unit_diagonal(covariance: NDArray[np.float64]) -> NDArray[np.float32]:
    scale = np.sqrt(np.diag(covariance))
    correlation: NDArray[np.float32] = (covariance / scale / scale[:, None]).astype(
        np.float32
    )
    return correlation


def _cosines(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return np.asarray(units @ units.T)


def _smooth_field(d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Features at random places of 1 to 3 dimensions, alike where they are near."""
    places = rng.uniform(size=(d, int(rng.integers(1, 4))))
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    distances /= np.exp(rng.uniform(np.log(0.05), 0.0))
    power = 1 if rng.random() < 0.5 else 2
    noise = rng.uniform(0, 0.3)
    return np.asarray((1 - noise) * np.exp(-(distances**power)) + noise * np.eye(d))


def _factor_model(d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A few common factors of decaying strength and independent rests."""
    n_factors = int(rng.integers(1, max(2, d // 3)))
    strengths = np.arange(1, n_factors + 1) ** (-rng.uniform(0, 2) / 2)
    loadings = rng.normal(size=(d, n_factors)) * strengths
    rest = np.exp(rng.uniform(np.log(0.02), np.log(3))) * rng.uniform(0.2, 1.8, d)
    return np.asarray(loadings @ loadings.T + np.diag(rest))


def _clusters(d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Groups of features that measure the same thing, and two common factors."""
    n_groups = int(rng.integers(2, max(3, d // 4)))
    loadings = np.zeros((d, n_groups))
    loadings[np.arange(d), rng.integers(0, n_groups, d)] = rng.uniform(0.2, 1, d)
    common = rng.uniform(0, 0.6) * rng.normal(size=(d, 2))
    rest = rng.uniform(0.1, 1) * np.eye(d)
    return np.asarray(loadings @ loadings.T + common @ common.T + rest)
