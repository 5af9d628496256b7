"""Opening rows with their classes, as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from sketchlearn.engines.open_source import labelled_source
from sketchlearn.errors import RowsError
from sketchlearn.estimators.inputs import beside_targets, learned_like, validated
from sketchlearn.rows.kinds import kind_of
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.labelled_rows import AbstractLabelledRows, LabelledRows

__all__ = ["open_labelled"]


def open_labelled(
    estimator: Any, X: Any, y: Any, *, reset: bool, is_read_once: bool
) -> AbstractLabelledRows:
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
    opened = open_rows(learned_like(X, rows), above=above)
    return LabelledRows(opened, labels, names=names)


def _open_named(estimator: Any, X: Any, y: str, *, reset: bool) -> AbstractLabelledRows:
    try:
        batches = open_rows(X)
    except RowsError as error:
        if f"column {y!r} of" not in str(error):
            raise
        raise RowsError(
            f"the classes in column {y!r} are no numbers. Number them, or pass rows in "
            "memory without that column, and an array of classes as y."
        ) from error
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
    return labelled_source(batches, names=tuple(features))
