"""The cost of a feature map: memory and time, added up before anything is built.

A description may come from a file nobody vouches for. Every map says from checked
fields alone, in whole numbers, what building it takes; what the maps are is not known
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any, final

from sketchlearn.errors import FeatureMapError

__all__ = [
    "LOOP",
    "MAX_WORK",
    "Cost",
    "Declared",
    "allow_bytes",
    "require_affordable",
]
__public__ = ["allow_bytes"]

MAX_WORK = 2**34
"""About this many nanoseconds for each gigabyte of ``max_bytes``, at least one."""

_allowed: ContextVar[int] = ContextVar("allowed", default=2**34)
"""Bytes that a map may take which somebody builds by its class: costs are upper bounds,
and whoever writes a size into a program is trusted more than a file."""

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


@contextmanager
def allow_bytes(max_bytes: int) -> Iterator[None]:
    """Let maps that are built in a ``with`` block take more memory, or less.

    Before a map draws or allocates anything, its class adds up what that takes, as an
    upper bound, and refuses more than 16 GiB, or the time that goes with it.

    Parameters
    ----------
    max_bytes : int
        What a map may take, in this thread, until the block ends.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> with sl.allow_bytes(2**35):
    ...     phi = sl.FourierFeatures(10, 100)
    >>> phi.sketch_size
    100
    """
    token = _allowed.set(max_bytes)
    try:
        yield
    finally:
        _allowed.reset(token)


def require_affordable(cost: Cost, max_bytes: int | None = None) -> None:
    """Refuse a map that takes more memory or time than ``max_bytes`` stands for."""
    max_bytes = _allowed.get() if max_bytes is None else max_bytes
    n_bytes, gigabytes = 8 * cost.numbers, max(max_bytes / 2**30, 1.0)
    if n_bytes > max_bytes or cost.work > MAX_WORK * gigabytes:
        needed = max(n_bytes, 2**30 * cost.work // MAX_WORK)
        raise FeatureMapError(
            f"this feature map takes about {n_bytes} bytes and {cost.work // 10**9} "
            f"seconds to build, and {max_bytes} bytes are allowed. Choose smaller "
            "sizes; or, if you mean it, build it inside of 'with "
            f"sketchlearn.allow_bytes({needed + 1}):', or load it with a max_bytes= "
            f"larger than {needed}, or attach a map you have: "
            "sketch.with_map(feature_map)."
        )
