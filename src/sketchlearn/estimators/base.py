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
from copy import deepcopy
from dataclasses import replace
from functools import cache
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.low_rank import Moments, NystromDecoder, second_moment_part
from sketchlearn.elementary import ceil_log2
from sketchlearn.errors import (
    DataPlanWarning,
    FeatureMapError,
    RemovalError,
    RowsError,
)
from sketchlearn.features.base import AbstractFeatureMap, require_positive_int
from sketchlearn.features.moments import (
    FINE_BITS,
    ROW_BITS,
    CrossMomentFeatures,
    MomentFeatures,
    omega_bits,
)
from sketchlearn.privacy import PrivateSketch
from sketchlearn.registry import load_model
from sketchlearn.rows.batches import Batches, open_rows
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch, accumulate

__all__ = [
    "PLANNING_ROWS",
    "AbstractSketchEstimator",
    "extremes_of",
    "is_streamed",
    "moment_decoder",
    "plan_scaling",
    "plan_second_moments",
    "require_sketch",
    "seed_of",
    "varying",
]

PLANNING_ROWS = 65_536
"""Without declared bounds, scales are read from this many first rows."""

_QUARTILE_ROWS = 4096
_NARROW = 2.0**-12
"""Quartiles closer than this part of the range need a finer rounding."""

DATA_REACH = 32.0
"""Later values may lie this much farther out than those the scales were read from."""


LEARNED = "pca-equivariant"
"""Model behind ``decoder="learned"``."""


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


def plan_second_moments(
    *,
    n_features: int,
    sketch_size: int,
    n_targets: int = 0,
    scaling: Scaling,
    reach: float,
    rows: NDArray[np.floating] | None = None,
    importance: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> MomentFeatures | CrossMomentFeatures:
    r"""The map whose sketch holds as much of the second moment as there is room for.

    All of it when :math:`d(d+1)/2` numbers fit in ``sketch_size``, otherwise
    :math:`R\Omega` with as many columns as fit. Constant features get no room; where
    even one column for each active feature is too much, or leaving a few features out
    makes room for a second or third column, the most important ones are kept, or
    random ones. Means and variances come beside.

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
    rows : array of shape (n, n_features), optional
        What the scaling was read from, if it was: features that do not vary in it get
        no room, and narrow ones a finer rounding.
    importance : array of shape (n_features,), optional
        Weights of the features in Ω.
    seed : int
        Seed of Ω and of the subset.
    """
    d, targets = n_features, np.arange(n_features - n_targets, n_features)
    require_positive_int("sketch_size", sketch_size)
    active = varying(rows) if scaling.origin == "data" else None
    seen = active is not None and _is_seen(rows, active)
    if d * (d + 1) // 2 <= sketch_size:
        return MomentFeatures(
            d,
            order="covariance",
            targets=targets.tolist(),
            reach=reach,
            bits=_row_bits(seen, reach),
            scaling=scaling,
        )
    chosen = np.arange(d) if active is None else np.flatnonzero(active)
    chosen = np.setdiff1d(chosen, targets)
    room = sketch_size // (1 + n_targets) - n_targets
    if room < 1:
        raise FeatureMapError(
            f"sketch_size={sketch_size} is too small for {n_targets} targets: use at "
            f"least {(1 + n_targets) ** 2}."
        )
    if not n_targets:
        room = _worth_keeping(len(chosen), room)
    if len(chosen) > room:
        chosen = np.random.default_rng(seed).permutation(chosen)
        if importance is not None:
            chosen = chosen[np.argsort(-importance[chosen], kind="stable")]
        chosen = chosen[:room]
    kept = np.union1d(chosen, targets)
    if not len(kept):
        kept = np.array([0])
    n_columns = min(max(1, sketch_size // len(kept) - n_targets), len(kept))
    extra = omega_bits(len(kept), n_columns, is_weighted=importance is not None)
    return CrossMomentFeatures(
        d,
        n_columns,
        kept=kept,
        targets=targets.tolist(),
        importance=None if importance is None else importance[kept],
        reach=reach,
        bits=_row_bits(seen, reach, extra),
        seed=seed,
        scaling=scaling,
    )


def _is_seen(rows: NDArray[np.floating] | None, active: NDArray[np.bool_]) -> bool:
    """Whether few bits of the range of these rows resolve most of them.

    Not where a feature was constant so far, or where half of its rows lie within a
    tiny part of its range.
    """
    if rows is None or not active.all():
        return False
    low = np.quantile(rows, 0.25, axis=0, method="higher")
    high = np.quantile(rows, 0.75, axis=0, method="lower")
    width = (rows.max(axis=0) / 2 - rows.min(axis=0) / 2) * _NARROW
    return not ((high > low) & (high - low < width)).any()


def _row_bits(seen: bool, reach: float, extra: int = 0) -> int:
    """Bits of rounded rows: few where their range was seen, else as many as go.

    Declared bounds may be a million times wider than the rows; only a fine rounding
    keeps what is narrow within them. Ω takes ``extra`` bits of the room.
    """
    most = min(53 - extra, (2 * FINE_BITS - extra) // 2) - ceil_log2(reach)
    return min(ROW_BITS, most) if seen else most


def _worth_keeping(n_active: int, sketch_size: int) -> int:
    """How many features to keep so that what is left fills the sketch best.

    A second or third column is worth a tenth of the features, or a fifth of many:
    measured on meta-training data, with the learned decoder.
    """
    columns, share = sketch_size // max(n_active, 1), 0.8 if n_active > 100 else 0.9
    more = sketch_size // (columns + 1)
    if columns in (1, 2) and more >= share * n_active:
        return more
    return sketch_size


def moment_decoder(
    name: str, sketch: Sketch | PrivateSketch, *, with_doubt: bool = False
) -> AbstractDecoder[Moments]:
    """The decoder an estimator's ``decoder`` names, for a sketch of second moments.

    A sketch that holds all of them needs no learned decoder.
    """
    if name not in ("learned", "nystrom"):
        raise FeatureMapError(f"decoder must be 'learned' or 'nystrom'; got {name!r}.")
    part, _ = second_moment_part(sketch.feature_map)
    if name == "nystrom" or isinstance(part, MomentFeatures):
        return NystromDecoder(with_doubt=with_doubt)
    learned: AbstractDecoder[Moments] = replace(
        _learned_decoder(), with_doubt=with_doubt
    )
    return learned


@cache
def _learned_decoder() -> Any:
    return load_model(LEARNED)


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
    """A seed from what scikit-learn calls ``random_state``; None is 0.

    A generator is not advanced: the same estimator plans the same map every time.
    """
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(deepcopy(random_state).randint(2**31))
    whole = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise FeatureMapError(
            f"random_state must be a whole number >= 0 or None; got {random_state!r}."
        )
    return int(random_state)


def varying(rows: NDArray[np.floating] | None) -> NDArray[np.bool_] | None:
    """Which features take more than one value in ``rows``."""
    return None if rows is None else rows.max(axis=0) > rows.min(axis=0)
