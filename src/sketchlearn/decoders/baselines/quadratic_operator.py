r"""The linear operator behind a quadratic sketch: R ↦ A vec_LT(R), and its transpose.

For the rank-one laws :math:`A\,\mathrm{vec}_{LT}(R) = (a_j^\top R\, a_j)_j` needs the
directions only, never the :math:`m \times d(d+1)/2` matrix. How R is searched for is
not known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from typing_extensions import override

from sketchlearn.features.quadratic import QuadraticFeatures

__all__ = ["AbstractMeasurements", "least_norm_solution", "measurements_of"]

_REFINEMENTS = 3
"""Steps of iterative refinement: each brings what rounding left of the solution down by
the same factor, and three reach the last digits."""

_SMALL_MATRIX = 2**22
"""Numbers of a matrix that are held twice as wide: 32 MB."""


class AbstractMeasurements(ABC):
    r"""Measurements :math:`\mathcal{A}(R) = A\,\mathrm{vec}_{LT}(R)`.

    Parameters
    ----------
    features : QuadraticFeatures
        The map whose mean is measured.
    off_diagonal_only : bool
        Take the diagonal of every R for zero: it is known, and only the entries beside
        it are asked for.
    """

    def __init__(self, features: QuadraticFeatures, *, off_diagonal_only: bool) -> None:
        self.features, self.off_diagonal_only = features, off_diagonal_only

    @property
    def n_unknowns(self) -> int:
        """Free entries of R."""
        d = self.features.n_features
        return d * (d - 1) // 2 if self.off_diagonal_only else d * (d + 1) // 2

    @abstractmethod
    def of_matrix(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Measurements of a symmetric matrix, shape (m,)."""

    @abstractmethod
    def of_factor(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Measurements of U Uᵀ, shape (m,)."""

    @abstractmethod
    def adjoint(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        r"""The M with :math:`\langle M, R\rangle_F = w^\top \mathcal{A}(R)`."""

    @abstractmethod
    def adjoint_times(
        self, weights: NDArray[np.float64], factor: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """M U, with M the adjoint of the weights."""

    @abstractmethod
    def gram(self) -> NDArray[np.floating]:
        """A Aᵀ, shape (m, m)."""

    def dense(self) -> NDArray[np.float64]:
        """A itself, on the free entries of the lower triangle."""
        if not self.off_diagonal_only:
            return self.features.matrix
        i, j = np.tril_indices(self.features.n_features)
        return self.features.matrix[:, i != j]

    def transposed(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        r"""The symmetric matrix whose lower triangle is :math:`A^\top w`."""
        matrix = self.adjoint(weights)
        return matrix + matrix.T - np.diag(np.diag(matrix))


def measurements_of(
    features: QuadraticFeatures, *, off_diagonal_only: bool = False
) -> AbstractMeasurements:
    """The operator of a quadratic map.

    Examples
    --------
    >>> phi = QuadraticFeatures(n_features=2, sketch_size=4, law="unit")
    >>> measurements_of(phi).of_matrix(np.eye(2)).round(6)
    array([1., 1., 1., 1.])
    """
    kind = _DenseMeasurements if features.law == "gaussian" else _RankOneMeasurements
    return kind(features, off_diagonal_only=off_diagonal_only)


def least_norm_solution(
    measurements: AbstractMeasurements, values: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""The symmetric R with :math:`\mathrm{vec}_{LT}(R) = A^+ z`.

    The smallest of all solutions, or the least-squares one where there are more
    measurements than unknowns, by Cholesky of :math:`AA^\top` or
    :math:`A^\top A` and steps of iterative refinement that undo the loss of accuracy.

    Examples
    --------
    >>> phi = QuadraticFeatures(n_features=2, sketch_size=3)
    >>> exact = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> measurements = measurements_of(phi)
    >>> least_norm_solution(measurements, measurements.of_matrix(exact)).round(6)
    array([[2., 1.],
           [1., 3.]])
    """
    d = measurements.features.n_features
    matrix = np.zeros((d, d))
    if not measurements.n_unknowns:
        return matrix
    if len(values) <= measurements.n_unknowns:
        cholesky = _cholesky(measurements.gram())
        for _ in range(_REFINEMENTS):
            missed = values - measurements.of_matrix(matrix)
            matrix += measurements.transposed(cho_solve(cholesky, missed))
        return matrix
    A = measurements.dense()
    cholesky, entries = _cholesky(A.T @ A), np.zeros(A.shape[1])
    for _ in range(_REFINEMENTS):
        entries += cho_solve(cholesky, A.T @ (values - A @ entries))
    i, j = np.tril_indices(d, -1 if measurements.off_diagonal_only else 0)
    matrix[i, j] = matrix[j, i] = entries
    return matrix


@final
class _RankOneMeasurements(AbstractMeasurements):
    """Quadratic forms aⱼᵀ R aⱼ."""

    def __init__(self, features: QuadraticFeatures, *, off_diagonal_only: bool) -> None:
        super().__init__(features, off_diagonal_only=off_diagonal_only)
        self._a = features.directions.T  # (m, d)
        self._squares = self._a**2

    @override
    def of_matrix(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = ((self._a @ matrix) * self._a).sum(axis=1)
        if self.off_diagonal_only:
            values -= self._squares @ np.diag(matrix)
        return values

    @override
    def of_factor(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = ((self._a @ factor) ** 2).sum(axis=1)
        if self.off_diagonal_only:
            values -= self._squares @ (factor**2).sum(axis=1)
        return values

    @override
    def adjoint(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        matrix: NDArray[np.float64] = (self._a.T * weights) @ self._a
        if self.off_diagonal_only:
            np.fill_diagonal(matrix, 0.0)
        return matrix

    @override
    def adjoint_times(
        self, weights: NDArray[np.float64], factor: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        product: NDArray[np.float64] = self._a.T @ (
            weights[:, None] * (self._a @ factor)
        )
        if self.off_diagonal_only:
            product -= (weights @ self._squares)[:, None] * factor
        return product

    @override
    def gram(self) -> NDArray[np.float64]:
        products = (self._a @ self._a.T) ** 2
        shared = self._squares @ self._squares.T
        return (
            2 * (products - shared) if self.off_diagonal_only else 2 * products - shared
        )


@final
class _DenseMeasurements(AbstractMeasurements):
    """Any A, held as a matrix on the lower triangle."""

    def __init__(self, features: QuadraticFeatures, *, off_diagonal_only: bool) -> None:
        super().__init__(features, off_diagonal_only=off_diagonal_only)
        directions = features.directions  # (pairs, m)
        # Products with a large matrix take the time of reading it: do not widen it.
        small = directions.size <= _SMALL_MATRIX
        self._matrix = directions.astype(np.float64) if small else directions
        self._lower = np.tril_indices(features.n_features)
        self._diagonal = self._lower[0] == self._lower[1]

    @override
    def of_matrix(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        entries = matrix[self._lower]
        if self.off_diagonal_only:
            entries[self._diagonal] = 0.0
        values = entries.astype(self._matrix.dtype) @ self._matrix
        return np.asarray(values, np.float64)

    @override
    def of_factor(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.of_matrix(factor @ factor.T)

    @override
    def adjoint(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        d = self.features.n_features
        half = np.zeros((d, d))
        half[self._lower] = self._matrix @ weights.astype(self._matrix.dtype) / 2
        if self.off_diagonal_only:
            np.fill_diagonal(half, 0.0)
        return half + half.T

    @override
    def adjoint_times(
        self, weights: NDArray[np.float64], factor: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return np.asarray(self.adjoint(weights) @ factor)

    @override
    def gram(self) -> NDArray[np.floating]:
        products = self._matrix.T @ self._matrix
        if self.off_diagonal_only:
            on = self._matrix[self._diagonal]
            products -= on.T @ on
        return products


def _cholesky(gram: NDArray[np.floating]) -> tuple[NDArray[np.floating], bool]:
    """Cholesky factor, with a ridge too small to matter after refinement."""
    gram.flat[:: len(gram) + 1] += 4 * np.finfo(gram.dtype).eps * np.trace(gram)
    factor: tuple[NDArray[np.floating], bool] = cho_factor(gram, overwrite_a=True)
    return factor
