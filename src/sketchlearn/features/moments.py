r"""Moments of the rows: means, variances, second moments, and R Ω.

Rows are rounded to whole numbers *before* they are multiplied: of 22 bits where they
lie in the planned range, so that one float64 product of a block of 512 rows is an
exact sum; rows farther out have more bits, and only blocks with such rows need more
products. The moments are those of the rounded rows without any further error, at the
speed of BLAS and to the same bits on every machine. Centring and standardising come
after the fact and lose nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cached_property, reduce
from math import sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.draws import Draws
from sketchlearn.elementary import ceil_log2
from sketchlearn.errors import FeatureMapError
from sketchlearn.exact import Int128Array
from sketchlearn.features.base import (
    BLOCK_ROWS,
    AbstractFeatureMap,
    require_positive_int,
    row_blocks,
)
from sketchlearn.features.lattice import RowLattice
from sketchlearn.products import (
    LIMIT,
    Parts,
    WholeMatrix,
    column_sums,
    gram,
    largest_magnitude,
    squares,
)
from sketchlearn.scaling import Scaling

__all__ = [
    "FINE_BITS",
    "ROW_BITS",
    "CrossMomentFeatures",
    "MomentFeatures",
    "MomentOrder",
    "random_groups",
]

MomentOrder = Literal["mean", "variance", "covariance"]

ROW_BITS = 22
"""Scaled rows are rounded to ``2**-22`` unless more is asked for."""

FINE_BITS = 42
"""Bits of a whole number where the range of the rows may be far too wide.

Products have twice as many, which leaves room for 2**43 rows in 128 bits."""

_WEIGHT_BITS = 12
_CACHED = 2**16
_ONE_DIGIT = 2.0**28
"""Numbers up to this mostly need one product: they may be so large, and rarely are."""


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

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        sums, products = np.zeros(self.n_features, np.int64), _PartSum()
        if self.order == "covariance":
            _add_moments(self._lattice, rows, first_row, sums, products)
        else:
            for start, block in row_blocks(rows):
                x, largest = self._lattice.round(block, first_row + start)
                sums += column_sums(x).astype(np.int64)
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
        weight_bits = 0 if (self.importance == 1).all() else _WEIGHT_BITS
        self._omega_bits = weight_bits + ceil_log2(-(-a // n_columns))
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
        weights = self.importance * 2.0**weight_bits
        self._groups = random_groups(a, n_columns, seed) * weights[:, None]
        self._matrix = WholeMatrix(self._groups)
        self._positions = np.searchsorted(self.kept, list(self.targets))

    @cached_property
    def omega(self) -> NDArray[np.float64]:
        """Ω as used, targets last: shape (len(kept), n_columns + len(targets))."""
        units = np.eye(len(self.kept))[:, self._positions]
        return np.concatenate([self._groups * 2.0**-self._omega_bits, units], axis=1)

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

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        sums = np.zeros(self.n_features, np.int64)
        own, crossed, aimed = _PartSum(), _PartSum(), _PartSum()
        a = len(self.kept)
        everything = a == self.n_features
        # All products of the features cost less than those with many columns.
        whole = everything and 4 * self.n_columns > a
        if whole:
            _add_moments(self._lattice, rows, first_row, sums, crossed)
        for start, block in row_blocks(rows[:0] if whole else rows):
            x, largest = self._lattice.round(block, first_row + start)
            sums += column_sums(x).astype(np.int64)
            own.add(squares(x, largest))
            kept = x if everything else x[:, self.kept]
            tests = self._matrix.product(kept, largest)
            size = largest_magnitude(tests)
            crossed.add(gram(kept, tests, left_largest=largest, right_largest=size))
            if self.targets:
                chosen = kept[:, self._positions]
                aimed.add(gram(kept, chosen, left_largest=largest))
        if whole:
            targets = crossed.total((slice(None), self._positions))
            columns = crossed.times(self._matrix).total()
        else:
            columns = crossed.total()
            targets = aimed.total() if self.targets else Int128Array.zeros(0)
        every = np.arange(a)
        squared = crossed.total((every, every)) if whole else own.total()
        mean = Int128Array.from_int64(sums).shifted(self.bits)
        beside = Int128Array.concatenate([mean, squared, targets])
        return self._ordered(beside.shifted(self._omega_bits), columns)

    def _ordered(self, beside: Int128Array, columns: Int128Array) -> Int128Array:
        """Means, squares and products, target columns after those of Ω."""
        d, a, t = self.n_features, len(self.kept), len(self.targets)
        both = Int128Array.concatenate([beside, columns])
        targets = 2 * d + np.arange(a * t).reshape(a, t)
        own = 2 * d + a * t + np.arange(a * self.n_columns).reshape(a, -1)
        order = np.concatenate([own, targets], axis=1).ravel()
        return both.take(np.concatenate([np.arange(2 * d), order]))


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


@final
class _PartSum:
    """Running sums of exact parts, each in 64 bits.

    A part of 512 rows is below 2**53, so that those of 2**18 rows are below 2**62.
    """

    def __init__(self) -> None:
        self._sums: dict[int, NDArray[np.int64]] = {}

    def add(self, parts: Parts) -> None:
        """Add those of one block."""
        for shift, part in parts:
            if shift in self._sums:
                self._sums[shift] += part
            else:
                self._sums[shift] = part

    def total(self, chosen: Any = slice(None)) -> Int128Array:
        """The entries that ``chosen`` picks, as one vector."""
        wide = [
            Int128Array.from_int64(part[chosen].ravel()).shifted(shift)
            for shift, part in self._sums.items()
        ]
        return reduce(operator.add, wide)

    def times(self, matrix: WholeMatrix) -> _PartSum:
        """The sums times a matrix of whole numbers."""
        result = _PartSum()
        for shift, part in self._sums.items():
            upper = part >> 31
            for extra, half in ((31, upper), (0, part - (upper << 31))):
                product = matrix.whole(half.astype(np.float64), 2.0**32)
                result.add([(shift + extra, product)])
        return result


def _add_moments(
    lattice: RowLattice,
    rows: NDArray[np.floating],
    first_row: int,
    sums: NDArray[np.int64],
    products: _PartSum,
) -> None:
    """Add sums and products of rounded rows, many rows at once where that is exact."""
    size = BLOCK_ROWS * max(1, _CACHED // (BLOCK_ROWS * rows.shape[1]))
    for start, many in row_blocks(rows, size):
        with np.errstate(over="ignore", invalid="ignore"):
            x = lattice.unchecked(many)
            parts = _hopeful_products(x, lattice.limit)
        if parts is not None:
            sums += column_sums(x).astype(np.int64)
            products.add(parts)
            continue
        x, largest = lattice.round(many, first_row + start)
        for _, block in row_blocks(x):
            sums += column_sums(block).astype(np.int64)
            products.add(gram(block, left_largest=largest))


def _hopeful_products(x: NDArray[np.float64], limit: float) -> Parts | None:
    r"""Products of whole numbers, if they turn out exact and none was too large.

    No sum of products of two columns exceeds the larger sum of their squares, so these
    tell afterwards. Large numbers have two digits, :math:`x = 2^b h + l`, and

    .. math:: x x^\top = 2^{2b} hh^\top + 2^b\big((h + l)(h + l)^\top - hh^\top
        - ll^\top\big) + ll^\top .
    """
    if limit <= _ONE_DIGIT:
        product = x.T @ x
        most = min(LIMIT / 2, limit * limit)
        is_exact = np.diagonal(product).max() <= most  # False for NaN
        return [(0, product.astype(np.int64))] if is_exact else None
    if not largest_magnitude(x) <= limit:
        return None
    bits = ceil_log2(limit) // 2
    high = np.rint(x * 2.0**-bits)
    low = x - high * 2.0**bits
    both = high + low
    upper, lower, mixed = high.T @ high, low.T @ low, both.T @ both
    if not max(np.diagonal(part).max() for part in (upper, lower, mixed)) <= LIMIT / 2:
        return None
    wholes = [part.astype(np.int64) for part in (upper, lower, mixed)]
    middle = wholes[2] - wholes[0] - wholes[1]
    return [(2 * bits, wholes[0]), (bits, middle), (0, wholes[1])]


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
