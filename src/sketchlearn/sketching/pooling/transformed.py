r"""Sums of transformed features: p-norm, log-sum-exp and soft-min.

The p-norm and log-sum-exp of the paper (table pooling) are sums,

.. math::
    \lVert f\rVert_p = B\Big(\sum_i (|f_i| / B)^p\Big)^{1/p}, \qquad
    \log\sum_i e^{f_i} = B + \log\sum_i e^{f_i - B},

with :math:`B` the map's ``value_bound``; "soft-min" is :math:`-\log\sum_i e^{-f_i}`.
The transforms lie in [0, 1], so they never overflow and are kept on a lattice of 88
fractional bits. That is where precision is lost: after removing most of the mass the
small remainder has only the absolute precision :math:`2^{-88}` per row, and a sum whose
terms are below :math:`2^{-67}` on the whole has fewer than six digits and is refused,
never read as zero. For :math:`p = 10`, the largest of the paper, features may be a
hundred times smaller than the bound; for log-sum-exp, 46 below it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import exp, log
from sketchlearn.arithmetic.exact import FEATURE_BITS, Int128Array, lattice_round
from sketchlearn.errors import PoolingError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.sketching.pooling.base import (
    AbstractPooling,
    PooledRows,
    evaluated_blocks,
    scaled_quotient,
)

__all__ = ["LogSumExpPooling", "PNormPooling"]

_LEAST_MEAN = 2.0 ** (21 - 2 * FEATURE_BITS)
"""Least mean of transformed features that has six digits."""

_TRACE = 2.0**-200
"""Stands for powers and exponentials that underflow."""


class _AbstractTransformed(AbstractPooling):
    """A sum of features mapped into [0, 1], on a lattice twice as fine."""

    removable = True
    is_linear = False

    @abstractmethod
    def transform(
        self, features: NDArray[np.float64], bound: float
    ) -> NDArray[np.float64]:
        """Features of magnitude up to ``bound`` → [0, 1]; 0 is for terms that are."""

    @abstractmethod
    def invert(self, total: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        """Summed transforms → pooled features."""

    @final
    @override
    def frac_bits(self, features: FeatureSpec) -> int:
        return 2 * FEATURE_BITS

    @final
    @override
    def pool(
        self,
        feature_map: AbstractFeatureMap,
        rows: PooledRows,
        first_row: int,
    ) -> Int128Array:
        coarse = np.zeros(feature_map.sketch_size, np.int64)
        fine = np.zeros(feature_map.sketch_size, np.int64)
        for features in evaluated_blocks(feature_map, rows, first_row):
            values = self.transform(features, feature_map.value_bound)
            upper = lattice_round(values, FEATURE_BITS)
            rest = values * 2.0**FEATURE_BITS - upper
            lower = lattice_round(rest, FEATURE_BITS)
            # What is too small for the lattice leaves a trace: only zeros sum to zero.
            lower += (values > 0) & (upper == 0) & (lower == 0)
            coarse += upper.sum(axis=0)
            fine += lower.sum(axis=0)
        total = Int128Array.from_int64(coarse).shifted(FEATURE_BITS)
        return total + Int128Array.from_int64(fine)

    @final
    @override
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        return left + right

    @final
    @override
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        sums = scaled_quotient(total, 1, 2 * FEATURE_BITS)
        small = (sums < count * _LEAST_MEAN) & (sums > 0)
        if small.any():
            raise PoolingError(
                f"feature {int(small.argmax())} lies so far inside the map's "
                f"value_bound ({features.value_bound:g}) that {self.name} has fewer "
                f"than six digits left: {self.limit(features.value_bound)}. Build the "
                "map with a value_bound close to its largest feature (scaled rows, a "
                "smaller reach)."
            )
        return self.invert(sums, features.value_bound)

    @abstractmethod
    def limit(self, bound: float) -> str:
        """What features must be like for six digits, in words."""


@final
@dataclass(frozen=True)
class PNormPooling(_AbstractTransformed):
    """The p-norm of each feature."""

    power: float

    @property
    @override
    def name(self) -> str:
        return f"p-norm:{self.power}"

    @override
    def transform(
        self, features: NDArray[np.float64], bound: float
    ) -> NDArray[np.float64]:
        powers = _power(np.abs(features) / bound, self.power)
        return np.where(features != 0, np.maximum(powers, _TRACE), 0.0)

    @override
    def invert(self, total: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        result: NDArray[np.float64] = bound * total ** (1 / self.power)
        return result

    @override
    def limit(self, bound: float) -> str:
        least = bound * _LEAST_MEAN ** (1 / self.power)
        return f"it needs features that are on the whole above {least:.3g}"


@final
@dataclass(frozen=True)
class LogSumExpPooling(_AbstractTransformed):
    """Of the features, or minus that of their negatives."""

    which: Literal["log-sum-exp", "soft-min"]
    sign: float

    @property
    @override
    def name(self) -> str:
        return self.which

    @override
    def transform(
        self, features: NDArray[np.float64], bound: float
    ) -> NDArray[np.float64]:
        return np.maximum(exp(self.sign * features - bound), _TRACE)

    @override
    def invert(self, total: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        if not total.all():
            raise PoolingError(
                f"features lie so far inside the map's value_bound ({bound:g}) that "
                f"nothing is left of their {self.name}. Sketch the rows again."
            )
        return self.sign * (bound + np.log(total))

    @override
    def limit(self, bound: float) -> str:
        reach = self.sign * (bound + np.log(_LEAST_MEAN))
        side = "above" if self.sign > 0 else "below"
        return f"it needs features that are on the whole {side} {reach:.3g}"


def _power(values: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Powers of numbers in [0, 1], the same on every machine."""
    if power == int(power) and power <= 64:
        result = np.ones_like(values)
        for digit in bin(int(power))[2:]:
            result = result * result * (values if digit == "1" else 1.0)
        return result
    return np.where(values > 0, exp(power * log(np.where(values > 0, values, 1.0))), 0)
