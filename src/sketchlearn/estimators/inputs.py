"""Rows in memory, as scikit-learn checks them, and what has to be in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from sketchlearn.errors import RowsError
from sketchlearn.rows.kinds import RowsKind, is_in_memory, kind_of
from sketchlearn.rows.open_rows import open_rows

__all__ = ["beside_targets", "require_in_memory", "validated", "with_text_names"]


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
