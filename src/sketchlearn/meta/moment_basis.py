r"""The best linear sketch of second moments in closed form: PCA of :math:`vec_{LT}(R)`.

A linear Sketch Network of outer products and a linear Query Network map vec(R) to m
numbers and back. Of all such pairs those of the leading principal directions of vec(R)
over episodes have the least squared error (Eckart and Young), and those of m are the
first of those of m + 1: one decomposition serves every sketch size, without a gradient.

Directions that episodes do not show are completed to a basis of all numbers, which is
never written out, so that a sketch as large as vec(R) loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, polar

from sketchlearn.errors import ConfigError

__all__ = ["MomentBasis", "fit_basis"]

_SMALLEST_VARIANCE = 1e-8
"""Directions with a smaller share of the largest variance are noise of rounding."""


@final
@dataclass(frozen=True, eq=False)
class MomentBasis:
    """Orthonormal directions around a mean, the most important first.

    Parameters
    ----------
    rows : array of shape (k, n)
        Linearly independent; made orthonormal where rounding has spoiled that.
    mean : array of shape (n,)
        What is known of a vector before any number of it.

    Examples
    --------
    >>> basis = MomentBasis(np.array([[0.6, 0.8, 0.0]]), np.zeros(3))
    >>> np.round(basis.project(np.array([1.0, 2.0, 3.0]), 1), 6)
    array([1.32, 1.76, 0.  ])
    >>> np.round(basis.project(np.array([1.0, 2.0, 3.0]), 3), 6)
    array([1., 2., 3.])
    """

    rows: NDArray[np.floating]
    mean: NDArray[np.floating]

    def project(
        self, vector: NDArray[np.floating], sketch_size: int
    ) -> NDArray[np.float64]:
        r"""What ``sketch_size`` numbers of a vector tell of it.

        Beyond the k rows given the numbers are plain entries, in the order of the
        vector and reflected: with :math:`B_P = G H` the polar decomposition of the last
        k columns of B, :math:`C = B^\top + E_P G`, the reflection

        .. math:: Q = I - C (I + H)^{-1} C^\top

        takes :math:`E_P G` to :math:`-B^\top`, so that :math:`Q e_j`, j not in P,
        complete the rows of B to an orthonormal basis.

        Parameters
        ----------
        vector : array of shape (n,)
            Such as the lower triangle of a second moment.
        sketch_size : int
            1 to n; with n numbers nothing is lost.
        """
        k, n = self.rows.shape
        if not 0 < sketch_size <= n:
            raise ConfigError(f"sketch_size must be from 1 to {n}; got {sketch_size}.")
        centred = np.asarray(vector, np.float64) - self.mean
        if sketch_size <= k:
            first = self._orthonormal[:sketch_size]
            return np.asarray(self.mean + first.T @ (first @ centred))
        entries = self._reflect(centred)
        entries[sketch_size - k : n - k] = 0.0  # not among the numbers
        entries[n - k :] = 0.0  # their places are taken by the rows of B
        known = self._orthonormal.T @ (self._orthonormal @ centred)
        return np.asarray(self.mean + known + self._reflect(entries))

    def _reflect(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Q times a vector."""
        directions, inner = self._reflection
        return vector - directions @ (inner @ (directions.T @ vector))

    @cached_property
    def _reflection(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """C and (I + H)⁻¹."""
        k, n = self.rows.shape
        turn, stretch = polar(self._orthonormal[:, n - k :].T)
        directions = self._orthonormal.T.copy()
        directions[n - k :] += turn
        return directions, np.linalg.inv(np.eye(k) + stretch)

    @cached_property
    def _orthonormal(self) -> NDArray[np.float64]:
        """Rows of which the first m span what the first m given ones span."""
        rows = np.asarray(self.rows, np.float64)
        lower = np.linalg.cholesky(rows @ rows.T)
        return np.asarray(np.linalg.solve(lower, rows))


def fit_basis(
    vectors: NDArray[np.float32],
    weights: NDArray[np.float64],
    size: int,
    *,
    after: MomentBasis | None = None,
) -> MomentBasis:
    r"""Mean and leading principal directions of weighted vectors.

    The maximum of :math:`\sum_e w_e \lVert B (v_e - \mu)\rVert^2` over orthonormal
    rows, :math:`\mu = \sum_e w_e v_e`, from the matrix of their inner products: there
    are fewer vectors than numbers in one.

    Parameters
    ----------
    vectors : array of shape (e, n)
        Such as lower triangles of second moments, one an episode.
    weights : array of shape (e,)
        Positive.
    size : int
        Rows wanted, fewer than vectors.
    after : MomentBasis, optional
        Begin with the mean and the rows of this one, and add what is orthogonal.

    Examples
    --------
    >>> vectors = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32)
    >>> basis = fit_basis(vectors, np.ones(3), 1)
    >>> np.round(np.abs(basis.rows), 6).tolist(), basis.mean.tolist()
    ([[1.0, 0.0]], [2.0, 1.0])
    """
    shares = (weights / weights.sum()).astype(np.float32)
    if after is None:
        after = MomentBasis(vectors[:0], shares @ vectors)
    first, e = after.rows, len(vectors)
    wanted = size - len(first)
    if not 0 < wanted < e:
        raise ConfigError(
            f"{e} episodes cannot show {wanted} more directions: draw more episodes."
        )
    centred = vectors - after.mean
    centred -= (centred @ first.T) @ first
    centred *= np.sqrt(shares)[:, None]
    inner = (centred @ centred.T).astype(np.float64)
    variances, found = eigh(inner, subset_by_index=[e - wanted, e - 1])
    if not variances[0] > _SMALLEST_VARIANCE * variances[-1]:
        raise ConfigError(
            f"these {e} episodes are too much alike to have {size} directions: draw "
            "more episodes, or take a smaller sketch_size."
        )
    scaled = found[:, ::-1] / np.sqrt(variances[::-1])
    rows = scaled.astype(np.float32).T @ centred
    # A direction is known up to its sign: the largest entry is positive.
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return MomentBasis(np.concatenate([first, rows * np.sign(largest)]), after.mean)
