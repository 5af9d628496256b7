r"""How much noise a promise costs: formulas only.

A Gaussian release of a sum with sensitivity Δ and noise σ is characterised by
:math:`\mu = \Delta / \sigma`. It keeps (ε, δ) exactly when (Balle and Wang 2018)

.. math::
    \delta(\mu, \epsilon) =
    \Phi\!\left(\tfrac{\mu}{2} - \tfrac{\epsilon}{\mu}\right)
    - e^{\epsilon}\,\Phi\!\left(-\tfrac{\mu}{2} - \tfrac{\epsilon}{\mu}\right)
    \le \delta .

:func:`gaussian_sigma` is rounded towards more noise. Nothing here draws randomness.
"""

from __future__ import annotations

from math import exp, isfinite, isnan, log, sqrt
from numbers import Real
from typing import Any

from scipy.special import erfc, erfcx

from sketchlearn.errors import PrivacyError

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_sigma",
    "require_budget",
]

_ROUND_UP = 1 + 2.0**-30


def gaussian_delta(mu: float, epsilon: float) -> float:
    r"""Smallest δ that a Gaussian release with :math:`\mu = \Delta/\sigma` keeps at ε.

    With :math:`a = \mu/2` and :math:`b = \epsilon/\mu` the factor :math:`e^\epsilon`
    cancels, so that nothing overflows:

    .. math::
        \delta = \tfrac12 e^{-(b-a)^2/2}\big[\mathrm{erfcx}\tfrac{b-a}{\sqrt2}
        - \mathrm{erfcx}\tfrac{b+a}{\sqrt2}\big].

    Parameters
    ----------
    mu : float
        Sensitivity over noise, positive.
    epsilon : float
        At least 0.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 10)
    0.1269367375
    """
    mu, epsilon = float(mu), float(epsilon)
    if isnan(mu) or isnan(epsilon):
        raise PrivacyError("mu and epsilon must be numbers; got NaN.")
    if mu <= 0:
        return 0.0
    a, b = mu / 2, epsilon / mu
    low, high = (b - a) / sqrt(2), (b + a) / sqrt(2)
    scale = exp(-((b - a) ** 2) / 2)
    if b >= a:
        return float(0.5 * scale * (erfcx(low) - erfcx(high)))
    return float(0.5 * erfc(low) - 0.5 * scale * erfcx(high))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ = Δ/σ that keeps (ε, δ), to about nine digits.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
    3.730632
    """
    epsilon, delta = float(epsilon), float(delta)
    low, high = log(1e-18), log(1e4)
    for _ in range(200):
        middle = (low + high) / 2
        if gaussian_delta(exp(middle), epsilon) <= delta:
            low = middle
        else:
            high = middle
    return exp(low)


def gaussian_sigma(norm_bound: float, epsilon: float, delta: float) -> float:
    r"""Smallest Gaussian noise that makes a sum of bounded vectors private.

    Adding or removing one row moves the sum by at most ``norm_bound`` :math:`= S`;
    the returned :math:`\sigma = S/\mu` solves :math:`\delta(\mu, \epsilon) = \delta`.

    Parameters
    ----------
    norm_bound : float
        Largest L2 norm of one row's feature vector.
    epsilon, delta : float
        The promise, with ε in [1e-6, 100] and δ in [1e-30, 0.1].

    Returns
    -------
    float
        Standard deviation to add to every entry of the sum, never rounded down.

    References
    ----------
    Paper, eq. sup:dp; Balle and Wang, ICML 2018, Theorem 8.

    Examples
    --------
    >>> round(gaussian_sigma(norm_bound=1.0, epsilon=1.0, delta=1e-5), 3)
    3.731
    """
    require_budget(epsilon, delta)
    number = isinstance(norm_bound, Real) and not isinstance(norm_bound, bool)
    if not number or not 0 < norm_bound < float("inf"):
        raise PrivacyError(f"norm_bound must be a positive number; got {norm_bound!r}.")
    return float(norm_bound) / gaussian_mu(epsilon, delta) * _ROUND_UP


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε that a release (or several: μ² adds up) keeps at δ, rounded up.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 6)
    4.377178
    """
    mu, delta = float(mu), float(delta)
    if not 0 < delta < 1:
        raise PrivacyError(f"delta must be in (0, 1); got {delta!r}.")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if gaussian_delta(mu, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def require_budget(epsilon: Any, delta: Any) -> None:
    """Refuse an ε or δ that is no number or out of the range that was verified."""
    for name, value, low, high in (
        ("epsilon", epsilon, 1e-6, 100.0),
        ("delta", delta, 1e-30, 0.1),
    ):
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not isfinite(value) or not low <= value <= high:
            raise PrivacyError(
                f"{name} must be a real number in [{low:g}, {high:g}]; got {value!r}."
            )
