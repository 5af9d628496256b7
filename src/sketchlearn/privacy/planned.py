r"""The one door to noise: a release is planned, paid for, and then drawn.

With the sensitivity Δ of one unit in lattice steps, the noise on each number has

.. math::
    \sigma = \Big\lceil \frac{\Delta}{\mu(\epsilon', \delta')} (1 + 2^{-30})
    \Big\rceil, \qquad \epsilon' = \epsilon (1 - 2^{-30}), \quad
    \delta' = \delta (1 - 2^{-30}) .

What is kept back covers what discrete noise costs beyond Gaussian noise. Where several
parties add up their sketches, each draws a share of it.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, exp, isqrt, log2
from typing import final

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import PrivacyError, PrivacyWarning
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.privacy.accountant import LATTICE_ODDS
from sketchlearn.privacy.charge import (
    Charge,
    CountMode,
    Neighbours,
    recorded_runs,
    require_modes,
)
from sketchlearn.privacy.mechanisms import (
    LEAST_EPSILON,
    gaussian_mu,
    is_number,
    require_budget,
)
from sketchlearn.privacy.noise import RandomBytes, discrete_gaussian, discrete_laplace
from sketchlearn.privacy.noise_shares import (
    NoiseShares,
    log_convolution_odds,
    share_noise,
)
from sketchlearn.privacy.releasable import require_releasable
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.privacy.statement import (
    MECHANISMS,
    PrivacyStatement,
    count_weight,
    laplace_std,
    sensitivity_steps,
)
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.version import __version__

__all__ = ["PlannedRelease", "plan_release"]

_KEPT_BACK = 2.0**-30
"""Share of ε and δ that is kept back, and by which σ is rounded up."""

_DISCRETE_ODDS = 67
"""Within 40 σ, where all but 1e-348 of it is, the odds of discrete noise are within
exp(67 / σ²) of those of rounded Gaussian noise: 40² / 24, rounded up."""

_LARGE_DELTA = 1e-4
"""A δ that deserves a warning whatever the number of rows."""


@final
@dataclass(frozen=True)
class PlannedRelease:
    """A release that was checked and calibrated, and not yet paid for or drawn.

    The one door to noise: whatever is released was drawn by :meth:`draw`, or summed
    from what :meth:`draw_share` gave. Not public: drawing is not paying, and what is
    drawn from other bytes than the operating system's is marked as a test double.

    Parameters
    ----------
    sketch : Sketch
        What is to be released.
    statement : PrivacyStatement
        What will be promised, but for the identifier of the release.
    release_id : str
        128 random bits in hexadecimal: what the ledger and the release share.
    shares : NoiseShares, optional
        Where several parties draw the noise of one release: how much each of them.
    """

    sketch: Sketch
    statement: PrivacyStatement
    release_id: str
    shares: NoiseShares | None = None

    @property
    def charge(self) -> Charge:
        """The price. It names the runs of the sketch; the release does not."""
        statement = self.statement
        return Charge(
            release_id=self.release_id,
            mu2=statement.mu2,
            pure_epsilon=statement.count_epsilon,
            feature_map=statement.feature_map,
            lineage=recorded_runs(self.sketch.lineage),
            neighbours=statement.neighbours,
            rows_per_unit=statement.rows_per_unit,
            count_mode=statement.count_mode,
            epsilon=statement.epsilon,
            delta=statement.delta,
        )

    def charge_among(self, n_honest: int) -> Charge:
        r"""The price of a share if only so many parties keep their noise to themselves.

        With h of them the noise that nobody else knows has the variance
        :math:`h \sigma_i^2`, and the price is
        :math:`\mu^2 = \Delta^2 / (h \sigma_i^2)`; it is never below that of the terms.
        """
        assert self.shares is not None, "this release was planned for one party"
        if n_honest >= self.shares.n_honest:
            return self.charge
        statement, spec = self.statement, self.sketch.features
        shares = replace(self.shares, n_honest=n_honest)
        sensitivity = sensitivity_steps(
            spec, statement.neighbours, statement.count_mode, statement.rows_per_unit
        )
        sigma = isqrt(n_honest * shares.sigma**2)  # rounded down
        _require_like_one(spec, shares, sensitivity, sigma, statement.epsilon)
        mu2 = Fraction(sensitivity**2, n_honest * shares.sigma**2)
        return replace(
            self.charge,
            mu2=float(mu2) * (1 + 2.0**-50),  # rounded up
            epsilon=None,
            delta=None,
        )

    def draw(self, random_bytes: RandomBytes, n: int = 1) -> list[PrivateSketch]:
        """Draw the noise, n times and independently: a release takes one.

        Who calls this has paid for it. Only an audit, of rows that are no secret,
        draws more than once.
        """
        assert self.shares is None, "one party draws a share, never all of the noise"
        exact, statement = self._exact_numbers(), self.statement
        m = len(exact)
        noise = discrete_gaussian(statement.sigma_int, n * m, random_bytes=random_bytes)
        seeded = statement.seeded or random_bytes is not os.urandom
        promise = replace(statement, lineage=(self.release_id,), seeded=seeded)
        drawn = []
        for start in range(0, n * m, m):
            pairs = zip(exact, noise[start : start + m], strict=True)
            total = Int128Array.from_ints(value + shift for value, shift in pairs)
            count = self.draw_count(random_bytes)
            drawn.append(
                PrivateSketch(
                    total=total,
                    features=self.sketch.features,
                    statement=promise,
                    noisy_count=count,
                    source_map=self.sketch.source_map,
                    columns=self.sketch.columns,
                )
            )
        return drawn

    def draw_count(self, random_bytes: RandomBytes) -> int | None:
        """The number of rows, where it is not one more coordinate."""
        mode, count = self.statement.count_mode, self.sketch.count
        if mode == "joint":
            return None
        if mode == "public":
            return count
        rate = Fraction(self.statement.count_epsilon) / self.statement.rows_per_unit
        return count + discrete_laplace(
            rate.numerator, rate.denominator, random_bytes=random_bytes
        )

    def draw_share(self, random_bytes: RandomBytes) -> Int128Array:
        """The numbers of this party, with its share of the noise on them.

        Less noise than was promised: only the sum over all parties keeps the promise.
        Who calls this has paid for it, and hides it under a mask before it leaves.
        """
        assert self.shares is not None, "this release was planned for one party"
        exact = self._exact_numbers()
        noise = discrete_gaussian(
            self.shares.sigma, len(exact), random_bytes=random_bytes
        )
        pairs = zip(exact, noise, strict=True)
        return Int128Array.from_ints(value + shift for value, shift in pairs)

    def _exact_numbers(self) -> list[int]:
        """What gets Gaussian noise: the total, and the count if it is joint."""
        numbers = self.sketch.total.to_ints()
        if self.statement.count_mode == "joint":
            numbers.append(self.sketch.count * self.statement.count_weight)
        return numbers


def plan_release(
    sketch: Sketch,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
    among: tuple[int, int] | None = None,
) -> PlannedRelease:
    """Check a release and compute its noise, without drawing or spending any.

    With ``among=(n_parties, n_honest)`` it is the part of one party in a release of
    several: each draws a share of the noise, those of ``n_honest`` keep the promise,
    and the noise that is stated is that of all.
    """
    require_budget(epsilon, delta)
    require_modes(neighbours, count, rows_per_unit)
    # Plain Python numbers: NumPy's would overflow or round in what follows.
    epsilon, delta, rows_per_unit = float(epsilon), float(delta), int(rows_per_unit)
    verified = require_releasable(sketch)
    spec = verified.features
    count_epsilon = _count_epsilon(epsilon, count_share) if count == "laplace" else 0.0
    sensitivity = sensitivity_steps(spec, neighbours, count, rows_per_unit)
    sigma = _noise_steps(spec, sensitivity, epsilon, epsilon - count_epsilon, delta)
    shares = None if among is None else share_noise(sigma, *among)
    if shares is not None:
        _require_like_one(spec, shares, sensitivity, sigma, epsilon)
    n_parties = 1 if shares is None else shares.n_parties
    _require_room(verified, sigma, n_parties)
    _warn_of_large_delta(delta, sketch.count)
    statement = PrivacyStatement(
        epsilon=epsilon,
        delta=delta,
        mu2=float(Fraction(sensitivity, sigma) ** 2) * (1 + 2.0**-50),  # rounded up
        neighbours=neighbours,
        unit="record" if rows_per_unit == 1 else "group",
        rows_per_unit=rows_per_unit,
        mechanism=MECHANISMS[count == "laplace"],
        sensitivity=float(Fraction(sensitivity) / Fraction(2) ** spec.frac_bits),
        sigma_int=sigma if shares is None else shares.sigma_of_all,
        frac_bits=spec.frac_bits,
        count_mode=count,
        count_weight=count_weight(spec) if count == "joint" else 0,
        count_epsilon=count_epsilon,
        count_std=laplace_std(count_epsilon, rows_per_unit),
        feature_map=spec.fingerprint,
        lineage=None,
        library_version=__version__,
    )
    return PlannedRelease(verified, statement, os.urandom(16).hex(), shares)


def _noise_steps(
    spec: FeatureSpec,
    sensitivity: int,
    epsilon: float,
    sum_epsilon: float,
    delta: float,
) -> int:
    """σ of the sum in lattice steps, at its part of ε; all of ε covers the rest."""
    shrink = 1 - _KEPT_BACK
    mu = gaussian_mu(sum_epsilon * shrink, delta * shrink)
    sigma = ceil(Fraction(sensitivity) / Fraction(mu) * (1 + Fraction(_KEPT_BACK)))
    eta = Fraction(_DISCRETE_ODDS * (spec.sketch_size + 1), sigma**2)
    _require_covered(eta, sensitivity, sigma, epsilon)
    return sigma


def _require_like_one(
    spec: FeatureSpec,
    shares: NoiseShares,
    sensitivity: int,
    sigma: int,
    epsilon: float,
) -> None:
    """Refuse shares whose sum is not as good as a single discrete Gaussian of σ."""
    h, tau = shares.n_honest, Fraction(0)
    if h > 1:  # 2**-1022 is an upper bound of what is too small for a float
        tau = Fraction(max(exp(log_convolution_odds(shares.sigma, h)), 2.0**-1022))
    odds = Fraction(_DISCRETE_ODDS, h * shares.sigma**2) + tau
    _require_covered((spec.sketch_size + 1) * odds, sensitivity, sigma, epsilon)


def _require_covered(
    eta: Fraction, sensitivity: int, sigma: int, epsilon: float
) -> None:
    """Refuse odds that what is kept back of ε, and the ledger, do not cover."""
    in_one = Fraction(_KEPT_BACK) * Fraction(epsilon) / 2
    in_many = Fraction(LATTICE_ODDS) * Fraction(sensitivity, sigma)
    if eta > min(in_one, in_many):
        raise PrivacyError("the lattice is too coarse for this promise.")


def _require_room(sketch: Sketch, sigma: int, n_parties: int = 1) -> None:
    """Refuse noise that could leave 128 bits: 64 σ of it are never drawn."""
    room = (2**127 - 1) // n_parties - 64 * sigma
    counted = sketch.count * count_weight(sketch.features)
    if counted > room or not sketch.total.within(-room, room):
        raise PrivacyError(
            "the noise of this promise does not fit in 128 bits beside the total. "
            "Nothing was released. Use a larger epsilon, fewer rows_per_unit, or parts "
            "of a map whose norm bounds are less different."
        )


def _count_epsilon(epsilon: float, share: float) -> float:
    """What a Laplace count spends of ε; the sum must keep enough for itself."""
    if not is_number(share) or not 0 < share < 1:
        raise PrivacyError(f"count_share must be in (0, 1); got {share!r}.")
    spent = epsilon * float(share)
    if min(spent, epsilon - spent) < LEAST_EPSILON:
        raise PrivacyError(
            f"count_share={share!r} leaves less than 1e-6 of epsilon={epsilon:g} to "
            "the count or to the sum: choose one nearer to 0.1."
        )
    return spent


def _warn_of_large_delta(delta: float, count: int) -> None:
    # The exact count must not decide whether a warning is shown: a coarse power of
    # two of it is what the data holder, who alone sees this, gets to know.
    coarse = 2.0 ** ceil(log2(max(count, 1)))
    if delta > _LARGE_DELTA or delta > 1 / (10 * coarse):
        warnings.warn(
            f"delta={delta:g} is the chance that somebody is fully exposed; it should "
            "be far below one over the number of rows.",
            PrivacyWarning,
            stacklevel=4,
        )
