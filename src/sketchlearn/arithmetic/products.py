r"""Products of whole numbers: matrix products that never round.

A float64 holds whole numbers up to :math:`2^{53}` without error, and a sum of such
numbers is exact in any order, with or without fused operations, as long as no partial
sum can exceed that. BLAS is then an integer machine: its result has the same bits for
every library, thread count, block shape and processor. Larger factors are cut into
digits, each product of which is exact again. How the work is done depends on the sizes
of the numbers; the result does not.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, RowRangeError

__all__ = [
    "LIMIT",
    "Parts",
    "WholeMatrix",
    "column_sums",
    "gram",
    "largest_magnitude",
    "squares",
]

LIMIT = 2**53
"""Whole numbers up to this are exact in float64."""

Parts = list[tuple[int, NDArray[np.int64]]]
"""Shifts and integers: the value is their sum, each times two to its shift."""


@final
class WholeMatrix:
    """The right factor of exact products: whole numbers, dense or sparse.

    Parameters
    ----------
    entries : array or sparse array of shape (d, m)
        Whole numbers. Sums of magnitudes by column must stay below ``2**52``.

    Examples
    --------
    >>> matrix = WholeMatrix(np.array([[3.0], [-5.0]]))
    >>> matrix.product(np.array([[2.0**40, 1.0]])).tolist()
    [[3298534883323.0]]
    """

    def __init__(self, entries: Any) -> None:
        self._factor = entries
        sizes = np.asarray(abs(entries).sum(axis=0), np.float64)
        self.largest_column = max(float(sizes.max()), 1.0)
        if not self.largest_column < 2.0**52:
            raise FeatureMapError(
                "the weights of this map are too large for exact products. Scale them "
                "down, and the rows up."
            )
        self._digit_bits = int(np.frexp(LIMIT / self.largest_column)[1]) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(d, m)."""
        return self._factor.shape[0], self._factor.shape[1]

    def product(
        self,
        rows: NDArray[np.float64],
        largest: float | None = None,
        *,
        modulus_bits: int | None = None,
        out: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """``rows @ matrix`` for rows of whole numbers, shape (n, m).

        Exact below ``2**53``; beyond it, up to ``2**63``, rounded once.

        Parameters
        ----------
        rows : float64 array of shape (n, d)
            Whole numbers.
        largest : float, optional
            The largest magnitude in ``rows``, if it is known.
        modulus_bits : int, optional
            The result only matters modulo a power of two; then it is always exact,
            and where rows are large it is the smallest residue >= 0.
        out : float64 array of shape (n, m), optional
            Where to put it, for dense matrices.
        """
        if largest is None:
            largest = largest_magnitude(rows)
        if self.is_exact(largest):
            if out is None:
                return np.asarray(rows @ self._factor, np.float64)
            np.matmul(rows, self._factor, out=out)
            return out
        if modulus_bits is not None:
            residues = self.whole(rows, largest) & ((1 << modulus_bits) - 1)
            return residues.astype(np.float64)
        if not self.fits(largest):
            raise RowRangeError(
                "some row is too large for the whole numbers of this map. Nothing was "
                "added. Scale the rows (scaling=Scaling.from_bounds(low, high))."
            )
        return self.whole(rows, largest).astype(np.float64)

    def fits(self, largest: float) -> bool:
        """Whether products of such rows are below ``2**63``."""
        return largest * self.largest_column < 2.0**63

    def is_exact(self, largest: float) -> bool:
        """Whether products of such rows are below ``2**53``."""
        return largest * self.largest_column <= LIMIT

    def whole(self, rows: NDArray[np.float64], largest: float) -> NDArray[np.int64]:
        """``rows @ matrix`` as integers, exact modulo ``2**64``."""
        total = np.zeros((len(rows), self.shape[1]), np.int64)
        for i, digit in enumerate(_digits(rows, largest, 2.0**self._digit_bits)):
            part = np.asarray(digit @ self._factor, np.float64).astype(np.int64)
            if i * self._digit_bits < 64:  # beyond, nothing is left modulo 2**64
                total += part << (i * self._digit_bits)
        return total


def column_sums(rows: NDArray[np.float64], largest: float) -> NDArray[np.int64]:
    """Exact sums over rows of whole numbers, whose magnitudes ``largest`` bounds."""
    size = max(1, int(LIMIT // max(largest, 1.0)))
    starts = range(0, max(len(rows), 1), size)
    pieces = [rows[start : start + size] for start in starts]
    sums = [(np.ones(len(piece)) @ piece).astype(np.int64) for piece in pieces]
    total: NDArray[np.int64] = reduce(operator.add, sums)
    return total


def largest_magnitude(rows: NDArray[np.float64]) -> float:
    """The largest absolute value; 0 if there is none."""
    if not rows.size:
        return 0.0
    high = float(np.maximum.reduce(rows, axis=None))
    return max(high, -float(np.minimum.reduce(rows, axis=None)))


def gram(
    left: NDArray[np.float64],
    right: NDArray[np.float64] | None = None,
    *,
    left_largest: float,
    right_largest: float | None = None,
) -> Parts:
    r""":math:`X^\top Y` of whole numbers, as exact parts.

    One part is enough where no sum can
    exceed :math:`2^{53}`, otherwise both factors are cut into digits.

    Parameters
    ----------
    left, right : float64 arrays of shape (n, p) and (n, q)
        Whole numbers; ``right`` is ``left`` by default.
    left_largest, right_largest : float
        Bounds of their magnitudes.

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0]]), left_largest=2.0)[0][1].tolist()
    [[1, 2], [2, 4]]
    """
    other = left if right is None else right
    size = left_largest if right_largest is None else right_largest
    if len(left) * left_largest * size <= LIMIT:
        return [(0, (left.T @ other).astype(np.int64))]
    bits = _digit_bits(len(left))
    first = _digits(left, left_largest, 2.0**bits)
    second = first if right is None else _digits(other, size, 2.0**bits)
    parts: dict[int, NDArray[np.int64]] = {}
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            if right is None and j < i:
                continue
            part = (a.T @ b).astype(np.int64)
            if right is None and j > i:
                part = part + part.T
            shift = bits * (i + j)
            parts[shift] = parts[shift] + part if shift in parts else part
    return list(parts.items())


def squares(rows: NDArray[np.float64], largest: float) -> Parts:
    """Column sums of the squares of whole numbers, as exact parts like :func:`gram`."""
    if len(rows) * largest**2 <= LIMIT:
        return [(0, column_sums(np.square(rows), largest**2))]
    bits = _digit_bits(len(rows))
    digits = _digits(rows, largest, 2.0**bits)
    return [
        (bits * (i + j), column_sums(a * b, 4.0**bits) * (1 + (i < j)))
        for i, a in enumerate(digits)
        for j, b in enumerate(digits)
        if i <= j
    ]


def _digit_bits(n_rows: int) -> int:
    """Bits of digits of which ``n_rows`` products add up to ``2**53`` at most."""
    return ((LIMIT // max(n_rows, 1)).bit_length() - 1) // 2


def _digits(
    x: NDArray[np.float64], largest: float, base: float
) -> list[NDArray[np.float64]]:
    """Digits between -base/2 and base/2, lowest first; the last one up to base."""
    digits, rest = [], x
    while largest > base:
        upper = np.rint(rest / base)
        digits.append(rest - upper * base)
        rest, largest = upper, float(np.rint(largest / base))
    return [*digits, rest]
