r"""Maps of items: features of a row are a sum over the items it holds.

.. math:: \varphi(x) = \sum_j x_j \, a_j, \qquad a_j \in \mathbb{Z}^m,

so a row costs as much as it holds, whatever the size of the vocabulary: items are
given by their keys (:mod:`sketchlearn.rows.items`), and whole numbers are added.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import FEATURE_BITS, Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.arguments import require_bound
from sketchlearn.features.base import AbstractFeatureMap, require_in_range
from sketchlearn.features.lattice import RowLattice
from sketchlearn.rows.items import ItemRows, Keys
from sketchlearn.rows.keys import SUMS, KeyRecipe

__all__ = [
    "OPEN_VOCABULARY",
    "AbstractItemMap",
    "recipe_of",
    "require_known",
    "require_row_items",
    "require_value_bound",
    "require_whole_bound",
    "require_vocabulary",
]

OPEN_VOCABULARY = 2**64
"""``n_features`` of a map that takes any key."""


class AbstractItemMap(AbstractFeatureMap):
    """A map whose rows can be given by the items they hold."""

    counts_items: ClassVar[bool] = True

    row_items: int | None = None
    """No row holds more items than this, those it holds twice counted twice."""

    recipe: KeyRecipe = SUMS
    """How items become the keys that the map hashes."""

    @property
    def row_recipe(self) -> KeyRecipe | None:
        """How items become keys in rows: None if these are positions."""
        return self.recipe if self.n_features == OPEN_VOCABULARY else None

    def with_key(self, key: bytes | None) -> Self:
        """The same map with the secret key it was made with, which files do not hold.

        Raises
        ------
        FeatureMapError
            If it was made with another one, or with none.
        """
        found = copy(self)
        found.recipe = self.recipe.with_key(key)
        return found

    @property
    def counted(self) -> int:
        """How many of the first numbers hold every item once, with no sign.

        They add up to the items of all rows, and are never negative; 0 if none do.
        """
        return 0

    @property
    def largest_entry(self) -> int:
        """Most that an item adds to a number."""
        return 1

    @abstractmethod
    def columns_of(self, keys: Keys) -> sp.csr_array:
        """Feature vectors of rows that hold one item once, shape (n, sketch_size).

        Whole numbers, as int64: what decoders solve for counts with.
        """

    def with_open_vocabulary(self) -> Self:
        """The same map of any key, where there is one."""
        raise FeatureMapError(
            f"{type(self).__name__} counts the items of its vocabulary only."
        )

    def features_of(self, items: ItemRows) -> sp.csr_array:
        """Feature vectors of rows, whole numbers of shape (n_rows, sketch_size)."""
        keys, rows = items.matrix()
        return rows @ self.columns_of(keys)

    def sum_items(self, items: ItemRows, first_row: int = 0) -> Int128Array:
        """Exact total of rows of items, in units of ``2**-frac_bits``.

        The same integers as the total of the same rows written out with a number for
        each item of the vocabulary.
        """
        self.require_rows(items, first_row)
        if self.largest_entry * items.n_held < 2**62:
            return self.in_steps(self._sum_whole(items))
        keys, totals = items.tally
        entries = self.columns_of(keys).toarray().astype(object)
        sums = Int128Array.from_ints(totals.astype(object) @ entries)
        return sums.shifted(self.frac_bits)

    def _sum_whole(self, items: ItemRows) -> NDArray[np.int64]:
        keys, totals = items.tally
        return np.asarray(totals @ self.columns_of(keys), np.int64)

    def in_steps(self, sums: NDArray[np.int64]) -> Int128Array:
        """Whole features in units of the lattice."""
        return Int128Array.from_int64(sums).shifted(self.frac_bits)

    def _described_recipe(self) -> dict[str, str]:
        """What a description says of keys: nothing where they are positions."""
        is_told = self.recipe.is_secret or self.row_recipe not in (None, SUMS)
        return {"key_recipe": self.recipe.name} if is_told else {}

    def row_sizes(self, items: ItemRows) -> NDArray[np.int64]:
        """How many items each row holds, as this map counts them."""
        return items.row_sizes

    def sums_of(
        self, matrix: WholeMatrix, rows: NDArray[np.floating], first_row: int
    ) -> NDArray[np.float64]:
        """Sums over the items of rows, written out, that are rounded to the lattice."""
        sums = matrix.product(*self.in_whole_steps(rows, first_row))
        features: NDArray[np.float64] = sums * 2.0**-self.frac_bits
        require_in_range(features, self.value_bound, first_row)
        return features

    def in_whole_steps(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.float64], float]:
        """Rows, written out, in whole steps of the lattice, and the largest magnitude.

        What a row may hold is a bound of these whole numbers, which are added up, and
        not of the numbers that were given.
        """
        unit = 2.0**self.frac_bits
        lattice = RowLattice(None, self.frac_bits, self.value_bound * unit)
        steps, largest = lattice.round(rows, first_row)
        require_row_items(steps, self.row_items, first_row, unit=unit)
        return steps, largest

    def require_rows(self, items: ItemRows, first_row: int) -> None:
        """Refuse rows that hold too much, before anything is added."""
        limit = self.value_bound / self.largest_entry
        if self.row_items is not None:
            limit = self.row_items
        if not items.n_rows or (items.is_stream and limit >= 1):
            return
        sizes = self.row_sizes(items)
        large = np.flatnonzero(sizes > limit)
        if self.row_items is not None and len(large):
            raise RowRangeError(
                f"row {first_row + int(large[0])} holds more than {self.row_items} "
                "items, which the map was declared for (row_items). Nothing was added."
            )
        if len(large):
            largest = np.ravel(abs(self.features_of(items)).max(axis=1).toarray())
            # Features of a row that holds this much may have left 64 bits.
            wrapped = sizes * float(self.largest_entry) >= 2.0**62
            beyond = np.flatnonzero((largest > self.value_bound) | wrapped)
            if len(beyond):
                raise RowRangeError(
                    f"row {first_row + int(beyond[0])} has a feature of magnitude > "
                    f"{self.value_bound:g} (value_bound). Nothing was added. Declare "
                    "how many items a row may hold (row_items), or build the map with "
                    "a larger value_bound."
                )


def require_known(keys: Keys, n_features: int) -> NDArray[np.int64]:
    """Keys as positions in a vocabulary of ``n_features`` items, if they all are."""
    if len(keys) and int(keys.max()) >= n_features:
        raise RowRangeError(
            f"there is an item beyond the {n_features} of the vocabulary (keys 0 to "
            f"{n_features - 1}). Nothing was added. Declare a larger vocabulary, or an "
            "open one."
        )
    return keys.astype(np.int64)


def require_row_items(
    steps: NDArray[np.float64], row_items: int | None, first_row: int, *, unit: float
) -> None:
    """Refuse rows of whole steps that hold more items, of ``unit`` steps each.

    Sums of whole numbers are exact up to ``2**53``, far beyond what is allowed.
    """
    if row_items is None:
        return
    inside = np.abs(steps).sum(axis=1) <= row_items * unit
    if not inside.all():
        raise RowRangeError(
            f"row {first_row + int(np.argmin(inside))} holds more than "
            f"{row_items} items, which the map was declared for (row_items). Nothing "
            "was added."
        )


def require_value_bound(row_items: int | None, value_bound: float | None) -> float:
    """The bound of a feature: what a row may hold, unless it is said otherwise."""
    if row_items is not None and value_bound is not None:
        raise FeatureMapError("give row_items or value_bound, and not both.")
    bound = 1024.0 if value_bound is None else value_bound
    return require_whole_bound(bound if row_items is None else float(row_items))


def require_whole_bound(bound: float) -> float:
    """Refuse a bound of features beyond which the lattice skips whole numbers."""
    if require_bound("value_bound", bound) > 2.0**FEATURE_BITS:
        raise FeatureMapError(
            f"features of this map may be as large as {bound:.3g}, beyond 2**44. Use "
            "a smaller row_items or value_bound, or smaller entries of a table."
        )
    return bound


def require_vocabulary(n_features: int) -> None:
    """Refuse a vocabulary between those that can be listed and the open one."""
    if 2**48 <= n_features != OPEN_VOCABULARY:
        raise FeatureMapError(
            f"a vocabulary has fewer than 2**48 items, or is open (2**64); got "
            f"{n_features}."
        )


def recipe_of(key: bytes | None, key_recipe: str | None) -> KeyRecipe:
    """The recipe of a map, by its secret key or by the name in a description."""
    if key is not None or key_recipe is None:
        found = KeyRecipe.under(key)
        if key_recipe not in (None, found.name):
            raise FeatureMapError("give key or key_recipe, and not both.")
        return found
    return KeyRecipe(key_recipe)
