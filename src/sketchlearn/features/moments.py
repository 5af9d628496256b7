r"""Moments of the rows: means, variances, second moments, and R Ω.

Rows are rounded to a fixed-point lattice of 44 bits *before* they are multiplied.
Each rounded value is split into two halves of 22 bits, so that products of halves are
small integers and a matrix product of a block is an exact sum: the moments are those
of the rounded rows without any further error, at the speed of BLAS and to the same
bits on every machine with IEEE arithmetic. Centring and standardising come after the
fact and lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.exact import FEATURE_BITS, Int128Array
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_positive_int,
    row_blocks,
)
from sketchlearn.scaling import Scaling

__all__ = ["CrossMomentFeatures", "MomentFeatures", "MomentOrder", "random_groups"]

MomentOrder = Literal["mean", "variance", "covariance"]

_HALF = FEATURE_BITS // 2
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
        error. Values are rounded to ``reach * 2**-44``.
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
        scaling: Scaling | None = None,
    ) -> None:
        d = require_positive_int("n_features", n_features)
        if order not in get_args(MomentOrder):
            known = ", ".join(get_args(MomentOrder))
            raise FeatureMapError(f"order must be one of {known}; got {order!r}.")
        sizes = {"mean": d, "variance": 2 * d, "covariance": d + d * (d + 1) // 2}
        bits = _input_bits(reach)
        super().__init__(
            n_features=d,
            sketch_size=sizes[order],
            scaling=scaling,
            value_bound=reach if order == "mean" else reach**2,
            norm_bound=(d * reach**2 + (sizes[order] - d) * reach**4) ** 0.5,
            frac_bits=2 * bits,
        )
        self.order, self.reach = order, float(reach)
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
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        bits = self.frac_bits // 2
        x = _rounded(rows, self.scaling, self.reach, bits, first_row) * 2.0**-bits
        if self.order == "mean":
            return x
        i, j = self._pairs
        return np.concatenate([x, x[:, i] * x[:, j]], axis=1)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        bits = self.frac_bits // 2
        sums = np.zeros(self.n_features, np.int64)
        parts = np.zeros((3, self.sketch_size - self.n_features), np.int64)
        for start, block, count in row_blocks(rows):
            x = _rounded(
                block[:count], self.scaling, self.reach, bits, first_row + start
            )
            sums += _whole(x.sum(axis=0))
            if self.order == "covariance":
                parts += _whole(_products(x, self._pairs))
            elif self.order == "variance":
                parts += _whole(_squares(x))
        mean = Int128Array.from_int64(sums).shifted(bits)
        return Int128Array.concatenate([mean, _join(parts)])


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
    reach : float
        As in :class:`MomentFeatures`.
    seed : int
        Same seed, same groups.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    Ω is normalised by a power of two so that :math:`|x^\top\Omega|` never exceeds
    ``reach``; :attr:`omega` is the matrix as used, with the target columns last.

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
        bits = _input_bits(reach)
        super().__init__(
            n_features=d,
            sketch_size=2 * d + a * columns,
            scaling=scaling,
            value_bound=reach**2,
            norm_bound=(d * reach**2 + (d + a * columns) * reach**4) ** 0.5,
            frac_bits=2 * bits,
        )
        self.n_columns, self.reach, self.seed = n_columns, float(reach), int(seed)
        self.importance = _importance(importance, a)
        if n_columns > a:
            raise FeatureMapError(
                f"n_columns={n_columns} groups need as many kept features; got {a}."
            )
        groups = random_groups(a, n_columns, np.random.default_rng(seed))
        self._groups = groups * self.importance[:, None]
        self._shrink = 2.0 ** -int(np.ceil(np.log2(-(-a // n_columns))))
        self._positions = np.searchsorted(self.kept, list(self.targets))

    @property
    def omega(self) -> NDArray[np.float64]:
        """Ω as used, targets last: shape (len(kept), n_columns + len(targets))."""
        units = np.eye(len(self.kept))[:, self._positions]
        return np.concatenate([self._groups * self._shrink, units], axis=1)

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "n_columns": self.n_columns,
            "kept": None if len(self.kept) == self.n_features else self.kept,
            "targets": list(self.targets),
            "importance": None if (self.importance == 1).all() else self.importance,
            "reach": self.reach,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"groups": self._groups}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        bits = self.frac_bits // 2
        x = _rounded(rows, self.scaling, self.reach, bits, first_row)
        products = x[:, self.kept, None] * self._tests(x)[:, None, :]
        parts = [x * 2.0**bits, x * x, products.reshape(len(x), -1)]
        return np.concatenate(parts, axis=1) * 2.0**-self.frac_bits

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        bits, shape = self.frac_bits // 2, self.omega.shape
        sums = np.zeros(self.n_features, np.int64)
        squares = np.zeros((3, self.n_features), np.int64)
        products = np.zeros((3, *shape), np.int64)
        for start, block, count in row_blocks(rows):
            x = _rounded(
                block[:count], self.scaling, self.reach, bits, first_row + start
            )
            sums += _whole(x.sum(axis=0))
            squares += _whole(_squares(x))
            high, low = _halves(x[:, self.kept])
            aim, rest = _halves(self._tests(x))
            products += _whole(
                np.stack([high.T @ aim, high.T @ rest + low.T @ aim, low.T @ rest])
            )
        mean = Int128Array.from_int64(sums).shifted(bits)
        return Int128Array.concatenate(
            [mean, _join(squares), _join(products.reshape(3, -1))]
        )

    def _tests(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Integer test values xᵀΩ of integer rows, of at most 44 bits.

        The halves are below 2**22 and the weights powers of two above 2**-12, so no
        order of summation rounds; what is rounded at the end is one number.
        """
        high, low = _halves(x[:, self.kept])
        exact = (high @ self._groups) * 2.0**_HALF + low @ self._groups
        tests = np.rint(exact * self._shrink)
        return np.concatenate([tests, x[:, list(self.targets)]], axis=1)


def random_groups(
    n_features: int, n_groups: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Indicators of a random partition into groups of about equal size.

    Shape (n_features, n_groups). Sums of groups beat random signs on meta-training
    data: features that rise and fall together are seen together.

    Examples
    --------
    >>> random_groups(5, 2, np.random.default_rng(0)).sum(axis=0)
    array([3., 2.])
    """
    groups = np.zeros((n_features, n_groups))
    groups[np.arange(n_features), rng.permutation(n_features) % n_groups] = 1.0
    return groups


def _input_bits(reach: float) -> int:
    """Fractional bits of a rounded input: 44 bits in all."""
    exponent = np.log2(reach) if reach > 0 else -1
    if exponent != int(exponent) or not 0 <= exponent <= 16:
        raise FeatureMapError(
            f"reach must be a power of two between 1 and 65536; got {reach!r}."
        )
    return FEATURE_BITS - int(exponent)


def _halves(
    x: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split integers: ``x = high * 2**22 + low`` with ``abs(low) <= 2**21``."""
    high = np.rint(x * 2.0**-_HALF)
    return high, x - high * 2.0**_HALF


def _products(
    x: NDArray[np.float64], pairs: tuple[NDArray[Any], NDArray[Any]]
) -> NDArray[np.float64]:
    """Column sums of products of halves: (high high, mixed, low low) x pairs."""
    high, low = _halves(x)
    mixed = high.T @ low
    return np.stack(
        [(high.T @ high)[pairs], (mixed + mixed.T)[pairs], (low.T @ low)[pairs]]
    )


def _squares(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for the squares of the columns."""
    high, low = _halves(x)
    products = (high * high, 2 * high * low, low * low)
    return np.stack([product.sum(axis=0) for product in products])


def _join(parts: NDArray[np.int64]) -> Int128Array:
    """Summed products of halves, (high high, mixed, low low) → summed products."""
    high, mixed, low = (Int128Array.from_int64(part) for part in parts)
    return high.shifted(2 * _HALF) + mixed.shifted(_HALF) + low


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers held exactly in float64, as integers.

    512 rows of products below 2**44 stay below 2**53, and 2**18 rows below 2**62.
    """
    return values.astype(np.int64)


def _rounded(
    rows: NDArray[np.floating],
    scaling: Scaling | None,
    reach: float,
    bits: int,
    first_row: int,
) -> NDArray[np.float64]:
    """Scaled rows as integers of at most 44 bits, held exactly in float64."""
    x = rows.astype(np.float64) if scaling is None else scaling(rows)
    if not max(x.max(), -x.min()) <= reach:  # the negation also catches NaN
        raise RowRangeError(
            _range_message(~(np.abs(x) <= reach), scaling, reach, first_row)
        )
    x *= 2.0**bits
    return np.rint(x, out=x)


def _range_message(
    outside: NDArray[np.bool_], scaling: Scaling | None, reach: float, first_row: int
) -> str:
    row, column = (int(i) for i in np.argwhere(outside)[0])
    low, high = -reach, reach
    if scaling is not None:
        low = scaling.shift[column] - reach / scaling.factor[column]
        high = scaling.shift[column] + reach / scaling.factor[column]
    return (
        f"row {first_row + row} lies outside the planned range of feature {column}, "
        f"[{low:g}, {high:g}]. Nothing was added. Declare the range of each feature "
        "(bounds=(low, high) on an estimator, scaling=Scaling.from_bounds(low, high) "
        "on a map) and sketch again."
    )


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
