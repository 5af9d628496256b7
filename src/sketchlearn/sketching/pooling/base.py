"""Pooling: how the feature vectors of many rows become one vector.

Totals are exact integers on a lattice. Some poolings are sums, of the features or of
something computed from each of them, and can forget; extremes merge only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.spec import FeatureSpec

__all__ = ["AbstractPooling", "evaluated_blocks", "scaled_quotient"]


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


def evaluated_blocks(
    feature_map: AbstractFeatureMap, rows: NDArray[np.floating], first_row: int
) -> Iterator[NDArray[np.float64]]:
    """Feature vectors of a batch, block by block."""
    for start, block in row_blocks(rows, feature_map.block_rows):
        yield feature_map.evaluate(block, first_row + start)


def scaled_quotient(
    total: Int128Array, count: int, frac_bits: int
) -> NDArray[np.float64]:
    """A total on a lattice, divided by a count, as numbers."""
    if frac_bits >= 0:
        return total.divided_by(count << frac_bits)
    return np.ldexp(total.divided_by(count), -frac_bits)
