r"""The accountant: what releases cost together, and whether one more fits.

A charge speaks of one unit (a row, or a group of rows) and one relation between
neighbours (a unit added or removed, or replaced). Sums of charges make sense in one
unit and one relation only, so that :class:`Terms` fix both and convert every charge
upwards, or refuse it. There are two ways of adding up, and each is a proven filter:
what later releases cost may depend on what earlier ones showed.

* Gaussian parts only: :math:`\mu^2` adds up (Smith and Thakurta 2022).
* With parts that have no δ (Laplace counts): all in zero-concentrated privacy, where a
  Gaussian has the rate :math:`\rho = \mu^2/2` and pure ε the rate
  :math:`\epsilon^2/2`, and rates add up (Feldman and Zrnic 2021).

Sums are exact integers. Where they are kept is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, inf, log10, nextafter, sqrt
from typing import Any, final

from sketchlearn.errors import BudgetExceeded, PrivacyError
from sketchlearn.privacy.charge import Charge, Neighbours, require_unit
from sketchlearn.privacy.mechanisms import (
    LEAST_EPSILON,
    MU_LIMIT,
    gaussian_epsilon,
    gaussian_mu,
    is_number,
    require_budget,
    zcdp_epsilon,
    zcdp_rho,
)

__all__ = ["LATTICE_ODDS", "Spending", "Terms"]

LATTICE_ODDS = 2.0**-32
"""Discrete noise is not quite Gaussian: the odds of a release are within a factor
exp(eta) of those of rounded Gaussian noise, eta <= 2**-32 mu; a lattice too coarse for
that is refused. (In zCDP discrete noise costs what Gaussian noise does, Canonne, Kamath
and Steinke 2020, Theorem 14, and nothing is set aside.)"""

MOST_CHARGES = 2**19
"""Together, k releases cost at most 2 (eta_1 + ... + eta_k) <= 2**-31 sqrt(k) mu more
than Gaussian ones, mu being that of all: less than 2**-21 mu for so many of them."""

_ASIDE = 2.0**-21
"""What the cap sets aside for it, for each mu."""

_ULP_UP = 1 + 2.0**-52
"""Puts back what one rounding may have taken."""

_SHIFT = 1074
"""Every float64 is a whole number of 2**-1074."""

_ONE = 1 << _SHIFT
"""One, in these steps."""


@final
@dataclass(frozen=True)
class Spending:
    """Exact sums over charges, in the unit and relation of some terms.

    Parameters
    ----------
    n_charges : int
        How many.
    mu2, pure, pure2 : int
        Sums of μ², ε and ε² in units of 2**-1074 (ε² : 2**-2148).
    """

    n_charges: int = 0
    mu2: int = 0
    pure: int = 0
    pure2: int = 0

    def plus(self, charges: Iterable[Charge], terms: Terms) -> Spending:
        """The sums with some more charges."""
        n_charges, mu2, pure, pure2 = self.n_charges, self.mu2, self.pure, self.pure2
        for charge in charges:
            k = terms.steps(charge)
            n_charges += 1
            mu2 += _whole(charge.mu2) * k * k
            if charge.pure_epsilon:
                part = _whole(charge.pure_epsilon) * k
                pure, pure2 = pure + part, pure2 + part * part
        return Spending(n_charges, mu2, pure, pure2)

    @property
    def rho(self) -> Fraction:
        """The zCDP rate of all."""
        return Fraction((self.mu2 << _SHIFT) + self.pure2, 2 * _ONE * _ONE)

    @property
    def mu(self) -> float:
        """μ of all Gaussian parts, rounded up."""
        total = Fraction(self.mu2, _ONE)
        if total > MU_LIMIT**2:
            return inf
        return sqrt(float(total) * _ULP_UP) * _ULP_UP

    def epsilon(self, delta: float) -> float:
        """An ε that everything keeps together at this δ, rounded up."""
        if not self.pure:
            k = self.n_charges
            several = 2 * LATTICE_ODDS * sqrt(k) if k > 1 else 0.0
            return _gaussian(self.mu, delta) + several * self.mu
        rho = float(self.rho) * _ULP_UP
        both = zcdp_epsilon(rho, delta) if rho < MU_LIMIT**2 else inf
        return min(both, self.alone(delta)) if self.n_charges == 1 else both

    def alone(self, delta: float) -> float:
        """ε of a single charge: that of its Gaussian part and the pure one, added."""
        pure = float(Fraction(self.pure, _ONE)) * _ULP_UP
        return nextafter(_gaussian(self.mu, delta) + pure, inf)


@final
@dataclass(frozen=True)
class Terms:
    """How much may be spent in all, and of which unit and relation that speaks.

    Parameters
    ----------
    epsilon, delta : float
        Cap on everything ever released.
    pure_epsilon : float
        How much of ``epsilon`` Laplace counts may take together; 0 refuses them.
    neighbours : {"add_remove", "replace"} or None
        None where it was never stated.
    rows_per_unit : int or None
        None where it was never stated.
    """

    epsilon: float
    delta: float
    pure_epsilon: float = 0.0
    neighbours: Neighbours | None = "add_remove"
    rows_per_unit: int | None = 1

    def __post_init__(self) -> None:
        require_budget(self.epsilon, self.delta)
        pure = self.pure_epsilon
        if not is_number(pure) or not 0 <= pure < self.epsilon:
            raise PrivacyError(
                f"pure_epsilon must be in [0, epsilon); got {self.pure_epsilon!r}."
            )
        if self.neighbours is not None or self.rows_per_unit is not None:
            require_unit(self.neighbours, self.rows_per_unit)
            object.__setattr__(self, "rows_per_unit", int(self.rows_per_unit or 0))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "pure_epsilon", float(pure))

    def steps(self, charge: Charge) -> int:
        r"""How many neighbours of the charge one neighbour of these terms is away.

        Let a unit here have up to r rows, and one of the charge up to g. Going from a
        dataset to its neighbour here takes k steps between neighbours of the charge:

        * Adding (or removing) r rows is adding ⌈r/g⌉ times at most g rows: k = ⌈r/g⌉,
          which is 1 where g ≥ r. Replacing r rows by replacing g is the same.
        * Replacing r rows where the charge speaks of adding and removing: first remove
          the old ones, then add the new ones, k = 2⌈r/g⌉. It is 2 even where g ≥ 2r:
          no single step both adds and removes.
        * Adding r rows where the charge speaks of replacing: no number of replacements
          changes the number of rows, but its noise covers that. Replacing g rows was
          given the sensitivity 2gS, adding g of them moves the sum by gS, and the
          noise on the number of rows is made for g rows. If the number of rows was
          told there is no such noise: refused.

        k steps cost k μ and k ε (group privacy), so k² μ² and k² ε².
        """
        if self.neighbours is None or self.rows_per_unit is None:
            return 1
        same = charge.neighbours == self.neighbours
        if charge.count_mode == "public" and (not same or self.rows_per_unit > 1):
            raise PrivacyError(
                "this release tells the number of rows, so it promises nothing about "
                "a row added or removed, or a person of several rows, which is what "
                'the ledger is about. Nothing was released. Use count="joint", or for '
                'another dataset make a ledger with neighbours="replace".'
            )
        k = -(-self.rows_per_unit // charge.rows_per_unit)
        return k if same or self.neighbours == "add_remove" else 2 * k

    def require_room(self, spent: Spending, charge: Charge, where: str) -> Spending:
        """What is spent with one more charge; :class:`BudgetExceeded` if too much."""
        if spent.n_charges >= MOST_CHARGES:
            raise BudgetExceeded(
                f"nothing was released. {where} has {spent.n_charges} charges, and "
                f"what discrete noise costs is set aside for {MOST_CHARGES}."
            )
        after = spent.plus([charge], self)
        if charge.pure_epsilon and not self.pure_epsilon:
            raise BudgetExceeded(
                "nothing was released. A Laplace count spends pure epsilon, and none "
                f'is set aside in {where}. Use count="joint", or make the ledger of '
                "another dataset with pure_epsilon=... ."
            )
        if after.pure > _whole(self.pure_epsilon):
            left = Fraction(_whole(self.pure_epsilon) - spent.pure, _ONE)
            asked = Fraction(after.pure - spent.pure, _ONE)
            raise BudgetExceeded(
                f"nothing was released. pure epsilon {_short(asked)} asked for the "
                f"count, about {_down(left)} is left of {_short(self.pure_epsilon)} "
                f"in {where}."
            )
        if not self._fits(after):
            raise BudgetExceeded(self._refusal(spent, charge, where))
        return after

    def left_epsilon(self, spent: Spending) -> float:
        """Largest ε of one more Gaussian release that would be granted, at δ.

        For a release at the δ, unit and relation of these terms; 0 if none fits.
        """
        if not spent.n_charges:
            return self.epsilon
        room = self._mu2_cap - Fraction(spent.mu2, _ONE)
        if self.pure_epsilon:
            room = 2 * (self._rho_cap - spent.rho)
        if room <= 0:
            return 0.0
        mu = min(sqrt(float(room)), MU_LIMIT)
        found = min(gaussian_epsilon(mu, self.delta), self.epsilon)
        shrink = 1e-12  # gaussian_mu and gaussian_epsilon are rounded apart
        while found >= LEAST_EPSILON:
            if Fraction(gaussian_mu(found, self.delta)) ** 2 <= room:
                return found
            found, shrink = found * (1 - shrink), 2 * shrink
        return 0.0

    @cached_property
    def _mu2_cap(self) -> Fraction:
        """Of several releases: less what their discrete noise costs at most."""
        aside = _ASIDE * gaussian_mu(self.epsilon, self.delta)
        share = self.delta * (1 - aside)
        return Fraction(gaussian_mu(self.epsilon - aside, share)) ** 2

    @cached_property
    def _rho_cap(self) -> Fraction:
        return Fraction(zcdp_rho(self.epsilon, self.delta))

    def _fits(self, after: Spending) -> bool:
        cap, spent = self._mu2_cap, Fraction(after.mu2, _ONE)
        if self.pure_epsilon:
            cap, spent = self._rho_cap, after.rho
        if spent <= cap:
            return True
        # A first release was chosen before anything was seen, so that its own promise
        # is enough. Having used up more than the cap, it is also the last one.
        return after.n_charges == 1 and after.alone(self.delta) <= self.epsilon

    def _refusal(self, spent: Spending, charge: Charge, where: str) -> str:
        cost = Spending().plus([charge], self).alone(self.delta)
        asked = f"epsilon={_short(charge.epsilon or cost)} asked"
        k = self.steps(charge)
        if charge.epsilon and (charge.delta != self.delta or k > 1):
            unit = f", rows_per_unit={charge.rows_per_unit}" if k > 1 else ""
            relation = f", neighbours={charge.neighbours!r}" if k > 1 else ""
            asked += (
                f" (delta={_short(charge.delta)}{unit}{relation}; in the terms of this "
                f"ledger epsilon={_short(cost)})"
            )
        left = _down(self.left_epsilon(spent))
        text = (
            f"nothing was released. {asked}, about {left} is left of "
            f"{_short(self.epsilon)} (delta={_short(self.delta)}) in {where}."
        )
        if charge.pure_epsilon:
            text += ' A release with count="joint" costs less.'
        return text


def _whole(value: float) -> int:
    """A float64 as a whole number of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_SHIFT + 1 - denominator.bit_length())


def _gaussian(mu: float, delta: float) -> float:
    return gaussian_epsilon(mu, delta) if mu <= MU_LIMIT else inf


def _short(value: Any) -> str:
    """Few digits, and 1e-5 rather than 1e-05."""
    return re.sub(r"e([+-])0+", r"e\1", f"{float(value):.4g}")


def _down(value: Any) -> str:
    """Two digits, rounded down: what is said to be left is left."""
    value = float(value)
    if value <= 0:
        return "0"
    places = 1 - floor(log10(value))
    return _short(floor(value * 10.0**places) / 10.0**places)
