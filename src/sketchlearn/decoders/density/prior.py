r"""What rows probably look like when only their moments and ranges are known.

Each feature gets a Beta margin on its range with its mean and variance, which is
U-shaped for binary features and skewed for heavy tails, and a Gaussian copula ties the
features together with their correlations. Good enough to place cells, to start a fit,
and to stand in for the data where a sketch holds nothing but moments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr

from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.scaling import Scaling

__all__ = ["copula_rows", "guess_rows", "planned_range"]

_GRID = np.linspace(-3.7, 3.7, 121)
"""Normal scores at which quantiles are tabulated; 2 of 10,000 rows lie beyond."""

_SHARPEST = 0.98
"""Largest variance of a law, of that which its mean allows: all of it would be two
points, which have no quantiles between them."""

_NARROWEST = 1e-4
"""And the least: narrower laws are as good as normal, and are shrunk after."""

_ROWS = 4096
"""Rows that stand for a density: no figure changed with twice as many."""


def copula_rows(
    moments: Moments,
    low: ArrayLike,
    high: ArrayLike,
    *,
    n_rows: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    r"""Draw rows with given moments inside given ranges.

    .. math::
        x_j = l_j + (h_j - l_j)\, B_j^{-1}(\Phi(g_j)), \qquad g \sim \mathcal{N}(0, P),

    where :math:`B_j` is the Beta law with the mean and variance of feature j and P
    the correlations.

    Parameters
    ----------
    moments : Moments
        Mean and covariance of the rows.
    low, high : float or array of shape (d,)
        Range of each feature; a mean outside widens it.
    n_rows : int
        How many rows.
    rng : numpy Generator

    Returns
    -------
    array of shape (n_rows, d)

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> known = DenseCovariance(np.array([[0.25]]))
    >>> half = Moments(9.0, np.array([0.5]), known, np.zeros(1), 1)
    >>> rows = copula_rows(half, 0, 1, n_rows=4, rng=np.random.default_rng(0))
    >>> abs(np.round(rows.ravel()))
    array([1., 0., 1., 1.])
    """
    mean, d = moments.mean, len(moments.mean)
    spread = np.sqrt(np.maximum(moments.structure.variances, 0.0))
    lower = np.minimum(np.broadcast_to(np.asarray(low, np.float64), d), mean)
    upper = np.maximum(np.broadcast_to(np.asarray(high, np.float64), d), mean)
    width = np.where(upper > lower, upper - lower, 1.0)
    safe = np.where(spread > 0, spread, 1.0)
    latent = moments.structure.scaled(1 / safe).draw(n_rows, rng)
    p = np.clip((mean - lower) / width, 1e-4, 1 - 1e-4)
    share = np.clip((spread / width) ** 2 / (p * (1 - p)), _NARROWEST, _SHARPEST)
    strength = 1 / share - 1
    quantiles = betaincinv(
        (p * strength)[:, None], ((1 - p) * strength)[:, None], ndtr(_GRID)
    )
    # Where the law had to be blunted or sharpened, the moments are put right after.
    stretch = spread / np.sqrt(p * (1 - p) * share)
    rows = np.empty((n_rows, d))
    for j in range(d):
        unit = np.interp(latent[:, j], _GRID, np.nan_to_num(quantiles[j], nan=p[j]))
        rows[:, j] = mean[j] + (unit - p[j]) * stretch[j]
    return rows


def planned_range(
    scaling: Scaling | None, reach: float, n_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest row a map was planned for.

    Where scales were read from rows, the range that was seen rather than the wider
    one that would be accepted.

    Examples
    --------
    >>> planned_range(Scaling.from_bounds(0.0, 4.0, n_features=1), 1.0, 1)
    (array([0.]), array([4.]))
    """
    scale = scaling or Scaling.identity(n_features)
    half = (1.0 if scale.origin == "data" else reach) / scale.factor
    return scale.shift - half, scale.shift + half


def guess_rows(
    scaling: Scaling | None, reach: float, moments: Moments, seed: int
) -> NDArray[np.float64]:
    """Rows guessed from the moments, inside the range a map was planned for."""
    low, high = planned_range(scaling, reach, len(moments.mean))
    rng = np.random.default_rng(seed)
    return copula_rows(moments, low, high, n_rows=_ROWS, rng=rng)
