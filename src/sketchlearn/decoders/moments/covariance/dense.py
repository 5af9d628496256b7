"""A covariance written out: d times d numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, lstsq
from scipy.linalg.lapack import dpotrf
from typing_extensions import override

from sketchlearn.decoders.moments.covariance.base import (
    AbstractCovariance,
    Array,
    deviations,
)

__all__ = ["DenseCovariance", "symmetric_matrix"]

_LEAST_PIVOT = 1e-3
"""Of a matrix with unit diagonal. Singular ones have pivots of up to 1e-8, the root of
machine epsilon, by rounding; anything well above that and well below one does."""


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
        scale = deviations(np.diagonal(matrix))
        unit = matrix / scale / scale[:, None]
        return _solve_unit(unit, right / scale[:, None]) / scale[:, None]


def symmetric_matrix(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Symmetric matrices from their lower triangles, row by row.

    Parameters
    ----------
    lower : array of shape (..., d (d + 1) / 2)

    Returns
    -------
    array of shape (..., d, d)

    Examples
    --------
    >>> symmetric_matrix(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = round((2 * lower.shape[-1] + 0.25) ** 0.5 - 0.5)
    matrix = np.zeros((*lower.shape[:-1], size, size))
    i, j = np.tril_indices(size)
    matrix[..., i, j] = matrix[..., j, i] = lower
    return matrix


def _solve_unit(matrix: Array, right: Array) -> Array:
    """Solve a system with unit diagonal, by least squares where it is near singular."""
    factor, failed = dpotrf(matrix, lower=True)
    if not failed and np.diagonal(factor).min() > _LEAST_PIVOT:
        return np.asarray(cho_solve((factor, True), right))
    return np.asarray(lstsq(matrix, right, lapack_driver="gelsd")[0])
