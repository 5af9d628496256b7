"""What a release promises: the statement that goes with every private sketch.

Public values only, checked for consistency wherever they come from a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from math import ceil, exp, isfinite, isqrt, sqrt
from typing import Any, final

from sketchlearn.errors import PrivacyError
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.privacy.charge import CountMode, Neighbours, require_modes
from sketchlearn.privacy.mechanisms import gaussian_mu, require_budget

__all__ = [
    "MECHANISMS",
    "PrivacyStatement",
    "count_weight",
    "laplace_std",
    "sensitivity_steps",
]
__public__ = ["PrivacyStatement"]

COUNT_WEIGHT = 0.5
"""r of the joint count, of weight alpha = sqrt(r / sqrt(m)): the alpha of the least
(1 + alpha²)(m + r²/alpha²), the noise on m numbers and r² times that on the count. r
says how much the count matters. Part of every release: never to be changed."""

MECHANISMS = ("discrete Gaussian", "discrete Gaussian, discrete Laplace count")
"""Without and with a Laplace count."""

_NINE_DIGITS = 1e-9
"""What a statement may be off from what is computed here: as many digits as
:func:`~sketchlearn.privacy.mechanisms.gaussian_mu` gives."""

_VERSION_1_DIGITS = 1e-6
"""The same for sensitivities of version 1, which were computed from rounded bounds."""


@final
@dataclass(frozen=True)
class PrivacyStatement:
    """What a release promises, and how it was made. Public.

    Parameters
    ----------
    epsilon, delta : float
        The promise about one unit.
    mu2 : float
        What the ledger was charged: (sensitivity / noise)².
    neighbours : str
        ``"add_remove"``: with or without one unit; ``"replace"``: one unit changed.
    unit : str
        ``"record"``, or ``"group"`` of up to ``rows_per_unit`` rows.
    rows_per_unit : int
        Rows one unit may contribute. The caller vouches for it.
    mechanism : str
        How noise was made.
    sensitivity : float
        Largest change of the total by one unit, count included.
    sigma_int, frac_bits : int
        Noise in lattice steps, and the lattice.
    count_mode : str
        How the number of rows is treated.
    count_weight : int
        Lattice steps one row is worth in the joint count coordinate.
    count_epsilon, count_std : float
        Part of ε spent on a Laplace count, and its standard deviation.
    feature_map : str
        Fingerprint of the map.
    lineage : tuple of str, or None
        Random identifiers of the releases inside: one, or those of what was merged;
        None before the release, or where there are too many to list. They say nothing
        of the rows: which passes over rows a release holds is known to the ledger only.
    library_version : str
        Who made it.
    seeded : bool
        True for test doubles, whose noise is no secret.
    """

    epsilon: float
    delta: float
    mu2: float
    neighbours: Neighbours
    unit: str
    rows_per_unit: int
    mechanism: str
    sensitivity: float
    sigma_int: int
    frac_bits: int
    count_mode: CountMode
    count_weight: int
    count_epsilon: float
    count_std: float
    feature_map: str
    lineage: tuple[str, ...] | None
    library_version: str
    seeded: bool = False

    def describe(self) -> dict[str, Any]:
        """Plain values for a file header."""
        return asdict(self)

    @staticmethod
    def from_description(values: Mapping[str, Any]) -> PrivacyStatement:
        """Rebuild from :meth:`describe`, refusing unknown or missing fields."""
        known = {field.name for field in fields(PrivacyStatement)}
        if set(values) != known:
            raise PrivacyError("a privacy statement has unknown or missing fields.")
        lineage = values["lineage"]
        runs = None if lineage is None else tuple(lineage)
        statement = PrivacyStatement(**{**values, "lineage": runs})
        if not statement.is_possible:
            raise PrivacyError("a privacy statement contradicts itself.")
        return statement

    @property
    def is_possible(self) -> bool:
        """Whether these values can come from a release."""
        numbers = [self.epsilon, self.delta, self.mu2, self.sensitivity]
        numbers += [self.count_epsilon, self.count_std]
        whole = (self.rows_per_unit, self.sigma_int, self.frac_bits, self.count_weight)
        if not all(type(n) is float and isfinite(n) and n >= 0 for n in numbers):
            return False
        if not all(type(n) is int for n in whole) or type(self.seeded) is not bool:
            return False
        texts = (self.mechanism, self.feature_map, self.library_version)
        if not all(type(t) is str and re.fullmatch("[ -~]{0,80}", t) for t in texts):
            return False
        # Numbers of 128 bits, in units that a float holds.
        if not -800 <= self.frac_bits <= 1200 or max(whole) >= 2**127:
            return False
        try:
            require_budget(self.epsilon, self.delta)
            require_modes(self.neighbours, self.count_mode, self.rows_per_unit)
        except PrivacyError:
            return False
        joint, laplace = self.count_mode == "joint", self.count_mode == "laplace"
        if self.sigma_int < 1 or (self.count_weight > 0) != joint:
            return False
        if (self.count_epsilon > 0) != laplace or (self.count_std > 0) != laplace:
            return False
        if self.unit != ("record" if self.rows_per_unit == 1 else "group"):
            return False
        least = laplace_std(self.count_epsilon, self.rows_per_unit)
        if self.mechanism != MECHANISMS[laplace] or self.count_std < least:
            return False
        # The noise must be at least what the promise asks of this sensitivity.
        try:
            mu = gaussian_mu(self.epsilon - self.count_epsilon, self.delta)
            most = gaussian_mu(self.epsilon, self.delta) ** 2 * (1 + _NINE_DIGITS)
        except PrivacyError:
            return False
        step = Fraction(2) ** -self.frac_bits
        ratio = float(Fraction(self.sensitivity) / (self.sigma_int * step))
        paid = ratio**2 * (1 - _NINE_DIGITS) <= self.mu2 <= most
        return 0 < ratio <= mu * (1 + _NINE_DIGITS) and paid

    def is_about(self, spec: FeatureSpec) -> bool:
        """Whether a release of this map can promise it."""
        if (self.feature_map, self.frac_bits) != (spec.fingerprint, spec.frac_bits):
            return False
        if spec.norm_bound is None:
            return False
        weight = count_weight(spec) if self.count_mode == "joint" else 0
        steps = sensitivity_steps(
            spec, self.neighbours, self.count_mode, self.rows_per_unit
        )
        needed = float(Fraction(steps) / Fraction(2) ** spec.frac_bits)
        if spec.version == 1:
            needed *= 1 - _VERSION_1_DIGITS
        return self.count_weight == weight and self.sensitivity >= needed


def sensitivity_steps(
    spec: FeatureSpec, neighbours: str, count: str, rows_per_unit: int
) -> int:
    """Largest change of the total by one unit, count included, in lattice steps."""
    factor = rows_per_unit * (2 if neighbours == "replace" else 1)
    squared = (factor * spec.norm_steps) ** 2
    if count == "joint":
        squared += (rows_per_unit * count_weight(spec)) ** 2
    return isqrt(squared) + 1  # never too small


def count_weight(spec: FeatureSpec) -> int:
    """Lattice steps one row is worth in the count coordinate, ceil(alpha S 2^k)."""
    alpha = sqrt(COUNT_WEIGHT / sqrt(spec.sketch_size))
    bound = Fraction(spec.norm_bound or 0)
    return ceil(Fraction(alpha) * bound * Fraction(2) ** spec.frac_bits)


def laplace_std(epsilon: float, rows_per_unit: int) -> float:
    """Standard deviation of the discrete Laplace noise of a count."""
    if not epsilon:
        return 0.0
    decay = exp(-epsilon / rows_per_unit)
    return sqrt(2 * decay) / (1 - decay)
