r"""Count-Min, Count-Sketch and Bloom projections: fixed 0/±1 maps by a stable hash.

A row holds one number per item of a vocabulary (an indicator or a count); each item
is hashed into one bucket of each of ``depth`` tables. Summed over rows these are the
classical sketches: Count-Min and Count-Sketch pool by sum, a Bloom filter by max.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import hash_keys
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    sum_features,
)
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import NUMBER, SEED, SIZE, Field
from sketchlearn.features.lattice import RowLattice

__all__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]
__public__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]


_LARGEST_FLOAT = float(np.finfo(np.float64).max)


class _AbstractHashFeatures(AbstractFeatureMap):
    """Items hashed into ``depth`` tables of ``width`` buckets."""

    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": SIZE,
        "width": SIZE,
        "depth": SIZE,
        "seed": SEED,
        "value_bound": NUMBER,
    }
    signed: ClassVar[bool] = False
    counts_items: ClassVar[bool] = True

    def __init__(
        self,
        n_features: int,
        *,
        width: int,
        depth: int,
        seed: int = 0,
        value_bound: float = 1024.0,
    ) -> None:
        self.width = require_positive_int("width", width)
        self.depth = require_positive_int("depth", depth)
        self.seed = int(seed)
        super().__init__(
            n_features=n_features,
            sketch_size=self.width * self.depth,
            scaling=None,
            value_bound=value_bound,
            norm_bound=None,
        )
        keys = np.arange(self.n_features, dtype=np.uint64)
        seeds = hash_keys(np.arange(self.depth, dtype=np.uint64), self.seed)
        hashes = np.stack([hash_keys(keys, int(table)) for table in seeds])
        self.buckets = (hashes % np.uint64(self.width)).astype(np.int64)  # (depth, d)
        # The sign comes from the top bit, independent of the bucket's low bits.
        self.signs = 1 - 2 * (hashes >> np.uint64(63)).astype(np.int64)

    @classmethod
    @final
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, depth = given["n_features"], given["depth"]
        m = given["width"] * depth
        numbers = 12 * depth * d + 4 * d + 6 * m
        return Cost(d, m, numbers, 100 * depth * d + 10 * m + 8 * LOOP * depth)

    @cached_property
    def projection(self) -> sp.csr_array:
        """The map as a sparse matrix of shape (n_features, sketch_size)."""
        d = self.n_features
        columns = (self.buckets + self.width * np.arange(self.depth)[:, None]).ravel()
        rows = np.tile(np.arange(d), self.depth)
        signs = self.signs if self.signed else np.ones_like(self.signs)
        values = signs.ravel().astype(np.float64)
        return sp.csr_array((values, (rows, columns)), shape=(d, self.sketch_size))

    @cached_property
    def _matrix(self) -> WholeMatrix:
        return WholeMatrix(self.projection)

    def _counts(
        self, rows: NDArray[np.floating], first_row: int
    ) -> NDArray[np.float64]:
        """Sums over the items of each bucket, of rows rounded to the lattice."""
        limit = self.value_bound * 2.0**self.frac_bits
        lattice = RowLattice(None, self.frac_bits, limit)
        sums = self._matrix.product(*lattice.round(rows, first_row))
        features = sums * 2.0**-self.frac_bits
        require_in_range(features, self.value_bound, first_row)
        return features

    @final
    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)

    @final
    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "width": self.width,
            "depth": self.depth,
            "seed": self.seed,
            "value_bound": self.value_bound,
        }

    @final
    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"buckets": self.buckets, "signs": self.signs}


@final
class CountMinFeatures(_AbstractHashFeatures):
    r"""Count-Min: bucket counts. An item's estimate is the minimum over the tables.

    Parameters
    ----------
    n_features : int
        Size of the vocabulary.
    width, depth : int
        Buckets per table, and tables; ``sketch_size = width * depth``.
    seed : int
        Seed of the hash.
    value_bound : float
        Largest magnitude a row may put into one bucket.

    Examples
    --------
    >>> phi = CountMinFeatures(n_features=5, width=3, depth=2)
    >>> phi(np.eye(5)).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """

    kind: ClassVar[str] = "count-min"

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        # Every item is in one bucket of each table: all tables hold the same sum.
        return len(set(total.block_sums(self.width))) == 1

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self._counts(rows, first_row)


@final
class CountSketchFeatures(_AbstractHashFeatures):
    r"""Count-Sketch: signed bucket counts, whose median estimate has no bias.

    Parameters are those of :class:`CountMinFeatures`.

    Examples
    --------
    >>> phi = CountSketchFeatures(n_features=5, width=3, depth=2)
    >>> abs(phi(np.eye(5))).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """

    kind: ClassVar[str] = "count-sketch"
    signed: ClassVar[bool] = True

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self._counts(rows, first_row)


@final
class BloomFeatures(_AbstractHashFeatures):
    r"""Bloom filter: 1 in every bucket that some item of the row falls into.

    Pool with ``pooling="max"`` for the classical filter (which cannot forget), or by
    mean for a counting filter. Tables are separate (a partitioned Bloom filter).
    Parameters are those of :class:`CountMinFeatures`.

    Examples
    --------
    >>> phi = BloomFeatures(n_features=5, width=3, depth=2)
    >>> float(phi(np.array([[1.0, 0, 0, 0, 7.0]])).max())
    1.0
    """

    kind: ClassVar[str] = "bloom"

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        bits = self.frac_bits  # a row is in a bucket, or it is not
        return total.within(0, count << bits) and total.in_units(bits) is not None

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        RowLattice(None, 0, _LARGEST_FLOAT).round(
            rows, first_row
        )  # refuses what is no number
        present = (rows != 0).astype(np.float64)
        return np.minimum(self._matrix.product(present, 1.0), 1.0)
