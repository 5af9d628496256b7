r"""Noise in equal shares: each party draws one, and any ``n_honest`` of them suffice.

For a release that needs noise of standard deviation σ, each party draws discrete
Gaussian noise of

.. math:: \sigma_i = \Big\lceil \sqrt{\sigma^2 / h} \Big\rceil, \qquad
    h \sigma_i^2 \ge \sigma^2,

so that h parties whose noise nobody else knows hide what one alone would hide. A sum of
discrete Gaussians is not quite one itself: how far it is off is bounded here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, isqrt, log, pi
from typing import final

__all__ = ["NoiseShares", "log_convolution_odds", "share_noise"]


@final
@dataclass(frozen=True)
class NoiseShares:
    """Who draws how much.

    Parameters
    ----------
    sigma : int
        Noise of one party, in lattice steps.
    n_parties : int
        How many draw it.
    n_honest : int
        How many of them must be unknown to whoever looks.
    """

    sigma: int
    n_parties: int
    n_honest: int

    @property
    def sigma_of_all(self) -> int:
        """Standard deviation of the noise of all parties, rounded up."""
        return _root_up(self.n_parties * self.sigma**2)


def share_noise(sigma: int, n_parties: int, n_honest: int) -> NoiseShares:
    """Shares such that those of any ``n_honest`` parties have at least ``sigma``.

    Examples
    --------
    >>> shares = share_noise(1000, n_parties=5, n_honest=4)
    >>> shares.sigma, shares.sigma_of_all
    (500, 1119)
    """
    return NoiseShares(_root_up(-(-(sigma**2) // n_honest)), n_parties, n_honest)


def log_convolution_odds(sigma: int, n: int) -> float:
    r"""Logarithm of how far a sum of n discrete Gaussians is from a single one.

    The odds of any value under the sum of n independent discrete Gaussians of σ, and
    under one discrete Gaussian of variance nσ², are within a factor :math:`e^{\tau}`:

    .. math::
        \tau = 10 \sum_{k=1}^{n-1} \exp\Big(-2\pi^2\sigma^2 \frac{k}{k+1}\Big)
        \le 10\,(n-1)\, e^{-\pi^2\sigma^2} .

    The logarithm of τ is returned, since τ is no float: at σ = 2³⁰ its first digit
    other than 0 stands behind 10¹⁸ zeros. Of a sum of one, τ = 0.

    References
    ----------
    Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
    Learning with Secure Aggregation", ICML 2021, Theorem 1 and its proof. (There τ
    covers both of two neighbours; here it is allowed for each.)

    Examples
    --------
    >>> log_convolution_odds(2, 3) < -37
    True
    >>> log_convolution_odds(2**30, 50) < -1e19
    True
    """
    if n < 2:
        return -float("inf")
    first = pi**2 * sigma**2  # of k = 1, the largest term
    rest = fsum(exp(-first * (2 * k / (k + 1) - 1)) for k in range(1, n))
    return log(10 * rest) - first


def _root_up(square: int) -> int:
    """The square root, rounded up."""
    root = isqrt(square)
    return root + (root * root < square)
