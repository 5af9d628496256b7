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
from sketchlearn.features.base import require_in_range, sum_features
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import ORIGIN, SIZE, Field
from sketchlearn.features.items import (
    AbstractItemMap,
    require_known,
    require_row_items,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Origin
from sketchlearn.rows.items import Keys

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
    row_items : int
        No row holds more items than this, those it holds twice counted twice.
    origin : {"declared", "data"}
        ``"data"`` if the table was made from rows that must stay private.

    Notes
    -----
    Features are bounded by ``row_items`` times the largest entry, and their norm by
    ``row_items`` times the largest norm of an item's vector.

    Examples
    --------
    >>> phi = TableFeatures([[1, 0], [-1, 1], [0, 2]], row_items=2)
    >>> phi(np.array([[1.0, 1.0, 0.0]]))
    array([[0., 1.]])
    """

    kind: ClassVar[str] = "table"
    fields: ClassVar[Mapping[str, Field]] = {"row_items": SIZE, "origin": ORIGIN}
    stored: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(
        self, table: ArrayLike, *, row_items: int = 1024, origin: Origin = "declared"
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
        self.table = entries.astype(np.int64)
        self.row_items = require_positive_int("row_items", row_items)
        self._origin = require_origin(origin)
        squares = (self.table.astype(np.float64) ** 2).sum(axis=1)
        super().__init__(
            n_features=self.table.shape[0],
            sketch_size=self.table.shape[1],
            scaling=None,
            value_bound=float(self.row_items * largest),
            norm_bound=self.row_items * sqrt(float(squares.max())) * (1 + 2.0**-40),
        )
        self._matrix = WholeMatrix(self.table.astype(np.float64))

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, m = given.stored_shape("table")
        return Cost(d or None, m or None, 6 * d * m + 8 * m, 30 * d * m)

    @override
    def describe(self) -> dict[str, Any]:
        return {"row_items": self.row_items, "origin": self._origin}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"table": self.table}

    @override
    def columns_of(self, keys: Keys) -> sp.csr_array:
        return sp.csr_array(self.table[require_known(keys, self.n_features)])

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        require_row_items(rows, self.row_items, first_row)
        limit = float(self.row_items or 1) * 2.0**self.frac_bits
        lattice = RowLattice(None, self.frac_bits, limit)
        sums = self._matrix.product(*lattice.round(rows, first_row))
        features = sums * 2.0**-self.frac_bits
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)
