r"""Moments of the rows: means, variances and second moments.

Rows are rounded to whole numbers *before* they are multiplied: of 22 bits where they
lie in the planned range, so that one float64 product of a block of 512 rows is an
exact sum; rows farther out have more bits, and only blocks with such rows need more
products. The moments are those of the rounded rows without any further error, at the
speed of BLAS and to the same bits on every machine. Centring and standardising come
after the fact and lose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import column_sums, squares
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import (
    NUMBER,
    NUMBERED,
    SIZE,
    WORD,
    Field,
    is_whole,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.moment_sums import PartSum, add_moments
from sketchlearn.features.scaling import Scaling

__all__ = [
    "FINE_BITS",
    "MOMENT_FIELDS",
    "ROW_BITS",
    "MomentFeatures",
    "MomentOrder",
    "exact_scatter",
    "moment_lattice",
    "moment_norm",
    "require_numbers",
]
__public__ = ["MomentFeatures"]

MomentOrder = Literal["mean", "variance", "covariance"]

ROW_BITS = 22
"""Scaled rows are rounded to ``2**-22`` unless more is asked for."""

FINE_BITS = 42
"""Bits of a whole number where the range of the rows may be far too wide.

Products have twice as many, which leaves room for 2**43 rows in 128 bits."""

MOMENT_FIELDS = {
    "n_features": SIZE,
    "targets": NUMBERED,
    "reach": NUMBER,
    "bits": Field("a whole number", is_whole(-64, 64), required=False),
}
"""Fields that descriptions of moments share."""


@final
class MomentFeatures(AbstractFeatureMap):
    r"""Plain moments of a row.

    .. math::
        \varphi(x) = (x), \quad (x, x^2) \quad\text{or}\quad
        (x, \mathrm{vec}_{LT}(x x^\top))

    for ``order`` "mean", "variance" or "covariance"; the lower triangle is taken row
    by row and includes the diagonal.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    order : {"mean", "variance", "covariance"}
        Up to which moments.
    targets : sequence of int
        Features that are targets to predict; noted in the map, no other effect.
    reach : float
        Scaled values lie in ``[-reach, reach]``, a power of two; one beyond is an
        error.
    bits : int
        Scaled values are rounded to ``2**-bits``, from 8 to 44. With 22, values in
        [-1, 1] need one product; more resolve what is much narrower than that.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = MomentFeatures(n_features=2, order="covariance")
    >>> phi(np.array([[1.0, 3.0]]))
    array([[1., 3., 1., 3., 9.]])
    """

    kind: ClassVar[str] = "moments"
    is_compressed: ClassVar[Literal[False]] = False
    """Whether products of features are seen through a few directions only."""

    fields: ClassVar[Mapping[str, Field]] = {**MOMENT_FIELDS, "order": WORD}

    def __init__(
        self,
        n_features: int,
        *,
        order: MomentOrder = "covariance",
        targets: Sequence[int] = (),
        reach: float = 32.0,
        bits: int = ROW_BITS,
        scaling: Scaling | None = None,
    ) -> None:
        d = require_positive_int("n_features", n_features)
        if order not in get_args(MomentOrder):
            known = ", ".join(get_args(MomentOrder))
            raise FeatureMapError(f"order must be one of {known}; got {order!r}.")
        sizes = {"mean": d, "variance": 2 * d, "covariance": d + d * (d + 1) // 2}
        self.require_affordable(n_features=d, order=order)
        self._lattice = moment_lattice(scaling, reach, bits)
        super().__init__(
            n_features=d,
            sketch_size=sizes[order],
            scaling=scaling,
            value_bound=reach if order == "mean" else reach * reach,
            norm_bound=moment_norm(d, sizes[order], reach),
            frac_bits=2 * bits,
        )
        self.order, self.reach, self.bits = order, float(reach), int(bits)
        self.targets = tuple(int(t) for t in require_numbers("targets", targets, d))

    @cached_property
    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors of the products, after the features themselves."""
        d = self.n_features
        if self.order == "covariance":
            return np.tril_indices(d)
        return np.arange(d), np.arange(d)

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, order = given["n_features"], given.fields.get("order", "covariance")
        m = {"mean": d, "variance": 2 * d}.get(order, d + d * (d + 1) // 2)
        return Cost(d, m, 8 * d + 6 * m, 10 * m)

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "order": self.order,
            "targets": list(self.targets),
            "reach": self.reach,
            "bits": self.bits,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x = self._lattice.round(rows, first_row)[0] * 2.0**-self.bits
        if self.order == "mean":
            return x
        i, j = self._pairs
        return np.concatenate([x, x[:, i] * x[:, j]], axis=1)

    @property
    def has_second_moments(self) -> bool:
        """Whether there is a product of each pair of features."""
        return self.order == "covariance"

    def scatter(self, total: Int128Array, count: int, frac_bits: int) -> list[int]:
        r"""Variances in whole numbers, :math:`N \sum x^2 - (\sum x)^2`, exactly.

        Of ``count`` rows with this total on a lattice of ``frac_bits``, one number per
        feature, in squared steps of that lattice.
        """
        i, j = self._pairs
        squares = self.n_features + np.flatnonzero(i == j)
        return exact_scatter(total, squares, count, frac_bits)

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        if self.order == "mean":
            return True
        return min(self.scatter(total, count, self.frac_bits)) >= 0

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        sums, products = np.zeros(self.n_features, np.int64), PartSum()
        if self.order == "covariance":
            add_moments(self._lattice, rows, first_row, sums, products)
        else:
            for start, block in row_blocks(rows):
                x, largest = self._lattice.round(block, first_row + start)
                sums += column_sums(x, largest)
                if self.order == "variance":
                    products.add(squares(x, largest))
        mean = Int128Array.from_int64(sums).shifted(self.bits)
        if self.order == "mean":
            return mean
        chosen = self._pairs if self.order == "covariance" else slice(None)
        return Int128Array.concatenate([mean, products.total(chosen)])


def exact_scatter(
    total: Int128Array, squares: NDArray[np.int64], count: int, frac_bits: int
) -> list[int]:
    """N Σx² - (Σx)² of features whose sums come first and whose squares stand there."""
    sums = total.take(np.arange(len(squares))).to_ints()
    pairs = zip(sums, total.take(squares).to_ints(), strict=True)
    return [(count * square << frac_bits) - mean * mean for mean, square in pairs]


def moment_lattice(scaling: Scaling | None, reach: float, bits: int) -> RowLattice:
    """The rounding of rows; a reach is a power of two."""
    exponent = ceil_log2(reach) if 0 < reach < float("inf") else -1
    if reach != 2.0**exponent or not 0 <= exponent <= 16:
        raise FeatureMapError(
            f"reach must be a power of two between 1 and 65536; got {reach!r}."
        )
    if isinstance(bits, bool) or bits not in range(8, 45):
        raise FeatureMapError(
            f"bits must be a whole number from 8 to 44; got {bits!r}."
        )
    if exponent + bits > 44:
        raise FeatureMapError(
            f"reach={reach:g} and bits={bits} make whole numbers of {exponent + bits} "
            "bits; 44 are exact. Take fewer bits or a smaller reach."
        )
    return RowLattice(scaling, int(bits), reach * 2.0**bits)


def moment_norm(n_features: int, size: int, reach: float) -> float:
    """Of values up to ``reach`` and products up to its square."""
    square = reach * reach
    squared = n_features * square + (size - n_features) * square * square
    return sqrt(squared) * (1 + 2.0**-50)


def require_numbers(name: str, values: ArrayLike, n_features: int) -> NDArray[np.int64]:
    """Numbers of features, in increasing order."""
    found = np.asarray(values, np.int64) if np.size(values) else np.empty(0, np.int64)
    valid = found.ndim == 1 and (found >= 0).all() and (found < n_features).all()
    if not valid or (np.diff(found) <= 0).any():
        raise FeatureMapError(
            f"{name} must be increasing feature numbers below {n_features}."
        )
    if name == "kept" and not len(found):
        raise FeatureMapError("kept must name at least one feature.")
    return found
