"""The registry of feature maps: which class a kind of description stands for.

A map is registered by being defined: its class says its ``kind``, the ``fields`` of
its descriptions and what one takes (``cost_of``). A description may come from a file
nobody vouches for, so only registered maps are built, and before anything is drawn or
decoded :func:`declare` checks every field and adds up the cost of the map and of all
maps inside it. The modules of this package are imported when a kind is first asked
for.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from sketchlearn.errors import FeatureMapError, quote
from sketchlearn.features.cost import Cost, Declared, require_affordable
from sketchlearn.features.description import VERSION
from sketchlearn.features.fields import (
    COLUMNS,
    NAMES,
    ORIGIN,
    SCALING,
    SIZE,
    WORD,
    Field,
    nested_values,
    or_none,
    require_fields,
)

__all__ = [
    "AbstractRegistered",
    "declare",
    "described_counting",
    "described_origin",
    "is_built_in",
    "is_known",
    "is_of_package",
    "known_kinds",
    "map_class",
]

_PACKAGE = "sketchlearn.features"
_NESTED = 8
_COMMON = {
    "kind": WORD,
    "version": SIZE,
    "scaling": or_none(SCALING),
    "stored": NAMES,
    "columns": COLUMNS,
    "columns_origin": Field("'data'", lambda value: value == "data", required=False),
}


class AbstractRegistered(ABC):
    """A class of maps that says how its descriptions are read.

    A subclass with a ``kind`` of its own is registered as soon as it is defined. One
    without ``fields`` is not: its maps sketch rows, and files never give them back.
    """

    kind: ClassVar[str]
    """Name of the map in descriptions, such as ``"fourier"``."""

    fields: ClassVar[Mapping[str, Field] | None] = None
    """What its descriptions hold, besides what those of all maps may hold."""

    stored: ClassVar[tuple[str, ...] | None] = ()
    """Names of its stored weights; None where they differ from map to map."""

    older: ClassVar[Mapping[str, Any]] = {}
    """Arguments that stand for fields which older descriptions do not have."""

    counts_items: ClassVar[bool] = False
    """Whether features of rows of whole numbers are whole: their totals are packed in
    files. Part of the format: with another answer the same sketch is other bytes."""

    @classmethod
    def cost_of(cls, given: Declared) -> Cost:
        """What a map takes, by the checked fields of its description."""
        raise NotImplementedError

    @classmethod
    def require_affordable(
        cls, shapes: Mapping[str, tuple[int, ...]] | None = None, **fields: Any
    ) -> None:
        """Refuse arguments of a map that takes too much, before it is built."""
        require_affordable(cls.cost_of(Declared(fields, shapes or {})))

    @classmethod
    def origin_of(cls, description: Mapping[str, Any]) -> str:
        """Where the constants of a described map come from.

        ``"data"`` if anything was read from rows: by the scaling, by a field that says
        so, or by a map inside.
        """
        fields = cls.fields or {}
        scaling = description.get("scaling")
        told = {scaling.get("origin") if isinstance(scaling, Mapping) else None}
        told |= {
            description.get(name) for name, field in fields.items() if field is ORIGIN
        }
        inside = nested_values(description, fields)
        told |= {described_origin(member) for member in inside}
        return next((o for o in ("data", "unknown") if o in told), "declared")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            _register(cls)


_CLASSES: dict[str, type[AbstractRegistered]] = {}


def _register(cls: type[AbstractRegistered]) -> None:
    parents = [parent for parent in cls.__mro__ if parent is not AbstractRegistered]
    has_cost = any("cost_of" in vars(parent) for parent in parents)
    is_stored = cls.fields is not None or has_cost
    if is_stored and (cls.fields is None or not has_cost):
        raise FeatureMapError(
            f"{cls.__name__} must declare both fields and cost_of to be built from "
            "descriptions, or neither."
        )
    if not is_of_package(cls):
        _import_all()
    known = _CLASSES.get(cls.kind, cls)
    if _path(known) != _path(cls):  # the same one may be defined again
        raise FeatureMapError(
            f"{cls.__name__} and {known.__name__} are both of kind {cls.kind!r}: give "
            "the new map another kind."
        )
    if is_stored:  # others are never built from a description
        _CLASSES[cls.kind] = cls


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def is_of_package(cls: type) -> bool:
    """Whether a class was defined in this package, registered or not."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


@cache
def _import_all() -> None:
    """Define the maps of this package."""
    package = importlib.import_module(_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{_PACKAGE}.{module.name}")


def known_kinds() -> tuple[str, ...]:
    """All kinds that can be built, in alphabetical order."""
    _import_all()
    return tuple(sorted(_CLASSES))


def is_known(kind: object) -> bool:
    """Whether maps of this kind can be built."""
    return isinstance(kind, str) and kind in known_kinds()


def map_class(kind: str) -> type[AbstractRegistered]:
    """The class of a known kind."""
    _import_all()
    return _CLASSES[kind]


def is_built_in(cls: type) -> bool:
    """Whether a class is one of the maps of this library, and not a user's own."""
    kind = getattr(cls, "kind", None)
    return is_of_package(cls) and is_known(kind) and map_class(str(kind)) is cls


def described_origin(description: Any) -> str:
    """``"declared"``, ``"data"``, or ``"unknown"`` for a map that is not known."""
    if not isinstance(description, Mapping) or not is_known(description.get("kind")):
        return "unknown"
    if description.get("columns_origin") == "data":
        return "data"
    return map_class(description["kind"]).origin_of(description)


def described_counting(description: Mapping[str, Any]) -> bool:
    """Whether a map of this library is described whose features count items.

    A user's own map never is: what a file holds must not depend on what is imported.
    """
    if not is_known(description.get("kind")):
        return False
    cls = map_class(description["kind"])
    return is_of_package(cls) and cls.counts_items


def declare(
    description: Any, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Cost:
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


def _declare(
    description: Any, shapes: Mapping[str, tuple[int, ...]], nested: int
) -> Cost:
    cls = _described_class(description, nested)
    fields = cls.fields or {}
    what = f"the description of a {cls.kind!r} map"
    require_fields(description, {**_COMMON, **fields}, what)
    stored = tuple(description.get("stored", ()))
    if cls.stored is not None and cls.stored != stored:
        raise FeatureMapError(
            f"a map of kind {cls.kind!r} stores the weights "
            f"{quote(list(cls.stored))}; got {quote(list(stored))}."
        )
    members = tuple(
        _declare(member, _under(f"{index}.", shapes), nested - 1)
        for index, member in enumerate(nested_values(description, fields))
    )
    own = cls.cost_of(Declared(description, shapes, members))
    scaled = 8 * (own.n_features or 0) if description.get("scaling") else 0
    numbers = 4096 + scaled + own.numbers + sum(part.numbers for part in members)
    work = 2**17 + own.work + sum(part.work for part in members)
    return Cost(own.n_features, own.sketch_size, numbers, work)


def _described_class(description: Any, nested: int) -> type[AbstractRegistered]:
    if not isinstance(description, Mapping) or not nested:
        raise FeatureMapError(
            "a feature map is described by a mapping of its fields, with at most "
            f"{_NESTED} maps inside one another; got {quote(description)}."
        )
    kind, version = description.get("kind"), description.get("version")
    readable = type(version) is int and 1 <= version <= VERSION
    if type(kind) is not str or not is_known(kind) or not readable:
        raise FeatureMapError(
            f"unknown feature map {quote(kind)} (version {quote(version)}). This "
            f"library knows: {', '.join(known_kinds())}. A newer release may have "
            "written it."
        )
    return map_class(kind)


def _under(
    prefix: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    return {
        name.removeprefix(prefix): shape
        for name, shape in shapes.items()
        if name.startswith(prefix)
    }
