"""Where rows become integers: once, and the same everywhere.

A row is scaled column by column and rounded to a multiple of ``2**-bits``; from there
on every feature map computes with whole numbers. Subtraction, multiplication and
rounding of single numbers are IEEE operations, so that a row has one value on every
machine, whatever its type, its layout and the batch it comes in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.products import LIMIT, largest_magnitude
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.scaling import Scaling

__all__ = ["RowLattice"]

_LOOP = 2048


@final
@dataclass(frozen=True)
class RowLattice:
    r"""Rounding of rows: :math:`q = \operatorname{rint}(2^b\,x')`, :math:`|q| \le L`.

    Parameters
    ----------
    scaling : Scaling or None
        Applied first, :math:`x' = (x - \text{shift})\,\text{factor}`.
    bits : int
        b; may be negative.
    limit : float
        L: a row with a larger number is refused.

    Examples
    --------
    >>> RowLattice(None, bits=3, limit=80).round(np.array([[0.3, -10.0]]))
    (array([[  2., -80.]]), 80.0)
    """

    scaling: Scaling | None
    bits: int
    limit: float

    def round(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> tuple[NDArray[np.float64], float]:
        """Whole numbers of the rows, in float64, and the largest magnitude of them.

        ``first_row`` is the position of the rows in the data, for messages.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            steps = self.unchecked(rows)
            largest = largest_magnitude(steps)
        if not largest <= self.limit:  # the negation also catches NaN
            inside = np.abs(steps) <= self.limit
            raise RowRangeError(self._message(~inside, first_row))
        return steps, largest

    def unchecked(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """The same whole numbers of rows whose range is found out afterwards."""
        steps = self._scaled(rows)
        return np.rint(steps, out=steps)

    def _scaled(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Rows in steps, not yet rounded."""
        if self.scaling is None:
            unscaled: NDArray[np.float64] = np.multiply(
                rows, 2.0**self.bits, dtype=np.float64
            )
            return unscaled
        shifts, factors = self._constants
        steps = np.empty(rows.shape)
        many = len(shifts) // self.scaling.n_features
        whole = len(rows) - len(rows) % many if rows.flags.c_contiguous else 0
        if whole:
            wide = steps[:whole].reshape(-1, len(shifts))
            np.subtract(rows[:whole].reshape(wide.shape), shifts, out=wide)
            wide *= factors
        if whole < len(rows):
            rest, width = steps[whole:], self.scaling.n_features
            np.subtract(rows[whole:], shifts[:width], out=rest)
            rest *= factors[:width]
        return steps

    @cached_property
    def _constants(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shifts and factors of several rows: loops over few columns are slow."""
        assert self.scaling is not None
        many = max(1, _LOOP // self.scaling.n_features)
        factors = self.scaling.factor * 2.0**self.bits
        return np.tile(self.scaling.shift, many), np.tile(factors, many)

    def nearest(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Whole numbers of points that are given in scaled units."""
        with np.errstate(over="ignore"):
            steps = np.rint(points * 2.0**self.bits)
        if not largest_magnitude(steps) <= LIMIT:
            raise FeatureMapError(
                "a point of this map lies too far out for whole numbers of 53 bits. "
                "Scale it, and the rows."
            )
        return steps

    def _message(self, outside: NDArray[np.bool_], first_row: int) -> str:
        row, column = (int(i) for i in np.argwhere(outside)[0])
        high = self.limit * 2.0**-self.bits
        low, shift = -high, 0.0
        if self.scaling is not None:
            shift = self.scaling.shift[column]
            low, high = (x / self.scaling.factor[column] for x in (low, high))
        advice = (
            "Declare the range of each feature (bounds=(low, high) on an estimator, "
            "scaling=Scaling.from_bounds(low, high) on a map) and sketch again."
        )
        if self.scaling is not None and self.scaling.origin == "declared":
            advice = (
                "Declare wider bounds, or clip the rows to them (each by itself) "
                "before they are sketched."
            )
        return (
            f"row {first_row + row} lies outside the planned range of feature {column},"
            f" [{shift + low:g}, {shift + high:g}]. Nothing was added. {advice}"
        )
