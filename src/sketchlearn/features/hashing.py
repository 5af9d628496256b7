r"""Count-Min, Count-Sketch and Bloom projections: fixed 0/±1 maps by a stable hash.

A row holds one number per item of a vocabulary (an indicator or a count); each item
is hashed into one bucket of each of ``depth`` tables. Summed over rows these are the
classical sketches: Count-Min and Count-Sketch pool by sum, a Bloom filter by max.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import hash_keys
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import require_in_range, sum_features
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import (
    NUMBER,
    SEED,
    SIZE,
    VOCABULARY,
    Field,
    or_none,
)
from sketchlearn.features.items import (
    OPEN_VOCABULARY,
    AbstractItemMap,
    require_known,
    require_row_items,
    require_value_bound,
    require_vocabulary,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.rows.items import ItemRows, Keys

__all__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]
__public__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]


_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_TALLIED = 2**15
"""Items hashed at once: what they need stays in the cache."""


class _AbstractHashFeatures(AbstractItemMap):
    """Items hashed into ``depth`` tables of ``width`` buckets."""

    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": VOCABULARY,
        "width": SIZE,
        "depth": SIZE,
        "seed": SEED,
        "value_bound": NUMBER,
        "row_items": or_none(SIZE),
    }
    signed: ClassVar[bool] = False

    def __init__(
        self,
        n_features: int = OPEN_VOCABULARY,
        *,
        width: int,
        depth: int,
        seed: int = 0,
        value_bound: float | None = None,
        row_items: int | None = None,
    ) -> None:
        self.width = require_positive_int("width", width)
        self.depth = require_positive_int("depth", depth)
        self.seed = int(seed)
        norm_bound = None
        if row_items is not None:
            self.row_items = require_positive_int("row_items", row_items)
            norm_bound = self.row_norm(self.row_items)
        super().__init__(
            n_features=n_features,
            sketch_size=self.width * self.depth,
            scaling=None,
            value_bound=require_value_bound(row_items, value_bound),
            norm_bound=norm_bound,
        )
        require_vocabulary(self.n_features)

    @classmethod
    @final
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, depth = given["n_features"], given["depth"]
        m = given["width"] * depth
        if d == OPEN_VOCABULARY:
            return Cost(d, m, 6 * m + 12 * depth, 10 * m + 8 * LOOP * depth)
        numbers = 12 * depth * d + 4 * d + 6 * m
        return Cost(d, m, numbers, 100 * depth * d + 10 * m + 8 * LOOP * depth)

    def row_norm(self, row_items: int) -> float:
        """Largest norm of a row of so many items: all in one bucket of each table."""
        return row_items * sqrt(self.depth) * (1 + 2.0**-50)

    @cached_property
    def _table_seeds(self) -> list[int]:
        seeds = hash_keys(np.arange(self.depth, dtype=np.uint64), self.seed)
        return [int(table) for table in seeds]

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        """Of all items of a declared vocabulary, shape (depth, n_features)."""
        keys = np.arange(self.n_features, dtype=np.uint64)
        return np.stack([hash_keys(keys, table) for table in self._table_seeds])

    @cached_property
    def buckets(self) -> NDArray[np.int64]:
        """Bucket of each item of a declared vocabulary, shape (depth, n_features)."""
        return self._bucket_of(self._hashes)

    @cached_property
    def signs(self) -> NDArray[np.int64]:
        """Sign of each item of a declared vocabulary, shape (depth, n_features)."""
        return _sign_of(self._hashes)

    def _bucket_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        width = np.uint64(self.width)
        # NumPy divides by a number faster than it takes the remainder.
        return (hashes - hashes // width * width).view(np.int64)

    def _places(self, keys: Keys) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Buckets of items, and their signs if they have any, table by table."""
        if self.n_features < OPEN_VOCABULARY:
            require_known(keys, self.n_features)
        for table in self._table_seeds:
            hashes = hash_keys(keys, table)
            yield self._bucket_of(hashes), _sign_of(hashes) if self.signed else None

    @final
    @override
    def with_open_vocabulary(self) -> Self:
        return type(self)(width=self.width, depth=self.depth, seed=self.seed)

    @final
    @override
    def columns_of(self, keys: Keys) -> sp.csr_array:
        columns = np.empty((len(keys), self.depth), np.int64)
        signs = np.ones((len(keys), self.depth), np.int64)
        for table, (buckets, sign) in enumerate(self._places(keys)):
            columns[:, table] = buckets + table * self.width
            if sign is not None:
                signs[:, table] = sign
        starts = np.arange(len(keys) + 1) * self.depth
        shape = (len(keys), self.sketch_size)
        return sp.csr_array((signs.ravel(), columns.ravel(), starts), shape=shape)

    @override
    def _sum_whole(self, items: ItemRows) -> NDArray[np.int64]:
        sums = np.zeros((self.depth, self.width), np.int64)
        for part, times in items.pieces(_TALLIED):
            for table, (buckets, signs) in enumerate(self._places(part)):
                np.add.at(sums[table], buckets, _product(times, signs))
        return sums.ravel()

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
        require_row_items(rows, self.row_items, first_row)
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
            **self._bounds(),
        }

    def _bounds(self) -> dict[str, Any]:
        if self.row_items is None:
            return {"value_bound": self.value_bound}
        return {"row_items": self.row_items}

    @final
    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        if self.n_features == OPEN_VOCABULARY:
            return {"seeds": np.array(self._table_seeds, np.uint64)}
        return {"buckets": self.buckets, "signs": self.signs}


@final
class CountMinFeatures(_AbstractHashFeatures):
    r"""Count-Min: bucket counts. An item's estimate is the minimum over the tables.

    Parameters
    ----------
    n_features : int
        Size of the vocabulary, whose items have the keys 0, 1, 2 and so on; by default
        any key of 64 bits is an item, and rows cannot be written out.
    width, depth : int
        Buckets per table, and tables; ``sketch_size = width * depth``.
    seed : int
        Seed of the hash.
    value_bound : float
        Largest magnitude a row may put into one bucket; 1024 by default.
    row_items : int, optional
        No row holds more items; 1 for streams of ids. Bounds the norm of the features
        of a row by ``row_items * sqrt(depth)``, so that sketches can be released.

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
    def row_sizes(self, items: ItemRows) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = items.matrix()[1].indptr
        return np.diff(starts)  # held twice is held

    @override
    def features_of(self, items: ItemRows) -> sp.csr_array:
        features = super().features_of(items)
        features.data = np.minimum(features.data, 1)
        return features

    @override
    def _sum_whole(self, items: ItemRows) -> NDArray[np.int64]:
        if items.is_stream:
            return super()._sum_whole(items)
        return np.asarray(self.features_of(items).sum(axis=0), np.int64)

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
        require_row_items(present, self.row_items, first_row)
        return np.minimum(self._matrix.product(present, 1.0), 1.0)


def _sign_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """From the top bit, independent of the bucket's low bits."""
    return 1 - 2 * (hashes >> np.uint64(63)).astype(np.int64)


def _product(
    times: NDArray[np.int64] | None, signs: NDArray[np.int64] | None
) -> NDArray[np.int64] | int:
    """Weights of items, or 1 if it is that of all."""
    if times is None:
        return 1 if signs is None else signs
    return times if signs is None else times * signs
