"""Checks of arguments that many feature maps take."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, cast, get_args

import numpy as np

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.scaling import Origin

__all__ = [
    "require_bound",
    "require_column_names",
    "require_origin",
    "require_positive_int",
]


def require_positive_int(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise FeatureMapError(f"{name} must be a whole number >= 1; got {value!r}.")
    return int(value)


def require_bound(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a number that exact arithmetic can use."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 1e-250 < value < 1e250:
        raise FeatureMapError(
            f"{name} must be a positive finite number (1e-250 to 1e250); got {value!r}."
        )
    return float(value)


def require_origin(origin: str) -> Origin:
    """Return where constants come from if it is one of the two words."""
    if origin not in get_args(Origin):
        raise FeatureMapError(f"origin must be 'declared' or 'data'; got {origin!r}.")
    return cast(Origin, origin)


def require_column_names(columns: Any, n_features: int) -> tuple[str, ...]:
    """Names of the columns of a plan, one for each feature."""
    listed = isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str)
    names = tuple(columns) if listed else ()
    plain = all(isinstance(name, str) for name in names)
    if not plain or len(names) != n_features or len(set(names)) < n_features:
        raise FeatureMapError(
            f"columns must be {n_features} different names, one for each feature of "
            "the map."
        )
    return tuple(str(name) for name in names)
