r"""Means, squares, and the second moment seen through a few directions: R Ω.

Rows are rounded as in :mod:`sketchlearn.features.moments`, and Ω is made of powers of
two, so that nothing is rounded after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, final

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
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import ARRAY, NUMBERED, SEED, SIZE, Field, or_none
from sketchlearn.features.moment_sums import PartSum, add_moments
from sketchlearn.features.moments import (
    MOMENT_FIELDS,
    ROW_BITS,
    exact_scatter,
    moment_lattice,
    moment_norm,
    require_numbers,
)
from sketchlearn.features.scaling import Scaling

__all__ = ["CrossMomentFeatures", "omega_bits", "random_groups", "with_units"]
__public__ = ["CrossMomentFeatures"]

_IMPORTANCE_BITS = 12
"""Weights of rows of Ω go down to ``2**-12``."""


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
    is_compressed: ClassVar[Literal[True]] = True
    has_second_moments: ClassVar[bool] = True
    fields: ClassVar[Mapping[str, Field]] = {
        **MOMENT_FIELDS,
        "n_columns": SIZE,
        "kept": or_none(NUMBERED),
        "importance": or_none(ARRAY),
        "seed": SEED,
    }

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
        told: Any = None if kept is None else {"shape": [np.size(kept)]}
        self.require_affordable(n_features=d, n_columns=n_columns, kept=told)
        self.kept = require_numbers("kept", np.arange(d) if kept is None else kept, d)
        self.targets = tuple(int(t) for t in require_numbers("targets", targets, d))
        if not set(self.targets) <= set(self.kept.tolist()):
            raise FeatureMapError("every target must be one of the kept features.")
        a, columns = len(self.kept), n_columns + len(self.targets)
        if n_columns > a:
            raise FeatureMapError(
                f"n_columns={n_columns} groups need as many kept features; got {a}."
            )
        self.importance = _importance(importance, a)
        self._lattice = moment_lattice(scaling, reach, bits)
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
            norm_bound=moment_norm(d, size, reach),
            frac_bits=2 * bits + self._omega_bits,
        )
        self.n_columns, self.reach, self.bits = n_columns, float(reach), int(bits)
        self.seed = int(seed)
        weights = self.importance * 2.0 ** (_IMPORTANCE_BITS if is_weighted else 0)
        self._groups = random_groups(a, n_columns, seed) * weights[:, None]
        self._matrix = WholeMatrix(self._groups)
        self._positions = np.searchsorted(self.kept, list(self.targets))

    @cached_property
    def omega(self) -> NDArray[np.float64]:
        """Ω as used, targets last: shape (len(kept), n_columns + len(targets))."""
        return with_units(self._groups * 2.0**-self._omega_bits, self._positions)

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, columns = given["n_features"], given["n_columns"]
        a = d if given.fields.get("kept") is None else given.length("kept")
        m = 2 * d + a * (columns + given.length("targets"))
        return Cost(d, m, 16 * d + 8 * a * columns + 6 * m, 200 * d + 30 * m)

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
        return exact_scatter(total, squares, count, frac_bits)

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
    return groups + (_IMPORTANCE_BITS if is_weighted else 0)


def with_units(
    groups: NDArray[np.float64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Columns of groups, and after them a unit vector for each position."""
    units = np.zeros((len(groups), len(positions)))
    units[positions, np.arange(len(positions))] = 1.0
    return np.concatenate([groups, units], axis=1)


def random_groups(
    n_features: int, n_groups: int, seed: int, *, run: int = 1
) -> NDArray[np.float64]:
    """Indicators of a random partition into groups of about equal size.

    Shape (n_features, n_groups). Sums of groups beat random signs on meta-training
    data: features that rise and fall together are seen together. Up to ``run``
    neighbours stay together, as far as every group can have some.

    Examples
    --------
    >>> random_groups(5, 2, seed=0).sum(axis=0)
    array([3., 2.])
    """
    run = max(1, min(run, n_features // n_groups))
    groups = np.zeros((n_features, n_groups))
    places = Draws(seed).permutation(-(-n_features // run)) % n_groups
    groups[np.arange(n_features), np.repeat(places, run)[:n_features]] = 1.0
    return groups


def _importance(values: ArrayLike | None, size: int) -> NDArray[np.float64]:
    if values is None:
        return np.ones(size)
    found = np.array(values, np.float64)
    mantissa = np.frexp(found)[0]
    inside = found.shape == (size,) and (found <= 1).all()
    if not inside or (found < 2.0**-_IMPORTANCE_BITS).any() or (mantissa != 0.5).any():
        raise FeatureMapError(
            "importance must hold one power of two in [2**-12, 1] per kept feature."
        )
    return found
