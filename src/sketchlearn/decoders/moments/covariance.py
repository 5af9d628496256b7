r"""Covariances as decoders know them: written out, or as low-rank factors.

What a compressed sketch tells of d features are a few directions and a diagonal,
:math:`C = LL^\top + \mathrm{diag}(s)`, and the columns of targets exactly. Of many
features such a matrix is never written out: its largest eigenvalues and its linear
systems cost no more than its factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, lstsq
from scipy.linalg.lapack import dpotrf
from typing_extensions import override

__all__ = [
    "DENSE_FEATURES",
    "AbstractCovariance",
    "DenseCovariance",
    "LowRankCovariance",
    "placed_among",
    "with_targets",
]

DENSE_FEATURES = 2048
"""Matrices of so many features are written out: nothing is faster or more accurate."""

_SMALLEST = 1e-12
"""Least variance of a feature's own, of its whole, that a system is solved with."""

_SINGULAR = 1e-3
"""Least pivot, of one, that a system is solved with by elimination."""

Array: TypeAlias = NDArray[np.float64]


class AbstractCovariance(ABC):
    """A symmetric matrix of shape (d, d)."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """The diagonal, shape (d,)."""

    @property
    @abstractmethod
    def dense(self) -> Array:
        """The matrix written out; d times d numbers."""

    @property
    @abstractmethod
    def n_factors(self) -> int:
        """How many directions stand out of the diagonal, at most d."""

    @abstractmethod
    def __matmul__(self, vectors: Array) -> Array:
        """Product with vectors of shape (d,) or (d, n)."""

    @abstractmethod
    def columns(self, chosen: NDArray[np.int64]) -> Array:
        """Some columns, shape (d, len(chosen))."""

    @abstractmethod
    def of_features(self, chosen: NDArray[np.int64]) -> AbstractCovariance:
        """The rows and columns of some features."""

    @abstractmethod
    def scaled(self, factor: Array) -> AbstractCovariance:
        """The covariance of features multiplied by ``factor``, shape (d,)."""

    @abstractmethod
    def plus_outer(self, vector: Array) -> AbstractCovariance:
        """The matrix plus the outer product of a vector with itself."""

    @abstractmethod
    def largest(self, count: int) -> tuple[Array, Array]:
        """The largest eigenvalues, descending, and their vectors, shape (d, count).

        Of factors of many features, eigenvalues that hardly stand out of the diagonal
        are approximate, from below.
        """

    @abstractmethod
    def draw(self, n_rows: int, rng: np.random.Generator) -> Array:
        """Gaussian rows of mean zero with this covariance, shape (n_rows, d)."""

    @abstractmethod
    def solve(self, right: Array, penalty: Array) -> Array:
        """Solve (C + diag(penalty)) w = right, whatever the units of the features."""


@final
@dataclass(frozen=True, eq=False)
class DenseCovariance(AbstractCovariance):
    """A covariance written out.

    Examples
    --------
    >>> two = DenseCovariance(np.diag([1.0, 4.0]))
    >>> two.largest(1)[0], two.solve(np.ones((2, 1)), np.ones(2)).ravel()
    (array([4.]), array([0.5, 0.2]))
    """

    matrix: Array

    @property
    @override
    def variances(self) -> Array:
        return np.diagonal(self.matrix)

    @property
    @override
    def dense(self) -> Array:
        return self.matrix

    @property
    @override
    def n_factors(self) -> int:
        return len(self.matrix)

    @override
    def __matmul__(self, vectors: Array) -> Array:
        return np.asarray(self.matrix @ vectors)

    @override
    def columns(self, chosen: NDArray[np.int64]) -> Array:
        return self.matrix[:, chosen]

    @override
    def of_features(self, chosen: NDArray[np.int64]) -> AbstractCovariance:
        return DenseCovariance(self.matrix[np.ix_(chosen, chosen)])

    @override
    def scaled(self, factor: Array) -> AbstractCovariance:
        return DenseCovariance(self.matrix * factor * factor[:, None])

    @override
    def plus_outer(self, vector: Array) -> AbstractCovariance:
        return DenseCovariance(self.matrix + np.outer(vector, vector))

    @override
    def largest(self, count: int) -> tuple[Array, Array]:
        d = len(self.matrix)
        symmetric = (self.matrix + self.matrix.T) / 2
        wanted = [d - count, d - 1] if 3 * count < d else None
        values, vectors = eigh(symmetric, subset_by_index=wanted)
        return values[::-1][:count], vectors[:, ::-1][:, :count]

    @override
    def draw(self, n_rows: int, rng: np.random.Generator) -> Array:
        values, vectors = np.linalg.eigh(self.matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(rng.standard_normal((n_rows, len(root))) @ root.T)

    @override
    def solve(self, right: Array, penalty: Array) -> Array:
        matrix = self.matrix + np.diag(penalty)
        scale = _scale(np.diagonal(matrix))
        unit = matrix / scale / scale[:, None]
        return _solve_unit(unit, right / scale[:, None]) / scale[:, None]


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
    def draw(self, n_rows: int, rng: np.random.Generator) -> Array:
        if self.cross is not None:
            return DenseCovariance(self.dense).draw(n_rows, rng)
        rows = rng.standard_normal((n_rows, len(self.own)))
        rows *= np.sqrt(np.maximum(self.own, 0.0))
        common = rng.standard_normal((n_rows, self.loadings.shape[1]))
        return np.asarray(rows + common @ self.loadings.T)

    @override
    def solve(self, right: Array, penalty: Array) -> Array:
        # Woodbury: (D + F M F')^-1 = D^-1 - D^-1 F (I + M F' D^-1 F)^-1 M F' D^-1.
        scale = _scale(self.variances + penalty)
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


def _solve_unit(matrix: Array, right: Array) -> Array:
    """Solve a system with unit diagonal, by least squares where it is near singular."""
    factor, failed = dpotrf(matrix, lower=True)
    if not failed and np.diagonal(factor).min() > _SINGULAR:
        return np.asarray(cho_solve((factor, True), right))
    return np.asarray(lstsq(matrix, right, lapack_driver="gelsd")[0])


def _scale(variances: Array) -> Array:
    """Standard deviations, or one where there is none."""
    positive = variances > 0
    return np.where(positive, np.sqrt(np.where(positive, variances, 1.0)), 1.0)
