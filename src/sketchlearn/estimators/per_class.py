"""What an estimator with one sketch for each class shares with others of its kind.

``fit(X, y)`` is ``fit_sketches(sketches of the rows of each class)``; ``partial_fit``,
``forget`` and ``merge`` are arithmetic on ``sketches_`` followed by ``fit_sketches``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.estimators.class_sketches import (
    added_sketches,
    refuse_forgetting,
    rest_of_sketches,
)
from sketchlearn.estimators.labelled_rows import open_labelled
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.classes import first_round_of
from sketchlearn.plans.scaling import warn_of_plan
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.labelled_rows import AbstractLabelledRows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractPerClassEstimator"]


class AbstractPerClassEstimator(AbstractSketchEstimator):
    """An estimator whose whole knowledge of the data is ``sketches_``."""

    rounds: int | None
    bounds: tuple[ArrayLike, ArrayLike] | None
    sketches_: dict[Any, Any]

    @abstractmethod
    def fit_sketches(self, sketches: Mapping[Any, Sketch | PrivateSketch]) -> Self:
        """Decode one sketch per class, made with a map from ``plan``."""

    @abstractmethod
    def _first_map(
        self, rows: NDArray[np.floating] | None, rounds: int
    ) -> AbstractFeatureMap:
        """One map for all classes: of the only round, or of the first of two."""

    @abstractmethod
    def _second_maps(
        self,
        first: Mapping[Any, Sketch | PrivateSketch],
        rows: NDArray[np.floating] | None,
    ) -> dict[Any, AbstractFeatureMap]:
        """A map for each class, from the sketches of the first of two rounds."""

    @override
    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch the rows of each class, in one pass or two, and decode the sketches.

        Parameters
        ----------
        X : rows
            Array, frame or tensor; Arrow table, query, or path, URL or glob of files,
            with the name of a column of whole numbers for ``y``.
        y : array of shape (n,), or str
            Classes, or the name of the column that holds them.

        Returns
        -------
        self
        """
        self._check_parameters()
        with self._all_or_nothing():
            rows = self._open_labelled(X, y, reset=True)
            return self.fit_sketches(self._sketch_classes(rows, {}))

    @override
    def partial_fit(
        self, X: Any, y: Any = None, classes: ArrayLike | None = None
    ) -> Self:
        """Add rows; the first call plans and fits. ``classes`` is not needed."""
        with self._all_or_nothing():  # new classes are planned from those that are
            if not hasattr(self, "sketches_"):
                return self.fit(X, y)
            self._check_parameters()
            rows = self._open_labelled(X, y, reset=False)
            known = {c: sketch.feature_map for c, sketch in self.sketches_.items()}
            more = self._named_passes(rows.sketches(known), "added")
            if rows.labels() - known.keys():
                others = rows.without(known.keys())
                more |= self._sketch_classes(others, self.sketches_)
            return self.fit_sketches(added_sketches(self.sketches_, more))

    @override
    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows of known classes out again, exactly.

        Warns
        -----
        DataPlanWarning
            If scales or cells were read from the data: the totals forget exactly, the
            plan does not.
        """
        check_is_fitted(self, "sketches_")
        self._check_parameters()
        with self._all_or_nothing():
            known = {c: sketch.feature_map for c, sketch in self.sketches_.items()}
            rows = self._open_labelled(X, y, reset=False)
            gone = self._named_passes(rows.sketches(known), "forgotten")
            rest = rest_of_sketches(self.sketches_, gone)
            for label in rows.labels() - known.keys():
                refuse_forgetting(label)
            self.fit_sketches(rest)
            warn_of_plan(*known.values())
        return self

    @override
    def merge(self, other: Self) -> Self:
        """Add what another fitted classifier of the same plan has seen."""
        check_is_fitted(self, "sketches_")
        check_is_fitted(other, "sketches_")
        theirs = other.sketches_
        with self._all_or_nothing():
            return self.fit_sketches(added_sketches(self.sketches_, theirs))

    @override
    def fit_sketch(self, sketch: Any) -> Self:
        """The same as :meth:`fit_sketches`: one sketch for each class."""
        return self.fit_sketches(sketch)

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return LocalRows(self._open_labelled(X, y, reset=reset).batches)

    @override
    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        raise FeatureMapError(
            "a classifier has a sketch for each class: sketch the rows of each with a "
            "map of plan(n_features), and pass them to fit_sketches."
        )

    def _sketch_classes(
        self, rows: AbstractLabelledRows, known: Mapping[Any, Sketch]
    ) -> dict[Any, Sketch]:
        """Sketches of classes without a map: as those of ``known``, or planned."""
        extremes = None
        if known:
            start, twice = first_round_of(known.values())
        else:
            twice = not self._is_one_pass
            declared = self.bounds is not None and not twice
            extremes = None if declared else rows.extremes()
            start = self._first_map(extremes, 1 + twice)
        sketches = rows.sketches(start)
        if not twice:
            return sketches
        maps = self._second_maps({**known, **sketches}, extremes)
        return rows.sketches({label: maps[label] for label in sketches})

    @property
    def _is_one_pass(self) -> bool:
        """Whether the rows are sketched once."""
        return self.rounds == 1 or (self.rounds is None and self.bounds is not None)

    def _open_labelled(self, X: Any, y: Any, *, reset: bool) -> AbstractLabelledRows:
        is_read_once = reset and self._is_one_pass
        return open_labelled(self, X, y, reset=reset, is_read_once=is_read_once)
