r"""Count-Min, Count-Sketch and Bloom projections: fixed 0/±1 maps by a stable hash.

A row holds one number per item of a vocabulary (an indicator or a count); each item
is hashed into one bucket of each of ``depth`` tables. Summed over rows these are the
classical sketches: Count-Min and Count-Sketch pool by sum, a Bloom filter by max.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.exact import Int128Array, lattice_sum
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    require_positive_int,
    row_blocks,
)

__all__ = ["BloomFeatures", "CountMinFeatures", "CountSketchFeatures", "hash_keys"]


class _AbstractHashFeatures(AbstractFeatureMap):
    """Items hashed into ``depth`` tables of ``width`` buckets."""

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

    signed: ClassVar[bool] = False

    @cached_property
    def projection(self) -> sp.csr_array:
        """The map as a sparse matrix of shape (n_features, sketch_size)."""
        d = self.n_features
        columns = (self.buckets + self.width * np.arange(self.depth)[:, None]).ravel()
        rows = np.tile(np.arange(d), self.depth)
        signs = self.signs if self.signed else np.ones_like(self.signs)
        values = signs.ravel().astype(np.float64)
        return sp.csr_array((values, (rows, columns)), shape=(d, self.sketch_size))

    @final
    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        total = np.zeros(self.sketch_size, np.int64)
        for start, block, count in row_blocks(rows):
            features = self.evaluate(block, first_row + start)[:count]
            total += lattice_sum(features, self.frac_bits)
        return Int128Array.from_int64(total)

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
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        features = rows.astype(np.float64) @ self.projection
        require_in_range(features, self.value_bound, first_row)
        return np.asarray(features, np.float64)


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
    ) -> NDArray[np.floating]:
        features = rows.astype(np.float64) @ self.projection
        require_in_range(features, self.value_bound, first_row)
        return np.asarray(features, np.float64)


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
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        present = (rows != 0).astype(np.float64)
        counts = present @ self.projection
        return np.minimum(np.asarray(counts, np.float64), 1.0)


def hash_keys(keys: ArrayLike, seed: int) -> NDArray[np.uint64]:
    """Stable 64-bit hashes (splitmix64): the same on every machine, for ever.

    Parameters
    ----------
    keys : array of uint64
        What to hash.
    seed : int
        Different seeds give unrelated hashes.

    Examples
    --------
    >>> hex(int(hash_keys(np.array([0], np.uint64), 0)[0]))
    '0xe220a8397b1dcdaf'
    """
    golden = 0x9E3779B97F4A7C15
    # Two rounds, so that neighbouring seeds do not give shifted hash sequences.
    start = _mix(np.array([seed * golden % 2**64], np.uint64)) if seed else np.uint64(0)
    return _mix(np.asarray(keys, np.uint64) * np.uint64(1) + start + np.uint64(golden))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
