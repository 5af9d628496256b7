r"""The interface of a feature map φ: one row in, one vector out.

A map is a value: its description and weights never change, and a 256-bit
fingerprint over both decides whether two sketches may meet. A row is rounded to whole
numbers once, and everything after that is exact arithmetic, so that its features have
the same bits in every batch and on every machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array, frac_bits_for, lattice_sum
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.arguments import (
    require_bound,
    require_column_names,
    require_positive_int,
)
from sketchlearn.features.blocks import BLOCK_ROWS, CACHED, row_blocks
from sketchlearn.features.description import (
    VERSION,
    description_digest,
    encode_description,
)
from sketchlearn.features.parts import Part
from sketchlearn.features.registry import AbstractRegistered, is_of_package
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import canonical_json

__all__ = ["AbstractFeatureMap", "require_in_range", "sum_features"]
__public__ = ["AbstractFeatureMap"]

_First = TypeVar("_First", bound="AbstractFeatureMap")
_Second = TypeVar("_Second", bound="AbstractFeatureMap")
_SPEC_LIMIT = 16 * 2**20


class AbstractFeatureMap(AbstractRegistered):
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

    version = VERSION
    columns: tuple[str, ...] | None = None
    """Names of the columns the map is planned for, if it says so."""

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

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Constructor arguments as plain values and arrays, without weights."""

    @abstractmethod
    def weights(self) -> dict[str, NDArray[Any]]:
        """Every array the evaluation uses, for the fingerprint."""

    @property
    def stored_weights(self) -> tuple[str, ...]:
        """Names of the weights that :meth:`describe` cannot give back."""
        return self.stored or ()

    @property
    def origin(self) -> str:
        """``"data"`` if anything in the map was read from rows, else ``"declared"``."""
        inside = [part.feature_map for part in self.parts()]
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

    def with_columns(self, columns: Sequence[str] | None) -> Self:
        """The same map, planned for columns of these names, in this order.

        Rows that have names are then taken by name, whatever their order, and rows of
        other names are refused; the names are part of the fingerprint. Rows without
        names are taken as they come.

        Parameters
        ----------
        columns : sequence of str, or None
            A name for each feature, all different; None for a map without names.

        Examples
        --------
        >>> from sketchlearn import MomentFeatures
        >>> MomentFeatures(2).with_columns(["age", "bmi"]).columns
        ('age', 'bmi')
        """
        if columns is None and self.columns is None:
            return self
        named = copy(self)
        for cached in ("description", "fingerprint", "spec"):
            vars(named).pop(cached, None)
        named.columns = (
            None if columns is None else require_column_names(columns, self.n_features)
        )
        return named

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

    @cached_property
    def description(self) -> dict[str, Any]:
        """JSON-ready description: kind, version, arguments, scaling."""
        scaling = None if self.scaling is None else self.scaling.describe()
        stored = list(self.stored_weights)
        fields = {"kind": self.kind, "version": self.version, **self.describe()}
        fields |= {} if self.columns is None else {"columns": list(self.columns)}
        encoded = encode_description({**fields, "scaling": scaling, "stored": stored})
        return cast(dict[str, Any], encoded)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over description, weights and lattice, as 64 hex digits."""
        rule: list[Any] = [self.frac_bits, self.value_bound, self.norm_bound]
        rule += [64] if self.version == 1 else []
        return description_digest(self.description, rule, self.weights())

    @cached_property
    def spec(self) -> FeatureSpec:
        """What sketches of this map remember."""
        text = canonical_json(self.description)
        return FeatureSpec(
            text=text if len(text) <= _SPEC_LIMIT else "",
            fingerprint=self.fingerprint,
            n_features=self.n_features,
            sketch_size=self.sketch_size,
            frac_bits=self.frac_bits,
            value_bound=self.value_bound,
            norm_bound=self.norm_bound,
            rounding_bits=self.rounding_bits,
            version=self.version,
        )

    @property
    def rounding_bits(self) -> int:
        """The coarsest lattice a feature is rounded on."""
        return self.frac_bits

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """Scalings of this map and of the maps inside it."""
        found = [part.feature_map.scaling for part in self.parts()]
        return tuple(scaling for scaling in found if scaling is not None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractFeatureMap):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.describe().items() if np.ndim(v) == 0}
        inside = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({inside})"


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
