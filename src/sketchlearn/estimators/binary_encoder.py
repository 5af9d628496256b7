"""Zeros and ones for scikit-learn: what an autoencoder of bits is fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_is_fitted,
    validate_data,
)

from sketchlearn.errors import RowsError, quote
from sketchlearn.estimators.inputs import learned_output, validated, with_text_names
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    RANDOM_STATE,
    Constraints,
    one_of,
    require_parameters,
    seed_of,
)
from sketchlearn.rows.binary_columns import (
    KEPT_COLUMNS,
    MOST_CATEGORIES,
    BinaryColumns,
    BinaryRule,
)
from sketchlearn.rows.kinds import RowsKind, is_in_memory, is_learned, kind_of
from sketchlearn.rows.mixed_tables import mixed_table

__all__ = ["BinaryEncoder"]
__public__ = ["BinaryEncoder"]

_FRAMES = (RowsKind.PANDAS, RowsKind.POLARS, RowsKind.FRAME, RowsKind.ARROW)


@final
class BinaryEncoder(TransformerMixin, BaseEstimator):
    """Numbers and categories as zeros and ones, in the same columns every time.

    A number becomes 1 above a threshold: the median of its column, the lower one of two
    values, or 127 where all columns are 8-bit pixels. Columns of text, and of 3 to
    ``max_categories`` different numbers, have one column for each category (paper,
    section Autoencoders).

    This is no sketch: rows are read in memory, and medians and categories are a trace
    of them. What it gives is marked as learned, in arrays and frames, and no sketch of
    it is released. Declare the thresholds and categories of all columns: then nothing
    is learned from rows, and nothing is marked.

    Parameters
    ----------
    n_columns : int
        Most columns to keep; a wider table keeps a random choice, in order.
    max_categories : int
        A column of more than 2 and at most so many different numbers is one of
        categories. Text always is.
    thresholds : float or mapping of column to float, optional
        Declared thresholds, by names of a frame or by positions; one number is that of
        all columns that have no declared categories.
    categories : mapping of column to sequence, optional
        Declared categories, likewise.
    handle_unknown : {"ignore", "error"}
        What to do with categories that were not seen: all columns of the category are
        0, or an error. Missing text is likewise no known category.
    random_state : int
        Seed of the choice of columns. None is 0.

    Attributes
    ----------
    columns_ : BinaryColumns
        Thresholds, categories and which columns are kept.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only for frames.

    Examples
    --------
    >>> import pandas as pd, sketchlearn as sl
    >>> people = pd.DataFrame(
    ...     {"age": [20, 31, 64], "city": ["Rome", "Oslo", "Rome"]}
    ... )
    >>> encoder = sl.BinaryEncoder(thresholds={"age": 30}).fit(people)
    >>> encoder.get_feature_names_out()
    array(['age>30', 'city=Oslo', 'city=Rome'], dtype=object)
    >>> encoder.transform(pd.DataFrame({"age": [50, 8], "city": ["Oslo", "Bonn"]}))
    array([[1, 1, 0],
           [0, 0, 0]], dtype=uint8)
    """

    _parameter_constraints: Constraints = {
        "n_columns": [AT_LEAST_ONE],
        "max_categories": [AT_LEAST_ONE],
        "thresholds": [Real, Mapping, None],
        "categories": [Mapping, None],
        "handle_unknown": one_of("ignore", "error"),
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        *,
        n_columns: int = KEPT_COLUMNS,
        max_categories: int = MOST_CATEGORIES,
        thresholds: float | Mapping[str | int, float] | None = None,
        categories: Mapping[str | int, Sequence[Any]] | None = None,
        handle_unknown: Literal["ignore", "error"] = "ignore",
        random_state: int = 0,
    ) -> None:
        self.n_columns = n_columns
        self.max_categories = max_categories
        self.thresholds = thresholds
        self.categories = categories
        self.handle_unknown = handle_unknown
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn thresholds and categories.

        Parameters
        ----------
        X : array, list of rows, pandas or polars frame, or Arrow table
            Numbers; text in frames, lists and arrays of objects.
        y : object
            Ignored.

        Returns
        -------
        self
        """
        require_parameters(self)
        rows = self._read(X, reset=True)
        self.columns_ = BinaryColumns.learn(
            rows,
            n_columns=self.n_columns,
            max_categories=self.max_categories,
            seed=seed_of(self.random_state),
            declared=self._declared(),
        )
        return self

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Zeros and ones of rows of the same table.

        Returns
        -------
        uint8 array of shape (n, len(get_feature_names_out()))
        """
        check_is_fitted(self, "columns_")
        rows = self._read(X, reset=False)
        refuse = self.handle_unknown == "error"
        bits = self.columns_.apply(rows, refuse_unknown=refuse)
        if self.columns_.is_learned or is_learned(X):
            bits = learned_output(self, X, bits)
        return bits

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names such as ``"age>37"`` and ``"city=Oslo"``.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns of arrays, by default x0, x1 and so on.
        """
        check_is_fitted(self, "columns_")
        names = _check_feature_names_in(self, input_features)
        return np.array(self.columns_.names(list(map(str, names))), object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _read(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """All rows, and scikit-learn's record of their width and names."""
        if not is_in_memory(X):
            raise RowsError(
                "BinaryEncoder takes rows in memory: an array, a list of rows, a frame "
                "or an Arrow table. Learn from a sample of the rows, and transform "
                "files and streams batch by batch."
            )
        kind = kind_of(X)
        if kind in _FRAMES:
            rows = mixed_table(X)
            validate_data(self, with_text_names(X), reset=reset, skip_check_array=True)
            if not len(rows):
                raise RowsError("0 rows in the frame; at least 1 is needed.")
            return rows
        if kind is RowsKind.TENSOR:
            X = X.detach().cpu().numpy()
        elif kind is RowsKind.LIST and np.asarray(X).dtype.kind in "US":
            X = np.array(X, object)  # numbers beside text stay numbers
        checked: NDArray[Any] = validated(self, X, reset=reset, dtype=None)
        return checked

    def _declared(self) -> dict[int, BinaryRule]:
        """Rules that are not learned, by position."""
        known = self.categories or {}
        for column, listed in known.items():
            if isinstance(listed, str):
                raise RowsError(
                    f"categories of column {column!r} must be a list; got a text."
                )
        rules = {
            self._position("categories", column): BinaryRule(tuple(listed))
            for column, listed in known.items()
        }
        if self.thresholds is None:
            return rules
        if not isinstance(self.thresholds, Mapping):
            same = _threshold_rule(self.thresholds, "all columns")
            return {i: rules.get(i, same) for i in range(self.n_features_in_)}
        for column, value in self.thresholds.items():
            number = self._position("thresholds", column)
            if number in rules:
                raise RowsError(
                    f"column {column!r} has declared categories and a declared "
                    "threshold; declare one of them."
                )
            rules[number] = _threshold_rule(value, f"column {column!r}")
        return rules

    def _position(self, parameter: str, column: str | int) -> int:
        """Of a column that was declared."""
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        if column not in names:
            raise RowsError(
                f"{parameter} names the column {column!r}, which there is not: name "
                "columns of a frame by name, and those of an array by position, from 0 "
                f"to {self.n_features_in_ - 1}."
            )
        return names.index(column)


def _threshold_rule(value: Any, where: str) -> BinaryRule:
    """The rule of a declared threshold, which is one finite number."""
    if not isinstance(value, Real) or not np.isfinite(float(value)):
        raise RowsError(
            f"the threshold of {where} must be one finite number; got "
            f"{quote(value)} of type {type(value).__name__}."
        )
    return BinaryRule(threshold=float(value))
