r"""Cells: which anchor a row is nearest to, seen in a few directions.

A row is projected first, :math:`z = B^\top(x - c)`, with directions and centre that
were planned from an earlier sketch of the same data (its principal directions, say).
What was planned belongs to the map and is written in its description; ``origin``
says whether it was read from rows or from something public.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix, largest_magnitude
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.anchors import FARTHEST, place_bits, require_anchors
from sketchlearn.features.arguments import require_origin
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import row_blocks
from sketchlearn.features.cost import LOOP, Cost, Declared
from sketchlearn.features.fields import (
    ARRAY,
    NUMBER,
    ORIGIN,
    SIZE_OR_0,
    Field,
    or_none,
)
from sketchlearn.features.projection import Projection, require_directions
from sketchlearn.features.scaling import Origin, Scaling

__all__ = ["FARTHEST", "CellFeatures"]
__public__ = ["CellFeatures"]

_CROSSED_BITS = 17
"""Coordinates are rounded to ``2**-17`` where their products are sketched, so that
these have 44 bits."""

_MOST_STEPS = 2.0**44
"""Coordinates in steps: 512 of them add up without rounding."""


@final
class CellFeatures(AbstractFeatureMap):
    r"""Which cell a row falls in, and where: counts and sums of a partition.

    With anchors :math:`a_1, \dots, a_A` and :math:`j` the one nearest to
    :math:`z = B^\top(x - c)`,

    .. math::
        \varphi(x) = e_j \otimes (1, z),

    so that the mean holds the share of every cell and, divided by it, the mean of the
    rows in it. :math:`m = A (1 + r)`. With ``n_crossed`` :math:`= s`, cells hold
    second moments too,

    .. math::
        \varphi(x) = e_j \otimes
        \big(1, z, (z_a^2)_{a \le r}, (z_a z_b)_{b < a \le s}\big),
        \qquad m = A \big(1 + 2r + \tfrac{s(s-1)}{2}\big),

    of z with every coordinate clipped to ``[-32, 32]``: no row outweighs all others.
    Rows, B, z and anchors are whole numbers, distances are exact, and of two anchors
    at the same distance the first one counts.

    Parameters
    ----------
    anchors : array of shape (n_cells, r)
        In units of z. They and z are rounded to 22 bits of the farthest one, or to
        :math:`2^{-17}` where products are kept.
    basis : array of shape (n_features, r)
        B, for scaled rows. Rounded to 20 bits.
    centre : array of shape (n_features,)
        c, in units of the scaled rows.
    reach : float
        Scaled values lie in ``[-reach, reach]``; one beyond is an error.
    origin : {"declared", "data"}
        Where anchors, basis and centre come from.
    n_crossed : int, optional
        Of how many first coordinates the products are kept, beside the squares of
        all: from 0 to r. Without it, neither.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = CellFeatures([[-1.0], [1.0]], basis=[[1.0]], centre=[0.0])
    >>> phi(np.array([[-3.0], [0.5]]))
    array([[ 1. , -3. ,  0. ,  0. ],
           [ 0. ,  0. ,  1. ,  0.5]])
    """

    kind: ClassVar[str] = "cells"
    fields: ClassVar[Mapping[str, Field]] = {
        "basis": ARRAY,
        "centre": ARRAY,
        "origin": ORIGIN,
        "anchors": ARRAY,
        "reach": NUMBER,
        "n_crossed": or_none(SIZE_OR_0),
    }

    def __init__(
        self,
        anchors: ArrayLike,
        *,
        basis: ArrayLike,
        centre: ArrayLike,
        reach: float = 32.0,
        origin: Origin = "declared",
        n_crossed: int | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        given, self.centre = require_directions(basis, centre)
        d, r = given.shape
        self.n_crossed = _crossed(n_crossed, r)
        places = require_anchors(anchors, r, is_clipped=n_crossed is not None)
        self.require_affordable(
            basis={"shape": [d, r]},
            anchors={"shape": [len(places), r]},
            n_crossed=n_crossed,
        )
        if not 0 < reach < 2.0**16:
            raise FeatureMapError("reach must be positive and below 65536.")
        bits = _CROSSED_BITS if n_crossed is not None else place_bits(places)
        self._projection = Projection(given, self.centre, float(reach), scaling, bits)
        self.basis = self._projection.basis
        self._bits = self._projection.bits
        self._places = np.rint(np.ldexp(places, self._bits)) + 0.0
        self.anchors = np.ldexp(self._places, -self._bits)
        farthest, length = self._projection.bounds()
        square, bound = length * length, farthest
        norm = 1 + square
        if n_crossed is not None:
            square = min(square, r * FARTHEST * FARTHEST)
            bound = min(bound, FARTHEST)
            bound, norm = bound * bound, 1 + square + square * square
        super().__init__(
            n_features=d,
            sketch_size=len(places) * self.cell_size,
            scaling=scaling,
            value_bound=max(1.0, bound),
            norm_bound=sqrt(norm) * (1 + 2.0**-40),
            frac_bits=2 * self._bits,
        )
        self.reach, self._planned = float(reach), require_origin(origin)
        self._nearness = WholeMatrix(np.ascontiguousarray(self._places.T))
        self._squares = np.square(self._places).sum(axis=1)
        if self._squares.max() > 2.0**51:
            raise FeatureMapError(
                f"{r} coordinates are too many for exact distances to the anchors."
            )

    @property
    def cell_size(self) -> int:
        """Numbers held for each cell."""
        return _cell_size(int(self.basis.shape[1]), self.n_crossed)

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        (d, r), (n_cells, _) = given.array_shape("basis"), given.array_shape("anchors")
        m = n_cells * _cell_size(r, given.fields.get("n_crossed"))
        numbers = 8 * (n_cells + d) * r + 4 * r * r + 16 * d + 6 * m
        work = 20 * (n_cells + d) * r + 20 * d * r * r + LOOP * (d + r) + 10 * m
        return Cost(d, m, numbers, work)

    @override
    def describe(self) -> dict[str, Any]:
        fields = {
            "anchors": self.anchors,
            "basis": self.basis,
            "centre": self.centre,
            "reach": self.reach,
            "origin": self._planned,
        }
        crossed = {} if self.n_crossed is None else {"n_crossed": self.n_crossed}
        return {**fields, **crossed}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"anchors": self.anchors, "basis": self.basis, "centre": self.centre}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        cells, local = self._locate(rows, first_row)
        features = np.zeros((len(rows), len(self.anchors), local.shape[1]))
        features[np.arange(len(rows)), cells] = local * self._units
        return features.reshape(len(rows), -1)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        # 512 whole numbers of at most 44 bits: sums are exact in float64.
        total = np.zeros((len(self.anchors), self.cell_size), np.int64)
        numbers = np.arange(len(self.anchors))
        for start, block in row_blocks(rows):
            cells, local = self._locate(block, first_row + start)
            members = (cells == numbers[:, None]).astype(np.float64)
            total += (members @ local).astype(np.int64)
        return self._widen(total)

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        unit, size = 1 << self.frac_bits, self.cell_size
        limit, r = ceil(self.value_bound * unit), self.basis.shape[1]
        entries, members = total.to_ints(), 0
        for start in range(0, len(entries), size):
            rows, rest = divmod(entries[start], unit)
            others = entries[start + 1 : start + size]
            if rows < 0 or rest or any(abs(value) > rows * limit for value in others):
                return False
            # Where squares are kept, no variance within a cell is negative.
            pairs = zip(others[:r], others[r : 2 * r], strict=False)
            if any(rows * square * unit < mean * mean for mean, square in pairs):
                return False
            members += rows
        return members == count

    @property
    def _units(self) -> NDArray[np.float64]:
        """What a whole number of each entry of a cell is worth."""
        r, size = self.basis.shape[1], self.cell_size
        units = np.full(size, 2.0 ** (-2 * self._bits))
        units[1 : 1 + r] = 2.0**-self._bits
        units[0] = 1.0
        return units

    def _widen(self, total: NDArray[np.int64]) -> Int128Array:
        """Sums of whole numbers on the lattice of the map."""
        wide = Int128Array.from_int64(total.ravel())
        r, kinds = self.basis.shape[1], np.zeros(total.shape, np.int64)
        kinds[:, 1 : 1 + r], kinds[:, 1 + r :] = 1, 2
        kind = kinds.ravel()
        middle = wide.shifted(self._bits)
        result = middle.shifted(self._bits).where(kind == 0, middle)
        return result.where(kind < 2, wide)

    def _locate(
        self, rows: NDArray[np.floating], first_row: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Cell of each row, and the whole numbers that are kept of the row."""
        z = self._projection(rows, first_row)
        if self.n_crossed is not None:
            farthest = FARTHEST * 2.0**self._bits
            z = np.clip(z, -farthest, farthest)
        largest = largest_magnitude(z)
        if largest > _MOST_STEPS or not self._nearness.fits(4 * largest):
            raise RowRangeError(
                f"one of the rows {first_row} to {first_row + len(rows) - 1} lies too "
                "far from the anchors for whole numbers of 44 bits. Nothing was added. "
                "Declare the range of each feature and plan again."
            )
        if self._nearness.is_exact(4 * largest):
            near = 2 * self._nearness.product(z, largest) - self._squares
            cells = near.argmax(axis=1)
        else:
            whole = self._nearness.whole(z, largest)
            cells = (2 * whole - self._squares.astype(np.int64)).argmax(axis=1)
        local = [np.ones((len(rows), 1)), z]
        if self.n_crossed is not None:
            a, b = np.tril_indices(self.n_crossed, -1)
            local += [z * z, z[:, a] * z[:, b]]
        return cells, np.concatenate(local, axis=1)


def _cell_size(r: int, n_crossed: int | None) -> int:
    """Numbers held for each cell, of r coordinates."""
    if n_crossed is None:
        return 1 + r
    return 1 + 2 * r + n_crossed * (n_crossed - 1) // 2


def _crossed(n_crossed: int | None, r: int) -> int | None:
    if n_crossed is None:
        return None
    if isinstance(n_crossed, bool) or n_crossed not in range(r + 1):
        raise FeatureMapError(
            f"n_crossed must be a whole number from 0 to {r}, the columns of basis; "
            f"got {n_crossed!r}."
        )
    return int(n_crossed)
