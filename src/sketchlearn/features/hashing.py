r"""Count-Min, Count-Sketch and Bloom projections: fixed 0/±1 maps by a stable hash.

A row holds one number per item of a vocabulary (an indicator or a count); each item
is hashed into one bucket of each of ``depth`` tables. Summed over rows these are the
classical sketches: Count-Min and Count-Sketch pool by sum, a Bloom filter by max.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.hashed_items import AbstractHashFeatures
from sketchlearn.features.items import require_row_items
from sketchlearn.features.lattice import RowLattice
from sketchlearn.rows.items import ItemRows

__all__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]
__public__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures"]

_LARGEST_FLOAT = float(np.finfo(np.float64).max)


@final
class CountMinFeatures(AbstractHashFeatures):
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
    key : ItemKey or bytes, optional
        At least 16 secret bytes: who chooses ids and does not know them cannot choose
        such as collide. By default anybody can.
    key_recipe : str, optional
        How items become keys, as descriptions say (:mod:`sketchlearn.rows.keys`).

    Examples
    --------
    >>> phi = CountMinFeatures(n_features=5, width=3, depth=2)
    >>> phi(np.eye(5)).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """

    kind: ClassVar[str] = "count-min"

    @property
    @override
    def counted(self) -> int:
        return self.width

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
class CountSketchFeatures(AbstractHashFeatures):
    r"""Count-Sketch: signed bucket counts, whose median estimate has no bias.

    Parameters are those of :class:`CountMinFeatures`.

    Examples
    --------
    >>> phi = CountSketchFeatures(n_features=5, width=3, depth=2)
    >>> abs(phi(np.eye(5))).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """

    kind: ClassVar[str] = "count-sketch"
    first_signed: ClassVar[int | None] = 0

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self._counts(rows, first_row)


@final
class BloomFeatures(AbstractHashFeatures):
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
    def row_norm(self, row_items: int) -> float:
        # Ones, in as many buckets of a table as there are items or buckets.
        taken = self.depth * min(row_items, self.width)
        return sqrt(taken) * (1 + 2.0**-50)

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
        require_row_items(present, self.row_items, first_row, unit=1.0)
        return np.minimum(self._matrix.product(present, 1.0), 1.0)
