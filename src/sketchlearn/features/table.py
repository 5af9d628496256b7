r"""A table of whole numbers: one vector for each item of a vocabulary.

.. math:: \varphi(x) = \sum_j x_j \, T_j, \qquad T \in \mathbb{Z}^{d \times m}.

Learned sketch networks whose weights are whole numbers, such as the ternary one of
the paper, are used as such a table; so are counters packed into one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_origin, require_positive_int
from sketchlearn.features.base import sum_features
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import NUMBER, ORIGIN, SIZE, Field, or_none
from sketchlearn.features.items import (
    AbstractItemMap,
    require_known,
    require_whole_bound,
)
from sketchlearn.features.scaling import Origin
from sketchlearn.rows.items import Keys
from sketchlearn.rows.kinds import is_learned

__all__ = ["TableFeatures"]
__public__ = ["TableFeatures"]

_LARGEST_ENTRY = 2**40
"""Entries beyond it leave no room for rows of several items."""


@final
class TableFeatures(AbstractItemMap):
    """The sum of the table's rows, one for each item a row holds.

    Parameters
    ----------
    table : array of int, shape (n_features, sketch_size)
        One row for each item, whose keys are 0, 1, 2 and so on.
    value_bound : float, optional
        Largest magnitude of a feature; by default 1024 times the largest entry.
    row_items : int, optional
        No row holds more items than this, those it holds twice counted twice: bounds
        features and their norm, so that sketches can be released.
    origin : {"declared", "data"}
        ``"data"`` if the table was made from rows that must stay private; one that
        the library made from rows is, unless it is given as ``np.asarray(table)``.

    Examples
    --------
    >>> phi = TableFeatures([[1, 0], [-1, 1], [0, 2]], row_items=2)
    >>> phi(np.array([[1.0, 1.0, 0.0]]))
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "table"
    fields: ClassVar[Mapping[str, Field]] = {
        "value_bound": NUMBER,
        "row_items": or_none(SIZE),
        "origin": ORIGIN,
    }
    stored: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(
        self,
        table: ArrayLike,
        *,
        value_bound: float | None = None,
        row_items: int | None = None,
        origin: Origin = "declared",
    ) -> None:
        entries = np.array(table)
        if entries.ndim != 2 or not entries.size or entries.dtype.kind not in "iu":
            raise FeatureMapError(
                "table must be an array of whole numbers of shape (n_features, "
                f"sketch_size); got {entries.dtype} of shape {entries.shape}."
            )
        largest = int(np.abs(entries.astype(np.float64)).max())
        if not 0 < largest <= _LARGEST_ENTRY:
            raise FeatureMapError(
                f"entries of a table lie between -2**40 and 2**40, and not all are 0; "
                f"the largest is {largest}."
            )
        self.table, self._largest = entries.astype(np.int64), largest
        self._origin = require_origin("data" if is_learned(table) else origin)
        norm_bound = None
        if row_items is not None:
            if value_bound is not None:
                raise FeatureMapError("give row_items or value_bound, and not both.")
            self.row_items = require_positive_int("row_items", row_items)
            value_bound = float(self.row_items * largest)
            squares = (self.table.astype(np.float64) ** 2).sum(axis=1)
            norm_bound = self.row_items * sqrt(float(squares.max())) * (1 + 2.0**-40)
        bound = 1024.0 * largest if value_bound is None else value_bound
        super().__init__(
            n_features=self.table.shape[0],
            sketch_size=self.table.shape[1],
            scaling=None,
            value_bound=require_whole_bound(bound),
            norm_bound=norm_bound,
        )
        self.require_affordable({"table": self.table.shape})
        self._matrix = WholeMatrix(self.table.astype(np.float64))

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, m = given.stored_shape("table")
        return Cost(d or None, m or None, 6 * d * m + 8 * m, 30 * d * m)

    @override
    def describe(self) -> dict[str, Any]:
        bound = {"value_bound": self.value_bound}
        return {
            **(bound if self.row_items is None else {"row_items": self.row_items}),
            "origin": self._origin,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"table": self.table}

    @property
    @override
    def largest_entry(self) -> int:
        return self._largest

    @override
    def columns_of(self, keys: Keys) -> sp.csr_array:
        return sp.csr_array(self.table[require_known(keys, self.n_features)])

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self.sums_of(self._matrix, rows, first_row)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)
