"""What an estimator shares whose rows may have classes, and need not.

Without ``y`` there is one sketch. With ``y`` each class has its own and their sum is
``sketch_``: rows come and go class by class.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.errors import RowsError
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.estimators.class_sketches import (
    added_sketches,
    classes_of,
    rest_of_sketches,
)
from sketchlearn.estimators.labelled_rows import open_labelled
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.labelled_rows import AbstractLabelledRows
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractClassedEstimator"]

_FEW = 20
"""So many classes are fine however few rows there are."""

_IGNORE = (
    "Pass per_class=False to ignore y, as in a pipeline that ends in a regression."
)


class AbstractClassedEstimator(AbstractSketchEstimator):
    """An estimator of one sketch, or of one for each class."""

    sketches_: dict[Any, Any]
    per_class: bool

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
            of batches, query, or path, URL or glob of files.
        y : array of shape (n,), or str, optional
            Classes, or the name of the column that holds them: each class gets a
            sketch of its own, rows are weighed between classes when they are encoded,
            and a code ends with these weights. Without it there are no classes.
            Rows other than in memory need a name. Ignored with ``per_class=False``.

        Returns
        -------
        self
        """
        if self._ignores(y):
            return super().fit(X)
        self._check_parameters()
        with self._all_or_nothing():
            return self.fit_sketch(self._sketch_classes(X, y))

    @override
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows, with their classes if there are classes; the first call fits."""
        with self._turn():
            if not hasattr(self, "sketch_"):
                return self.fit(X, y)
        if not self._has_classes(y):
            with self._in_range():
                return super().partial_fit(X)
        self._check_parameters()
        more = self._sketch_more(X, y, "added")
        with self._all_or_nothing(), self._in_range():
            return self.fit_sketch(added_sketches(self.sketches_, more))

    @override
    def forget(self, X: Any, y: Any = None) -> Self:
        """Take rows out again, exactly; with their classes if there are classes."""
        check_is_fitted(self, "sketch_")
        if not self._has_classes(y):
            with self._in_range():
                return super().forget(X)
        self._check_parameters()
        gone = self._sketch_more(X, y, "forgotten")
        with self._all_or_nothing(), self._in_range():
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
        theirs = other.sketches_
        with self._all_or_nothing():
            return self.fit_sketch(added_sketches(self.sketches_, theirs))

    @override
    def sketch(self, X: Any, y: Any = None) -> Any:
        """The sketch that ``fit`` would decode, or one for each class; fits nothing."""
        if self._ignores(y):
            return super().sketch(X)
        self._check_parameters()
        with self._unchanged():
            return self._sketch_classes(X, y)

    def _sketch_classes(self, X: Any, y: Any) -> dict[Any, Sketch]:
        with self._in_range():
            rows = self._open_labelled(X, y, reset=True)
            return rows.sketches(self.plan(self.n_features_in_))

    def _sketch_more(self, X: Any, y: Any, verb: str) -> dict[Any, Sketch]:
        """Sketches of other rows of each class, that fit those that were fitted."""
        with self._in_range():
            rows = self._open_labelled(X, y, reset=False)
            found = rows.sketches(self.sketch_.feature_map)
        return self._named_passes(found, verb)

    def _ignores(self, y: Any) -> bool:
        """Whether there are no classes."""
        return y is None or not self.per_class

    def _open_labelled(self, X: Any, y: Any, *, reset: bool) -> AbstractLabelledRows:
        try:
            rows = open_labelled(self, X, y, reset=reset, is_read_once=True)
        except ValueError as error:
            if "Unknown label type" in str(error):
                raise RowsError(
                    f"Unknown label type: y holds no classes. {_IGNORE}"
                ) from None
            raise
        if rows.classes is not None:
            n_classes, n_rows = len(np.unique(rows.classes)), len(rows.classes)
            if n_classes > max(_FEW, n_rows / 10):
                raise RowsError(
                    f"y has {n_classes} different values for {n_rows} rows: these are "
                    f"no classes. {_IGNORE}"
                )
        return rows

    def _has_classes(self, y: Any) -> bool:
        """Whether rows come with classes, as those that were fitted did or did not."""
        known = hasattr(self, "sketches_")
        if known == self._ignores(y):
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
