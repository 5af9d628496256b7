"""Sum and mean: the same total, read without and with the count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.rows.items import ItemRows
from sketchlearn.sketching.pooling.base import (
    AbstractPooling,
    PooledRows,
    require_item_map,
    scaled_quotient,
)

__all__ = ["LinearPooling"]


@final
@dataclass(frozen=True)
class LinearPooling(AbstractPooling):
    """Sum of the features."""

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
        rows: PooledRows,
        first_row: int,
    ) -> Int128Array:
        if isinstance(rows, ItemRows):
            return require_item_map(feature_map).sum_items(rows, first_row)
        return feature_map.batch_sum(rows, first_row)

    @override
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        return left + right

    @override
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        divisor = count if self.which == "mean" else 1
        return scaled_quotient(total, divisor, features.frac_bits)
