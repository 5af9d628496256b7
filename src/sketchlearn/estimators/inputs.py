"""Rows as estimators take them: what is read by whom, and what a plan sees of them.

A plan made from rows is the same for an array, a frame, a file and an iterator of the
same rows (:mod:`sketchlearn.rows.survey`); of a long iterator it sees the first rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    RowRangeError,
    RowsError,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.rows.batches import Batches, open_rows
from sketchlearn.rows.kinds import RowsKind, is_in_memory, kind_of
from sketchlearn.rows.survey import survey_rows
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "DATA_REACH",
    "LARGEST",
    "PLANNING_ROWS",
    "beside_targets",
    "check_bounds",
    "column_extremes",
    "extremes_of",
    "plan_scaling",
    "require_in_memory",
    "validated",
    "varies",
    "warn_of_late",
    "warn_of_plan",
    "with_text_names",
]

PLANNING_ROWS = 65_536
"""Without declared bounds, scales are read from so many first rows of an iterator."""

DATA_REACH = 32.0
"""Later values may lie this much farther out than those the scales were read from."""

LARGEST = 2.0**480
"""Values beyond have no variance in float64."""


def beside_targets(X: Any, column: str) -> Any:
    """Rows that an array of targets can be matched to.

    Parameters
    ----------
    X : rows
        As given; a tensor becomes an array.
    column : str
        What ``y`` may name instead, for messages.
    """
    kind = kind_of(X)
    if kind is RowsKind.TENSOR:
        return X.detach().cpu().numpy()
    if kind in (RowsKind.COLUMN, RowsKind.UNKNOWN):
        open_rows(X)  # says what to do
    if not kind.is_validated:
        raise RowsError(
            f"for files, streams and Arrow data pass y as the name of the {column}: an "
            "array cannot be matched to their rows."
        )
    return X


def require_in_memory(X: Any, verb: str) -> None:
    """Refuse what would have to be read again after it was fitted."""
    if not is_in_memory(X):
        raise RowsError(
            f"{verb} takes rows in memory: an array, frame or sparse matrix. Nothing "
            "was read. Call fit with files and streams, and then transform or predict "
            "with each batch of sketchlearn.open_rows."
        )


def validated(estimator: Any, X: Any, *targets: Any, **options: Any) -> Any:
    """Rows in memory, checked by scikit-learn; text for the names of a frame.

    It adds rows up to see whether they are finite, which huge ones are all the same.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return validate_data(estimator, with_text_names(X), *targets, **options)
    except ValueError:
        if not isinstance(X, np.ndarray):
            open_rows(X)  # names the column at fault, if one is
        raise


def with_text_names(X: Any) -> Any:
    """A pandas frame whose names are text, as :func:`open_rows` reads them."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return X
    labels = list(X.columns)
    if all(isinstance(name, str) for name in labels):
        return X
    if labels == list(range(len(labels))):  # positions, not names
        return X
    named = X.copy(deep=False)
    named.columns = [str(name) for name in labels]
    return named


def column_extremes(batches: Batches) -> NDArray[np.float64]:
    """Smallest and largest value of each column, and its quartiles.

    Extremes are those of all rows, or of the first ones of an iterator; quartiles are
    those of some rows all over.
    """
    limit = max(64, min(PLANNING_ROWS, 2**26 // batches.n_features))
    found = survey_rows(batches, first_rows=limit)
    ends = np.stack([found.low, found.high])
    if np.abs(ends).max() > LARGEST:
        _refuse_large(batches, limit)
    quartiles = np.quantile(found.some, [0.25, 0.75], axis=0, method="nearest")
    return np.concatenate([ends, quartiles])


def _refuse_large(batches: Batches, limit: int) -> None:
    """Name the first value whose square is no number."""
    row, rows = 0, batches if batches.is_repeatable else [batches.peek(limit)]
    for batch in rows:
        large = np.argwhere(np.abs(batch) > LARGEST)
        if len(large):
            index, column = large[0].tolist()
            name = column if batches.names is None else repr(batches.names[column])
            raise RowRangeError(
                f"row {row + index} of {batches.source}, column {name}: the magnitude "
                f"is beyond {LARGEST:.0e}, and its square is no number in the units of "
                "the rows. Nothing was added. Divide this column by its scale, or "
                "leave such rows out."
            )
        row += len(batch)


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
    part, _ = second_moment_part(sketch.feature_map)
    if isinstance(part, MomentFeatures) or sketch.feature_map.origin != "data":
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
    """Which features have a variance above zero, decided exactly."""
    part, place = second_moment_part(sketch.feature_map)
    places = np.arange(place.start, place.stop)
    scatter = part.scatter(
        sketch.total.take(places), sketch.count, sketch.feature_map.frac_bits
    )
    return np.array([value > 0 for value in scatter])
