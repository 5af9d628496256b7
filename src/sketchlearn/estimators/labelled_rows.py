"""Rows and their classes, sketched class by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from sketchlearn.errors import RowsError
from sketchlearn.estimators.inputs import beside_targets, validated
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.kinds import kind_of
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.sketch_rows import sketch_rows

__all__ = ["LabelledRows", "open_labelled"]


@final
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows, each with a class.

    Parameters
    ----------
    batches : Batches
        Features, and the class in a last column unless ``classes`` are given.
    classes : array of shape (n,), optional
        The class of each row. Without them the last column holds whole numbers.
    left_out : frozenset
        Classes whose rows are passed over.
    names : tuple of str, optional
        Of the features.
    """

    batches: Batches
    classes: NDArray[Any] | None = None
    left_out: frozenset[Any] = frozenset()
    names: tuple[str, ...] | None = None

    def without(self, labels: Iterable[Any]) -> LabelledRows:
        """The rows of all other classes."""
        return replace(self, left_out=self.left_out | frozenset(labels))

    def extremes(self) -> NDArray[np.float64]:
        """What a plan may know of the features of all rows."""
        found = LocalRows(self.batches).extremes()
        return found[:, :-1] if self.classes is None else found

    def labels(self) -> set[Any]:
        """The classes that have rows."""
        return {label for label, _ in self._groups()}

    def sketches(
        self, maps: Mapping[Any, AbstractFeatureMap] | AbstractFeatureMap
    ) -> dict[Any, Sketch]:
        """One sketch for each class that has rows and a map, or one map for all."""
        found: dict[Any, Sketch] = {}
        for label, rows in self._groups():
            phi = maps.get(label) if isinstance(maps, Mapping) else maps
            if phi is not None:
                part = sketch_rows(rows, phi, progress=False)
                part = replace(part, columns=self.names or part.columns)
                found[label] = found[label] + part if label in found else part
        return found

    def _groups(self) -> Iterator[tuple[Any, NDArray[np.floating]]]:
        """Rows of one class, batch by batch."""
        row = 0
        for batch in self.batches:
            features, classes = batch, batch[:, -1]
            if self.classes is None:
                features = batch[:, :-1]
            else:
                classes = self.classes[row : row + len(batch)]
                row += len(batch)
            for label in np.unique(classes).tolist():
                name = label if self.classes is not None else _whole(label)
                if name not in self.left_out:
                    yield name, features[classes == label]


def open_labelled(
    estimator: Any, X: Any, y: Any, *, reset: bool, is_read_once: bool
) -> LabelledRows:
    """Rows with their classes, and scikit-learn's record of their width and names.

    Parameters
    ----------
    estimator : estimator
        Keeps the record.
    X, y : rows and classes
        Or ``y`` is the name of their column.
    reset : bool
        Write the record, or else compare the rows with it.
    is_read_once : bool
        Whether a single pass is enough.
    """
    if y is None:
        raise RowsError(
            "requires y to be passed, but the target y is None. Pass the classes, "
            "or for files the name of their column."
        )
    above = getattr(estimator, "binarize", None)
    if isinstance(y, str):
        if above is not None:
            raise RowsError(
                "binarize is for all columns, and would make zeros and ones of the "
                f"classes in column {y!r} too. Make zeros and ones of the others "
                "before, or pass y as an array."
            )
        if kind_of(X).is_read_once and not is_read_once:
            raise RowsError(
                "a stream cannot be read twice, as classes need it. Nothing was read. "
                "Pass an array or files, or partial_fit for each batch."
            )
        return _open_named(estimator, X, y, reset=reset)
    X = beside_targets(X, "column of classes")
    is_sparse = estimator.__sklearn_tags__().input_tags.sparse
    accept = "csr" if is_sparse else False
    rows, labels = validated(estimator, X, y, reset=reset, accept_sparse=accept)
    check_classification_targets(labels)
    found = getattr(estimator, "feature_names_in_", None)
    names = None if found is None else tuple(found)
    return LabelledRows(open_rows(rows, above=above), labels, names=names)


def _open_named(estimator: Any, X: Any, y: str, *, reset: bool) -> LabelledRows:
    batches = open_rows(X)
    found = batches.names
    if found is None or y not in found:
        raise RowsError(
            f"y={y!r} names a column, but the data has "
            f"{'no names' if found is None else list(found)}."
        )
    features = [name for name in found if name != y]
    if not reset:
        features = list(getattr(estimator, "feature_names_in_", features))
    batches = batches.select([*features, y])
    if reset:
        estimator.n_features_in_ = len(features)
        estimator.feature_names_in_ = np.array(features, object)
    return LabelledRows(batches, names=tuple(features))


def _whole(code: float) -> int:
    """A class that a file holds as a number."""
    if not code.is_integer():
        raise RowsError(
            f"classes must be whole numbers in files; got {code:g}. Number the "
            "classes, or pass arrays."
        )
    return int(code)
