r"""Kernel scales: how wide clusters are, read from the size of a Fourier sketch.

For k round clusters of variance :math:`s^2` whose centers scatter with variance
:math:`b`, the sketch at a frequency of length R is, over random directions, close to a
complex Gaussian of mean square

.. math::
    E|z|^2 = e^{-R^2 s^2}\,\big(\rho + (1 - \rho)\, e^{-R^2 b}\big),
    \qquad \rho = \sum_l \alpha_l^2 ,

so that :math:`|z|^2` is exponentially distributed around it. Maximum likelihood of the
three numbers uses every frequency, where the usual fit of an envelope to block maxima
(Keriven et al., 2018) keeps a few and overestimates :math:`s^2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sketchlearn.errors import RowsError
from sketchlearn.features.fourier import FourierFeatures

__all__ = ["Spread", "estimate_scale", "estimate_spread"]

_MOST_CLUSTERS = 1000.0


@final
@dataclass(frozen=True)
class Spread:
    """How rows scatter, by feature and on average over directions.

    Parameters
    ----------
    within : float
        Variance inside clusters, :math:`s^2`.
    between : float
        Variance of the centers, :math:`b`.
    concentration : float
        ρ; its inverse is the effective number of clusters.
    """

    within: float
    between: float
    concentration: float


def estimate_spread(
    frequencies: NDArray[np.floating],
    mean: NDArray[np.float64],
    *,
    noise: float = 0.0,
    n_clusters: int | None = None,
) -> Spread:
    r"""Variances inside and between clusters, from one Fourier sketch.

    Parameters
    ----------
    frequencies : array of shape (n_features, h)
        Of the Fourier features. They must reach the width of the clusters,
        :math:`R^2 s^2 \approx 1`; lower ones cannot tell.
    mean : array of shape (2 h,)
        The sketch, cosines first.
    noise : float
        Standard deviation of one entry of ``mean``.
    n_clusters : int, optional
        If known, ρ is taken to be its inverse: clusters of equal weight.

    Returns
    -------
    Spread
        In the units of the scaled rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> centers = 5 * rng.normal(size=(4, 3))
    >>> rows = centers[rng.integers(4, size=9000)] + rng.normal(size=(9000, 3))
    >>> phi = FourierFeatures(n_features=3, sketch_size=400)
    >>> spread = estimate_spread(phi.frequencies, phi(rows).mean(axis=0), noise=0.007)
    >>> 0.8 < spread.within < 1.2
    True
    """
    half = frequencies.shape[1]
    lengths = (frequencies.astype(np.float64) ** 2).sum(axis=0)
    typical = max(float(lengths.mean()), 1e-300)
    squares, power = lengths / typical, mean[:half] ** 2 + mean[half:] ** 2
    floor = max(2 * noise**2, 1e-12)
    fixed = None if n_clusters is None else 1 / n_clusters

    def loss(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        (s, b), rho = np.exp(logs[:2]), np.exp(logs[2]) if fixed is None else fixed
        inside, across = np.exp(-s * squares), np.exp(-b * squares)
        model = inside * (rho + (1 - rho) * across)
        expected = model + floor
        pull = (1 - power / expected) / expected / half
        slope = [
            -s * (squares * model) @ pull,
            -b * (1 - rho) * (squares * inside * across) @ pull,
            rho * (inside * (1 - across)) @ pull if fixed is None else 0.0,
        ]
        return float((np.log(expected) + power / expected).mean()), np.array(slope)

    box = [(-15.0, 5.0), (-15.0, 10.0), (-np.log(_MOST_CLUSTERS), 0.0)]
    starts = [np.log([s, b, 0.2]) for s, b in product((0.01, 0.1, 1.0), (1.0, 10.0))]
    tries = [
        minimize(loss, first, jac=True, method="L-BFGS-B", bounds=box)
        for first in starts
    ]
    s, b, rho = np.exp(min(tries, key=lambda found: float(found.fun)).x)
    concentration = float(rho) if fixed is None else fixed
    return Spread(float(s) / typical, float(b) / typical, concentration)


def estimate_scale(
    rows: NDArray[np.floating],
    *,
    n_clusters: int | None = None,
    n_frequencies: int = 500,
    n_rounds: int = 4,
    seed: int = 0,
) -> float:
    r"""A scale for Fourier features: the standard deviation inside clusters.

    A small sketch of the rows with adapted radii gives a first :math:`s`, from which
    the next one is made. The first scale is the spread of the rows themselves, so that
    the result does not depend on their units.

    Parameters
    ----------
    rows : array of shape (n, n_features)
        Some thousand rows, scaled as the feature map will scale them. A scale found in
        rows keeps a trace of them: it is not private.
    n_clusters : int, optional
        Number of clusters, if known.
    n_frequencies, n_rounds, seed : int
        Size, number and seed of the sketches.

    Returns
    -------
    float
        ``scale`` for :class:`~sketchlearn.features.fourier.FourierFeatures`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.choice([-60.0, 0.0, 60.0], (9000, 2)) + rng.normal(size=(9000, 2))
    >>> 0.8 < estimate_scale(rows) < 1.2
    True
    """
    total = float(np.sqrt(rows.var(axis=0).mean())) if len(rows) else 0.0
    if not 0 < total < float("inf"):
        raise RowsError(
            f"no scale can be estimated from {len(rows)} rows without spread. Pass "
            "rows that differ, or choose a scale."
        )
    scale, noise = total, (0.5 / len(rows)) ** 0.5
    for round_ in range(n_rounds):
        phi = FourierFeatures(
            rows.shape[1],
            2 * n_frequencies,
            scale=scale,
            law="adapted",
            seed=seed + round_,
        )
        mean = phi(rows).mean(axis=0, dtype=np.float64)
        spread = estimate_spread(
            phi.frequencies, mean, noise=noise, n_clusters=n_clusters
        )
        # Low frequencies cannot tell how much narrower clusters are: step by step.
        scale = float(np.clip(np.sqrt(spread.within), scale / 8, total))
    return scale
