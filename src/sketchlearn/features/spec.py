"""What a sketch remembers of its feature map.

A specification can be read, compared and stored without building the map.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, cast, final

from sketchlearn.errors import FeatureMapMismatch
from sketchlearn.features.description import VERSION, first_difference
from sketchlearn.features.registry import described_origin

__all__ = ["FeatureSpec"]


@final
@dataclass(frozen=True)
class FeatureSpec:
    """What a sketch remembers of its feature map.

    Parameters
    ----------
    text : str
        Canonical JSON of the map's description, or ``""`` where that is too large
        for a file header: then the map itself must be at hand to decode.
    fingerprint : str
        64 hexadecimal digits over description, weights and lattice.
    n_features, sketch_size, frac_bits : int
        Width of a row, length of the feature vector, and lattice step ``2**-k``.
    value_bound : float
        Largest magnitude of one feature.
    norm_bound : float or None
        Largest L2 norm of one feature vector, where known.
    rounding_bits : int
        The coarsest lattice a feature was rounded on; ``frac_bits`` unless parts of
        the map have lattices of their own.
    version : int
        Of the map's arithmetic: 1 was floating point, 2 is whole numbers.
    """

    text: str
    fingerprint: str
    n_features: int
    sketch_size: int
    frac_bits: int
    value_bound: float
    norm_bound: float | None
    rounding_bits: int
    version: int = VERSION

    @property
    def description(self) -> dict[str, Any]:
        """The parsed description; empty where ``text`` is."""
        return cast(dict[str, Any], json.loads(self.text)) if self.text else {}

    @property
    def kind(self) -> str:
        """The map's kind, such as ``"fourier"``, or ``"unknown"``."""
        return str(self.description.get("kind", "unknown"))

    @property
    def origin(self) -> str:
        """``"declared"``, ``"data"``, or ``"unknown"`` where the map is not known."""
        return described_origin(self.description)

    @property
    def norm_steps(self) -> int:
        """Largest norm of one row's integer features, in lattice steps, rounded up.

        Since version 2 the bound holds for the integers themselves; those of version 1
        were rounded after it was taken.
        """
        assert self.norm_bound is not None
        bound = Fraction(self.norm_bound) * Fraction(2) ** self.frac_bits
        if self.version > 1:
            return ceil(bound)
        step = max(Fraction(2) ** (self.frac_bits - self.rounding_bits), Fraction(1))
        slack = 1 + Fraction(self.sketch_size + 8, 2**52)
        return ceil(bound * slack) + ceil(step) * self.sketch_size

    def first_difference(self, other: FeatureSpec) -> str | None:
        """Name the first field in which two maps differ, with both values."""
        if self.fingerprint == other.fingerprint:
            return None
        found = first_difference(self.description, other.description)
        return found or "weights"

    def require_equal(self, other: FeatureSpec) -> None:
        """Refuse to attach another map, or one that contradicts what is written here.

        A fingerprint alone can be copied: sizes, bounds and the description must agree.
        """
        self.require_same(other, "attach this feature map")
        if replace(other, text=other.text if self.text else "") != self:
            raise FeatureMapMismatch(
                "cannot attach this feature map: the sketch contradicts it in its "
                "description, sizes or bounds, so its file was forged or made with a "
                "bug."
            )

    def require_same(self, other: FeatureSpec, verb: str) -> None:
        """Refuse ``verb`` unless both are the same map to the last bit."""
        if self.version != other.version:
            raise FeatureMapMismatch(
                f"cannot {verb}: left is of a map of version {self.version}, right of "
                f"version {other.version}. Version 1 computed in floating point, "
                "version 2 in whole numbers, and their totals do not add up. Merge "
                "version 1 with version 1 only, or sketch those rows again."
            )
        difference = self.first_difference(other)
        if difference is not None:
            advice = "with the same map: same kind, sizes, scaling and seed."
            if "columns_origin" in difference:
                advice = (
                    "from columns of one origin: here those of one side are known to "
                    "be learned from rows. Give that side np.asarray(rows)."
                )
            raise FeatureMapMismatch(
                f"cannot {verb}: left map {self.fingerprint[:6]}.., right map "
                f"{other.fingerprint[:6]}.. (first difference: {difference}). Sketch "
                f"both datasets {advice}"
            )
