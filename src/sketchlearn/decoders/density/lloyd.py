"""Lloyd's algorithm on points of our own: drawn from a density, or guessed."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from sketchlearn.decoders.density.mixture import Mixture

__all__ = ["cut_into_pieces", "lloyd", "place_anchors"]

_PLACING_STEPS = 20
"""Of Lloyd's algorithm, where pieces need not be the best ones."""


def lloyd(
    points: NDArray[np.float64],
    k: int,
    *,
    seed: int,
    n_init: int = 1,
    max_iter: int = 300,
    weights: NDArray[np.float64] | None = None,
    start: NDArray[np.float64] | None = None,
) -> KMeans:
    """k-means on points, of which some may be nearly the same."""
    init = "k-means++" if start is None else start
    search = KMeans(k, init=init, n_init=n_init, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        return search.fit(points, sample_weight=weights)


def cut_into_pieces(points: NDArray[np.float64], n_pieces: int, seed: int) -> Mixture:
    """Points cut into at most so many pieces, each a component without correlations."""
    size = min(n_pieces, len(np.unique(points, axis=0)))
    labels = lloyd(points, size, max_iter=_PLACING_STEPS, seed=seed).labels_
    # Points that differ by rounding errors alone leave pieces empty.
    pieces, counts = np.unique(labels, return_counts=True)
    member = (labels == pieces[:, None]) / counts[:, None]
    means = member @ points
    variances = np.maximum(member @ points**2 - means**2, 0.0)
    return Mixture(counts / len(points), means, np.sqrt(variances))


def place_anchors(
    points: NDArray[np.float64], n_cells: int, seed: int
) -> NDArray[np.float64]:
    """Centers of at most so many pieces of points, for cells to lie around."""
    size = min(n_cells, len(np.unique(points, axis=0)))
    search = lloyd(points, size, max_iter=_PLACING_STEPS, seed=seed)
    return np.asarray(search.cluster_centers_)
