"""Building a feature map from its description, of a file nobody vouches for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, SketchlearnError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cost import allow_bytes, require_affordable
from sketchlearn.features.description import VERSION, decode_description
from sketchlearn.features.registry import declare, map_class
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.features.version1 import arguments, as_written

__all__ = ["build_map", "build_member", "rebuild_map"]


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
        with np.errstate(all="ignore"), allow_bytes(sys.maxsize):  # it was checked
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
    cls = cast(type[AbstractFeatureMap], map_class(description["kind"]))
    declared = cls.fields or {}
    fields = {
        name: value
        if name in declared and declared[name].is_nested
        else decode_description(value)
        for name, value in description.items()
        if name != "stored"
    }
    fields = {**cls.older, **fields}
    kind, version = fields.pop("kind"), fields.pop("version")
    columns = fields.pop("columns", None)
    is_learned = fields.pop("columns_origin", None) is not None
    if cls.stored is None:
        fields["stored"] = stored
    else:
        fields.update(stored)
    scaling = fields.pop("scaling", None)
    if scaling is not None:
        fields["scaling"] = Scaling.from_description(scaling)
    if version == VERSION:
        built = cls(**fields).with_columns(columns)
        return built.of_learned_columns() if is_learned else built
    return as_written(cls(**{**fields, **arguments(kind, fields)}), description)


def rebuild_map(spec: FeatureSpec) -> AbstractFeatureMap:
    """The map that a sketch remembers, from its description."""
    if not spec.text:
        raise FeatureMapMismatch(
            "this sketch knows its feature map only by its fingerprint "
            f"({spec.fingerprint[:6]}..). Load the map from its own file and "
            "attach it: sketch.with_map(feature_map)."
        )
    return build_map(spec.description)


def build_member(
    member: AbstractFeatureMap | Mapping[str, Any],
    index: int,
    stored: Mapping[str, NDArray[Any]] | None,
) -> AbstractFeatureMap:
    """A map inside another, as given or by its description and the stored weights."""
    if isinstance(member, AbstractFeatureMap):
        return member
    prefix = f"{index}."
    weights = {
        name.removeprefix(prefix): array
        for name, array in (stored or {}).items()
        if name.startswith(prefix)
    }
    return build_map(member, weights, max_bytes=None)
