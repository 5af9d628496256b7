r"""Sinusoids: cosines and sines of whole-number phases, from a table.

Rows and frequencies are whole numbers, so a phase is one too, modulo a full turn; the
nearest of 65,536 grid points gives its cosine and sine out of a table of whole numbers.
The table holds both in one 64-bit word, so that one look-up and one sum serve two
features.
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import (
    TURN,
    cosine_table,
)
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.blocks import CACHED, row_blocks
from sketchlearn.features.lattice import RowLattice

__all__ = [
    "VALUE_BITS",
    "AbstractSinusoidFeatures",
    "Sinusoids",
    "require_pairs",
    "sinusoid_norm",
    "sum_sinusoids",
]

GRID_BITS = 16
"""Phases are rounded to ``2**-16`` of a turn."""

VALUE_BITS = 22
"""Cosines are rounded to ``2**-22``."""

_MASK = 2**GRID_BITS - 1
_FIELD = 32


@final
class Sinusoids:
    r"""Phases :math:`p = \sum_i q_i W_{if} \bmod 2^P` and their cosines and sines.

    Parameters
    ----------
    turns : array of shape (n_features, h)
        Frequencies in turns per unit of the scaled row. They are rounded,
        :math:`W = \operatorname{rint}(2^{P-b}\,\text{turns})`, and the rounded ones are
        the frequencies of the map.
    row_bits, phase_bits : int
        b and P: rows are multiples of :math:`2^{-b}`, phases of :math:`2^{-P}` turns.
    octaves : int
        Each phase is used times 1, 2, 4, ...

    Examples
    --------
    >>> sinusoids = Sinusoids(np.array([[0.25]]), row_bits=4, phase_bits=20)
    >>> sinusoids.features(np.array([[16.0], [32.0]]), 32.0)
    array([[ 0.,  1.],
           [-1.,  0.]])
    """

    def __init__(
        self,
        turns: NDArray[np.float64],
        *,
        row_bits: int,
        phase_bits: int,
        octaves: int = 1,
    ) -> None:
        self.whole = np.rint(turns * 2.0 ** (phase_bits - row_bits)) + 0.0
        self._matrix = WholeMatrix(self.whole)
        self._phase_bits, self.octaves = phase_bits, octaves
        radians = self.whole * (TURN * 2.0 ** (row_bits - phase_bits))
        self.frequencies = np.concatenate(  # (d, octaves * h)
            [radians * 2.0**j for j in range(octaves)], axis=1
        )
        # In the binade of this number one unit in the last place is one grid point, so
        # that adding it rounds a phase, and the lowest bits are its number.
        self._rounder = 1.5 * 2.0 ** (52 + phase_bits - GRID_BITS)

    @property
    def size(self) -> int:
        """Numbers in a feature vector: cosines and sines of all octaves."""
        return 2 * int(self.frequencies.shape[1])

    def features(
        self, rows: NDArray[np.float64], largest: float
    ) -> NDArray[np.float64]:
        """Cosines, then sines, octave by octave; rows of whole numbers."""
        points = self._points(rows, largest, None)
        h = points.shape[1]
        features = np.empty((len(rows), 2, self.octaves, h))
        for octave in range(self.octaves):
            if octave:
                points <<= 1
                points &= _MASK
            for which, table in enumerate(_tables()):
                features[:, which, octave] = np.take(table, points, mode="clip")
        return features.reshape(len(rows), -1)

    def total(self, rows: NDArray[np.float64], largest: float) -> NDArray[np.int64]:
        """Column sums of :meth:`features` in steps of ``2**-22``, as integers."""
        h = self.whole.shape[1]
        size = max(32, min(256, CACHED // h))  # the sum of the sines fits its field
        phases, found = np.empty((size, h)), np.empty((size, h), np.int64)
        table = _packed_table()
        sums = np.zeros((2, self.octaves, h), np.int64)
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            points = self._points(block, largest, phases[: len(block)])
            for octave in range(self.octaves):
                if octave:
                    points <<= 1
                    points &= _MASK
                both = np.take(table, points, out=found[: len(block)], mode="clip")
                packed = np.add.reduce(both, axis=0)
                sines = packed.astype(np.int32)  # the lower half, with its sign
                sums[0, octave] += (packed - sines) >> _FIELD
                sums[1, octave] += sines
        return sums.ravel()

    def _points(
        self,
        rows: NDArray[np.float64],
        largest: float,
        out: NDArray[np.float64] | None,
    ) -> NDArray[np.int64]:
        """Numbers of the nearest grid points, shape (n, h)."""
        phases = self._matrix.product(
            rows, largest, modulus_bits=self._phase_bits, out=out
        )
        phases += self._rounder
        points = phases.view(np.int64)
        points &= _MASK
        return points


@cache
def _tables() -> list[NDArray[np.float64]]:
    """Cosines and sines themselves."""
    return [table * 2.0**-VALUE_BITS for table in cosine_table(GRID_BITS, VALUE_BITS)]


@cache
def _packed_table() -> NDArray[np.int64]:
    """A cosine in the upper and a sine in the lower half of each word."""
    cosines, sines = (t.astype(np.int64) for t in cosine_table(GRID_BITS, VALUE_BITS))
    return (cosines << _FIELD) + sines


class AbstractSinusoidFeatures(AbstractFeatureMap):
    """A map whose features are cosines and sines of rounded rows."""

    _lattice: RowLattice
    _sinusoids: Sinusoids

    @final
    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        # Fingerprints know the frequencies by this name.
        return {"waves": self._sinusoids.whole}

    @final
    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self._sinusoids.features(*self._lattice.round(rows, first_row))

    @final
    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_sinusoids(self._sinusoids, self._lattice, rows, first_row)


def sum_sinusoids(
    sinusoids: Sinusoids,
    lattice: RowLattice,
    rows: NDArray[np.floating],
    first_row: int,
) -> Int128Array:
    """Exact total of the features of some rows, in steps of ``2**-22``."""
    total = np.zeros(sinusoids.size, np.int64)
    for start, block in row_blocks(rows):
        total += sinusoids.total(*lattice.round(block, first_row + start))
    return Int128Array.from_int64(total)


def sinusoid_norm(n_pairs: int) -> float:
    """Largest norm of pairs of a cosine and a sine: each is off by half a step."""
    return sqrt(n_pairs) * (1 + 2.0**-VALUE_BITS)


def require_pairs(sketch_size: int) -> int:
    """Half of an even sketch size."""
    if require_positive_int("sketch_size", sketch_size) % 2:
        raise FeatureMapError(
            f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
        )
    return sketch_size // 2
