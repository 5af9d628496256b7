r"""A prior over correlations, updated so that it fits a sketch.

The block BFGS update gives the sketch the last word over a positive definite prior
:math:`P_0`,

.. math::
    \hat P = P_0 - P_0\Omega\,(\Omega^\top P_0\Omega)^{-1}\Omega^\top P_0
           + Y\,(\Omega^\top Y)^{-1} Y^\top, \qquad Y = P\Omega,

which is positive semi-definite and has :math:`\hat P\Omega = Y`; the known unit
diagonal is put back at the end. Directions of a noisy sketch count as far as they stand
out of the noise. Its small numbers are those that shipped weights were trained with.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve, solve_triangular

from sketchlearn.decoders.moments.covariance.base import Array

__all__ = [
    "JITTER",
    "WEAKEST",
    "complete_correlation",
    "extend_correlation",
    "nystrom_loadings",
    "orthonormal",
]

JITTER = 1e-5
"""Added to the diagonals of matrices that are inverted."""

WEAKEST = 1e-4
"""Least eigenvalue of what was seen that is divided by."""


def complete_correlation(
    omega: Array, seen: Array, prior: Array, noise: float = 0.0
) -> Array:
    r"""Correlations near a prior that agree with a sketch: block BFGS, unit diagonal.

    Before the diagonal is restored, :math:`\hat P\Omega = Y`.

    Parameters
    ----------
    omega, seen : arrays of shape (d, n_columns)
        Ω with orthonormal columns, and :math:`Y = P\Omega`.
    prior : array of shape (d, d)
        :math:`P_0`, positive definite.
    noise : float
        Standard deviation of the noise on each entry of ``seen``.

    Returns
    -------
    array of shape (d, d)
        With unit diagonal: what the sketch shows of a feature is kept, the prior
        fills at most the variance that is left, and the rest is independent.

    Examples
    --------
    >>> P, omega = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([[1.0], [0.0]])
    >>> prior = np.diag([1.0, 0.64])
    >>> bool(np.allclose(complete_correlation(omega, P @ omega, prior), P))
    True
    """
    _, vectors, trust = _directions(omega, seen, noise)
    tested = omega @ vectors[:, trust > 0]
    prior_seen = prior @ tested
    core = tested.T @ prior_seen
    root = cholesky((core + core.T) / 2 + JITTER * np.eye(len(core)), lower=True)
    taken = solve_triangular(root, prior_seen.T, lower=True)
    known = nystrom_loadings(omega, seen, noise)
    seen_part = known @ known.T
    rest = prior - taken.T @ taken
    room = 1 - np.diag(seen_part)
    wanted = np.diag(rest)
    fit = np.sqrt(np.minimum(np.maximum(room, 1e-12) / np.maximum(wanted, 1e-9), 1.0))
    shrink = 1 / np.sqrt(np.maximum(1 - room, 1.0))
    result: Array = rest * fit[:, None] * fit
    result += seen_part * shrink[:, None] * shrink
    np.fill_diagonal(result, 1.0)
    return result


def extend_correlation(
    found: Array, between: Array, places: NDArray[np.int64]
) -> Array:
    r"""Correlations of all features from those of some, and a guess for all.

    With :math:`W = Q_{\cdot s} Q_{ss}^{-1}` from a guess Q,

    .. math::
        \hat P = Q + W\,(\hat P_{ss} - Q_{ss})\,W^\top ,

    which is positive semi-definite, and :math:`\hat P_{ss}` among those.

    Parameters
    ----------
    found : array of shape (p, p)
        :math:`\hat P_{ss}`.
    between : array of shape (d, d)
        Q, positive definite with unit diagonal.
    places : array of p ints
        s: where the p features stand among all d.

    Examples
    --------
    >>> Q = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> extend_correlation(np.ones((1, 1)), Q, np.array([0])).round(3)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    inner = between[np.ix_(places, places)]
    weights = solve(
        inner + JITTER * np.eye(len(inner)), between[places], assume_a="pos"
    ).T
    result: Array = between + weights @ (found - inner) @ weights.T
    shrink = 1 / np.sqrt(np.maximum(np.diag(result), 1.0))
    result *= shrink[:, None] * shrink
    result[np.ix_(places, places)] = found
    np.fill_diagonal(result, 1.0)
    return result


def orthonormal(omega: Array, seen: Array) -> tuple[Array, Array]:
    """Columns of Ω made orthonormal, and P Ω along with them."""
    values, vectors = np.linalg.eigh(omega.T @ omega)
    floor = 1e-9 * max(values[-1], 1e-30)
    basis = vectors / np.sqrt(np.maximum(values, floor))
    return omega @ basis, seen @ basis


def nystrom_loadings(omega: Array, seen: Array, noise: float = 0.0) -> Array:
    """Loadings L with L Lᵀ = Y (ΩᵀY)⁺ Yᵀ, for orthonormal Ω, shrunk for noise."""
    values, vectors, trust = _directions(omega, seen, noise)
    loadings: Array = seen @ (vectors * np.sqrt(trust / np.maximum(values, WEAKEST)))
    return loadings


def _directions(omega: Array, seen: Array, noise: float) -> tuple[Array, Array, Array]:
    """Eigenvalues and vectors of ΩᵀY, and how far each is no noise, in [0, 1]."""
    core = omega.T @ seen
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    edge = 2 * math.sqrt(len(core)) * noise
    trust = 1 - np.minimum(edge / np.maximum(values, WEAKEST), 1.0) ** 2
    return values, vectors, trust
