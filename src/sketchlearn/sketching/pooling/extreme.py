"""Maximum and minimum: they merge but cannot forget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array, frac_bits_for, lattice_round
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.rows.items import ItemRows
from sketchlearn.sketching.pooling.base import (
    AbstractPooling,
    PooledRows,
    evaluated_blocks,
    require_item_map,
    scaled_quotient,
)

__all__ = ["ExtremePooling"]


@final
@dataclass(frozen=True)
class ExtremePooling(AbstractPooling):
    """Largest or least value of each feature."""

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
        rows: PooledRows,
        first_row: int,
    ) -> Int128Array:
        reduce = np.max if self.which == "max" else np.min
        bits = frac_bits_for(feature_map.value_bound)
        if isinstance(rows, ItemRows):
            # An item that many rows hold alone is one row of them.
            found = self._of_items(feature_map, rows.distinct(), first_row)
            return Int128Array.from_int64(lattice_round(found, bits))
        extremes = [
            reduce(lattice_round(features, bits), axis=0)
            for features in evaluated_blocks(feature_map, rows, first_row)
        ]
        return Int128Array.from_int64(reduce(extremes, axis=0))

    def _of_items(
        self, feature_map: AbstractFeatureMap, items: ItemRows, first_row: int
    ) -> NDArray[np.float64]:
        """Extremes of rows that are zero in most of their features."""
        item_map = require_item_map(feature_map)
        item_map.require_rows(items, first_row)
        features = item_map.features_of(items)
        ends = features.max(axis=0) if self.which == "max" else features.min(axis=0)
        return np.asarray(ends.toarray(), np.float64).ravel()

    @override
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        smaller = left.less_than(right)
        return right.where(smaller == (self.which == "max"), left)

    @override
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        return scaled_quotient(total, 1, self.frac_bits(features))
