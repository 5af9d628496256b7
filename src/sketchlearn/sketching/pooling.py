r"""Pooling: how the feature vectors of many rows become one vector.

Sum and mean are the same total, read with or without the count. Maximum and minimum
merge but cannot forget. The p-norm and log-sum-exp of the paper (table pooling) are
sums of transformed features,

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

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import exp, log
from sketchlearn.arithmetic.exact import (
    FEATURE_BITS,
    Int128Array,
    frac_bits_for,
    lattice_round,
)
from sketchlearn.errors import PoolingError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.spec import FeatureSpec

__all__ = ["AbstractPooling", "get_pooling"]

_LEAST = 2.0 ** (21 - 2 * FEATURE_BITS)
"""Least mean of transformed features that has six digits."""

_TRACE = 2.0**-200
"""Stands for powers and exponentials that underflow."""


class AbstractPooling(ABC):
    """How totals are made, combined and read."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Text that :func:`get_pooling` turns back into this pooling."""

    @property
    @abstractmethod
    def removable(self) -> bool:
        """Whether rows can be taken out again."""

    @property
    @abstractmethod
    def is_linear(self) -> bool:
        """Whether totals are sums of the features themselves."""

    @abstractmethod
    def frac_bits(self, features: FeatureSpec) -> int:
        """Lattice of the totals: one unit is ``2**-frac_bits``."""

    @abstractmethod
    def pool(
        self,
        feature_map: AbstractFeatureMap,
        rows: NDArray[np.floating],
        first_row: int,
    ) -> Int128Array:
        """Total of a batch of rows."""

    @abstractmethod
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        """Total of two disjoint sets of rows, neither of them empty."""

    @abstractmethod
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        """The pooled vector as numbers, for ``count >= 1``."""


def get_pooling(name: str) -> AbstractPooling:
    """Pooling by name.

    Parameters
    ----------
    name : str
        ``"mean"``, ``"sum"``, ``"max"``, ``"min"``, ``"p-norm:P"`` with a real
        P >= 1, ``"log-sum-exp"``, or ``"soft-min"``, which is minus the log-sum-exp of
        the negative features.

    Examples
    --------
    >>> get_pooling("p-norm:3").name
    'p-norm:3.0'
    """
    match name:
        case "mean" | "sum":
            return _Linear(name)
        case "max" | "min":
            return _Extreme(name)
        case "log-sum-exp":
            return _LogSumExp("log-sum-exp", 1.0)
        case "soft-min":
            return _LogSumExp("soft-min", -1.0)
    if isinstance(name, str) and name.startswith("p-norm:"):
        try:
            power = float(name.removeprefix("p-norm:"))
        except ValueError:
            power = 0.0
        if 1.0 <= power < float("inf"):
            return _PNorm(power)
    raise PoolingError(
        f"unknown pooling {name!r}: use 'mean', 'sum', 'max', 'min', 'log-sum-exp', "
        "'soft-min' or 'p-norm:P' with P >= 1."
    )


@final
@dataclass(frozen=True)
class _Linear(AbstractPooling):
    which: Literal["mean", "sum"]
    removable = True
    is_linear = True

    @property
    @override
    def name(self) -> str:
        return self.which

    @override
    def frac_bits(self, features: FeatureSpec) -> int:
        return features.frac_bits

    @override
    def pool(
        self,
        feature_map: AbstractFeatureMap,
        rows: NDArray[np.floating],
        first_row: int,
    ) -> Int128Array:
        return feature_map.batch_sum(rows, first_row)

    @override
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        return left + right

    @override
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        divisor = count if self.which == "mean" else 1
        return _scaled_quotient(total, divisor, features.frac_bits)


@final
@dataclass(frozen=True)
class _Extreme(AbstractPooling):
    which: Literal["max", "min"]
    removable = False
    is_linear = False

    @property
    @override
    def name(self) -> str:
        return self.which

    @override
    def frac_bits(self, features: FeatureSpec) -> int:
        return frac_bits_for(features.value_bound)

    @override
    def pool(
        self,
        feature_map: AbstractFeatureMap,
        rows: NDArray[np.floating],
        first_row: int,
    ) -> Int128Array:
        reduce = np.max if self.which == "max" else np.min
        bits = frac_bits_for(feature_map.value_bound)
        extremes = [
            reduce(lattice_round(features, bits), axis=0)
            for features in _evaluated(feature_map, rows, first_row)
        ]
        return Int128Array.from_int64(reduce(extremes, axis=0))

    @override
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        smaller = left.less_than(right)
        return right.where(smaller == (self.which == "max"), left)

    @override
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        return _scaled_quotient(total, 1, self.frac_bits(features))


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
        rows: NDArray[np.floating],
        first_row: int,
    ) -> Int128Array:
        coarse = np.zeros(feature_map.sketch_size, np.int64)
        fine = np.zeros(feature_map.sketch_size, np.int64)
        for features in _evaluated(feature_map, rows, first_row):
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
        sums = _scaled_quotient(total, 1, 2 * FEATURE_BITS)
        small = (sums < count * _LEAST) & (sums > 0)
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
class _PNorm(_AbstractTransformed):
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
        least = bound * _LEAST ** (1 / self.power)
        return f"it needs features that are on the whole above {least:.3g}"


@final
@dataclass(frozen=True)
class _LogSumExp(_AbstractTransformed):
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
        reach = self.sign * (bound + np.log(_LEAST))
        side = "above" if self.sign > 0 else "below"
        return f"it needs features that are on the whole {side} {reach:.3g}"


def _evaluated(
    feature_map: AbstractFeatureMap, rows: NDArray[np.floating], first_row: int
) -> Iterator[NDArray[np.float64]]:
    """Feature vectors of a batch, block by block."""
    for start, block in row_blocks(rows, feature_map.block_rows):
        yield feature_map.evaluate(block, first_row + start)


def _power(values: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Powers of numbers in [0, 1], the same on every machine."""
    if power == int(power) and power <= 64:
        result = np.ones_like(values)
        for digit in bin(int(power))[2:]:
            result = result * result * (values if digit == "1" else 1.0)
        return result
    return np.where(values > 0, exp(power * log(np.where(values > 0, values, 1.0))), 0)


def _scaled_quotient(
    total: Int128Array, count: int, frac_bits: int
) -> NDArray[np.float64]:
    if frac_bits >= 0:
        return total.divided_by(count << frac_bits)
    return np.ldexp(total.divided_by(count), -frac_bits)
