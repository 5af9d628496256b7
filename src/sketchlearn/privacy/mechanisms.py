r"""How much noise a promise costs: formulas only.

A Gaussian release of a sum with sensitivity Δ and noise σ is characterised by
:math:`\mu = \Delta / \sigma`. It keeps (ε, δ) exactly when (Balle and Wang 2018)

.. math::
    \delta(\mu, \epsilon) =
    \Phi\!\left(\tfrac{\mu}{2} - \tfrac{\epsilon}{\mu}\right)
    - e^{\epsilon}\,\Phi\!\left(-\tfrac{\mu}{2} - \tfrac{\epsilon}{\mu}\right)
    \le \delta .

Releases that also have a part without δ are added up in zero-concentrated privacy
(zCDP), whose rate ρ is :math:`\mu^2/2` for a Gaussian.

What is computed is a bound: noise is never too small, a reported ε never too low. That
was checked in high precision over the ranges named below; what is outside of them is
refused. Nothing here draws randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, isnan, log, log1p, pi, sqrt
from numbers import Real
from typing import Any

from scipy.special import erfc, erfcx

from sketchlearn.errors import PrivacyError

__all__ = [
    "LEAST_EPSILON",
    "MU_LIMIT",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_sigma",
    "is_number",
    "require_budget",
    "zcdp_epsilon",
    "zcdp_rho",
]

MU_LIMIT = 100.0
"""Largest μ whose ε was verified: it is worth an ε of more than 5,000."""

LEAST_EPSILON = 1e-6
"""Least ε of a promise, and of each part of one: below, nothing was verified."""

_EPSILONS, _DELTAS = (LEAST_EPSILON, 100.0), (1e-30, 0.1)
"""Promises whose noise was verified in high precision."""

_PART_EPSILONS, _PART_DELTAS = (1e-9, 100.0), (1e-31, 0.1)
"""The same for parts of a promise: a release takes a little off it, and some of ε for
its count."""

_BOUNDS = (1e-250, 1e250)
"""Norm bounds whose noise neither over- nor underflows."""

_SIGMA_UP = 1 + 2.0**-30
"""σ is rounded up by this, far more than the rounding of what it is computed from."""

_SMALL_MU = 4e-5
"""Below, the difference of two erfcx loses more digits than two trapezoids of its slope
(measured in 150 digits: :func:`_delta_above` holds on both sides)."""

_ORDER_ERROR = 1e-13
"""Relative error of a term of the bound by a Rényi order, some hundred roundings."""


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
    if mu < _SMALL_MU:  # the difference below would cancel
        return float(scale * (_slope(low) + _slope(high)) * mu / sqrt(32))
    if b >= a or a < 1:
        return float(0.5 * scale * (erfcx(low) - erfcx(high)))
    return float(0.5 * erfc(low) - 0.5 * scale * erfcx(high))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ = Δ/σ that keeps (ε, δ), to nine digits and never too large.

    Verified, and accepted, for ε in [1e-9, 100] and δ in [1e-31, 0.1]: a little more
    than a promise may be, since a release sets some of it aside.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
    3.730632
    """
    _require_in("epsilon", epsilon, _PART_EPSILONS)
    _require_in("delta", delta, _PART_DELTAS)
    epsilon, delta = float(epsilon), float(delta)
    low, high = log(1e-12), log(MU_LIMIT)
    for _ in range(64):
        middle = (low + high) / 2
        if _delta_above(exp(middle), epsilon) <= delta:
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
        Largest L2 norm of one row's feature vector, in [1e-250, 1e250].
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
    _require_in("norm_bound", norm_bound, _BOUNDS)
    return float(norm_bound) / gaussian_mu(epsilon, delta) * _SIGMA_UP


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε that a release (or several: μ² adds up) keeps at δ, rounded up.

    Verified, and accepted, for μ in [0, 100] and δ in [1e-30, 0.1].

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 6)
    4.377178
    """
    _require_in("mu", mu, (0.0, MU_LIMIT))
    _require_in("delta", delta, _DELTAS)
    mu, delta = float(mu), float(delta)
    if _delta_above(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, mu
    while _delta_above(mu, high) > delta:
        low, high = high, 2 * high
    for _ in range(64):
        middle = (low + high) / 2
        if _delta_above(mu, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""An ε that everything of zCDP rate ρ keeps at δ, rounded up.

    .. math::
        \epsilon = \min_{\alpha > 1} \; \alpha\rho + \frac{\log(1/\delta)
        - \log(\alpha - 1) + \alpha \log(1 - 1/\alpha)}{\alpha - 1} .

    Every Rényi order α gives a valid bound, so the search need not be exact.

    References
    ----------
    Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12; Bun and Steinke 2016.

    Examples
    --------
    >>> round(zcdp_epsilon(0.5, 1e-5), 4)
    4.7284
    """
    _require_in("rho", rho, (0.0, MU_LIMIT**2))
    _require_in("delta", delta, _DELTAS)
    rho, delta = float(rho), float(delta)
    if rho == 0:
        return 0.0

    def bound(order: float) -> float:
        rest, error = _renyi_rest(order, delta)
        return order * rho * (1 + _ORDER_ERROR) + rest + error

    return max(_smallest(bound), 0.0)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest zCDP rate ρ that is sure to keep (ε, δ), rounded down.

    Examples
    --------
    >>> round(zcdp_epsilon(zcdp_rho(1.0, 1e-5), 1e-5), 9)
    1.0
    """
    require_budget(epsilon, delta)
    epsilon, delta = float(epsilon), float(delta)

    def bound(order: float) -> float:
        rest, error = _renyi_rest(order, delta)
        return (rest + error - epsilon) / order

    return max(-_smallest(bound) * (1 - _ORDER_ERROR), 0.0)


def require_budget(epsilon: Any, delta: Any) -> None:
    """Refuse an ε or δ that is no number or out of the range that was verified."""
    _require_in("epsilon", epsilon, _EPSILONS)
    _require_in("delta", delta, _DELTAS)


def is_number(value: Any) -> bool:
    """Whether a value is a real number, which True is not."""
    kind = type(value)
    if kind is float or kind is int:
        return True
    return isinstance(value, Real) and not isinstance(value, bool)


def _require_in(name: str, value: Any, limits: tuple[float, float]) -> None:
    low, high = limits
    if not is_number(value) or not low <= value <= high:
        raise PrivacyError(
            f"{name} must be a real number in [{low:g}, {high:g}]; got {value!r}."
        )


def _slope(x: float) -> float:
    """-erfcx'(x). It is convex, so that trapezoids of it are never too small."""
    return float(2 / sqrt(pi) - 2 * x * erfcx(x))


def _delta_above(mu: float, epsilon: float) -> float:
    """gaussian_delta with what rounding may have taken from it, and more, put back."""
    # Measured in 150 digits: below the truth by at most 3e-14 + 2.5e-15 / mu.
    error = 2.0**-42 + (0 if mu < _SMALL_MU else 2.0**-46 / mu)
    return gaussian_delta(mu, epsilon) * (1 + error)


def _renyi_rest(order: float, delta: float) -> tuple[float, float]:
    """What a Rényi order adds to its rate to become an ε, and its rounding error."""
    a, b, c = log(1 / delta), log(order - 1), order * log1p(-1 / order)
    error = _ORDER_ERROR * (a + abs(b) - c)
    return (a - b + c) / (order - 1), error / (order - 1)


def _smallest(bound: Callable[[float], float]) -> float:
    """Least value over all orders: it falls, then rises (golden sections)."""
    ratio = (sqrt(5) - 1) / 2
    low, high, best = -12.0, 400.0, inf
    for _ in range(90):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at_left, at_right = (bound(1 + exp(t)) for t in (left, right))
        best = min(best, at_left, at_right)
        if at_left <= at_right:
            high = right
        else:
            low = left
    return best
