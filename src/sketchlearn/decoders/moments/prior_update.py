r"""A prior over correlations, updated so that it fits a sketch.

The block BFGS update gives the sketch the last word over a positive definite prior
:math:`P_0 = \mathrm{diag}(s) + HH^\top`,

.. math::
    \hat P = P_0 - P_0\Omega\,(\Omega^\top P_0\Omega)^{-1}\Omega^\top P_0
           + Y\,(\Omega^\top Y)^{-1} Y^\top, \qquad Y = P\Omega,

which is positive semi-definite and has :math:`\hat P\Omega = Y`; the known unit
diagonal is put back at the end. Its small numbers are those that shipped weights were
trained with.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from sketchlearn.decoders.moments.covariance.base import Array

__all__ = ["complete_correlation", "nystrom_loadings", "orthonormal"]


def complete_correlation(
    omega: Array, seen: Array, diagonal: Array, loadings: Array
) -> Array:
    r"""Correlations near a prior that agree with a sketch: block BFGS, unit diagonal.

    Before the diagonal is restored, :math:`\hat P\Omega = Y`.

    Parameters
    ----------
    omega, seen : arrays of shape (d, n_columns)
        Ω with orthonormal columns, and :math:`Y = P\Omega`.
    diagonal, loadings : arrays of shape (d,) and (d, rank)
        The prior :math:`\mathrm{diag}(s) + HH^\top`, with s > 0.

    Returns
    -------
    array of shape (d, d)
        With unit diagonal: what the sketch shows of a feature is kept, the prior
        fills at most the variance that is left, and the rest is independent.

    Examples
    --------
    >>> P, omega = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([[1.0], [0.0]])
    >>> prior = np.array([1.0, 0.64]), np.zeros((2, 1))
    >>> bool(np.allclose(complete_correlation(omega, P @ omega, *prior), P))
    True
    """
    prior_seen = diagonal[:, None] * omega + loadings @ (loadings.T @ omega)
    core = omega.T @ prior_seen
    root = cholesky((core + core.T) / 2 + 1e-5 * np.eye(len(core)), lower=True)
    taken = solve_triangular(root, prior_seen.T, lower=True)
    known = nystrom_loadings(omega, seen)
    seen_part = known @ known.T
    rest = loadings @ loadings.T - taken.T @ taken
    room = 1 - np.diag(seen_part)
    wanted = np.diag(rest) + diagonal
    fit = np.sqrt(np.minimum(np.maximum(room, 0) / np.maximum(wanted, 1e-9), 1.0))
    shrink = 1 / np.sqrt(np.maximum(1 - room, 1.0))
    result: Array = rest * fit[:, None] * fit
    result += seen_part * shrink[:, None] * shrink
    np.fill_diagonal(result, 1.0)
    return result


def orthonormal(omega: Array, seen: Array) -> tuple[Array, Array]:
    """Columns of Ω made orthonormal, and P Ω along with them."""
    values, vectors = np.linalg.eigh(omega.T @ omega)
    floor = 1e-9 * max(values[-1], 1e-30)
    basis = vectors / np.sqrt(np.maximum(values, floor))
    return omega @ basis, seen @ basis


def nystrom_loadings(omega: Array, seen: Array) -> Array:
    """Loadings L with L Lᵀ = Y (ΩᵀY)⁺ Yᵀ, for orthonormal Ω."""
    core = omega.T @ seen
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    loadings: Array = seen @ (vectors / np.sqrt(np.maximum(values, 1e-4)))
    return loadings
