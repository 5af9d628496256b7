r"""The interface of a feature map φ: one row in, one vector out.

A map is a value: its description and weights never change, and a 256-bit
fingerprint over both decides whether two sketches may meet. Rows are evaluated in
blocks whose length is a multiple of 64 (the last row is repeated and the surplus
features dropped), because that is what makes a row's bits independent of its batch.
:class:`FeatureSpec` is what a sketch remembers of its map; it can be read, compared
and stored without building the map.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.container import canonical_json
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, RowRangeError
from sketchlearn.exact import Int128Array, frac_bits_for
from sketchlearn.scaling import Scaling

__all__ = [
    "BLOCK_ROWS",
    "ROW_MULTIPLE",
    "AbstractFeatureMap",
    "FeatureSpec",
    "build_map",
    "decode_description",
    "encode_description",
    "pad_rows",
    "require_in_range",
    "require_positive_int",
    "row_blocks",
]

ROW_MULTIPLE = 64
"""Blocks of rows are padded to a multiple of this before they are evaluated."""

BLOCK_ROWS = 512
"""Rows evaluated at once: their features stay in the processor's cache."""

_SPEC_LIMIT = 16 * 2**20
_KINDS = {
    "fourier": "sketchlearn.features.kernel:FourierFeatures",
    "nystrom": "sketchlearn.features.kernel:NystromFeatures",
    "quadratic": "sketchlearn.features.quadratic:QuadraticFeatures",
    "moments": "sketchlearn.features.moments:MomentFeatures",
    "cross-moments": "sketchlearn.features.moments:CrossMomentFeatures",
    "count-min": "sketchlearn.features.hashing:CountMinFeatures",
    "count-sketch": "sketchlearn.features.hashing:CountSketchFeatures",
    "bloom": "sketchlearn.features.hashing:BloomFeatures",
    "concatenated": "sketchlearn.features.composition:ConcatenatedFeatures",
    "clipped": "sketchlearn.features.clipping:ClippedFeatures",
    "network": "sketchlearn.features.network:NetworkFeatures",
    "cells": "sketchlearn.features.subspace:CellFeatures",
    "harmonics": "sketchlearn.features.harmonics:HarmonicFeatures",
    "subspace-fourier": "sketchlearn.features.subspace:SubspaceFourierFeatures",
    "activation": "sketchlearn.features.activation:ActivationFeatures",
}


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
    """

    text: str
    fingerprint: str
    n_features: int
    sketch_size: int
    frac_bits: int
    value_bound: float
    norm_bound: float | None
    rounding_bits: int

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
        return "data" if _holds_data(self.description) else "declared"

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
        found = _first_difference(self.description, other.description, "")
        return found or "weights"

    def require_same(self, other: FeatureSpec, verb: str) -> None:
        """Refuse ``verb`` unless both are the same map to the last bit."""
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
        self.value_bound = float(value_bound)
        self.norm_bound = None if norm_bound is None else float(norm_bound)
        self.frac_bits = (
            frac_bits_for(self.value_bound) if frac_bits is None else frac_bits
        )

    @abstractmethod
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        """Feature vectors of a padded block: (n, n_features) → (n, sketch_size).

        ``len(rows)`` is a multiple of :data:`ROW_MULTIPLE`. ``first_row`` is the
        position of the block in the data, for messages only. A feature beyond
        ``value_bound`` raises :class:`RowRangeError`.
        """

    @abstractmethod
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        """Exact total of up to ``SAFE_ROWS`` rows, in units of ``2**-frac_bits``.

        Additive to the bit: the total of a batch is the sum of the totals of its
        rows, however it is cut.
        """

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

    def __call__(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Feature vectors of any number of rows, one row of output per row."""
        rows = np.ascontiguousarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise FeatureMapError(
                f"{type(self).__name__} takes rows of {self.n_features} numbers; got "
                f"an array of shape {rows.shape}."
            )
        if not len(rows):
            return np.empty((0, self.sketch_size))
        blocks = [self.evaluate(block)[:count] for _, block, count in row_blocks(rows)]
        return np.concatenate(blocks)

    @cached_property
    def description(self) -> dict[str, Any]:
        """JSON-ready description: kind, version, arguments, scaling."""
        scaling = None if self.scaling is None else self.scaling.describe()
        stored = list(self.stored_weights)
        fields = {"kind": self.kind, "version": 1, **self.describe()}
        encoded = encode_description({**fields, "scaling": scaling, "stored": stored})
        return cast(dict[str, Any], encoded)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over description, weights and lattice, as 64 hex digits."""
        digest = hashlib.sha256(canonical_json(self.description).encode())
        rule = [self.frac_bits, self.value_bound, self.norm_bound, ROW_MULTIPLE]
        digest.update(canonical_json(rule).encode())
        for name, array in sorted(self.weights().items()):
            if array.dtype.kind == "f":
                if not np.isfinite(array).all():
                    raise FeatureMapError(f"weight {name!r} is not finite.")
                array = array + 0.0  # -0.0 becomes 0.0
            head = [name, array.dtype.str.lstrip("<|="), list(array.shape)]
            digest.update(canonical_json(head).encode())
            little = array.astype(array.dtype.newbyteorder("<"))
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
        )

    @property
    def rounding_bits(self) -> int:
        """The coarsest lattice a feature is rounded on."""
        return self.frac_bits

    @cached_property
    def is_stable(self) -> bool:
        """Whether a row has the same bits in every batch, tried here and now.

        320 seeded rows are evaluated in one block and again in shuffled blocks of
        64, 128 and 192 rows; one changed bit makes the map unstable on this machine.
        """
        rng = np.random.default_rng(20_250_803)
        unit = rng.uniform(-1.0, 1.0, (5 * ROW_MULTIPLE, self.n_features))
        rows, whole = self._probe(unit)
        order = rng.permutation(len(rows))
        for size in (1, 2, 3):
            for start in range(0, len(rows), size * ROW_MULTIPLE):
                chosen = order[start : start + size * ROW_MULTIPLE]
                if not np.array_equal(self.evaluate(rows[chosen]), whole[chosen]):
                    return False
        return True

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """Scalings of this map and of the maps inside it."""
        return () if self.scaling is None else (self.scaling,)

    def _probe(
        self, unit: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.floating]]:
        """Rows inside the range of every part of the map, and their features."""
        tries = [unit / s.factor + s.shift for s in self.scalings] + [unit, 0 * unit]
        for rows in tries:
            try:
                return rows, self.evaluate(rows)
            except RowRangeError:
                continue
        raise FeatureMapError("the parts of this map accept no row in common.")

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


def build_map(
    description: Mapping[str, Any],
    weights: Mapping[str, NDArray[Any]] | None = None,
    *,
    max_bytes: int = 2**30,
) -> AbstractFeatureMap:
    """Build the map a description speaks of.

    Parameters
    ----------
    description : mapping
        As given by ``FeatureSpec.description`` or ``AbstractFeatureMap.description``.
    weights : mapping of arrays, optional
        The stored weights, for maps that have some.
    max_bytes : int
        Refuse descriptions whose weights would take more memory: a description may
        come from a file nobody vouches for.
    """
    _require_small(description, max_bytes)
    fields = decode_description(description)
    kind, version = fields.pop("kind", None), fields.pop("version", None)
    if kind not in _KINDS or version != 1:
        raise FeatureMapError(
            f"unknown feature map {kind!r} (version {version!r}). This library knows: "
            f"{', '.join(_KINDS)}. A newer release may have written it."
        )
    stored = fields.pop("stored", [])
    missing = [name for name in stored if name not in (weights or {})]
    if missing:
        raise FeatureMapError(
            f"a map of kind {kind!r} cannot be rebuilt from its description: it needs "
            f"its weights ({', '.join(missing)}). Load the map from its own file and "
            "pass it as feature_map=."
        )
    found = {name: (weights or {})[name] for name in stored}
    if kind in ("concatenated", "clipped", "network"):
        fields["stored"] = found
    else:
        fields.update(found)
    scaling = fields.pop("scaling", None)
    if scaling is not None:
        fields["scaling"] = Scaling.from_description(scaling)
    module, _, name = _KINDS[kind].partition(":")
    cls = getattr(importlib.import_module(module), name)
    try:
        return cast(AbstractFeatureMap, cls(**fields))
    except TypeError as error:
        raise FeatureMapError(
            f"the description of a {kind!r} map has wrong fields: {error}."
        ) from error


def row_blocks(
    rows: NDArray[np.floating],
) -> Iterator[tuple[int, NDArray[np.floating], int]]:
    """Cut rows into padded blocks: (first row, block, rows that count)."""
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        yield start, pad_rows(block), len(block)


def pad_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Repeat the last row until the length is a multiple of ``ROW_MULTIPLE``."""
    missing = -len(rows) % ROW_MULTIPLE
    if not missing:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])


def encode_description(value: Any) -> Any:
    """Replace arrays by JSON objects, recursively."""
    if isinstance(value, np.ndarray):
        if value.dtype == np.float64:
            with np.errstate(over="ignore"):
                narrow = value.astype(np.float32)
            value = narrow if (narrow == value).all() else value  # half the space
        little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<")))
        data = base64.b64encode(little.tobytes()).decode()
        return {"dtype": little.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, Mapping):
        return {str(key): encode_description(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_description(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode_description(value: Any) -> Any:
    """Undo :func:`encode_description`."""
    if isinstance(value, Mapping):
        if set(value) == {"dtype", "shape", "data"}:
            if value["dtype"] not in ("<f8", "<f4", "<i8", "|b1"):
                raise FeatureMapError(f"unknown array type {value['dtype']!r}.")
            raw = np.frombuffer(base64.b64decode(value["data"]), value["dtype"])
            return raw.reshape(value["shape"]).copy()
        return {key: decode_description(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_description(item) for item in value]
    return value


def require_positive_int(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise FeatureMapError(f"{name} must be a whole number >= 1; got {value!r}.")
    return int(value)


def _holds_data(node: Any) -> bool:
    """Whether some part of a description was read from rows."""
    if isinstance(node, Mapping):
        if node.get("origin") == "data" or node.get("kind") == "nystrom":
            return True
        return any(_holds_data(child) for child in node.values())
    return isinstance(node, list) and any(_holds_data(child) for child in node)


def _require_small(node: Any, max_bytes: int) -> None:
    """Refuse sizes whose weights (``n_features`` by another) would fill memory."""
    if isinstance(node, Mapping):
        sizes = {k: v for k, v in node.items() if type(v) is int and k != "seed"}
        d, m = sizes.get("n_features", 1), sizes.get("sketch_size", 1)
        pairs = d * d // 2 if node.get("order") == "covariance" else 1
        if node.get("law") == "gaussian" and node.get("kind") == "quadratic":
            pairs = d * d // 2 * m
        columns = max(m, sizes.get("depth", 1), sizes.get("n_columns", 1))
        buckets = sizes.get("width", 1) * sizes.get("depth", 1)
        n_in, n_out = sizes.get("n_inputs", 1), sizes.get("n_outputs", 1)
        wide = sizes.get("width", 0) if "n_inputs" in sizes else 0
        hidden = n_in + n_out + 2 * sizes.get("depth", 0) * wide
        layers = hidden * wide if wide else n_in * n_out
        largest = 8 * max(columns * d, pairs, buckets, layers, *sizes.values(), 1)
        if largest > max_bytes:
            raise FeatureMapError(
                f"this describes a feature map of about {largest} bytes. If you trust "
                f"it, load it with a max_bytes= larger than {max_bytes}."
            )
    for child in node.values() if isinstance(node, Mapping) else node:
        if isinstance(child, Mapping | list):
            _require_small(child, max_bytes)


def _first_difference(
    left: Mapping[str, Any], right: Mapping[str, Any], prefix: str
) -> str:
    for key in sorted({*left, *right}, key=lambda key: (key != "kind", key)):
        a, b = left.get(key), right.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            nested = _first_difference(a, b, f"{prefix}{key}.")
            if nested:
                return nested
        if key == "data":
            return f"{prefix.rstrip('.')} values"
        return f"{prefix}{key} {a!r} vs {b!r}"
    return ""
