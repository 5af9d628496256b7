"""Rows in memory, as scikit-learn checks them, and what has to be in memory."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from scipy.sparse import hstack, issparse
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import validate_data

from sketchlearn.errors import RowsError
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.kinds import (
    OpenedRows,
    RowsKind,
    is_in_memory,
    is_learned,
    kind_of,
    learned,
)
from sketchlearn.rows.open_rows import open_rows

__all__ = [
    "beside_targets",
    "learned_like",
    "learned_output",
    "require_in_memory",
    "require_no_text",
    "require_read_again",
    "rows_in_memory",
    "validated",
    "with_targets",
    "with_text_names",
]

_Rows = TypeVar("_Rows")


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


def require_read_again(X: Any) -> None:
    """Refuse rows that cannot be read once more, to be labelled after a fit."""
    kind = kind_of(X)
    if kind.is_read_once:
        raise RowsError(
            "a stream cannot be read again to label its rows. Nothing was read. Call "
            "fit, and predict for each batch, or pass an array or files."
        )
    opened = getattr(X, "dataset", None) if isinstance(X, OpenedRows) else None
    if kind is RowsKind.ENGINE or opened is not None:
        raise RowsError(
            "rows of an engine are not read here, so that they are not labelled here. "
            "Nothing was read. Call fit, and map predict over the partitions."
        )


def validated(estimator: Any, X: Any, *targets: Any, **options: Any) -> Any:
    """Rows in memory, checked by scikit-learn; text for the names of a frame.

    It adds rows up to see whether they are finite, which huge ones are all the same.
    A single column is refused before, since its message would print the values.
    """
    if len(getattr(X, "shape", (0, 0))) == 1:
        open_rows(X)  # says what to do with a single column
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return validate_data(estimator, with_text_names(X), *targets, **options)
    except ValueError:
        if not isinstance(X, np.ndarray):
            open_rows(X)  # names the column at fault, if one is
        raise


def learned_like(X: Any, rows: Any) -> Any:
    """Rows that were made of ``X``, marked if its columns were learned from rows."""
    return learned(rows) if is_learned(X) else rows


def learned_output(estimator: Any, X: Any, rows: _Rows) -> _Rows:
    """What ``transform`` gives for ``X`` if what it does was learned from rows.

    In the container that the user asked for, marked.
    """
    framed: _Rows = _wrap_data_with_container("transform", rows, X, estimator)
    return learned(framed)


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


def with_targets(rows: Any, targets: Any) -> Batches:
    """Checked rows, and their targets in columns beside them."""
    table = np.asarray(targets).reshape(len(targets), -1)
    if issparse(rows):
        return open_rows(hstack([rows, table], format="csr"))
    floats = rows
    if rows.dtype.kind != "f":  # targets beside whole numbers may round them
        floats = np.concatenate(list(open_rows(rows)))
    return open_rows(learned_like(rows, np.concatenate([floats, table], axis=1)))


def require_no_text(targets: Any) -> None:
    """Refuse words where numbers are to be predicted, and not the rows beside them."""
    found = np.asarray(targets)
    texts = found.dtype.kind == "O" and any(isinstance(v, str) for v in found.flat)
    if texts or found.dtype.kind in "SU":
        raise RowsError(
            "the target y is text, and not numbers. Cast it with astype(float) if it "
            "holds numbers; classes are for CompressiveClassifier."
        )


def rows_in_memory(estimator: Any, X: Any, *, allow_sparse: bool) -> Any:
    """Rows for ``transform`` or ``predict``: dense, or a sparse matrix."""
    if kind_of(X) is RowsKind.ENGINE:
        raise RowsError(
            "this takes rows in memory, and those of an engine are not read here. Map "
            "transform or predict over its partitions."
        )
    if not is_in_memory(X):
        kinds = "array, frame or sparse matrix" if allow_sparse else "array or frame"
        raise RowsError(
            f"this takes rows in memory: an {kinds}. Read files batch by batch "
            "(sketchlearn.open_rows) and pass each batch."
        )
    sparse = "csr" if allow_sparse else False
    floats = [np.float64, np.float32]
    return validated(estimator, X, reset=False, accept_sparse=sparse, dtype=floats)
