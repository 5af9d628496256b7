r"""Rows seen in a few directions, in whole numbers."""

from __future__ import annotations

from math import floor, sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.arithmetic.elementary import ceil_log2, sequential_sum
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling

__all__ = ["Projection", "require_directions"]

_BASIS_BITS = 20
"""Entries of a basis are whole numbers of this many bits."""


@final
class Projection:
    r"""Coordinates :math:`z = B^\top(x - c)` in whole numbers.

    Parameters
    ----------
    basis : array of shape (n_features, r)
        B, for scaled rows.
    centre : array of shape (n_features,)
        c, in units of the scaled rows.
    reach : float
        Largest magnitude of a scaled value.
    scaling : Scaling or None
        Applied to rows first.
    place_bits : int
        Coordinates are rounded to ``2**-place_bits``.
    """

    def __init__(
        self,
        basis: NDArray[np.float64],
        centre: NDArray[np.float64],
        reach: float,
        scaling: Scaling | None,
        place_bits: int,
    ) -> None:
        largest = float(np.abs(basis).max())
        self._basis_bits = _BASIS_BITS - ceil_log2(largest) if largest else 0
        whole = np.rint(np.ldexp(basis, self._basis_bits)) + 0.0
        self.basis = np.ldexp(whole, -self._basis_bits)
        self._matrix = WholeMatrix(whole)
        # Rows as fine as coordinates need it, four times over.
        self._overlaps = sequential_sum(row[:, None] * row for row in self.basis)
        longest = sqrt(float(np.diagonal(self._overlaps).max()))
        self.bits = place_bits
        fine = ceil_log2(longest) + self.bits + 2 if longest else self.bits
        # Products of rows within the reach stay below 2**63.
        away = ceil_log2(reach + float(np.abs(centre).max()))
        most = 61 - ceil_log2(self._matrix.largest_column) - away
        row_bits = min(max(fine, 8), 44 - ceil_log2(reach), most)
        limit = float(floor(reach * 2.0**row_bits))
        self._lattice = RowLattice(scaling, row_bits, limit)
        self._middle = self._lattice.nearest(centre)

    def __call__(
        self, rows: NDArray[np.floating], first_row: int
    ) -> NDArray[np.float64]:
        """Coordinates of rows in steps of ``2**-bits``."""
        x = self._lattice.round(rows, first_row)[0] - self._middle
        z = self._matrix.product(x)
        shift = self.bits - self._lattice.bits - self._basis_bits
        return np.rint(np.ldexp(z, shift))

    def bounds(self) -> tuple[float, float]:
        """Largest coordinate of a row, and largest norm of all coordinates."""
        away = (self._lattice.limit + np.abs(self._middle)) * 2.0**-self._lattice.bits
        farthest = sequential_sum(np.abs(self.basis) * away[:, None])
        # A norm of B that is exact for orthogonal columns.
        spread = sqrt(float(sequential_sum(np.abs(self._overlaps)).max()))
        span = spread * sqrt(float(sequential_sum(away * away)))
        corner = sqrt(float(sequential_sum(farthest * farthest)))
        slack = 1 + 2.0**-40 + len(away) * 2.0**-50
        half = 2.0 ** -(self.bits + 1)
        width = self.basis.shape[1]
        length = min(corner, span) * slack + half * sqrt(width)
        return float(farthest.max()) * slack + half, length


def require_directions(
    basis: ArrayLike, centre: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Basis and centre as arrays, if their shapes fit and all numbers are finite."""
    columns, middle = np.array(basis, np.float64), np.array(centre, np.float64)
    fits = columns.ndim == 2 and columns.size and middle.shape == columns.shape[:1]
    if not fits or not (np.isfinite(columns).all() and np.isfinite(middle).all()):
        raise FeatureMapError(
            "basis must be a finite array of shape (n_features, r) and centre one of "
            f"shape (n_features,); got shapes {columns.shape} and {middle.shape}."
        )
    return columns, middle
