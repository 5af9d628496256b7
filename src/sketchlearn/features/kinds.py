r"""The kinds of feature maps: what a description holds, and what building it takes.

A description may come from a file nobody vouches for. So before anything is drawn or
decoded, :func:`declare` checks the type of every field and adds up, from whole numbers
alone, the memory and the work of the map and of all maps inside it. A kind is one entry
of :data:`KINDS`; without its fields and its cost it cannot be entered. The maps
themselves are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Any, final

from sketchlearn.errors import FeatureMapError, quote
from sketchlearn.features.fields import (
    ARRAY,
    COLUMNS,
    MODEL,
    NAMES,
    NETWORK,
    NUMBER,
    NUMBERED,
    SCALING,
    SEED,
    SIZE,
    SIZE_OR_0,
    TABLE,
    TABLES,
    WORD,
    Field,
    is_whole,
    or_none,
    require_fields,
)

__all__ = ["KINDS", "VERSION", "Cost", "Kind", "declare", "require_affordable"]

VERSION = 2
"""Of the arithmetic of maps: 1 was floating point, 2 is whole numbers."""

MAX_WORK = 2**34
"""And about this many nanoseconds for each gigabyte of ``max_bytes``, at least one."""

_NESTED = 8
_LOOP = 4096  # one turn of a Python loop over array operations, in nanoseconds

_Fields = Mapping[str, Any]
_Shapes = Mapping[str, tuple[int, ...]]


@final
@dataclass(frozen=True)
class Cost:
    """What building a map, and one row of its features, take.

    Parameters
    ----------
    n_features, sketch_size : int or None
        Sizes of the map; None where stored weights say them that are not at hand.
    numbers : int
        Upper bound of the numbers of 8 bytes in memory at once.
    work : int
        Nanoseconds, roughly.
    """

    n_features: int | None
    sketch_size: int | None
    numbers: int
    work: int


@final
@dataclass(frozen=True)
class Kind:
    """One kind of map: where its class is, its fields, and what it takes.

    Parameters
    ----------
    path : str
        ``module:class``.
    fields : mapping
        What its descriptions hold, besides kind, version, scaling and stored.
    cost : callable
        Cost by checked fields and the shapes of stored weights.
    stored : tuple of str, or None
        Names of its stored weights; None where they differ from map to map.
    """

    path: str
    fields: Mapping[str, Field]
    cost: Callable[[_Fields, _Shapes], Cost]
    stored: tuple[str, ...] | None = field(default=())


def declare(description: Any, shapes: _Shapes | None = None) -> Cost:
    """Check a description and give the cost of its map, without building anything.

    Parameters
    ----------
    description : mapping
        JSON values, of a file perhaps.
    shapes : mapping, optional
        Shapes of the stored weights by name, where they are at hand.

    Examples
    --------
    >>> given = {"kind": "count-min", "version": 2, "n_features": 9, "seed": 0}
    >>> cost = declare({**given, "width": 4, "depth": 3, "value_bound": 1.0})
    >>> cost.n_features, cost.sketch_size
    (9, 12)
    """
    return _declare(description, shapes or {}, _NESTED)


def require_affordable(cost: Cost, max_bytes: int) -> None:
    """Refuse a map that takes more memory or time than ``max_bytes`` stands for."""
    n_bytes, gigabytes = 8 * cost.numbers, max(max_bytes / 2**30, 1.0)
    if n_bytes > max_bytes or cost.work > MAX_WORK * gigabytes:
        needed = max(n_bytes, 2**30 * cost.work // MAX_WORK)
        raise FeatureMapError(
            f"this describes a feature map that takes about {n_bytes} bytes and "
            f"{cost.work // 10**9} seconds to build. If you trust it, load it with a "
            f"max_bytes= larger than {needed}, or build the map yourself and attach "
            "it: sketch.with_map(feature_map)."
        )


def _declare(description: Any, shapes: _Shapes, nested: int) -> Cost:
    if not isinstance(description, Mapping) or not nested:
        raise FeatureMapError(
            "a feature map is described by a mapping of its fields, with at most "
            f"{_NESTED} maps inside one another; got {quote(description)}."
        )
    kind, version = description.get("kind"), description.get("version")
    known = type(version) is int and 1 <= version <= VERSION
    if type(kind) is not str or kind not in KINDS or not known:
        raise FeatureMapError(
            f"unknown feature map {quote(kind)} (version {quote(version)}). This "
            f"library knows: {', '.join(KINDS)}. A newer release may have written it."
        )
    entry = KINDS[kind]
    require_fields(description, {**_COMMON, **entry.fields}, kind)
    stored = tuple(description.get("stored", ()))
    if entry.stored not in (None, stored):
        raise FeatureMapError(
            f"a map of kind {kind!r} stores the weights {quote(list(entry.stored))}; "
            f"got {quote(list(stored))}."
        )
    inner = [description["inner"]] if "inner" in entry.fields else []
    inner += description["parts"] if "parts" in entry.fields else []
    parts = [
        _declare(part, _under(f"{index}.", shapes), nested - 1)
        for index, part in enumerate(inner)
    ]
    own = entry.cost({**description, "costs": parts}, shapes)
    scaled = 8 * (own.n_features or 0) if description.get("scaling") else 0
    numbers = 4096 + scaled + own.numbers + sum(part.numbers for part in parts)
    work = 2**17 + own.work + sum(part.work for part in parts)
    return Cost(own.n_features, own.sketch_size, numbers, work)


def _under(prefix: str, shapes: _Shapes) -> dict[str, tuple[int, ...]]:
    return {
        name.removeprefix(prefix): shape
        for name, shape in shapes.items()
        if name.startswith(prefix)
    }


# What maps take: numbers in memory at the worst moment, and nanoseconds.


def _shape(value: Any) -> tuple[int, int]:
    """Shape of an encoded array; a vector is a column."""
    first, *rest = value["shape"]
    return first, rest[0] if rest else 1


def _fourier(fields: _Fields, shapes: _Shapes) -> Cost:
    return _waves(fields, octaves=1)


def _harmonics(fields: _Fields, shapes: _Shapes) -> Cost:
    return _waves(fields, octaves=fields["octaves"])


def _waves(fields: _Fields, octaves: int) -> Cost:
    d, m = fields["n_features"], fields["sketch_size"]
    h = -(-m // (2 * octaves))
    numbers = (6 + 2 * octaves) * d * h + 40 * h + 8 * m
    work = (100 + 20 * octaves) * d * h + _LOOP * (d + h)
    return Cost(d, m, numbers, work)


def _activation(fields: _Fields, shapes: _Shapes) -> Cost:
    d, units = _matrix(shapes, "matrix")
    both = fields.get("activation", "fourier") == "fourier"
    m = units * (2 if both else 1)
    return Cost(d or None, m or None, 10 * d * units + 8 * m, 100 * d * units)


def _nystrom(fields: _Fields, shapes: _Shapes) -> Cost:
    m, d = _matrix(shapes, "landmarks")
    if "root" in shapes and shapes["root"] != (m, m):
        raise FeatureMapError(
            f"root must be a square matrix of size {m}; got shape {shapes['root']}."
        )
    numbers = 10 * m * d + 10 * m * m
    return Cost(d or None, m or None, numbers, 50 * (m * d + m * m))


def _matrix(shapes: _Shapes, name: str) -> tuple[int, int]:
    """Shape of a stored matrix; zeros where it is not at hand."""
    if name not in shapes:
        return 0, 0
    if len(shapes[name]) != 2 or not all(shapes[name]):
        raise FeatureMapError(
            f"{name} must be a matrix that is not empty; got shape {shapes[name]}."
        )
    first, second = shapes[name]
    return first, second


def _quadratic(fields: _Fields, shapes: _Shapes) -> Cost:
    d, m = fields["n_features"], fields["sketch_size"]
    pairs = d * (d + 1) // 2 if fields.get("law") == "gaussian" else 0
    drawn = (pairs or d) * m
    numbers = 8 * drawn + 6 * (pairs + m)
    return Cost(d, m, numbers, 100 * drawn + _LOOP * d)


def _moments(fields: _Fields, shapes: _Shapes) -> Cost:
    d, order = fields["n_features"], fields.get("order", "covariance")
    m = {"mean": d, "variance": 2 * d}.get(order, d + d * (d + 1) // 2)
    return Cost(d, m, 8 * d + 6 * m, 10 * m)


def _cross_moments(fields: _Fields, shapes: _Shapes) -> Cost:
    d, columns = fields["n_features"], fields["n_columns"]
    kept, targets = fields.get("kept"), fields.get("targets") or []
    a = d if kept is None else _n_numbers(kept)
    m = 2 * d + a * (columns + _n_numbers(targets))
    return Cost(d, m, 16 * d + 8 * a * columns + 6 * m, 200 * d + 30 * m)


def _n_numbers(values: Any) -> int:
    return len(values) if isinstance(values, list) else prod(values["shape"])


def _hashed(fields: _Fields, shapes: _Shapes) -> Cost:
    d, depth = fields["n_features"], fields["depth"]
    m = fields["width"] * depth
    numbers = 12 * depth * d + 4 * d + 6 * m
    return Cost(d, m, numbers, 100 * depth * d + 10 * m + 8 * _LOOP * depth)


def _cells(fields: _Fields, shapes: _Shapes) -> Cost:
    (d, r), (n_cells, _) = _shape(fields["basis"]), _shape(fields["anchors"])
    s = fields.get("n_crossed")
    m = n_cells * (1 + r if s is None else 1 + 2 * r + s * (s - 1) // 2)
    numbers = 8 * (n_cells + d) * r + 4 * r * r + 16 * d + 6 * m
    work = 20 * (n_cells + d) * r + 20 * d * r * r + _LOOP * (d + r) + 10 * m
    return Cost(d, m, numbers, work)


def _network(fields: _Fields, shapes: _Shapes) -> Cost:
    sizes = fields["network"]
    n_in, n_out = sizes["n_inputs"], sizes["n_outputs"]
    depth, width = sizes.get("depth", 0), sizes.get("width", 0)
    weights = width * (n_in + n_out + 2 * depth * width) if width else n_in * n_out
    tensors = 4 + 8 * depth
    d = n_in
    if fields.get("inputs", "rows") == "outer":
        d = (isqrt(8 * n_in + 1) - 1) // 2
    numbers = 10 * weights + 256 * tensors + 8 * (n_in + width + n_out)
    work = 100 * weights + 16 * _LOOP * tensors
    return Cost(d, n_out, numbers, work)


def _clipped(fields: _Fields, shapes: _Shapes) -> Cost:
    inner = fields["costs"][0]
    m = inner.sketch_size or 0
    return Cost(inner.n_features, inner.sketch_size, 10 * m, 100 * m)


def _concatenated(fields: _Fields, shapes: _Shapes) -> Cost:
    widths = {part.n_features for part in fields["costs"]}
    sizes = [part.sketch_size for part in fields["costs"]]
    d = widths.pop() if len(widths) == 1 else None
    if None in sizes:
        return Cost(d, None, 0, 0)
    m = sum(sizes)
    return Cost(d, m, 4 * m, 10 * m)


_DRAWN = {"n_features": SIZE, "sketch_size": SIZE, "law": WORD, "seed": SEED}
_HASHED = {
    "n_features": SIZE,
    "width": SIZE,
    "depth": SIZE,
    "seed": SEED,
    "value_bound": NUMBER,
}
_MOMENTS = {
    "n_features": SIZE,
    "targets": NUMBERED,
    "reach": NUMBER,
    "bits": Field("a whole number", is_whole(-64, 64), required=False),
}
_PLANNED = {"basis": ARRAY, "centre": ARRAY, "origin": WORD}
_HOME = "sketchlearn.features"
_COMMON = {
    "kind": WORD,
    "version": SIZE,
    "scaling": or_none(SCALING),
    "stored": NAMES,
    "columns": COLUMNS,
}

KINDS = {
    "fourier": Kind(
        f"{_HOME}.kernel:FourierFeatures", {**_DRAWN, "scale": NUMBER}, _fourier
    ),
    "nystrom": Kind(
        f"{_HOME}.kernel:NystromFeatures",
        {"scale": NUMBER, "shift": NUMBER},
        _nystrom,
        stored=("landmarks", "root"),
    ),
    "quadratic": Kind(
        f"{_HOME}.quadratic:QuadraticFeatures",
        {**_DRAWN, "value_bound": NUMBER},
        _quadratic,
    ),
    "moments": Kind(
        f"{_HOME}.moments:MomentFeatures", {**_MOMENTS, "order": WORD}, _moments
    ),
    "cross-moments": Kind(
        f"{_HOME}.moments:CrossMomentFeatures",
        {
            **_MOMENTS,
            "n_columns": SIZE,
            "kept": or_none(NUMBERED),
            "importance": or_none(ARRAY),
            "seed": SEED,
        },
        _cross_moments,
    ),
    "count-min": Kind(f"{_HOME}.hashing:CountMinFeatures", _HASHED, _hashed),
    "count-sketch": Kind(f"{_HOME}.hashing:CountSketchFeatures", _HASHED, _hashed),
    "bloom": Kind(f"{_HOME}.hashing:BloomFeatures", _HASHED, _hashed),
    "concatenated": Kind(
        f"{_HOME}.composition:ConcatenatedFeatures",
        {"parts": TABLES},
        _concatenated,
        stored=None,
    ),
    "clipped": Kind(
        f"{_HOME}.clipping:ClippedFeatures",
        {"inner": TABLE, "norm_bound": NUMBER},
        _clipped,
        stored=None,
    ),
    "network": Kind(
        f"{_HOME}.network:NetworkFeatures",
        {
            "network": NETWORK,
            "inputs": WORD,
            "value_bound": or_none(NUMBER),
            "origin": WORD,
            "model": or_none(MODEL),
            "digest": WORD,
        },
        _network,
        stored=None,
    ),
    "cells": Kind(
        f"{_HOME}.cells:CellFeatures",
        {
            **_PLANNED,
            "anchors": ARRAY,
            "reach": NUMBER,
            "n_crossed": or_none(SIZE_OR_0),
        },
        _cells,
    ),
    "harmonics": Kind(
        f"{_HOME}.harmonics:HarmonicFeatures",
        {
            **_DRAWN,
            "octaves": Field("from 1 to 4", is_whole(1, 5)),
            "scale": NUMBER,
        },
        _harmonics,
    ),
    "activation": Kind(
        f"{_HOME}.activation:ActivationFeatures",
        {"activation": WORD},
        _activation,
        stored=("matrix",),
    ),
}
"""By name; each kind says where it is, what describes it and what it takes."""
