"""Scales of a map: from declared bounds or from rows, and what becomes of the plan.

A plan that was read from rows keeps a trace of them, and may turn out to be narrower
than the rows that come later; both are said where they happen.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.errors import ConvergenceWarning, DataPlanWarning, FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.rows.survey import LARGEST
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "DATA_REACH",
    "check_bounds",
    "extremes_of",
    "plan_scaling",
    "varies",
    "warn_of_late",
    "warn_of_plan",
]

DATA_REACH = 32.0
"""Later values may lie this much farther out than those the scales were read from."""


def extremes_of(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Smallest and largest value of each column of some rows, shape (2, d)."""
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


def plan_scaling(
    bounds: tuple[ArrayLike, ArrayLike] | None,
    n_features: int,
    rows: NDArray[np.floating] | None = None,
) -> tuple[Scaling, float]:
    """Scaling, and how far scaled values may reach.

    From declared ``bounds`` (values beyond are refused), else from the range of
    ``rows`` (values up to 32 times farther out are fine), else none at all.
    """
    if bounds is None:
        scaling = Scaling.identity(n_features)
        return (scaling if rows is None else Scaling.from_rows(rows)), DATA_REACH
    low, high = check_bounds("bounds", bounds)
    return Scaling.from_bounds(low, high, n_features=n_features), 1.0


def check_bounds(name: str, bounds: Any) -> tuple[ArrayLike, ArrayLike]:
    """Refuse what is no pair of numbers or vectors in increasing order.

    Parameters
    ----------
    name : str
        Of the parameter.
    bounds : pair (low, high)
        As declared.
    """
    try:
        low, high = bounds
    except (TypeError, ValueError) as error:
        raise FeatureMapError(
            f"{name} must be a pair (low, high) of numbers or of vectors with one "
            f"entry per feature; got {type(bounds).__name__}."
        ) from error
    Scaling.from_bounds(low, high)
    if max(np.abs(low).max(), np.abs(high).max()) > LARGEST:
        raise FeatureMapError(
            f"{name} reach beyond {LARGEST:.0e}, where squares are no numbers. Divide "
            "the features by their scale."
        )
    return low, high


def warn_of_plan(*feature_maps: AbstractFeatureMap) -> None:
    """Warn that rows are forgotten by totals, and not by a plan that saw them."""
    if any(feature_map.origin == "data" for feature_map in feature_maps):
        warnings.warn(
            "the scales of this sketch were read from its rows and keep a trace of "
            "them; the totals forget exactly, the scales do not. Declare bounds=(low, "
            "high) to plan without looking at the data.",
            DataPlanWarning,
            stacklevel=3,
        )


def warn_of_late(sketch: Sketch, was_constant: NDArray[np.bool_]) -> None:
    """Warn of features that got no room because they did not vary, and do now.

    Parameters
    ----------
    sketch : Sketch
        Of all rows.
    was_constant : array of shape (n_features,)
        Which features did not vary in the rows seen before.
    """
    if not _has_moments(sketch) or sketch.feature_map.origin != "data":
        return
    part, _ = second_moment_part(sketch.feature_map)
    if not part.is_compressed:
        return
    late = was_constant & varies(sketch)
    late[part.kept] = False
    if not late.any():
        return
    columns = sketch.columns or tuple(f"feature {i}" for i in range(len(late)))
    names = [columns[i] for i in np.flatnonzero(late)]
    more = ", .." if len(names) > 5 else ""
    warnings.warn(
        f"{len(names)} features ({', '.join(names[:5])}{more}) did not vary in the "
        "rows the sketch was planned from, got no room in it, and vary in later rows: "
        "the model knows their variances only. Declare bounds, or fit an array or "
        "files, which are looked at whole.",
        ConvergenceWarning,
        stacklevel=3,
    )


def varies(sketch: Sketch) -> NDArray[np.bool_]:
    """Which features have a variance above zero, decided exactly.

    All of them, as far as a sketch without moments knows.
    """
    if not _has_moments(sketch):
        return np.ones(sketch.features.n_features, bool)
    part, place = second_moment_part(sketch.feature_map)
    places = np.arange(place.start, place.stop)
    scatter = part.scatter(
        sketch.total.take(places), sketch.count, sketch.feature_map.frac_bits
    )
    return np.array([value > 0 for value in scatter])


def _has_moments(sketch: Sketch) -> bool:
    found = sketch.feature_map.find(MomentFeatures, CrossMomentFeatures)
    return any(part.feature_map.has_second_moments for part in found)
