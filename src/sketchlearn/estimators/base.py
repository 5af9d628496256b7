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
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchlearn.errors import DataPlanWarning, FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.moments import CrossMomentFeatures, MomentFeatures
from sketchlearn.rows.batches import Batches, open_rows
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch, accumulate

__all__ = [
    "PLANNING_ROWS",
    "AbstractSketchEstimator",
    "is_streamed",
    "plan_scaling",
    "plan_second_moments",
    "varying",
]

PLANNING_ROWS = 65_536
"""Without declared bounds, scales are read from this many first rows."""

DATA_REACH = 32.0
"""Later values may lie this much farther out than those the scales were read from."""


class AbstractSketchEstimator(ABC, BaseEstimator):
    """An estimator whose whole knowledge of the data is ``sketch_``."""

    @abstractmethod
    def fit_sketch(self, sketch: Sketch) -> Self:
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
        batches = self._open(X, y, reset=True)
        feature_map = self._plan(batches.peek(PLANNING_ROWS))
        return self.fit_sketch(accumulate(batches, feature_map))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows to what was fitted; the first call plans and fits.

        Returns
        -------
        self
        """
        if not hasattr(self, "sketch_"):
            return self.fit(X, y)
        more = accumulate(self._open(X, y, reset=False), self.sketch_.feature_map)
        return self.fit_sketch(self.sketch_ + more)

    def forget(self, X: Any, y: Any = None, *, approximate: bool = False) -> Self:
        """Take rows out again, exactly: as if they had never been seen.

        Parameters
        ----------
        X, y : rows and targets
            Rows that were fitted before; others are refused where that shows.
        approximate : bool
            Allow it where this machine does not give a row the same bits twice.

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
        feature_map = self.sketch_.feature_map
        if not (approximate or feature_map.is_stable):
            raise FeatureMapError(
                "this map does not give the same bits for the same row in different "
                "batches on this machine; forgetting rows would leave a residue. "
                "Remove a stored sketch of those rows instead, or pass "
                "approximate=True."
            )
        if feature_map.origin == "data":
            warnings.warn(
                "the scales of this sketch were read from its first rows and keep a "
                "trace of them; the totals forget exactly, the scales do not. Declare "
                "bounds=(low, high) to plan without looking at the data.",
                DataPlanWarning,
                stacklevel=2,
            )
        less = accumulate(self._open(X, y, reset=False), feature_map)
        return self.fit_sketch(self.sketch_ - less)

    def merge(self, other: Self) -> Self:
        """Add what another fitted estimator of the same plan has seen.

        Returns
        -------
        self
        """
        check_is_fitted(self, "sketch_")
        check_is_fitted(other, "sketch_")
        return self.fit_sketch(self.sketch_ + other.sketch_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _open_features(self, X: Any, *, reset: bool) -> Batches:
        """Open ``X`` and keep scikit-learn's record of its width and names."""
        if is_streamed(X):
            expected = None if reset else self.n_features_in_
            batches = open_rows(X, n_features=expected)
            self._remember_names(batches, reset=reset)
            return batches
        if hasattr(X, "columns"):  # a frame: rows.py names the column at fault
            batches = open_rows(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return batches
        return open_rows(validate_data(self, X, reset=reset, accept_sparse="csr"))

    def _remember_names(self, batches: Batches, *, reset: bool) -> None:
        if not reset:
            return
        self.n_features_in_ = batches.n_features
        if batches.names is not None:
            self.feature_names_in_ = np.array(batches.names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_rows(self, X: Any) -> NDArray[np.floating]:
        """Rows for ``transform`` or ``predict``, dense."""
        check_is_fitted(self, "sketch_")
        rows = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        dense: NDArray[np.floating] = rows.toarray() if issparse(rows) else rows
        return dense


def is_streamed(X: Any) -> bool:
    """Whether ``X`` is read by rows.py rather than validated by scikit-learn."""
    if isinstance(X, str | os.PathLike | Iterator):
        return True
    if isinstance(X, list | tuple) and X:
        return isinstance(X[0], str | os.PathLike) or np.ndim(X[0]) == 2
    module = type(X).__module__.partition(".")[0]
    return module in ("pyarrow", "duckdb", "torch") or type(X).__name__ == "LazyFrame"


def plan_second_moments(
    *,
    n_features: int,
    sketch_size: int,
    n_targets: int = 0,
    scaling: Scaling,
    reach: float,
    active: NDArray[np.bool_] | None = None,
    importance: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> MomentFeatures | CrossMomentFeatures:
    r"""The map whose sketch holds as much of the second moment as there is room for.

    All of it when :math:`d(d+1)/2` numbers fit in ``sketch_size``, otherwise
    :math:`R\Omega` with as many columns as fit. Constant features get no room; where
    even one column for each active feature is too much, a random subset of them is
    kept. Means and variances come beside.

    Parameters
    ----------
    n_features : int
        Numbers in a row, targets included (they come last).
    sketch_size : int
        Numbers the sketch may hold beside means and variances.
    n_targets : int
        How many of the last features keep exact cross moments with the others.
    scaling : Scaling
        Part of the map.
    reach : float
        Largest magnitude of a scaled value.
    active : array of bool, optional
        Features that vary; all of them by default.
    importance : array of shape (n_features,), optional
        Weights of the features in Ω.
    seed : int
        Seed of Ω and of the subset.
    """
    d = n_features
    if d * (d + 1) // 2 <= sketch_size:
        return MomentFeatures(d, order="covariance", reach=reach, scaling=scaling)
    chosen = np.arange(d) if active is None else np.flatnonzero(active)
    targets = np.arange(d - n_targets, d)
    chosen = np.setdiff1d(chosen, targets)
    room = sketch_size // (1 + n_targets) - n_targets
    if room < 1:
        raise FeatureMapError(
            f"sketch_size={sketch_size} is too small for {n_targets} targets: use at "
            f"least {(1 + n_targets) ** 2}."
        )
    if len(chosen) > room:
        chosen = np.random.default_rng(seed).permutation(chosen)[:room]
    kept = np.union1d(chosen, targets)
    if not len(kept):
        kept = np.array([0])
    return CrossMomentFeatures(
        d,
        max(1, sketch_size // len(kept) - n_targets),
        kept=kept,
        targets=targets.tolist(),
        importance=None if importance is None else importance[kept],
        reach=reach,
        seed=seed,
        scaling=scaling,
    )


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
    try:
        low, high = bounds
    except (TypeError, ValueError) as error:
        raise FeatureMapError(
            "bounds must be a pair (low, high) of numbers or of vectors with one "
            f"entry per feature; got {type(bounds).__name__}."
        ) from error
    return Scaling.from_bounds(low, high, n_features=n_features), 1.0


def varying(rows: NDArray[np.floating] | None) -> NDArray[np.bool_] | None:
    """Which features take more than one value in ``rows``."""
    return None if rows is None else rows.max(axis=0) > rows.min(axis=0)
