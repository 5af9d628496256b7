"""Densities that moments alone suggest: one Gaussian, or rows guessed from a range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.lloyd import cut_into_pieces
from sketchlearn.decoders.density.mixture import Density, Mixture, outside_variance
from sketchlearn.decoders.moments.moments import Moments

__all__ = [
    "VARIES",
    "constant_density",
    "gaussian_density",
    "guessed_density",
    "pointing_up",
    "principal_directions",
    "standard_directions",
]

VARIES = 1e-9
"""Directions with less than this share of the largest variance are constant: rounded
rows and the solution of their eigenproblem know no better."""

_DIRECTIONS, _PIECES = 20, 256
"""Of a density guessed from moments: what stands in where a sketch tells no more."""

_LEAST_VARIANCE = 1e-6
"""Of its pieces, in units of the directions."""


def principal_directions(
    moments: Moments, most: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances, largest first, and orthonormal directions (d, r) that vary.

    Parameters
    ----------
    moments : Moments
    most : int, optional
        Directions at most; all by default.
    """
    d = len(moments.mean)
    values, vectors = moments.structure.largest(d if most is None else min(most, d))
    kept = values > max(VARIES * values[0], 1e-300)
    return values[kept], vectors[:, kept]


def pointing_up(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same directions with their largest entry positive, whatever found them."""
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1, 1)


def standard_directions(
    moments: Moments,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions in which rows have unit variance, (d, r), and the way back.

    Principal directions of standardised features: units do not matter.
    """
    spread = np.sqrt(np.maximum(moments.structure.variances, 0.0))
    safe = np.where(spread > 0, spread, 1.0)
    values, vectors = np.linalg.eigh(moments.covariance / safe / safe[:, None])
    kept = values > max(VARIES * values[-1], 1e-300)
    roots = np.sqrt(values[kept])
    return vectors[:, kept] * roots * safe[:, None], (
        vectors[:, kept] / roots / safe[:, None]
    )


def gaussian_density(moments: Moments) -> Density:
    """The Gaussian with these moments."""
    lift, _ = standard_directions(moments)
    r = lift.shape[1]
    if not r:
        return constant_density(moments)
    one = Mixture(np.ones(1), np.zeros((1, r)), np.ones((1, r)))
    return Density(moments.count, one, lift, moments.mean, 0.0)


def constant_density(moments: Moments) -> Density:
    """The density of rows that are all the same."""
    d = len(moments.mean)
    one = Mixture(np.ones(1), np.zeros((1, d)), np.zeros((1, d)))
    return Density(moments.count, one, np.eye(d), moments.mean, 0.0)


def guessed_density(
    rows: NDArray[np.float64], moments: Moments, n_components: int | None, seed: int
) -> Density:
    """The density of rows guessed from moments, in pieces."""
    values, directions = principal_directions(moments, _DIRECTIONS)
    if not len(values):
        return constant_density(moments)
    lift = directions * np.sqrt(values)
    local = (rows - moments.mean) @ np.linalg.pinv(lift).T
    pieces = cut_into_pieces(local, n_components or _PIECES, seed)
    widths = np.sqrt(np.maximum(pieces.variances, _LEAST_VARIANCE))
    mixture = Mixture(pieces.weights, pieces.means, widths)
    outside = outside_variance(moments.structure, lift)
    return Density(moments.count, mixture, lift, moments.mean, outside)
