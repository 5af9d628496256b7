r"""The interface of a feature map φ: one row in, one vector out.

A map is a value: its description and weights never change, and a 256-bit
fingerprint over both decides whether two sketches may meet. A row is rounded to whole
numbers once, and everything after that is exact arithmetic, so that its features have
the same bits in every batch and on every machine.
:class:`FeatureSpec` is what a sketch remembers of its map; it can be read, compared
and stored without building the map.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from numbers import Real
from typing import Any, ClassVar, Self, TypeVar, cast, final, overload

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array, frac_bits_for, lattice_sum
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    RowRangeError,
    SketchlearnError,
)
from sketchlearn.features.description import (
    decode_description,
    encode_description,
    first_difference,
    holds_data,
)
from sketchlearn.features.kinds import KINDS, VERSION, declare, require_affordable
from sketchlearn.features.parts import Part
from sketchlearn.features.scaling import Scaling
from sketchlearn.files.container import canonical_json

__all__ = [
    "BLOCK_ROWS",
    "CACHED",
    "VERSION",
    "AbstractFeatureMap",
    "FeatureSpec",
    "build_map",
    "require_bound",
    "require_in_range",
    "require_positive_int",
    "row_blocks",
    "sum_features",
]

BLOCK_ROWS = 512
"""Rows evaluated at once: their features stay in the processor's cache."""

CACHED = 2**16
"""Numbers that stay in the cache."""

_Float = TypeVar("_Float", bound=np.floating[Any])
_First = TypeVar("_First", bound="AbstractFeatureMap")
_Second = TypeVar("_Second", bound="AbstractFeatureMap")
_SPEC_LIMIT = 16 * 2**20


@final
@dataclass(frozen=True)
class FeatureSpec:
    """What a sketch remembers of its feature map.

    Parameters
    ----------
    text : str
        Canonical JSON of the map's description, or ``""`` where that is too large
        for a file header: then the map itself must be at hand to decode.
    fingerprint : str
        64 hexadecimal digits over description, weights and lattice.
    n_features, sketch_size, frac_bits : int
        Width of a row, length of the feature vector, and lattice step ``2**-k``.
    value_bound : float
        Largest magnitude of one feature.
    norm_bound : float or None
        Largest L2 norm of one feature vector, where known.
    rounding_bits : int
        The coarsest lattice a feature was rounded on; ``frac_bits`` unless parts of
        the map have lattices of their own.
    version : int
        Of the map's arithmetic: 1 was floating point, 2 is whole numbers.
    """

    text: str
    fingerprint: str
    n_features: int
    sketch_size: int
    frac_bits: int
    value_bound: float
    norm_bound: float | None
    rounding_bits: int
    version: int = VERSION

    @property
    def description(self) -> dict[str, Any]:
        """The parsed description; empty where ``text`` is."""
        return cast(dict[str, Any], json.loads(self.text)) if self.text else {}

    @property
    def kind(self) -> str:
        """The map's kind, such as ``"fourier"``, or ``"unknown"``."""
        return str(self.description.get("kind", "unknown"))

    @property
    def origin(self) -> str:
        """``"declared"``, ``"data"``, or ``"unknown"`` where ``text`` is missing."""
        if not self.text:
            return "unknown"
        return "data" if holds_data(self.description) else "declared"

    @property
    def norm_steps(self) -> int:
        """Largest norm of one row's integer features, in lattice steps, rounded up.

        Since version 2 the bound holds for the integers themselves; those of version 1
        were rounded after it was taken.
        """
        assert self.norm_bound is not None
        bound = Fraction(self.norm_bound) * Fraction(2) ** self.frac_bits
        if self.version > 1:
            return ceil(bound)
        step = max(Fraction(2) ** (self.frac_bits - self.rounding_bits), Fraction(1))
        slack = 1 + Fraction(self.sketch_size + 8, 2**52)
        return ceil(bound * slack) + ceil(step) * self.sketch_size

    def build(self) -> AbstractFeatureMap:
        """The map itself, rebuilt from its description."""
        if not self.text:
            raise FeatureMapMismatch(
                "this sketch knows its feature map only by its fingerprint "
                f"({self.fingerprint[:6]}..). Load the map from its own file and "
                "attach it: sketch.with_map(feature_map)."
            )
        return build_map(self.description)

    def first_difference(self, other: FeatureSpec) -> str | None:
        """Name the first field in which two maps differ, with both values."""
        if self.fingerprint == other.fingerprint:
            return None
        found = first_difference(self.description, other.description)
        return found or "weights"

    def require_equal(self, other: FeatureSpec) -> None:
        """Refuse to attach another map, or one that contradicts what is written here.

        A fingerprint alone can be copied: sizes, bounds and the description must agree.
        """
        self.require_same(other, "attach this feature map")
        if replace(other, text=other.text if self.text else "") != self:
            raise FeatureMapMismatch(
                "cannot attach this feature map: the sketch contradicts it in its "
                "description, sizes or bounds, so its file was forged or made with a "
                "bug."
            )

    def require_same(self, other: FeatureSpec, verb: str) -> None:
        """Refuse ``verb`` unless both are the same map to the last bit."""
        if self.version != other.version:
            raise FeatureMapMismatch(
                f"cannot {verb}: left is of a map of version {self.version}, right of "
                f"version {other.version}. Version 1 computed in floating point, "
                "version 2 in whole numbers, and their totals do not add up. Merge "
                "version 1 with version 1 only, or sketch those rows again."
            )
        difference = self.first_difference(other)
        if difference is not None:
            raise FeatureMapMismatch(
                f"cannot {verb}: left map {self.fingerprint[:6]}.., right map "
                f"{other.fingerprint[:6]}.. (first difference: {difference}). Sketch "
                "both datasets with the same map: same kind, sizes, scaling and seed."
            )


class AbstractFeatureMap(ABC):
    """One row of ``n_features`` numbers → one vector of ``sketch_size`` numbers.

    Subclasses call ``super().__init__`` with what is known of their output.

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

    kind: ClassVar[str]
    version = VERSION
    columns: tuple[str, ...] | None = None
    """Names of the columns the map is planned for, if it says so."""

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
        return ()

    @property
    def origin(self) -> str:
        """``"data"`` if anything in the map was read from rows, else ``"declared"``."""
        return "declared" if self.scaling is None else self.scaling.origin

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
        named.columns = None if columns is None else _names(columns, self.n_features)
        return named

    def parts(self) -> tuple[Part[AbstractFeatureMap], ...]:
        """The plain maps inside this one, in the order of their features.

        Examples
        --------
        >>> from sketchlearn import ConcatenatedFeatures, FourierFeatures, clipped
        >>> waves = clipped(FourierFeatures(2, 4), norm_bound=1.0)
        >>> both = ConcatenatedFeatures([FourierFeatures(2, 6), waves])
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
        digest = hashlib.sha256(canonical_json(self.description).encode())
        rule: list[Any] = [self.frac_bits, self.value_bound, self.norm_bound]
        rule += [64] if self.version == 1 else []
        digest.update(canonical_json(rule).encode())
        for name, array in sorted(self.weights().items()):
            if array.dtype.kind == "f":
                if not np.isfinite(array).all():
                    raise FeatureMapError(f"weight {name!r} is not finite.")
                array = array + 0.0  # -0.0 becomes 0.0
            little = array.astype(array.dtype.newbyteorder("<"))
            head = [name, little.dtype.str.lstrip("<|="), list(array.shape)]
            digest.update(canonical_json(head).encode())
            digest.update(np.ascontiguousarray(little).tobytes())
        return digest.hexdigest()

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
        return () if self.scaling is None else (self.scaling,)

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


def _names(columns: Any, n_features: int) -> tuple[str, ...]:
    """Names of the columns of a plan, checked."""
    listed = isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str)
    names = tuple(columns) if listed else ()
    plain = all(isinstance(name, str) for name in names)
    if not plain or len(names) != n_features or len(set(names)) < n_features:
        raise FeatureMapError(
            f"columns must be {n_features} different names, one for each feature of "
            "the map."
        )
    return tuple(str(name) for name in names)


def require_bound(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a number that exact arithmetic can use."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 1e-250 < value < 1e250:
        raise FeatureMapError(
            f"{name} must be a positive finite number (1e-250 to 1e250); got {value!r}."
        )
    return float(value)


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


def build_map(
    description: Mapping[str, Any],
    weights: Mapping[str, NDArray[Any]] | None = None,
    *,
    max_bytes: int | None = 2**30,
) -> AbstractFeatureMap:
    """Build the map a description speaks of.

    A description may come from a file nobody vouches for: its fields are checked and
    what it takes is added up before anything is drawn, and whatever it holds, the only
    error is :class:`~sketchlearn.errors.FeatureMapError`.

    Parameters
    ----------
    description : mapping
        As given by ``FeatureSpec.description`` or ``AbstractFeatureMap.description``.
    weights : mapping of arrays, optional
        The stored weights, for maps that have some.
    max_bytes : int, optional
        Refuse descriptions that take more memory to build, or many seconds; None takes
        any, as for a part of a map that was checked whole.
    """
    given = weights or {}
    cost = declare(description, {name: a.shape for name, a in given.items()})
    if max_bytes is not None:
        require_affordable(cost, max_bytes)
    kind, stored = description["kind"], description.get("stored", [])
    missing = [name for name in stored if name not in given]
    if missing:
        raise FeatureMapError(
            f"a map of kind {kind!r} cannot be rebuilt from its description: it needs "
            f"its weights ({', '.join(missing)[:80]}). Load the map from its own file "
            "and pass it as feature_map=."
        )
    try:
        with np.errstate(all="ignore"):
            return _build(description, {name: given[name] for name in stored})
    except (SketchlearnError, ImportError):
        raise
    except Exception as error:  # any description may hold any arguments
        raise FeatureMapError(
            f"the description of a {kind!r} map has wrong fields or too large ones: "
            f"{str(error)[:200]}."
        ) from error


def _build(
    description: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]
) -> AbstractFeatureMap:
    """The map of a checked description; maps inside it are built by their own."""
    fields = {
        name: value if name in ("inner", "parts") else decode_description(value)
        for name, value in description.items()
        if name != "stored"
    }
    kind, version = fields.pop("kind"), fields.pop("version")
    columns = fields.pop("columns", None)
    if KINDS[kind].stored is None:
        fields["stored"] = stored
    else:
        fields.update(stored)
    scaling = fields.pop("scaling", None)
    if scaling is not None:
        fields["scaling"] = Scaling.from_description(scaling)
    module, _, name = KINDS[kind].path.partition(":")
    cls = getattr(importlib.import_module(module), name)
    if version == VERSION:
        return cast(AbstractFeatureMap, cls(**fields)).with_columns(columns)
    old = importlib.import_module("sketchlearn.features.version1")
    built = cls(**{**fields, **old.arguments(kind, fields)})
    return cast(AbstractFeatureMap, old.as_written(built, description))


def row_blocks(
    rows: NDArray[_Float], size: int = BLOCK_ROWS
) -> Iterator[tuple[int, NDArray[_Float]]]:
    """Cut rows into blocks: (first row, block)."""
    for start in range(0, len(rows), size):
        yield start, rows[start : start + size]


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


def require_positive_int(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise FeatureMapError(f"{name} must be a whole number >= 1; got {value!r}.")
    return int(value)
