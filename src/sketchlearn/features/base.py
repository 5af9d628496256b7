r"""The interface of a feature map φ: one row in, one vector out.

A map is a value, which its fingerprint stands for. A row is rounded to whole numbers
once, and everything after that is exact arithmetic, so that its features have
the same bits in every batch and on every machine.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array, frac_bits_for, lattice_sum
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.arguments import (
    require_bound,
    require_positive_int,
)
from sketchlearn.features.blocks import BLOCK_ROWS, CACHED, row_blocks
from sketchlearn.features.description import (
    VERSION,
)
from sketchlearn.features.identity import AbstractIdentified
from sketchlearn.features.parts import Part
from sketchlearn.features.registry import is_of_package
from sketchlearn.features.scaling import Scaling

__all__ = [
    "AbstractFeatureMap",
    "require_feature_map",
    "require_in_range",
    "sum_features",
]
__public__ = ["AbstractFeatureMap"]

_First = TypeVar("_First", bound="AbstractFeatureMap")
_Second = TypeVar("_Second", bound="AbstractFeatureMap")


class AbstractFeatureMap(AbstractIdentified):
    """One row of ``n_features`` numbers → one vector of ``sketch_size`` numbers.

    Subclasses call ``super().__init__`` with what is known of their output. A subclass
    that declares ``kind``, ``fields`` and ``cost_of`` can be built from descriptions.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in a feature vector.
    scaling : Scaling or None
        Applied to every row first; None leaves rows as they are.
    value_bound : float
        No feature is larger in magnitude; sets the lattice step.
    norm_bound : float or None
        No feature vector has a larger L2 norm, or None if there is no such bound.
    frac_bits : int, optional
        Lattice step ``2**-frac_bits``; by default the finest for which features stay
        below ``2**44`` steps.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Releases take the bound of clipped maps from parts().
        if cls.parts is not AbstractFeatureMap.parts and not is_of_package(cls):
            raise FeatureMapError(
                f"{cls.__name__} must not tell its own parts: a map of your own is "
                "one part, and is clipped by clipped(feature_map, norm_bound=S)."
            )

    def __init__(
        self,
        *,
        n_features: int,
        sketch_size: int,
        scaling: Scaling | None,
        value_bound: float,
        norm_bound: float | None,
        frac_bits: int | None = None,
    ) -> None:
        self.n_features = require_positive_int("n_features", n_features)
        self.sketch_size = require_positive_int("sketch_size", sketch_size)
        if scaling is not None and scaling.n_features != n_features:
            raise FeatureMapError(
                f"scaling is for {scaling.n_features} features and the map for "
                f"{n_features}."
            )
        self.scaling = scaling
        self.value_bound = require_bound("value_bound", value_bound)
        if norm_bound is not None and not 0 < norm_bound < float("inf"):
            raise FeatureMapError(
                f"norm_bound must be positive and finite; got {norm_bound!r}."
            )
        self.norm_bound = None if norm_bound is None else float(norm_bound)
        self.frac_bits = (
            frac_bits_for(self.value_bound) if frac_bits is None else frac_bits
        )

    @abstractmethod
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        """Feature vectors of a block: (n, n_features) → (n, sketch_size).

        Multiples of ``2**-frac_bits``, up to what a float64 holds. ``first_row`` is
        the position of the block in the data, for messages only. A feature beyond
        ``value_bound`` raises :class:`RowRangeError`.
        """

    @abstractmethod
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        """Exact total of up to ``SAFE_ROWS`` rows, in units of ``2**-frac_bits``.

        Additive to the bit: the total of a batch is the sum of the totals of its
        rows, however it is cut.
        """

    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        """Whether ``count`` rows could add up to this, by what their sums must obey.

        Exact: no total of rows is refused. Beyond the bounds of single features, which
        are checked elsewhere: variances are not negative, a partition counts every
        row once.
        """
        return True

    @property
    def origin(self) -> str:
        """``"data"`` if anything in the map was read from rows, else ``"declared"``."""
        inside = [part.feature_map for part in self.parts()]
        if self.has_learned_columns:
            return "data"
        if inside[0] is self:
            return self.origin_of(self.description)
        read = any(feature_map.origin == "data" for feature_map in inside)
        return "data" if read else "declared"

    def __call__(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Feature vectors of any number of rows, one row of output per row."""
        self.require_current()
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise FeatureMapError(
                f"{type(self).__name__} takes rows of {self.n_features} numbers; got "
                f"an array of shape {rows.shape}."
            )
        if not len(rows):
            return np.empty((0, self.sketch_size))
        blocks = row_blocks(rows, self.block_rows)
        return np.concatenate([self.evaluate(block) for _, block in blocks])

    def parts(self) -> tuple[Part[AbstractFeatureMap], ...]:
        """The plain maps inside this one, in the order of their features.

        Examples
        --------
        >>> from sketchlearn import ConcatenatedFeatures, FourierFeatures, clipped
        >>> short = clipped(FourierFeatures(2, 4), norm_bound=1.0)
        >>> both = ConcatenatedFeatures([FourierFeatures(2, 6), short])
        >>> [(part.where.start, len(part.clips)) for part in both.parts()]
        [(0, 0), (6, 1)]
        """
        return (Part(self, slice(0, self.sketch_size)),)

    @overload
    def find(self, first: type[_First]) -> list[Part[_First]]: ...

    @overload
    def find(
        self, first: type[_First], second: type[_Second]
    ) -> list[Part[_First | _Second]]: ...

    def find(
        self, first: type[_First], second: type[_Second] | None = None
    ) -> list[Part[_First]] | list[Part[_First | _Second]]:
        """The parts that are maps of one of these classes, in order.

        Examples
        --------
        >>> from sketchlearn import ConcatenatedFeatures, FourierFeatures
        >>> from sketchlearn import MomentFeatures
        >>> both = ConcatenatedFeatures([MomentFeatures(2), FourierFeatures(2, 4)])
        >>> [part.feature_map.scale for part in both.find(FourierFeatures)]
        [1.0]
        """
        return [
            Part(part.feature_map, part.where, part.clips)
            for part in self.parts()
            if isinstance(part.feature_map, (first, second or first))
        ]

    @property
    def widest(self) -> int:
        """Numbers that the evaluation of one row needs at once."""
        return self.sketch_size

    @property
    def block_rows(self) -> int:
        """Rows to evaluate at once: what they need stays in the cache."""
        return max(16, min(BLOCK_ROWS, CACHED // self.widest))

    def require_current(self) -> None:
        """Refuse to compute features in the floating point of version 1."""
        if self.version != VERSION:
            raise FeatureMapError(
                f"this map of kind {self.kind!r} is of version {self.version}: its "
                "sketches load, merge with one another and are decoded, but features "
                "in floating point are no longer computed. Plan a new map and sketch "
                "the rows with it."
            )

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """Scalings of this map and of the maps inside it."""
        found = [part.feature_map.scaling for part in self.parts()]
        return tuple(scaling for scaling in found if scaling is not None)


def require_in_range(
    features: NDArray[np.floating], bound: float, first_row: int
) -> None:
    """Refuse features beyond ``bound`` in magnitude, naming the row, not the value."""
    # The negated comparison also catches NaN.
    if not np.abs(features).max() <= bound:
        inside = (np.abs(features) <= bound).all(axis=1)
        raise RowRangeError(
            f"row {first_row + int(np.argmin(inside))} has a feature of magnitude > "
            f"{bound:g} (value_bound). Nothing was added. Scale the rows "
            "(scaling=Scaling.from_bounds(low, high)) or build the map with a larger "
            "value_bound."
        )


def sum_features(
    feature_map: AbstractFeatureMap, rows: NDArray[np.floating], first_row: int
) -> Int128Array:
    """Exact total of evaluated features, for maps that have no faster way."""
    total = Int128Array.zeros(feature_map.sketch_size)
    for start, block in row_blocks(rows, feature_map.block_rows):
        features = feature_map.evaluate(block, first_row + start)
        sums = lattice_sum(features, feature_map.frac_bits)
        total = total + Int128Array.from_int64(sums)
    return total


def require_feature_map(given: Any) -> AbstractFeatureMap:
    """Refuse what is no feature map, and say where one comes from."""
    if not isinstance(given, AbstractFeatureMap):
        raise FeatureMapError(
            f"a feature map is needed here; got a {type(given).__name__}. Make one, "
            "such as FourierFeatures(...), or take the plan of an estimator: "
            "estimator.plan(n_features)."
        )
    return given
