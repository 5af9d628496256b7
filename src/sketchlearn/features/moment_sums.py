r"""Sums of products of rounded rows, exact and many rows at once.

Moments need :math:`\sum_i x_i` and :math:`\sum_i x_i x_i^\top` of whole numbers. The
product of a block is tried in the fastest way first, and the sums of squares on its
diagonal tell afterwards whether it was exact.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import (
    LIMIT,
    Parts,
    WholeMatrix,
    column_sums,
    gram,
    largest_magnitude,
)
from sketchlearn.features.blocks import BLOCK_ROWS, CACHED, row_blocks
from sketchlearn.features.lattice import RowLattice

__all__ = ["PartSum", "add_moments"]

_TWO_DIGIT_ROWS = 4096
"""Squares of more low digits than these add up to more than is exact."""

_ONE_DIGIT = 2.0**28
"""Numbers up to this mostly need one product: they may be so large, and rarely are."""


@final
class PartSum:
    """Running sums of exact parts, each in 64 bits.

    A part of 512 rows is below 2**53, so that those of 2**18 rows are below 2**62.
    """

    def __init__(self) -> None:
        self._sums: dict[int, NDArray[np.int64]] = {}

    def add(self, parts: Parts) -> None:
        """Add those of one block."""
        for shift, part in parts:
            if shift in self._sums:
                self._sums[shift] += part
            else:
                self._sums[shift] = part

    def total(self, chosen: Any = slice(None)) -> Int128Array:
        """The entries that ``chosen`` picks, as one vector."""
        wide = [
            Int128Array.from_int64(part[chosen].ravel()).shifted(shift)
            for shift, part in self._sums.items()
        ]
        return reduce(operator.add, wide)

    def times(self, matrix: WholeMatrix) -> PartSum:
        """The sums times a matrix of whole numbers."""
        result = PartSum()
        for shift, part in self._sums.items():
            upper = part >> 31
            for extra, half in ((31, upper), (0, part - (upper << 31))):
                product = matrix.whole(half.astype(np.float64), 2.0**32)
                result.add([(shift + extra, product)])
        return result


def add_moments(
    lattice: RowLattice,
    rows: NDArray[np.floating],
    first_row: int,
    sums: NDArray[np.int64],
    products: PartSum,
) -> None:
    """Add sums and products of rounded rows, many rows at once where that is exact."""
    size = BLOCK_ROWS * max(1, CACHED // (BLOCK_ROWS * rows.shape[1]))
    if lattice.limit > _ONE_DIGIT:
        size = min(size, _TWO_DIGIT_ROWS)
    for start, many in row_blocks(rows, size):
        with np.errstate(over="ignore", invalid="ignore"):
            x = lattice.unchecked(many)
            parts = _hopeful_products(x, lattice.limit)
        if parts is not None:
            sums += column_sums(x, lattice.limit)
            products.add(parts)
            continue
        x, largest = lattice.round(many, first_row + start)
        for _, block in row_blocks(x):
            sums += column_sums(block, largest)
            products.add(gram(block, left_largest=largest))


def _hopeful_products(x: NDArray[np.float64], limit: float) -> Parts | None:
    r"""Products of whole numbers, if they turn out exact and none was too large.

    No sum of products of two columns exceeds the larger sum of their squares, so these
    tell afterwards. Large numbers have two digits, :math:`x = 2^b h + l`, and

    .. math:: x x^\top = 2^{2b} hh^\top + 2^b\big((h + l)(h + l)^\top - hh^\top
        - ll^\top\big) + ll^\top .
    """
    if limit <= _ONE_DIGIT:
        product = x.T @ x
        most = min(LIMIT / 2, limit * limit)
        is_exact = np.diagonal(product).max() <= most  # False for NaN
        return [(0, product.astype(np.int64))] if is_exact else None
    if not largest_magnitude(x) <= limit:
        return None
    bits = ceil_log2(limit) // 2
    high = np.rint(x * 2.0**-bits)
    low = x - high * 2.0**bits
    both = high + low
    upper, lower, mixed = high.T @ high, low.T @ low, both.T @ both
    if not max(np.diagonal(part).max() for part in (upper, lower, mixed)) <= LIMIT / 2:
        return None
    wholes = [part.astype(np.int64) for part in (upper, lower, mixed)]
    middle = wholes[2] - wholes[0] - wholes[1]
    return [(2 * bits, wholes[0]), (bits, middle), (0, wholes[1])]
