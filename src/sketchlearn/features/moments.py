r"""Moments of the rows: means, variances, second moments, and R Ω.

Rows are rounded to whole numbers *before* they are multiplied: of 22 bits where they
lie in the planned range, so that one float64 product of a block of 512 rows is an
exact sum; rows farther out have more bits, and only blocks with such rows need more
products. The moments are those of the rounded rows without any further error, at the
speed of BLAS and to the same bits on every machine. Centring and standardising come
after the fact and lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import (
    LIMIT,
    WholeMatrix,
    column_sums,
    gram,
    largest_magnitude,
    squares,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_positive_int,
    row_blocks,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.moment_sums import PartSum, add_moments
from sketchlearn.features.scaling import Scaling

__all__ = [
    "FINE_BITS",
    "ROW_BITS",
    "CrossMomentFeatures",
    "MomentFeatures",
    "MomentOrder",
    "omega_bits",
    "random_groups",
    "with_units",
]
__public__ = ["CrossMomentFeatures", "MomentFeatures"]

MomentOrder = Literal["mean", "variance", "covariance"]

ROW_BITS = 22
"""Scaled rows are rounded to ``2**-22`` unless more is asked for."""

FINE_BITS = 42
"""Bits of a whole number where the range of the rows may be far too wide.

Products have twice as many, which leaves room for 2**43 rows in 128 bits."""

_WEIGHT_BITS = 12


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
        self._lattice = _row_lattice(scaling, reach, bits)
        super().__init__(
            n_features=d,
            sketch_size=sizes[order],
            scaling=scaling,
            value_bound=reach if order == "mean" else reach * reach,
            norm_bound=_norm_bound(d, sizes[order], reach),
            frac_bits=2 * bits,
        )
        self.order, self.reach, self.bits = order, float(reach), int(bits)
        self.targets = tuple(int(t) for t in _indices("targets", targets, d))

    @cached_property
    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors of the products, after the features themselves."""
        d = self.n_features
        if self.order == "covariance":
            return np.tril_indices(d)
        return np.arange(d), np.arange(d)

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

    def scatter(self, total: Int128Array, count: int, frac_bits: int) -> list[int]:
        r"""Variances in whole numbers, :math:`N \sum x^2 - (\sum x)^2`, exactly.

        Of ``count`` rows with this total on a lattice of ``frac_bits``, one number per
        feature, in squared steps of that lattice.
        """
        i, j = self._pairs
        squares = self.n_features + np.flatnonzero(i == j)
        return _scatter(total, squares, count, frac_bits)

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


@final
class CrossMomentFeatures(AbstractFeatureMap):
    r"""Mean, squares, and the second moment seen through a few random directions.

    .. math::
        \varphi(x) = \big(x,\; x^2,\; \mathrm{vec}(x_a\,(x_a^\top \Omega)),\;
        \mathrm{vec}(x_a\, x_t^\top)\big),

    whose mean holds :math:`\mu`, the diagonal of :math:`R = E[xx^\top]`, and
    :math:`R_{aa}\Omega`, all a Nyström decoder needs; a column of :math:`\Omega` sums a
    random group of features, and every kept feature is in one group. :math:`a` are the
    ``kept`` features, :math:`t` the ``targets``, whose cross moments with the kept ones
    are kept exactly.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    n_columns : int
        Groups of features, columns of Ω.
    kept : sequence of int, optional
        Features whose cross moments are sketched; all by default.
    targets : sequence of int
        Features, among the kept ones, to keep exact cross moments with.
    importance : array of shape (len(kept),), optional
        Powers of two in ``[2**-12, 1]`` that weigh the rows of Ω.
    reach, bits
        As in :class:`MomentFeatures`.
    seed : int
        Same seed, same groups.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    Ω is normalised by a power of two so that :math:`|x^\top\Omega|` never exceeds
    ``reach``; :attr:`omega` is the matrix as used, with the target columns last. Its
    entries are powers of two, so :math:`R_{aa}\Omega` is that of the rounded rows
    without any further rounding.

    Examples
    --------
    >>> phi = CrossMomentFeatures(n_features=3, n_columns=1, seed=0)
    >>> phi.sketch_size, phi.omega.shape
    (9, (3, 1))
    """

    kind: ClassVar[str] = "cross-moments"

    def __init__(
        self,
        n_features: int,
        n_columns: int,
        *,
        kept: ArrayLike | None = None,
        targets: Sequence[int] = (),
        importance: ArrayLike | None = None,
        reach: float = 32.0,
        bits: int = ROW_BITS,
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        d = require_positive_int("n_features", n_features)
        require_positive_int("n_columns", n_columns)
        self.kept = _indices("kept", np.arange(d) if kept is None else kept, d)
        self.targets = tuple(int(t) for t in _indices("targets", targets, d))
        if not set(self.targets) <= set(self.kept.tolist()):
            raise FeatureMapError("every target must be one of the kept features.")
        a, columns = len(self.kept), n_columns + len(self.targets)
        if n_columns > a:
            raise FeatureMapError(
                f"n_columns={n_columns} groups need as many kept features; got {a}."
            )
        self.importance = _importance(importance, a)
        self._lattice = _row_lattice(scaling, reach, bits)
        # Ω in whole numbers, and the bits of its fractions: |xᵀΩ| <= reach.
        is_weighted = not (self.importance == 1).all()
        self._omega_bits = omega_bits(a, n_columns, is_weighted=is_weighted)
        if self._lattice.limit * 2.0**self._omega_bits > LIMIT:
            raise FeatureMapError(
                f"bits={bits} are too many for groups of {-(-a // n_columns)} features "
                "with these weights and this reach: sums of a group leave 53 bits."
            )
        size = 2 * d + a * columns
        super().__init__(
            n_features=d,
            sketch_size=size,
            scaling=scaling,
            value_bound=reach * reach,
            norm_bound=_norm_bound(d, size, reach),
            frac_bits=2 * bits + self._omega_bits,
        )
        self.n_columns, self.reach, self.bits = n_columns, float(reach), int(bits)
        self.seed = int(seed)
        weights = self.importance * 2.0 ** (_WEIGHT_BITS if is_weighted else 0)
        self._groups = random_groups(a, n_columns, seed) * weights[:, None]
        self._matrix = WholeMatrix(self._groups)
        self._positions = np.searchsorted(self.kept, list(self.targets))

    @cached_property
    def omega(self) -> NDArray[np.float64]:
        """Ω as used, targets last: shape (len(kept), n_columns + len(targets))."""
        return with_units(self._groups * 2.0**-self._omega_bits, self._positions)

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "n_columns": self.n_columns,
            "kept": None if len(self.kept) == self.n_features else self.kept,
            "targets": list(self.targets),
            "importance": None if (self.importance == 1).all() else self.importance,
            "reach": self.reach,
            "bits": self.bits,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"groups": self._groups}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x, largest = self._lattice.round(rows, first_row)
        tests = self._matrix.product(x[:, self.kept], largest) * 2.0**-self._omega_bits
        tests = np.concatenate([tests, x[:, list(self.targets)]], axis=1)
        products = x[:, self.kept, None] * tests[:, None, :]
        parts = [x * 2.0**self.bits, x * x, products.reshape(len(x), -1)]
        return np.concatenate(parts, axis=1) * 2.0 ** (-2 * self.bits)

    def scatter(self, total: Int128Array, count: int, frac_bits: int) -> list[int]:
        """Variances in whole numbers: see :meth:`MomentFeatures.scatter`."""
        squares = self.n_features + np.arange(self.n_features)
        return _scatter(total, squares, count, frac_bits)

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        return min(self.scatter(total, count, self.frac_bits)) >= 0

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        a = len(self.kept)
        # All products of the features cost less than those with many columns.
        whole = a == self.n_features and 4 * self.n_columns > a
        total = self._total_by_products if whole else self._total_by_columns
        sums, own, columns, targets = total(rows, first_row)
        mean = Int128Array.from_int64(sums).shifted(self.bits)
        beside = Int128Array.concatenate([mean, own, targets])
        return self._ordered(beside.shifted(self._omega_bits), columns)

    def _total_by_products(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.int64], Int128Array, Int128Array, Int128Array]:
        """Sums, squares, columns of Ω and of targets, out of all products."""
        sums, products = np.zeros(self.n_features, np.int64), PartSum()
        add_moments(self._lattice, rows, first_row, sums, products)
        every = np.arange(self.n_features)
        columns = products.times(self._matrix).total()
        targets = products.total((slice(None), self._positions))
        return sums, products.total((every, every)), columns, targets

    def _total_by_columns(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.int64], Int128Array, Int128Array, Int128Array]:
        """The same, column by column."""
        sums = np.zeros(self.n_features, np.int64)
        own, crossed, aimed = PartSum(), PartSum(), PartSum()
        everything = len(self.kept) == self.n_features
        for start, block in row_blocks(rows):
            x, largest = self._lattice.round(block, first_row + start)
            sums += column_sums(x, largest)
            own.add(squares(x, largest))
            kept = x if everything else x[:, self.kept]
            tests = self._matrix.product(kept, largest)
            size = largest_magnitude(tests)
            crossed.add(gram(kept, tests, left_largest=largest, right_largest=size))
            if self.targets:
                chosen = kept[:, self._positions]
                aimed.add(gram(kept, chosen, left_largest=largest))
        targets = aimed.total() if self.targets else Int128Array.zeros(0)
        return sums, own.total(), crossed.total(), targets

    def _ordered(self, beside: Int128Array, columns: Int128Array) -> Int128Array:
        """Means, squares and products, target columns after those of Ω."""
        d, a, t = self.n_features, len(self.kept), len(self.targets)
        both = Int128Array.concatenate([beside, columns])
        targets = 2 * d + np.arange(a * t).reshape(a, t)
        own = 2 * d + a * t + np.arange(a * self.n_columns).reshape(a, -1)
        order = np.concatenate([own, targets], axis=1).ravel()
        return both.take(np.concatenate([np.arange(2 * d), order]))


def omega_bits(n_kept: int, n_columns: int, *, is_weighted: bool) -> int:
    """Bits that the entries of Ω add to those of rows: for weights and for groups."""
    groups = ceil_log2(-(-n_kept // n_columns))
    return groups + (_WEIGHT_BITS if is_weighted else 0)


def with_units(
    groups: NDArray[np.float64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Columns of groups, and after them a unit vector for each position."""
    units = np.zeros((len(groups), len(positions)))
    units[positions, np.arange(len(positions))] = 1.0
    return np.concatenate([groups, units], axis=1)


def random_groups(n_features: int, n_groups: int, seed: int) -> NDArray[np.float64]:
    """Indicators of a random partition into groups of about equal size.

    Shape (n_features, n_groups). Sums of groups beat random signs on meta-training
    data: features that rise and fall together are seen together.

    Examples
    --------
    >>> random_groups(5, 2, seed=0).sum(axis=0)
    array([3., 2.])
    """
    groups = np.zeros((n_features, n_groups))
    places = Draws(seed).permutation(n_features) % n_groups
    groups[np.arange(n_features), places] = 1.0
    return groups


def _scatter(
    total: Int128Array, squares: NDArray[np.int64], count: int, frac_bits: int
) -> list[int]:
    """N Σx² - (Σx)² of features whose sums come first and whose squares stand there."""
    sums = total.take(np.arange(len(squares))).to_ints()
    pairs = zip(sums, total.take(squares).to_ints(), strict=True)
    return [(count * square << frac_bits) - mean * mean for mean, square in pairs]


def _row_lattice(scaling: Scaling | None, reach: float, bits: int) -> RowLattice:
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


def _norm_bound(n_features: int, size: int, reach: float) -> float:
    """Of values up to ``reach`` and products up to its square."""
    square = reach * reach
    squared = n_features * square + (size - n_features) * square * square
    return sqrt(squared) * (1 + 2.0**-50)


def _indices(name: str, values: ArrayLike, n_features: int) -> NDArray[np.int64]:
    found = np.asarray(values, np.int64) if np.size(values) else np.empty(0, np.int64)
    valid = found.ndim == 1 and (found >= 0).all() and (found < n_features).all()
    if not valid or (np.diff(found) <= 0).any():
        raise FeatureMapError(
            f"{name} must be increasing feature numbers below {n_features}."
        )
    if name == "kept" and not len(found):
        raise FeatureMapError("kept must name at least one feature.")
    return found


def _importance(values: ArrayLike | None, size: int) -> NDArray[np.float64]:
    if values is None:
        return np.ones(size)
    found = np.array(values, np.float64)
    mantissa = np.frexp(found)[0]
    inside = found.shape == (size,) and (found <= 1).all()
    if not inside or (found < 2.0**-_WEIGHT_BITS).any() or (mantissa != 0.5).any():
        raise FeatureMapError(
            "importance must hold one power of two in [2**-12, 1] per kept feature."
        )
    return found
