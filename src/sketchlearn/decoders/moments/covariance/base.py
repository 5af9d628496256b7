"""The interface of a covariance, written out or not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["AbstractCovariance", "Array", "deviations"]

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
    def solve(self, right: Array, penalty: Array) -> Array:
        """Solve (C + diag(penalty)) w = right, whatever the units of the features."""

    def quadratic(self, basis: Array) -> Array:
        """Bᵀ C B for a basis of shape (d, n), of shape (n, n)."""
        return np.asarray(basis.T @ (self @ basis))


def deviations(variances: Array) -> Array:
    """Standard deviations, or one where there is none."""
    positive = variances > 0
    return np.where(positive, np.sqrt(np.where(positive, variances, 1.0)), 1.0)
