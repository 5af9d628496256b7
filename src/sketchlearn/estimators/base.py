"""What every estimator shares: rows in, one sketch kept, parameters decoded from it.

``fit(X)`` is ``fit_sketch(sketch of X)``; ``partial_fit``, ``forget`` and ``merge``
are arithmetic on ``sketch_`` followed by ``fit_sketch``. Estimators hold no
mathematics of their own.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchlearn.errors import (
    DataPlanWarning,
    FeatureMapError,
    RemovalError,
    RowsError,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.privacy import PrivateSketch
from sketchlearn.rows.batches import Batches, open_rows
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch, accumulate

__all__ = [
    "PLANNING_ROWS",
    "AbstractSketchEstimator",
    "extremes_of",
    "is_streamed",
    "plan_scaling",
    "require_sketch",
    "seed_of",
    "varying",
]

PLANNING_ROWS = 65_536
"""Without declared bounds, scales are read from this many first rows."""

_QUARTILE_ROWS = 4096
DATA_REACH = 32.0
"""Later values may lie this much farther out than those the scales were read from."""


class AbstractSketchEstimator(ABC, BaseEstimator):
    """An estimator whose whole knowledge of the data is ``sketch_``."""

    @abstractmethod
    def fit_sketch(self, sketch: Sketch | PrivateSketch) -> Self:
        """Decode a sketch made with a map from ``plan``."""

    @abstractmethod
    def _open(self, X: Any, y: Any, *, reset: bool) -> Batches:
        """Rows of ``X`` (and ``y``) as the estimator sketches them."""

    @abstractmethod
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        """A map for rows like these."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch the rows in one pass and decode the sketch.

        Parameters
        ----------
        X : rows
            Array, frame, Arrow table, sparse matrix, tensor, generator of batches,
            or path or glob of Parquet, CSV or Arrow files.
        y : targets
            Ignored, except by estimators that predict.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            batches = self._open(X, y, reset=True)
            feature_map = self._plan(column_extremes(batches, whole=not is_streamed(X)))
            return self.fit_sketch(accumulate(batches, feature_map))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows to what was fitted; the first call plans and fits.

        Returns
        -------
        self
        """
        if not hasattr(self, "sketch_"):
            return self.fit(X, y)
        self._require_whole("add rows")
        with self._all_or_nothing():
            more = accumulate(self._open(X, y, reset=False), self.sketch_.feature_map)
            return self.fit_sketch(self.sketch_ + more)

    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows out again, exactly: as if they had never been seen.

        Parameters
        ----------
        X, y : rows and targets
            Rows that were fitted before; others are refused where that shows.

        Returns
        -------
        self

        Warns
        -----
        DataPlanWarning
            If scales were read from the data: the totals forget exactly, the scales
            do not. Pass ``bounds`` to plan without looking at the data.
        """
        check_is_fitted(self, "sketch_")
        self._require_whole("forget rows")
        feature_map = self.sketch_.feature_map
        if feature_map.origin == "data":
            warnings.warn(
                "the scales of this sketch were read from its first rows and keep a "
                "trace of them; the totals forget exactly, the scales do not. Declare "
                "bounds=(low, high) to plan without looking at the data.",
                DataPlanWarning,
                stacklevel=2,
            )
        with self._all_or_nothing():
            rest = self.sketch_ - accumulate(self._open(X, y, reset=False), feature_map)
            if rest.count == 0:
                raise RemovalError(
                    f"these are all {self.sketch_.count} rows of the model; nothing "
                    "would be left to fit. Nothing was forgotten: discard the "
                    "estimator and its sketch_ instead."
                )
            return self.fit_sketch(rest)

    def merge(self, other: Self) -> Self:
        """Add what another fitted estimator of the same plan has seen.

        Returns
        -------
        self
        """
        check_is_fitted(self, "sketch_")
        check_is_fitted(other, "sketch_")
        self._require_whole("merge")
        other._require_whole("merge")
        with self._all_or_nothing():
            return self.fit_sketch(self.sketch_ + other.sketch_)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo every change of the estimator if something fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _require_whole(self, verb: str) -> None:
        if getattr(self, "_selected", False):
            raise FeatureMapError(
                f"cannot {verb}: this model was fitted to some features of its sketch. "
                "Change the sketch (sketch_ + other, sketch_ - other) and call "
                "fit_sketch again."
            )

    def _name_features(
        self, sketch: Sketch | PrivateSketch, chosen: NDArray[np.int64]
    ) -> None:
        """Take the names of the features from the sketch, or drop stale ones."""
        names = getattr(sketch, "columns", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)[chosen]
        elif len(getattr(self, "feature_names_in_", chosen)) != len(chosen):
            del self.feature_names_in_
        self.n_features_in_ = len(chosen)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _open_features(self, X: Any, *, reset: bool) -> Batches:
        """Open ``X`` and keep scikit-learn's record of its width and names."""
        if is_streamed(X):
            names = None if reset else getattr(self, "feature_names_in_", None)
            batches = self._open_aligned(X, names, reset=reset)
            if reset:
                self.n_features_in_ = batches.n_features
                if hasattr(self, "feature_names_in_"):
                    del self.feature_names_in_
                if batches.names is not None:
                    self.feature_names_in_ = np.array(batches.names, object)
            return batches
        if hasattr(X, "columns"):  # a frame: rows.py names the column at fault
            batches = open_rows(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return batches
        return open_rows(validate_data(self, X, reset=reset, accept_sparse="csr"))

    def _open_aligned(self, X: Any, names: Any, *, reset: bool) -> Batches:
        """Open a stream, its columns in the order of ``names`` if it has names."""
        expected = None if reset else self.n_features_in_
        if names is None or isinstance(X, Iterator):
            batches = open_rows(X, n_features=expected)
            if names is not None and batches.names not in (None, tuple(names)):
                raise RowsError(
                    f"the columns are {batches.names}, but the model was fitted to "
                    f"{tuple(names)}. Pass batches with the same columns."
                )
            return batches
        batches = open_rows(X)
        if batches.names is None or isinstance(X, Batches):
            return batches.of_width(expected)
        return open_rows(X, columns=list(names), n_features=expected)

    def _check_rows(self, X: Any) -> NDArray[np.floating]:
        """Rows for ``transform`` or ``predict``, dense."""
        check_is_fitted(self, "sketch_")
        if is_streamed(X) and not hasattr(X, "shape"):
            raise RowsError(
                "this takes rows in memory: an array, frame or sparse matrix. Read "
                "files batch by batch (sketchlearn.open_rows) and pass each batch."
            )
        rows = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        dense: NDArray[np.floating] = rows.toarray() if issparse(rows) else rows
        return dense


def is_streamed(X: Any) -> bool:
    """Whether ``X`` is read by rows.py rather than validated by scikit-learn."""
    if isinstance(X, str | os.PathLike | Iterator | Batches):
        return True
    if isinstance(X, list | tuple) and X:
        return isinstance(X[0], str | os.PathLike) or np.ndim(X[0]) == 2
    module = type(X).__module__.partition(".")[0]
    return module in ("pyarrow", "duckdb", "torch") or type(X).__name__ == "LazyFrame"


def plan_scaling(
    bounds: tuple[ArrayLike, ArrayLike] | None,
    n_features: int | None,
    rows: NDArray[np.floating] | None = None,
) -> tuple[Scaling, float]:
    """Scaling, and how far scaled values may reach.

    From declared ``bounds`` (values beyond are refused), else from the range of
    ``rows`` (values up to 32 times farther out are fine), else none at all. Without
    ``n_features`` the bounds are for as many features as they have entries.
    """
    if bounds is None:
        scaling = Scaling.identity(n_features or 1)
        return (scaling if rows is None else Scaling.from_rows(rows)), DATA_REACH
    try:
        low, high = bounds
    except (TypeError, ValueError) as error:
        raise FeatureMapError(
            "bounds must be a pair (low, high) of numbers or of vectors with one "
            f"entry per feature; got {type(bounds).__name__}."
        ) from error
    return Scaling.from_bounds(low, high, n_features=n_features), 1.0


def column_extremes(batches: Batches, *, whole: bool) -> NDArray[np.floating]:
    """Smallest and largest value of each column, and its quartiles.

    Extremes are those of all rows if ``whole`` (rows in memory, which can be read
    again), otherwise of the first ones; quartiles always of some first ones.
    """
    limit = max(64, min(PLANNING_ROWS, 2**26 // batches.n_features))
    first = batches.peek(_QUARTILE_ROWS if whole else limit)
    ends = [extremes_of(batch) for batch in batches] if whole else [first]
    some = first[:_QUARTILE_ROWS]
    quartiles = np.quantile(some, [0.25, 0.75], axis=0, method="nearest")
    return np.concatenate([extremes_of(np.concatenate(ends)), quartiles])


def extremes_of(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Smallest and largest value of each column of some rows, shape (2, d)."""
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


def require_sketch(sketch: Any) -> None:
    """Refuse what is no sketch."""
    if not isinstance(sketch, Sketch | PrivateSketch):
        raise RowsError(
            f"fit_sketch takes a sketch; got {type(sketch).__name__}. Rows are for "
            "fit, or for sketch_rows with the map of plan(n_features)."
        )


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn calls ``random_state``; None is 0."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    whole = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise FeatureMapError(
            f"random_state must be a whole number >= 0 or None; got {random_state!r}."
        )
    return int(random_state)


def varying(rows: NDArray[np.floating] | None) -> NDArray[np.bool_] | None:
    """Which features take more than one value in ``rows``."""
    return None if rows is None else rows.max(axis=0) > rows.min(axis=0)
