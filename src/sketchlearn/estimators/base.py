"""What every estimator shares: rows in, one sketch kept, parameters decoded from it.

``fit(X)`` is ``fit_sketch(sketch of X)``; ``partial_fit``, ``forget`` and ``merge``
are arithmetic on ``sketch_`` followed by ``fit_sketch``. Estimators hold no
mathematics of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sketchlearn.engines.open_source import open_row_source
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    RemovalError,
    RowsError,
)
from sketchlearn.estimators.inputs import (
    learned_like,
    learned_output,
    rows_in_memory,
    validated,
)
from sketchlearn.estimators.parameters import Constraints, require_parameters
from sketchlearn.estimators.turns import AbstractTurns
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.scaling import (
    check_bounds,
    varies,
    warn_of_late,
    warn_of_plan,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.kinds import is_learned, kind_of, learned
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractSketchEstimator", "require_sketch"]

_Rows = TypeVar("_Rows")


class AbstractSketchEstimator(AbstractTurns, ABC, BaseEstimator):
    """An estimator whose whole knowledge of the data is ``sketch_``."""

    _parameter_constraints: Constraints
    """What each parameter may be (:mod:`sketchlearn.estimators.parameters`)."""

    @abstractmethod
    def fit_sketch(self, sketch: Sketch | PrivateSketch) -> Self:
        """Decode a sketch made with a map from ``plan``."""

    @abstractmethod
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        """Rows of ``X`` (and ``y``) as the estimator sketches them."""

    @abstractmethod
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        """A map for rows like these; none are needed where bounds are declared."""

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense, before a row is read."""
        require_parameters(self)
        for name in ("bounds", "target_bounds"):
            if getattr(self, name, None) is not None:
                check_bounds(name, getattr(self, name))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch the rows and decode the sketch.

        The model is the same for an array, a frame, a file and an iterator of the
        same rows. Without declared bounds, rows are looked at before they are
        sketched: all of them, but of an iterator, which can be read only once, the
        first 65,536; where it is longer and its later rows are different, the model
        is another one, and says so.

        Parameters
        ----------
        X : rows
            Array, frame, Arrow table, sparse matrix, tensor, generator of batches,
            query, or path, URL or glob of files: see :func:`sketchlearn.open_rows`.
        y : targets
            Ignored, except by estimators that predict.

        Returns
        -------
        self

        Warns
        -----
        ConvergenceWarning
            If features that were constant in the first rows of an iterator vary later.
        """
        self._check_parameters()
        with self._all_or_nothing():
            return self.fit_sketch(self._sketch_new(X, y))

    def sketch(self, X: Any, y: Any = None) -> Sketch:
        """The sketch that ``fit`` would decode, planned and made; nothing is fitted.

        Parameters
        ----------
        X, y : rows and targets
            As for ``fit``.

        Returns
        -------
        Sketch
            For ``fit_sketch``, here or elsewhere.
        """
        self._check_parameters()
        with self._unchanged():
            return self._sketch_new(X, y)

    def _sketch_new(self, X: Any, y: Any) -> Sketch:
        """Open rows, and sketch them if they can be, before one of them is read."""
        if getattr(self, "rounds", None) == 2 and kind_of(X).is_read_once:
            raise RowsError(
                f"rounds=2 needs the rows twice, and a {type(X).__name__} cannot be "
                "read twice. Nothing was read. Pass an array, a frame or files, or "
                "rounds=1."
            )
        rows = self._open(X, y, reset=True)
        self._check_width(rows.n_features)
        return self._sketch(rows)

    def _check_width(self, n_features: int) -> None:
        """Refuse parameters that make no sense for rows of so many numbers."""

    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        """Plan a map for these rows and sketch them with it."""
        if getattr(self, "bounds", None) is not None:  # nothing is read ahead
            return rows.sketch(self._plan(np.empty((0, rows.n_features))))
        extremes = rows.extremes()
        sketch = rows.sketch(self._plan(extremes))
        warn_of_late(sketch, extremes[0] == extremes[1])
        return sketch

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows to what was fitted; the first call plans and fits.

        Returns
        -------
        self
        """
        with self._turn():
            if not hasattr(self, "sketch_"):
                return self.fit(X, y)
        self._check_parameters()
        self._require_whole("add rows")
        rows = self._open(X, y, reset=False)
        more = self._named_pass(self._sketch_alike(rows), "added")
        with self._all_or_nothing():
            self._keep(rows, more)
            whole = self.sketch_ + more
            self._warn_of_late(whole)
            return self.fit_sketch(whole)

    def _sketch_alike(self, rows: AbstractRowSource) -> Sketch:
        """A sketch of other rows that fits the one that was fitted."""
        sketch = self.sketch_
        return rows.sketch(sketch.feature_map, pooling=sketch.pooling)

    def _keep(self, rows: AbstractRowSource, sketch: Sketch) -> None:
        """Keep what is to be known of rows that are added, beside their sketch."""

    def _require_known(self, rows: AbstractRowSource) -> None:
        """Refuse to forget rows that were never added, where that shows."""

    def _warn_of_late(self, whole: Sketch) -> None:
        """Warn of what new rows have and the plan has no room for."""
        warn_of_late(whole, ~varies(self.sketch_))

    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows out again, exactly: as if they had never been seen.

        A sketch is a sum and does not know its rows: taking out rows that were never
        fitted leaves a model of nothing that exists. That is refused where it shows,
        because more rows would be taken out than there are, or what remains could be
        the sum of no rows (a negative variance, a cell with fewer than no rows).

        Parameters
        ----------
        X, y : rows and targets
            Rows that were fitted before, each as often as it was.

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
        self._check_parameters()
        self._require_whole("forget rows")
        feature_map = self.sketch_.feature_map
        rows = self._open(X, y, reset=False)
        gone = self._named_pass(self._sketch_alike(rows), "forgotten")
        with self._all_or_nothing():
            self._require_known(rows)
            rest = self.sketch_ - gone
            if rest.count == 0:
                raise RemovalError(
                    f"these are all {self.sketch_.count} rows of the model; nothing "
                    "would be left to fit. Nothing was forgotten: discard the "
                    "estimator and its sketch_ instead."
                )
            self.fit_sketch(rest)
            warn_of_plan(feature_map)
        return self

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
        with other._turn():
            seen = copy(other)
        with self._all_or_nothing():
            self._adopt(seen)
            try:
                whole = self.sketch_ + seen.sketch_
            except FeatureMapMismatch as error:
                if getattr(self, "bounds", ()) is not None:
                    raise
                raise FeatureMapMismatch(
                    f"{error} Without bounds every estimator plans for its own rows: "
                    "declare the same bounds=(low, high) for both and fit them again, "
                    "or sketch the other rows with the map of this one: "
                    "sketch_rows(rows, estimator.sketch_.feature_map)."
                ) from error
            return self.fit_sketch(whole)

    def _adopt(self, other: Self) -> None:
        """Take over what another one knows beside its sketch."""

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

    def _open_features(self, X: Any, *, reset: bool) -> AbstractRowSource:
        """Open ``X`` and keep scikit-learn's record of its width and names."""
        if not kind_of(X).is_validated:
            return self._open_aligned(X, reset=reset)
        above = getattr(self, "binarize", None)
        if hasattr(X, "columns"):  # a frame: open_rows names the column at fault
            batches = open_rows(X, above=above)
            validated(self, X, reset=reset, skip_check_array=True)
            return LocalRows(batches)
        checked = validated(self, X, reset=reset, accept_sparse="csr")
        return LocalRows(open_rows(learned_like(X, checked), above=above))

    def _open_aligned(self, X: Any, *, reset: bool) -> AbstractRowSource:
        """Open files or a stream, the columns in the order of those fitted."""
        rows = open_row_source(X, above=getattr(self, "binarize", None))
        if reset:
            self.n_features_in_ = rows.n_features
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            if rows.names is not None:
                self.feature_names_in_ = np.array(rows.names, object)
            return rows
        names = getattr(self, "feature_names_in_", None)
        if names is None or rows.names is None:
            return rows.of_width(self.n_features_in_)
        return rows.select(list(names))

    def _learned_rows(self, X: Any, rows: _Rows, *, framed: bool = True) -> _Rows:
        """Rows that were computed of ``X`` with what was fitted, marked as such.

        What was fitted to a release is public, and its rows are as those of ``X``.
        ``framed``: in the container that scikit-learn's ``set_output`` asks for.
        """
        if isinstance(self.sketch_, PrivateSketch) and not is_learned(X):
            return rows
        return learned_output(self, X, rows) if framed else learned(rows)

    def _batches(self, X: Any) -> Iterator[NDArray[np.floating]]:
        """Rows that were fitted, once more and batch by batch."""
        rows = self._open(X, None, reset=False)
        if not isinstance(rows, LocalRows):
            raise RowsError(
                f"the rows of {rows.source} are not read here. Call fit, and predict "
                "where the rows are."
            )
        return iter(rows.batches)

    def _check_rows(self, X: Any) -> NDArray[np.floating]:
        """Rows for ``transform`` or ``predict``, dense."""
        check_is_fitted(self, "sketch_")
        rows = rows_in_memory(self, X, allow_sparse=True)
        dense: NDArray[np.floating] = rows.toarray() if issparse(rows) else rows
        return dense


def require_sketch(sketch: Any) -> None:
    """Refuse what is no sketch."""
    if not isinstance(sketch, Sketch | PrivateSketch):
        raise RowsError(
            f"fit_sketch takes a sketch; got {type(sketch).__name__}. Rows are for "
            "fit, or for sketch_rows with the map of plan(n_features)."
        )
