r"""How alike neighbours are: correlations by distance, read off a sketch.

Where the order of features means something, as in images, spectra and genomes, the
correlation of two features depends above all on how far apart they stand,
:math:`P_{ij} \approx \rho(|i - j|)`. A sketch is then linear in ρ,

.. math::
    (P\Omega)_{ik} \approx \Omega_{ik} + \sum_{t \ge 1} \rho(t)\,
    (\Omega_{i-t,k} + \Omega_{i+t,k}),

many equations for few unknowns: no row has to be looked at again to know whether
neighbours are alike, and how far that reaches. Features in any other order give a curve
that says nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sketchlearn.decoders.moments.covariance.base import Array
from sketchlearn.decoders.moments.cross_moments import Places

__all__ = [
    "LAGS",
    "NOISE_RIDGE",
    "LAG_RIDGE",
    "LAG_ROUGHNESS",
    "lag_correlations",
    "penalty",
]

LAGS = 48
"""Distances with a correlation of their own; all larger ones share one."""

LAG_RIDGE, LAG_ROUGHNESS = 0.3, 0.6
"""Penalty on what distances have of their own and on jumps from one to the next, in
units of the mean square of a column. Of 0.005, 0.05 and 0.5, the last was nearest to
the curves of training images."""

COLUMNS_AT_ONCE = 32
"""Columns of Ω that are looked at together; bounds the memory for many."""

NOISE_RIDGE = 20.0
"""Noise of one over so much doubles the penalty."""


def lag_correlations(
    omega: Array, seen: Array, places: Places, noise: float = 0.0
) -> tuple[Array, float]:
    """Correlations at distances 0, 1, .., d - 1, and what far features have in common.

    Parameters
    ----------
    omega, seen : arrays of shape (p, n_columns)
        Ω with orthonormal columns, and P Ω, of the features that were seen.
    places : Places
        Where these stand among all.
    noise : float
        Standard deviation of the noise on each entry of ``seen``.

    Returns
    -------
    curve : array of shape (d,)
        Begins with 1, and ``curve[abs(i - j)]`` is a positive semi-definite matrix.
    far : float
        What all distances have in common.

    Examples
    --------
    >>> every = np.arange(40)
    >>> P = 0.8 ** np.abs(every[:, None] - every)
    >>> omega = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 8)))[0]
    >>> curve, far = lag_correlations(omega, P @ omega, Places(every, 40))
    >>> float(curve[0]), bool(curve[1] > curve[3] > 0.3)
    (1.0, True)
    """
    d = places.count
    steps = min(LAGS, d - 1)
    gram, right = np.zeros((steps + 1, steps + 1)), np.zeros(steps + 1)
    for start in range(0, omega.shape[1], COLUMNS_AT_ONCE):
        block = slice(start, start + COLUMNS_AT_ONCE)
        design = _design(omega[:, block], places, steps)
        gram += design.T @ design
        right += design.T @ (seen - omega)[:, block].ravel()
    size = max(float(np.diag(gram)[:steps].sum()) / max(steps, 1), 1e-9)
    weight = size * (1 + (NOISE_RIDGE * noise) ** 2)
    ridge = weight * penalty(steps, LAG_RIDGE, LAG_ROUGHNESS)
    found = np.linalg.solve(gram + ridge, right)
    far = float(found[-1])
    near = np.full(d - 1, far)
    near[:steps] += found[:steps]
    return _definite(near), far


def _design(omega: Array, places: Places, steps: int) -> Array:
    """What each distance, and all others, add to the entries of P Ω."""
    tests, shown = places.spread(omega), places.seen
    padded = np.pad(tests, ((steps, steps), (0, 0)))
    around = sliding_window_view(padded, 2 * steps + 1, axis=0)[shown]
    both = around[..., steps + 1 :] + around[..., :steps][..., ::-1]
    others = (tests.sum(axis=0) - tests)[shown]
    columns = np.concatenate([both, others[..., None]], axis=2)
    return columns.reshape(-1, steps + 1)


def penalty(steps: int, ridge: float, roughness: float) -> Array:
    """Quadratic form over what ``steps`` distances have of their own, and all have.

    Examples
    --------
    >>> penalty(2, 1.0, 0.0).diagonal().round(2)
    array([1., 1., 0.])
    """
    jumps = np.eye(steps, steps + 1) - np.eye(steps, steps + 1, 1)
    jumps[:, steps] = 0.0  # beyond the last distance there is nothing of its own
    own = np.append(np.ones(steps), 1e-3)
    form: Array = ridge * np.diag(own) + roughness * jumps.T @ jumps
    return form + 1e-4 * np.eye(steps + 1)


def _definite(near: Array) -> Array:
    """The nearest curve whose matrix is positive semi-definite, from distance 1 on."""
    ring = np.concatenate([[1.0], near, near[:-1][::-1]])
    power = np.maximum(np.fft.rfft(ring).real, 0.0)
    curve: Array = np.fft.irfft(power, n=len(ring))[: len(near) + 1]
    return curve / max(float(curve[0]), 1e-6)
