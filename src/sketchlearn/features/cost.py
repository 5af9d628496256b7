"""The cost of a feature map: memory and time, added up before anything is built.

A description may come from a file nobody vouches for. Every map says from checked
fields alone, in whole numbers, what building it takes; what the maps are is not known
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, final

from sketchlearn.errors import FeatureMapError

__all__ = ["LOOP", "MAX_WORK", "Cost", "Declared", "require_affordable"]

MAX_WORK = 2**34
"""About this many nanoseconds for each gigabyte of ``max_bytes``, at least one."""

LOOP = 4096
"""One turn of a Python loop over array operations, in nanoseconds."""


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
class Declared:
    """What is known of a map that is not built yet.

    Parameters
    ----------
    fields : mapping
        Of its description, checked; arrays are encoded.
    shapes : mapping
        Shapes of its stored weights by name, where they are at hand.
    members : tuple of Cost
        What the maps inside it take, in their order.
    """

    fields: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    members: tuple[Cost, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The value of a field that is required."""
        return self.fields[name]

    def array_shape(self, name: str) -> tuple[int, int]:
        """Shape of an array in a field; a vector is a column."""
        first, *rest = self.fields[name]["shape"]
        return first, rest[0] if rest else 1

    def length(self, name: str) -> int:
        """How many numbers a field holds, as a list or as an array; 0 for nothing."""
        value = self.fields.get(name)
        if value is None:
            return 0
        return len(value) if isinstance(value, list) else prod(value["shape"])

    def stored_shape(self, name: str) -> tuple[int, int]:
        """Shape of a stored matrix; zeros where it is not at hand."""
        if name not in self.shapes:
            return 0, 0
        shape = self.shapes[name]
        if len(shape) != 2 or not all(shape):
            raise FeatureMapError(
                f"{name} must be a matrix that is not empty; got shape {shape}."
            )
        return shape[0], shape[1]


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
