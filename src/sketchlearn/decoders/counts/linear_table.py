r"""The table of a sketch as message passing needs it: without a common part.

A sketch of counts x is :math:`z = A x`, a column of A for each item. Columns of zeros
and ones have a common part :math:`\bar a`, their mean; where the sum T of all counts is
known, or shows in the sketch, it is taken out on both sides:

.. math:: z - \bar a\, T = \sum_j (A_j - \bar a)\, x_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["LinearTable"]

Reals = NDArray[np.float64]

_ALIKE = 0.1
"""Lengths that differ by less than this part are taken for equal: the variance of what
is seen of an item is not known better."""

_LEANING = 4.0
"""A common part is taken out when it is so many times what chance gives signed
columns, which message passing bears."""


@final
@dataclass(frozen=True, eq=False)
class LinearTable:
    """A table of a column for each item, and the sum of all counts if it is known.

    Parameters
    ----------
    columns : sparse array of shape (d, m)
        What one item adds to each number of the sketch.
    total : float or None
        Sum of all counts.
    """

    columns: sp.csr_array
    total: float | None

    @classmethod
    def build(
        cls, columns: sp.csr_array, sums: Reals, total: float | None
    ) -> LinearTable:
        """The table, with the sum of counts as the numbers show it if nobody knows it.

        Numbers of a Count-Min table sum up to its depth times the sum of counts.
        """
        table = sp.csr_array(columns, dtype=np.float64)
        if total is None and table.shape[0]:
            each = table.sum(axis=1)
            if each[0] > 0 and np.ptp(each) == 0:
                total = float(sums.sum() / each[0])
        return cls(table, total)

    @property
    def n_items(self) -> int:
        """Number of items d."""
        return int(self.columns.shape[0])

    @property
    def n_numbers(self) -> int:
        """Number of numbers m of the sketch."""
        return int(self.columns.shape[1])

    @cached_property
    def common(self) -> Reals:
        """The part that is taken out of each column, zeros if none is."""
        common = np.asarray(self.columns.sum(axis=0)) / max(self.n_items, 1)
        chance = self._squares.mean() / max(self.n_items, 1)
        leans = common @ common > _LEANING * chance
        kept: Reals = common if leans or self.total is not None else 0 * common
        return kept

    @cached_property
    def lengths(self) -> Reals:
        """Length of each column without the common part."""
        inner = self.columns @ self.common
        left = self._squares - 2 * inner + self.common @ self.common
        lengths: Reals = np.sqrt(np.maximum(left, 0.0))
        middle = float(lengths.mean()) if len(lengths) else 0.0
        if len(lengths) and np.ptp(lengths) < _ALIKE * middle:
            return np.full(len(lengths), middle)  # then items share what is computed
        return lengths

    @cached_property
    def freedom(self) -> float:
        """Numbers that are left when those that only show the total are taken out."""
        if not self.common.any():
            return float(self.n_numbers)
        each = self.columns.sum(axis=1)
        tables = each[0] if each[0] > 0 and np.ptp(each) == 0 else 1.0
        return float(max(self.n_numbers - tables, 1.0))

    def left_over(self, sums: Reals, counts: Reals) -> Reals:
        """What counts leave unexplained of the numbers."""
        rest: Reals = sums - self.columns.T @ counts
        if not self.common.any():
            return rest
        if self.total is not None:
            rest -= self.common * (self.total - counts.sum())
            return rest
        part = self.common @ rest / (self.common @ self.common)
        return rest - self.common * part

    def missing(self, sums: Reals, counts: Reals) -> float:
        """What counts lack of the sum of all counts, 0 if nothing is known of it."""
        if self.total is not None:
            return self.total - float(counts.sum())
        if not self.common.any():
            return 0.0
        rest = sums - self.columns.T @ counts
        return float(self.common @ rest / (self.common @ self.common))

    def pull_back(self, rest: Reals) -> Reals:
        """What is left over, seen by each item: product with its column."""
        seen: Reals = self.columns @ rest
        return seen - self.common @ rest

    def looks(self, rest: Reals) -> Reals:
        """What each number of an item says of it, those with signs if there are any.

        Others hold little of what collides most of the time, and much of it rarely:
        their median is too small. One look if items have numbers of another kind.
        """
        if not len(self.plain):
            together: Reals = self.pull_back(rest) / np.maximum(self.lengths, 1e-6) ** 2
            return together[:, None]
        chosen = self.plain if self.plain.all() else ~self.plain
        found = rest[self.columns.indices] / self.columns.data
        looks: Reals = found.reshape(self.n_items, -1)[:, chosen]
        return looks

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """Which tables have no signs, empty if items are not in one number of each."""
        each = np.diff(self.columns.indptr)
        if not len(each) or each[0] == 0 or np.ptp(each):
            return np.zeros(0, np.bool_)
        values = self.columns.data.reshape(-1, each[0])
        found: NDArray[np.bool_] = (values > 0).all(axis=0)
        return found

    @cached_property
    def _squares(self) -> Reals:
        found: Reals = np.asarray(self.columns.multiply(self.columns).sum(axis=1))
        return found
