"""Sketches of classes: one for each, added up and taken apart class by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.sketching.sketch import Sketch

__all__ = ["added_sketches", "classes_of", "refuse_forgetting", "rest_of_sketches"]


def classes_of(sketches: Any) -> NDArray[Any]:
    """Classes that there are sketches of, in order and of one kind."""
    if not isinstance(sketches, Mapping) or not sketches:
        raise RowsError(
            "no sketch to fit: pass a mapping with one for each class; got "
            f"{type(sketches).__name__}."
        )
    try:
        return np.array(sorted(sketches))
    except TypeError as error:
        raise RowsError(
            "classes must be all numbers or all text, to be put in order."
        ) from error


def added_sketches(
    left: Mapping[Any, Sketch], right: Mapping[Any, Sketch]
) -> dict[Any, Sketch]:
    """Sketches of each class, added up."""
    merged = dict(left)
    for label, sketch in right.items():
        merged[label] = merged[label] + sketch if label in merged else sketch
    return merged


def rest_of_sketches(
    whole: Mapping[Any, Sketch], gone: Mapping[Any, Sketch]
) -> dict[Any, Sketch]:
    """Sketches of each class without some rows; a class that has none left is gone."""
    rest = dict(whole)
    for label, sketch in gone.items():
        if label not in rest:
            refuse_forgetting(label)
        left = rest[label] - sketch
        if left.count:
            rest[label] = left
        elif len(rest) > 1:
            del rest[label]
        else:
            refuse_forgetting(label)
    return rest


def refuse_forgetting(label: Any) -> NoReturn:
    """Say that a class cannot be without these rows."""
    raise RowsError(
        f"class {label!r} would have no rows left, or never had any. Nothing was "
        "forgotten."
    )
