"""What an estimator shares whose rows may have classes, and need not.

Without ``y`` there is one sketch. With ``y`` each class has its own and their sum is
``sketch_``: rows come and go class by class.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.errors import RowsError
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.estimators.class_sketches import (
    added_sketches,
    classes_of,
    rest_of_sketches,
)
from sketchlearn.estimators.labelled_rows import LabelledRows, open_labelled
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractClassedEstimator"]


class AbstractClassedEstimator(AbstractSketchEstimator):
    """An estimator of one sketch, or of one for each class."""

    sketches_: dict[Any, Any]

    @abstractmethod
    def plan(self, n_features: int) -> AbstractFeatureMap:
        """The feature map of all classes."""

    @abstractmethod
    def fit_sketch(self, sketch: Any) -> Self:
        """Decode one sketch, or a mapping from each class to its own."""

    @abstractmethod
    def _in_range(self) -> AbstractContextManager[None]:
        """Says what to do about rows outside of the plan."""

    @override
    def fit(self, X: Any, y: Any = None) -> Self:
        """Sketch the rows, or those of each class, and decode the sketch.

        Parameters
        ----------
        X : rows
            Zeros and ones: array, frame, Arrow table, sparse matrix, tensor, generator
            of batches, or path or glob of Parquet, CSV or Arrow files.
        y : array of shape (n,), or str, optional
            Classes, or the name of the column that holds them: each class gets a
            sketch of its own, rows are weighed between classes when they are encoded,
            and a code ends with these weights. Without it there are no classes.
            Numbers that are no classes, such as what a later step of a pipeline is to
            predict, are ignored.

        Returns
        -------
        self
        """
        if _no_classes(y):
            return super().fit(X)
        self._check_parameters()
        with self._all_or_nothing(), self._in_range():
            rows = self._open_labelled(X, y, reset=True)
            phi = self.plan(self.n_features_in_)
            return self.fit_sketch(rows.sketches(phi))

    @override
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows, with their classes if there are classes; the first call fits."""
        if not hasattr(self, "sketch_"):
            return self.fit(X, y)
        if not self._has_classes(y):
            with self._in_range():
                return super().partial_fit(X)
        self._check_parameters()
        with self._all_or_nothing(), self._in_range():
            rows = self._open_labelled(X, y, reset=False)
            more = rows.sketches(self.sketch_.feature_map)
            return self.fit_sketch(added_sketches(self.sketches_, more))

    @override
    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows out again, exactly; with their classes if there are classes."""
        check_is_fitted(self, "sketch_")
        if not self._has_classes(y):
            with self._in_range():
                return super().forget(X)
        self._check_parameters()
        with self._all_or_nothing(), self._in_range():
            rows = self._open_labelled(X, y, reset=False)
            gone = rows.sketches(self.sketch_.feature_map)
            return self.fit_sketch(rest_of_sketches(self.sketches_, gone))

    @override
    def merge(self, other: Self) -> Self:
        """Add what another fitted one of the same plan has seen."""
        check_is_fitted(self, "sketch_")
        check_is_fitted(other, "sketch_")
        if hasattr(self, "sketches_") != hasattr(other, "sketches_"):
            raise RowsError(
                "one of these has classes and the other has none. Fit both with y, or "
                "merge their sketch_ and call fit_sketch."
            )
        if not hasattr(self, "sketches_"):
            return super().merge(other)
        with self._all_or_nothing():
            return self.fit_sketch(added_sketches(self.sketches_, other.sketches_))

    def _open_labelled(self, X: Any, y: Any, *, reset: bool) -> LabelledRows:
        return open_labelled(self, X, y, reset=reset, is_read_once=True)

    def _has_classes(self, y: Any) -> bool:
        """Whether rows come with classes, as those that were fitted did or did not."""
        known = hasattr(self, "sketches_")
        if known == _no_classes(y):
            raise RowsError(
                "this was fitted with classes: pass y with the rows."
                if known
                else "this was fitted without classes: leave y out, or fit with y."
            )
        return known

    def _remember_classes(
        self, parts: dict[Any, Sketch | PrivateSketch] | None
    ) -> None:
        if parts is None:
            for name in ("classes_", "sketches_"):
                self.__dict__.pop(name, None)
            return
        self.classes_, self.sketches_ = classes_of(parts), parts


def _no_classes(y: Any) -> bool:
    """Whether there are no classes, or numbers that are none."""
    if y is None or isinstance(y, str):
        return y is None
    return type_of_target(y) not in ("binary", "multiclass")
