"""What a sketch says of each feature and of each pair, in numbers for a network.

Numbers and their scales are those that shipped weights were trained with.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.covariance.base import Array
from sketchlearn.decoders.moments.cross_moments import Places
from sketchlearn.decoders.moments.lag_correlations import lag_correlations

__all__ = [
    "KERNELS",
    "N_PAIRS",
    "N_PLACE_PAIRS",
    "N_PLACE_SCALARS",
    "N_SCALARS",
    "PAIR_KERNELS",
    "QUERY_ROWS",
    "SHOWN_LAGS",
    "UNSEEN",
    "SketchReading",
]

QUERY_ROWS = 256
"""Features whose attention is computed at once; bounds the memory for many."""

N_PAIRS = 4
"""Numbers that are said of a pair of features."""

N_SCALARS = 6
"""Numbers that are said of a feature, beside its loadings."""

UNSEEN = 0.02
"""Least share of a feature's variance that is taken to be unseen."""

KERNELS = (1.0, 2.0, 4.0, 8.0, 16.0, 48.0)
"""Distances over which the fixed kernels exp(-|i - j| / reach) fall off."""

PAIR_KERNELS = (1.0, 4.0, 16.0, 48.0)
"""Those that attention sees, beside the kernel that was read off the sketch."""

N_PLACE_PAIRS = 1 + len(PAIR_KERNELS)

SHOWN_LAGS = (1, 2, 4, 8)
"""Distances whose correlations every feature is told."""

N_PLACE_SCALARS = 3 + len(SHOWN_LAGS) + 3


@final
class SketchReading:
    """A sketch P Ω as the network reads it.

    Parameters
    ----------
    omega, seen : arrays of shape (p, n_columns)
        Ω with orthonormal columns, and P Ω, of the features that were seen.
    loadings : array of shape (p, n_columns)
        Nyström loadings.
    places : Places
        Where these features stand among all d.
    noise : float
        Standard deviation of the noise on each entry of ``seen``.
    ordered : bool
        Whether the order of the features is looked at.
    """

    def __init__(
        self,
        omega: Array,
        seen: Array,
        loadings: Array,
        *,
        places: Places,
        noise: float,
        ordered: bool,
    ) -> None:
        self.places, self._noise = places, noise
        self._omega, self._seen, self._strongest = omega, seen, loadings
        self._loadings = self.places.spread(loadings)
        self._explained = np.square(self._loadings).sum(axis=1, keepdims=True)
        self.unseen = np.sqrt(np.maximum(1 - self._explained, UNSEEN))
        self.curves: list[Array] = []
        self._far = 0.0
        if ordered:
            found, self._far = lag_correlations(omega, seen, places, noise)
            steps = np.arange(places.count)
            self.curves = [*(np.exp(-steps / reach) for reach in KERNELS), found]
        self._pairs = _Pairs(self._loadings, self._explained, self.unseen, self.curves)

    def tokens(self, n_loadings: int) -> Array:
        """What is said of each feature: (d, 2 n_loadings + numbers)."""
        d, columns = self.places.count, self._omega.shape[1]
        u, s, _ = np.linalg.svd(self._strongest, full_matrices=False)
        signs = np.where((u**3).sum(axis=0) < 0, -1.0, 1.0)
        keep = min(len(s), n_loadings)
        strongest, spectrum = np.zeros((len(u), n_loadings)), np.zeros(n_loadings)
        strongest[:, :keep] = (u * signs * s)[:, :keep]
        spectrum[:keep] = s[:keep] / math.sqrt(d)
        omega, seen = self.places.spread(self._omega), self.places.spread(self._seen)
        energy = np.log1p(np.square(seen).mean(axis=1) * d)
        leverage = np.log(np.square(omega).sum(axis=1) * d / columns + 1e-6)
        share = np.full(d, 5 * columns / d)
        own = [self._explained[:, 0], 0.3 * energy, 0.3 * leverage, share]
        shared = [*spectrum, math.log(d) / 5, math.log(columns) / 3]
        said = [
            self.places.spread(strongest),
            np.stack(own, axis=1),
            np.tile(shared, (d, 1)),
        ]
        return np.hstack([*said, *self._of_places(omega, seen)])

    def pairs(self, rows: slice) -> NDArray[np.float32]:
        """What is said of each pair of some features with all: (n, rows, d)."""
        return self._pairs(rows)

    def with_kernels(self, weights: Array, loadings: Array) -> Array:
        """Unit diagonal, loadings, and kernels weighed by features: (d, d)."""
        d = self.places.count
        total: Array = loadings @ loadings.T
        apart = np.abs(np.arange(d)[:, None] - np.arange(d))
        for curve, weight in zip(self.curves, weights.T, strict=True):
            total += weight[:, None] * curve[apart] * weight
        np.fill_diagonal(total, 1.0)
        return total

    def _of_places(self, omega: Array, seen: Array) -> list[Array]:
        """What a feature's neighbours say of it, and of all: (d, 10)."""
        if not self.curves:
            return []
        d, curve = self.places.count, self.curves[-1]
        is_seen = np.zeros((d, 1))
        is_seen[self.places.seen] = 1.0
        apart = np.abs(np.arange(d)[:, None] - np.arange(d))
        likely = (curve[apart] @ omega - omega) * is_seen
        found = (seen - omega) * is_seen
        agree = (found * likely).sum(axis=1)
        length, size = (np.square(part).sum(axis=1) for part in (likely, found))
        own = [
            (agree / (length + 0.05)).clip(-3, 3),
            agree / np.sqrt(length * size + 1e-4),
            1 - is_seen[:, 0],
        ]
        lags = [float(curve[min(step, d - 1)]) for step in SHOWN_LAGS]
        level = 0.3 * math.log(self._noise + 1e-4) + 2
        shared = [*lags, self._far, level, math.log(d / len(self.places.seen))]
        return [np.stack(own, axis=1), np.tile(shared, (d, 1))]


@final
class _Pairs:
    """What is said of each pair of features, for some rows of pairs at a time."""

    def __init__(
        self, loadings: Array, explained: Array, unseen: Array, curves: list[Array]
    ) -> None:
        directions = loadings / np.sqrt(np.maximum(explained, 1e-6))
        self._loadings = loadings.astype(np.float32)
        self._directions = directions.astype(np.float32)
        self._unseen = unseen.astype(np.float32)
        shown = [curves[-1]] if curves else []
        shown += [curves[KERNELS.index(reach)] for reach in PAIR_KERNELS if curves]
        self._curves = [curve.astype(np.float32) for curve in shown]

    def __call__(self, rows: slice) -> NDArray[np.float32]:
        product = self._loadings[rows] @ self._loadings.T
        cosine = self._directions[rows] @ self._directions.T
        both = self._unseen[rows] * self._unseen.T
        cube = cosine * cosine * cosine
        said = [product, cosine, cube, np.float32(0.2) * product / both]
        every = np.arange(len(self._loadings))
        apart = np.abs(every[rows, None] - every)
        return np.stack([*said, *(curve[apart] for curve in self._curves)])
