"""Pooling: how the feature vectors of many rows become one vector.

Totals are exact integers on a lattice. Some poolings are sums, of the features or of
something computed from each of them, and can forget; extremes merge only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.rows.items import ItemRows

__all__ = [
    "AbstractPooling",
    "PooledRows",
    "evaluated_blocks",
    "require_item_map",
    "scaled_quotient",
]

PooledRows: TypeAlias = NDArray[np.floating] | ItemRows


class AbstractPooling(ABC):
    """How totals are made, combined and read."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Text that ``get_pooling`` turns back into this pooling."""

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
        rows: PooledRows,
        first_row: int,
    ) -> Int128Array:
        """Total of a batch of rows, written out or as the items they hold."""

    @abstractmethod
    def combine(self, left: Int128Array, right: Int128Array) -> Int128Array:
        """Total of two disjoint sets of rows, neither of them empty."""

    @abstractmethod
    def read(
        self, total: Int128Array, count: int, features: FeatureSpec
    ) -> NDArray[np.float64]:
        """The pooled vector as numbers, for ``count >= 1``."""


def evaluated_blocks(
    feature_map: AbstractFeatureMap, rows: PooledRows, first_row: int
) -> Iterator[NDArray[np.float64]]:
    """Feature vectors of a batch, block by block."""
    if isinstance(rows, ItemRows):
        yield from _evaluated_items(feature_map, rows, first_row)
        return
    for start, block in row_blocks(rows, feature_map.block_rows):
        yield feature_map.evaluate(block, first_row + start)


def _evaluated_items(
    feature_map: AbstractFeatureMap, items: ItemRows, first_row: int
) -> Iterator[NDArray[np.float64]]:
    item_map = require_item_map(feature_map)
    for start, block in items.blocks(feature_map.block_rows):
        item_map.require_rows(block, first_row + start)
        yield item_map.features_of(block).toarray().astype(np.float64)


def require_item_map(feature_map: AbstractFeatureMap) -> AbstractItemMap:
    """Refuse a map that needs a number for every feature of a row."""
    if not isinstance(feature_map, AbstractItemMap):
        raise FeatureMapError(
            f"{type(feature_map).__name__} takes rows of numbers, and not the items "
            "they hold. Use CountSketchFeatures, CountMinFeatures, BloomFeatures, "
            "CounterFeatures or TableFeatures."
        )
    return feature_map


def scaled_quotient(
    total: Int128Array, count: int, frac_bits: int
) -> NDArray[np.float64]:
    """A total on a lattice, divided by a count, as numbers."""
    if frac_bits >= 0:
        return total.divided_by(count << frac_bits)
    return np.ldexp(total.divided_by(count), -frac_bits)
