r"""A covariance of many features as factors, never written out.

What a compressed sketch tells of d features are a few directions and a diagonal,
:math:`C = LL^\top + \mathrm{diag}(s)`, and the columns of targets exactly. The largest
eigenvalues and the linear systems of such a matrix cost no more than its factors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from typing_extensions import override

from sketchlearn.decoders.moments.covariance.base import (
    AbstractCovariance,
    Array,
    deviations,
)
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance

__all__ = ["DENSE_FEATURES", "LowRankCovariance", "placed_among", "with_targets"]

DENSE_FEATURES = 2048
"""Matrices of so many features are written out: 32 MB, and nothing is faster or more
accurate. A promise of the estimators that say so."""

_SMALLEST = 1e-12
"""Least variance of a feature's own, of its whole, that a system is solved with: its
inverse multiplies machine epsilon, and four digits of a solution are left."""


@final
@dataclass(frozen=True, eq=False)
class LowRankCovariance(AbstractCovariance):
    r"""Factors of a covariance of many features, and exact columns of some.

    .. math::
        C = LL^\top + \mathrm{diag}(s) + E_t X^\top + X E_t^\top,

    where the columns of :math:`E_t` are unit vectors.

    Parameters
    ----------
    loadings : array of shape (d, rank)
        L.
    own : array of shape (d,)
        s, the variance of each feature that L leaves.
    targets : array of n_targets ints
        t.
    cross : array of shape (d, n_targets)
        X, zero on the targets' own rows where L does not reach.

    Examples
    --------
    >>> low = LowRankCovariance(np.array([[3.0], [4.0]]), np.ones(2))
    >>> low.dense
    array([[10., 12.],
           [12., 17.]])
    >>> low.solve(np.array([[22.0], [29.0]]), np.zeros(2)).ravel().round(9)
    array([1., 1.])
    """

    loadings: Array
    own: Array
    targets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    cross: Array | None = None

    @property
    @override
    def variances(self) -> Array:
        return np.asarray(np.vecdot(self.loadings, self.loadings) + self.own)

    @property
    @override
    def dense(self) -> Array:
        matrix: Array = self.loadings @ self.loadings.T
        matrix[np.diag_indices_from(matrix)] += self.own
        if self.cross is not None:
            matrix[:, self.targets] += self.cross
            matrix[self.targets] += self.cross.T
        return matrix

    @property
    @override
    def n_factors(self) -> int:
        return min(int(self.loadings.shape[1]) + len(self.targets), len(self.own))

    @override
    def __matmul__(self, vectors: Array) -> Array:
        own = self.own if vectors.ndim == 1 else self.own[:, None]
        product = self.loadings @ (self.loadings.T @ vectors) + own * vectors
        if self.cross is not None:
            product += self.cross @ vectors[self.targets]
            product[self.targets] += self.cross.T @ vectors
        return np.asarray(product)

    @override
    def columns(self, chosen: NDArray[np.int64]) -> Array:
        units = np.zeros((len(self.own), len(chosen)))
        units[chosen, np.arange(len(chosen))] = 1.0
        return self @ units

    @override
    def of_features(self, chosen: NDArray[np.int64]) -> AbstractCovariance:
        place = np.full(len(self.own), -1)
        place[chosen] = np.arange(len(chosen))
        kept = place[self.targets] >= 0
        cross = self.cross
        if cross is not None:
            cross = cross[np.ix_(chosen, kept)] if kept.any() else None
        targets = place[self.targets[kept]]
        return LowRankCovariance(
            self.loadings[chosen], self.own[chosen], targets, cross
        )

    @override
    def scaled(self, factor: Array) -> AbstractCovariance:
        cross = self.cross
        if cross is not None:
            cross = cross * factor[:, None] * factor[self.targets]
        loadings, own = self.loadings * factor[:, None], self.own * factor * factor
        return LowRankCovariance(loadings, own, self.targets, cross)

    @override
    def plus_outer(self, vector: Array) -> AbstractCovariance:
        loadings = np.concatenate([self.loadings, vector[:, None]], axis=1)
        return LowRankCovariance(loadings, self.own, self.targets, self.cross)

    @override
    def largest(self, count: int) -> tuple[Array, Array]:
        d = len(self.own)
        if d <= DENSE_FEATURES or 3 * (count + self.n_factors) >= d:
            return DenseCovariance(self.dense).largest(count)
        # Eigenvectors are (λ - s)^-1 L z: low powers of s span them where λ stands
        # out of the diagonal, and where it does not, they are single features.
        factors = self._factors()[0]
        unit = factors / np.maximum(np.abs(factors).max(axis=0, initial=0.0), 1e-300)
        away = self.own - self.own.mean()
        away = (away / (np.abs(away).max() or 1.0))[:, None]
        loudest = np.zeros((d, count))
        loudest[np.argsort(-self.own, kind="stable")[:count], np.arange(count)] = 1.0
        blocks = [unit, away * unit, away * away * unit, loudest]
        basis = np.linalg.qr(np.concatenate(blocks, axis=1))[0]
        size = float(self.variances.max()) or 1.0
        inner = DenseCovariance(basis.T @ (self @ basis / size))
        values, vectors = inner.largest(count)
        return values * size, basis @ vectors

    @override
    def solve(self, right: Array, penalty: Array) -> Array:
        # Woodbury: (D + F M F')^-1 = D^-1 - D^-1 F (I + M F' D^-1 F)^-1 M F' D^-1.
        scale = deviations(self.variances + penalty)
        own = np.maximum((self.own + penalty) / scale**2, _SMALLEST)
        factors, middle = self._factors()
        factors, right = factors / scale[:, None], right / scale[:, None]
        weighed, alone = factors / own[:, None], right / own[:, None]
        core = np.eye(len(middle)) + middle @ (factors.T @ weighed)
        inner = lstsq(core, middle @ (weighed.T @ right), lapack_driver="gelsd")[0]
        return np.asarray((alone - weighed @ inner) / scale[:, None])

    def _factors(self) -> tuple[Array, Array]:
        """F and M with C = F M Fᵀ + diag(s)."""
        rank, n = self.loadings.shape[1], len(self.targets)
        if self.cross is None:
            return self.loadings, np.eye(rank)
        units = np.zeros((len(self.own), n))
        units[self.targets, np.arange(n)] = 1.0
        middle = np.eye(rank + 2 * n)
        middle[rank:, rank:] = np.kron([[0.0, 1.0], [1.0, 0.0]], np.eye(n))
        return np.concatenate([self.loadings, units, self.cross], axis=1), middle


def placed_among(
    covariance: AbstractCovariance,
    chosen: NDArray[np.int64],
    variance: Array,
) -> AbstractCovariance:
    """The covariance of all features from that of some; the others stand alone."""
    d = len(variance)
    if isinstance(covariance, LowRankCovariance) and d > DENSE_FEATURES:
        loadings = np.zeros((d, covariance.loadings.shape[1]))
        loadings[chosen] = covariance.loadings
        own = variance - np.vecdot(loadings, loadings)
        return LowRankCovariance(loadings, np.maximum(own, 0.0))
    matrix = np.zeros((d, d))
    matrix[np.ix_(chosen, chosen)] = covariance.dense
    np.fill_diagonal(matrix, variance)
    return DenseCovariance(matrix)


def with_targets(
    structure: AbstractCovariance,
    targets: NDArray[np.int64],
    cross: Array,
) -> AbstractCovariance:
    """The same with exact columns of targets, which had none but their variances."""
    if isinstance(structure, LowRankCovariance):
        half = np.tril(cross[targets], -1)
        cross = cross.copy()
        cross[targets] = half
        return replace(structure, targets=targets, cross=cross)
    matrix, variance = structure.dense.copy(), structure.variances
    matrix[:, targets], matrix[targets] = cross, cross.T
    np.fill_diagonal(matrix, variance)
    return DenseCovariance(matrix)
