r"""A counter for each item: exact, where the vocabulary fits into the sketch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.arguments import require_origin, require_positive_int
from sketchlearn.features.base import require_in_range, sum_features
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import (
    KEY_RECIPE,
    NUMBER,
    ORIGIN,
    SIZE_OR_0,
    Field,
    or_none,
)
from sketchlearn.features.items import (
    OPEN_VOCABULARY,
    AbstractItemMap,
    recipe_of,
    require_known,
    require_value_bound,
)
from sketchlearn.features.scaling import Origin
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import SUMS

__all__ = ["CounterFeatures"]
__public__ = ["CounterFeatures"]


@final
class CounterFeatures(AbstractItemMap):
    """One counter for each item of a declared vocabulary.

    Parameters
    ----------
    n_items : int, optional
        Size of the vocabulary, whose items have the keys 0, 1, 2 and so on.
    stored : mapping with an array "keys", optional
        Keys of the items instead, all different, in the order of the counters; rows
        cannot be written out then. See :meth:`of_keys`.
    value_bound, row_items : optional
        As for :class:`~sketchlearn.CountMinFeatures`.
    origin : {"declared", "data"}
        ``"data"`` if the keys were read from rows.
    key, key_recipe : optional
        How the items became these keys, as for :class:`~sketchlearn.CountMinFeatures`.

    Examples
    --------
    >>> phi = CounterFeatures(3)
    >>> phi(np.array([[1.0, 0.0, 2.0]]))
    array([[1., 0., 2.]])
    """

    kind: ClassVar[str] = "counters"
    fields: ClassVar[Mapping[str, Field]] = {
        "n_items": SIZE_OR_0,
        "value_bound": NUMBER,
        "row_items": or_none(SIZE_OR_0),
        "origin": ORIGIN,
        "key_recipe": KEY_RECIPE,
    }
    older: ClassVar[Mapping[str, Any]] = {"key_recipe": SUMS.name}
    stored: ClassVar[None] = None

    def __init__(
        self,
        n_items: int = 0,
        stored: Mapping[str, NDArray[Any]] | None = None,
        *,
        value_bound: float | None = None,
        row_items: int | None = None,
        origin: Origin = "declared",
        key: bytes | None = None,
        key_recipe: str | None = None,
    ) -> None:
        if stored:  # others take positions
            self.recipe = recipe_of(key, key_recipe)
        self.keys = np.array(stored["keys"], np.uint64).ravel() if stored else None
        if (self.keys is None) == (n_items == 0):
            raise FeatureMapError("give n_items or keys, and not both.")
        size = n_items if self.keys is None else len(np.unique(self.keys))
        if self.keys is not None and size < len(self.keys):
            raise FeatureMapError("keys must be a list of different whole numbers.")
        self._origin = require_origin(origin)
        norm_bound = None
        if row_items is not None:
            self.row_items = require_positive_int("row_items", row_items)
            norm_bound = float(self.row_items)
        super().__init__(
            n_features=n_items if self.keys is None else OPEN_VOCABULARY,
            sketch_size=size,
            scaling=None,
            value_bound=require_value_bound(row_items, value_bound),
            norm_bound=norm_bound,
        )
        if self.keys is None:
            self.require_affordable(n_items=n_items)

    @classmethod
    def of_keys(cls, keys: ArrayLike, **options: Any) -> CounterFeatures:
        """Counters of the items that have these keys.

        Examples
        --------
        >>> CounterFeatures.of_keys([7, 2**63]).sketch_size
        2
        """
        return cls(stored={"keys": np.array(keys, np.uint64)}, **options)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return () if self.keys is None else ("keys",)

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        n_items = given.fields.get("n_items", 0)
        if n_items:
            return Cost(n_items, n_items, 8 * n_items, 10 * n_items)
        size, _ = given.stored_shape("keys")
        return Cost(OPEN_VOCABULARY, size or None, 16 * size, 200 * size)

    @override
    def describe(self) -> dict[str, Any]:
        bound = {"value_bound": self.value_bound}
        return {
            "n_items": self.n_features if self.keys is None else 0,
            **(bound if self.row_items is None else {"row_items": self.row_items}),
            "origin": self._origin,
            **self._described_recipe(),
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {} if self.keys is None else {"keys": self.keys[:, None]}

    @property
    @override
    def counted(self) -> int:
        return self.sketch_size

    @override
    def columns_of(self, keys: Keys) -> sp.csr_array:
        ones, starts = np.ones(len(keys), np.int64), np.arange(len(keys) + 1)
        shape = (len(keys), self.sketch_size)
        return sp.csr_array((ones, self._positions(keys), starts), shape=shape)

    def _positions(self, keys: Keys) -> NDArray[np.int64]:
        if self.keys is None:
            return require_known(keys, self.n_features)
        order = np.argsort(self.keys)
        places = np.searchsorted(self.keys, keys, sorter=order)
        found = order[np.minimum(places, len(order) - 1)]
        if (self.keys[found] != keys).any():
            raise RowRangeError(
                "there is an item that is not in the vocabulary of this map. Nothing "
                "was added. Declare a larger vocabulary, or an open one."
            )
        return found

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        features = self.in_whole_steps(rows, first_row)[0] * 2.0**-self.frac_bits
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)
