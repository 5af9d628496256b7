"""Items hashed into tables: what Count-Min, Count-Sketch and Bloom filters share."""

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
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import sum_features
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import (
    KEY_RECIPE,
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
    recipe_of,
    require_known,
    require_value_bound,
    require_vocabulary,
)
from sketchlearn.rows.items import ItemRows, Keys
from sketchlearn.rows.keys import SUMS

__all__ = ["AbstractHashFeatures"]

_TALLIED = 2**15
"""Items hashed at once: what they need stays in the cache."""


class AbstractHashFeatures(AbstractItemMap):
    """Items hashed into ``depth`` tables of ``width`` buckets."""

    fields: ClassVar[Mapping[str, Field]] = {
        "n_features": VOCABULARY,
        "width": SIZE,
        "depth": SIZE,
        "seed": SEED,
        "value_bound": NUMBER,
        "row_items": or_none(SIZE),
        "key_recipe": KEY_RECIPE,
    }
    older: ClassVar[Mapping[str, Any]] = {"key_recipe": SUMS.name}
    first_signed: ClassVar[int | None] = None
    """From this table on items have signs; None if in no table."""

    fewest_tables: ClassVar[int] = 1

    def __init__(
        self,
        n_features: int = OPEN_VOCABULARY,
        *,
        width: int,
        depth: int,
        seed: int = 0,
        value_bound: float | None = None,
        row_items: int | None = None,
        key: bytes | None = None,
        key_recipe: str | None = None,
    ) -> None:
        self.recipe = recipe_of(key, key_recipe)
        self.width = require_positive_int("width", width)
        self.depth = require_positive_int("depth", depth)
        if self.depth < self.fewest_tables:
            raise FeatureMapError(
                f"a map of {self.kind} has at least {self.fewest_tables} tables; got "
                f"depth = {depth}."
            )
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
        self.require_affordable(
            n_features=self.n_features, width=self.width, depth=self.depth
        )

    @classmethod
    @final
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, depth = given["n_features"], given["depth"]
        m = given["width"] * depth
        if d == OPEN_VOCABULARY:
            return Cost(d, m, 6 * m + 12 * depth, 10 * m + 8 * LOOP * depth)
        numbers = 6 * depth * d + 4 * d + 6 * m
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
        keys = self.recipe.of_integers(np.arange(self.n_features))
        return np.stack([hash_keys(keys, table) for table in self._table_seeds])

    @cached_property
    def buckets(self) -> NDArray[np.int64]:
        """Bucket of each item of a declared vocabulary, shape (depth, n_features)."""
        return self._bucket_of(self._hashes)

    @cached_property
    def signs(self) -> NDArray[np.int64]:
        """Sign of each item of a declared vocabulary, shape (depth, n_features)."""
        signs = _sign_of(self._hashes)
        signs[: self.first_signed or 0] = 1
        return signs

    def _bucket_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        width = np.uint64(self.width)
        # NumPy divides by a number faster than it takes the remainder.
        return (hashes - hashes // width * width).view(np.int64)

    def _places(self, keys: Keys) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Buckets of items, and their signs if they have any, table by table."""
        if self.n_features < OPEN_VOCABULARY:
            keys = self.recipe.of_integers(require_known(keys, self.n_features))
        first = self.depth if self.first_signed is None else self.first_signed
        for number, table in enumerate(self._table_seeds):
            hashes = hash_keys(keys, table)
            yield self._bucket_of(hashes), _sign_of(hashes) if number >= first else None

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
        plain = self.first_signed is None
        signs = np.ones_like(self.signs) if plain else self.signs
        values = signs.ravel().astype(np.float64)
        return sp.csr_array((values, (rows, columns)), shape=(d, self.sketch_size))

    @cached_property
    def _matrix(self) -> WholeMatrix:
        return WholeMatrix(self.projection)

    def _counts(
        self, rows: NDArray[np.floating], first_row: int
    ) -> NDArray[np.float64]:
        """Sums over the items of each bucket, of rows rounded to the lattice."""
        return self.sums_of(self._matrix, rows, first_row)

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
            **self._described_recipe(),
        }

    def _bounds(self) -> dict[str, Any]:
        if self.row_items is None:
            return {"value_bound": self.value_bound}
        return {"row_items": self.row_items}

    @final
    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        if self.n_features == OPEN_VOCABULARY or self.recipe.is_secret:
            return {"seeds": np.array(self._table_seeds, np.uint64)}
        return {"buckets": self.buckets, "signs": self.signs}


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
