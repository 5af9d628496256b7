"""Binary columns: how a table of numbers and categories becomes zeros and ones.

What is learned from some rows (thresholds, categories) is a value, and applied again to
other rows of the same table. Where the rows come from is not known here: they are an
array of numbers, or one of objects whose columns are numbers or text each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError

__all__ = ["KEPT_COLUMNS", "MOST_CATEGORIES", "BinaryColumns", "BinaryRule"]

KEPT_COLUMNS = 1000
"""Columns kept at random of wider tables, as in the paper."""

MOST_CATEGORIES = 10
"""A column of so few different numbers is one of categories."""

_DARKEST = 127
"""Pixels above are 1. 8-bit tables without such a number are no images."""

_BITS = "biu"
"""Kinds of NumPy types that are never NaN or infinite."""


@final
@dataclass(frozen=True)
class BinaryRule:
    """How one column becomes zeros and ones: by a threshold or by categories.

    Examples
    --------
    >>> BinaryRule(threshold=3.0).names("age"), BinaryRule(("a", "b")).names("kind")
    (['age>3'], ['kind=a', 'kind=b'])
    """

    categories: tuple[Any, ...] = ()
    """Each becomes a column, which is 1 where the value is this one."""

    threshold: float | None = None
    """The one column is 1 where the number is larger; only without categories."""

    def __post_init__(self) -> None:
        if bool(self.categories) is (self.threshold is not None):
            raise RowsError("a column has either a threshold or at least one category.")
        if len(set(self.categories)) < len(self.categories):
            raise RowsError("the categories of a column are all different.")

    @property
    def width(self) -> int:
        """Columns of zeros and ones."""
        return len(self.categories) or 1

    @property
    def is_of_text(self) -> bool:
        """Whether its categories are text, and so the values of its column."""
        return isinstance(next(iter(self.categories), None), str)

    def names(self, column: str) -> list[str]:
        """Names of its columns."""
        if self.threshold is not None:
            return [f"{column}>{self.threshold:g}"]
        return [f"{column}={category}" for category in self.categories]

    def fill(
        self, bits: NDArray[np.uint8], column: NDArray[Any], kept: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Write the kept columns, and tell which values are of no known category.

        Parameters
        ----------
        bits : uint8 array of shape (n, len(kept))
            Where to write.
        column : array of shape (n,)
            Numbers or text.
        kept : array of int
            Which columns of this rule are kept, in order.
        """
        if self.threshold is not None:
            bits[:, 0] = column > self.threshold
            return np.zeros(len(column), bool)
        places = {category: place for place, category in enumerate(self.categories)}
        codes = np.array([places.get(value, -1) for value in column.tolist()], np.int64)
        bits[:] = codes[:, None] == kept
        return codes < 0


@final
@dataclass(frozen=True, eq=False)
class BinaryColumns:
    """Zeros and ones of the rows of a table, in the same columns every time.

    A number becomes 1 above a threshold: the median of its column (the next lower value
    where that is the largest), the lower one of two values, or 127 where the whole
    table is of 8-bit integers and some are above: pixels. Columns of
    few different numbers, and all columns of text, have a column for each category.

    Examples
    --------
    >>> columns = BinaryColumns.learn(np.array([[0, 1.5], [2, 2.5], [1, 9.0]]))
    >>> columns.names(["kind", "size"])[:4]
    ['kind=0.0', 'kind=1.0', 'kind=2.0', 'size=1.5']
    >>> columns.apply(np.array([[1, 9.0], [5, 1.5]]))
    array([[0, 1, 0, 0, 0, 1],
           [0, 0, 0, 1, 0, 0]], dtype=uint8)
    """

    rules: tuple[BinaryRule, ...]
    """One for each column of the table."""

    kept: tuple[int, ...]
    """Those of all columns of zeros and ones that are kept, in increasing order."""

    is_learned: bool = False
    """Whether a rule was read from rows, and with it which columns there are."""

    @classmethod
    def learn(
        cls,
        rows: NDArray[Any],
        *,
        n_columns: int = KEPT_COLUMNS,
        max_categories: int = MOST_CATEGORIES,
        seed: int = 0,
        declared: Mapping[int, BinaryRule] | None = None,
    ) -> Self:
        """Thresholds and categories from rows of a table.

        Parameters
        ----------
        rows : array of shape (n, d)
            Numbers; or objects, each column numbers or text. Missing text is None.
        n_columns : int
            Most columns to keep; a wider table keeps a random choice, in order.
        max_categories : int
            A column of more than 2 and at most so many different numbers is one of
            categories.
        seed : int
            Seed of the choice.
        declared : mapping of int to BinaryRule, optional
            Rules of columns of which nothing is to be learned. Where all are declared,
            the rows are not looked at.
        """
        known = dict(declared or {})
        is_learned = len(known) < rows.shape[1]
        pixels = rows.dtype.itemsize == 1 and rows.dtype.kind in _BITS
        if pixels and not known and rows.size:
            known = _same_for_all(rows)
        rules = tuple(
            known.get(number) or _learned_rule(_values(rows, number), max_categories)
            for number in range(rows.shape[1])
        )
        width = sum(rule.width for rule in rules)
        kept = np.arange(width)
        if width > n_columns:
            kept = np.sort(np.random.default_rng(seed).permutation(width)[:n_columns])
        return cls(rules, tuple(kept.tolist()), is_learned)

    @property
    def n_features(self) -> int:
        """Columns of the table."""
        return len(self.rules)

    @property
    def n_columns(self) -> int:
        """Columns of zeros and ones."""
        return len(self.kept)

    def names(self, columns: Sequence[str]) -> list[str]:
        """Names of the columns of zeros and ones, from those of the table.

        Such as ``"age>37"`` and ``"city=Oslo"``.
        """
        listed = [
            name
            for rule, column in zip(self.rules, columns, strict=True)
            for name in rule.names(column)
        ]
        return [listed[place] for place in self.kept]

    def apply(
        self, rows: NDArray[Any], *, refuse_unknown: bool = False
    ) -> NDArray[np.uint8]:
        """Rows of the same table as zeros and ones.

        Parameters
        ----------
        rows : array of shape (n, n_features)
            As for :meth:`learn`.
        refuse_unknown : bool
            Whether a category that was never seen, or a missing one, is an error; by
            default all columns of its categories are 0.

        Returns
        -------
        uint8 array of shape (n, n_columns)
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise RowsError(
                f"expected rows of {self.n_features} columns, as they were learned; "
                f"got shape {rows.shape}."
            )
        bits = np.zeros((len(rows), self.n_columns), np.uint8)
        for number, where, kept in self._places:
            rule, column = self.rules[number], _values(rows, number)
            if rule.is_of_text is not (column.dtype.kind == "O"):
                expected, got = ["numbers", "text"][:: -1 if rule.is_of_text else 1]
                raise RowsError(
                    f"column {number} is one of {expected}, and these rows hold {got} "
                    "there. Pass rows of the same table, or declare its categories."
                )
            unknown = rule.fill(bits[:, where], column, kept)
            if refuse_unknown and unknown.any():
                raise RowsError(
                    f"row {int(unknown.argmax())}, column {number}: holds a category "
                    "that was not seen before, or none. Learn from all categories, "
                    "declare them, or accept zeros for this one."
                )
        return bits

    @cached_property
    def _places(self) -> list[tuple[int, slice, NDArray[np.int64]]]:
        """Number of a column, where its zeros and ones are, and which are kept.

        Columns of which nothing is kept are there too, since they may be refused.
        """
        return list(self._walk())

    def _walk(self) -> Iterator[tuple[int, slice, NDArray[np.int64]]]:
        kept, start = np.array(self.kept, np.int64), 0
        for number, rule in enumerate(self.rules):
            first, stop = np.searchsorted(kept, [start, start + rule.width]).tolist()
            if rule.categories or stop > first:
                yield number, slice(first, stop), kept[first:stop] - start
            start += rule.width


def _same_for_all(rows: NDArray[np.uint8]) -> dict[int, BinaryRule]:
    """The one threshold of all columns of an image, or of zeros and ones."""
    if rows.dtype == np.uint8 and rows.max() > _DARKEST:
        return dict.fromkeys(range(rows.shape[1]), BinaryRule(threshold=_DARKEST))
    if rows.min() >= 0 and rows.max() <= 1:
        return dict.fromkeys(range(rows.shape[1]), BinaryRule(threshold=0))
    return {}


def _learned_rule(column: NDArray[Any], max_categories: int) -> BinaryRule:
    """Categories of text and of few numbers; else a threshold."""
    if column.dtype.kind == "O":
        seen = sorted({value for value in column.tolist() if value is not None})
        return BinaryRule(tuple(seen)) if seen else BinaryRule(("",))
    values = np.unique(column)
    if 2 < len(values) <= max_categories:
        return BinaryRule(tuple(values.tolist()))
    if len(values) == 2:
        return BinaryRule(threshold=float(values[0]))
    if len(values) == 1 and values[0] == 1:  # zeros and ones of which none is zero
        return BinaryRule(threshold=0.0)
    middle = np.median(column)
    if len(values) > 1 and middle == values[-1]:  # nothing is above the largest
        middle = values[-2]
    return BinaryRule(threshold=float(middle))


def _values(rows: NDArray[Any], number: int) -> NDArray[Any]:
    """One column: finite numbers, or objects that are text or None."""
    column = rows[:, number]
    if column.dtype.kind in "US":
        return column.astype(object)
    if column.dtype.kind == "O":
        found = column.tolist()
        if not all(isinstance(value, Real) for value in found):
            _require_text(found, number)
            return column
        column = np.array(found)
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise RowsError(
            f"column {number} contains NaN or infinity. Leave such rows out, or fill "
            "them beforehand."
        )
    if column.dtype.kind not in "biuf":
        raise RowsError(
            f"column {number} has the type {column.dtype}, which is no number."
        )
    return column


def _require_text(values: Sequence[Any], number: int) -> None:
    if not all(value is None or isinstance(value, str) for value in values):
        raise RowsError(
            f"column {number} holds neither numbers alone nor text alone. Cast it with "
            "astype(float), or with astype(str) if it is one of categories."
        )
