r"""Fourier features whose phases are counted: a sketch at the price of a histogram.

A cosine costs more than anything else in a Fourier feature. Phases on a grid of
:math:`2\pi/1024` need none while rows are read: how many rows have each phase is
enough for the sums of their cosines and sines, and of those of all multiples of the
phase too.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.exact import Int128Array, lattice_round
from sketchlearn.features.base import (
    ROW_MULTIPLE,
    AbstractFeatureMap,
    require_positive_int,
    row_blocks,
)
from sketchlearn.features.kernel import FrequencyLaw, draw_frequencies
from sketchlearn.features.tensor import scaled_float32, stable_columns
from sketchlearn.scaling import Scaling

__all__ = ["HarmonicFeatures"]

_PHASES = 1024
_HALF = 22
"""Bits of the lower part of a lattice integer."""

_COUNTED_BLOCKS = 8
"""Blocks of rows that share one histogram."""


@final
class HarmonicFeatures(AbstractFeatureMap):
    r"""Cosines and sines at random frequencies and their octaves.

    .. math::
        \varphi(x) = \big(\cos 2^j\theta_f, \; \sin 2^j\theta_f\big)_{j,f}, \qquad
        \theta_f = \tfrac{2\pi}{1024}
        \operatorname{round}\big(\tfrac{1024}{2\pi}\,\omega_f^\top x\big),

    for octaves :math:`j = 0, 1, \dots`; all cosines come first. The grid of phases
    moves a mean by less than :math:`10^{-4}` where the density of phases is smooth.

    Parameters
    ----------
    n_features : int
        Numbers in a row.
    sketch_size : int
        Numbers in the feature vector; a multiple of ``2 * octaves``.
    octaves : int
        Frequencies in each direction, every one twice the one before; up to 4.
    scale : float
        Length scale of the kernel of the first octave, in the units of scaled rows.
    law : {"gaussian", "folded", "adapted"}
        Law of the radii of the first octave; see :class:`FourierFeatures`.
    seed : int
        Same seed, same frequencies.
    scaling : Scaling, optional
        Applied to rows first.

    Examples
    --------
    >>> phi = HarmonicFeatures(n_features=2, sketch_size=4, octaves=2, seed=0)
    >>> phi(np.zeros((1, 2)))
    array([[1., 1., 0., 0.]], dtype=float32)
    """

    kind: ClassVar[str] = "harmonics"

    def __init__(
        self,
        n_features: int,
        sketch_size: int,
        *,
        octaves: int = 3,
        scale: float = 1.0,
        law: FrequencyLaw = "adapted",
        seed: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        if require_positive_int("octaves", octaves) > 4:
            raise FeatureMapError(f"octaves must be 1, 2, 3 or 4; got {octaves}.")
        if require_positive_int("sketch_size", sketch_size) % (2 * octaves):
            raise FeatureMapError(
                f"sketch_size must be a multiple of 2 * octaves = {2 * octaves}; got "
                f"{sketch_size}."
            )
        super().__init__(
            n_features=n_features,
            sketch_size=sketch_size,
            scaling=scaling,
            value_bound=1.0,
            # float32 cos^2 + sin^2 may exceed 1 by a few units in the last place.
            norm_bound=(sketch_size / 2) ** 0.5 * (1 + 2.0**-20),
        )
        self._n_directions = sketch_size // (2 * octaves)
        first = draw_frequencies(
            n_features, self._n_directions, scale=scale, law=law, seed=seed
        )
        self.octaves, self.scale = int(octaves), float(scale)
        self.law, self.seed = law, int(seed)
        octave = [first * np.float32(2**j) for j in range(octaves)]
        self.frequencies = np.concatenate(octave, axis=1)  # (d, h)
        self._turns = stable_columns((first / (2 * np.pi)).astype(np.float32))
        angles = np.arange(_PHASES)[:, None] * 2.0 ** np.arange(octaves)
        angles = 2 * np.pi / _PHASES * (angles % _PHASES)
        both = np.stack([np.cos(angles), np.sin(angles)])  # (2, phases, octaves)
        self._table = np.asarray(both.astype(np.float32))
        self._integers = lattice_round(self._table, self.frac_bits)
        high = self._integers >> _HALF
        low = self._integers - (high << _HALF)
        self._halves = high.astype(np.float64), low.astype(np.float64)

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "n_features": self.n_features,
            "sketch_size": self.sketch_size,
            "octaves": self.octaves,
            "scale": self.scale,
            "law": self.law,
            "seed": self.seed,
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"frequencies": self.frequencies, "table": self._table}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        phases = self._phases(rows, first_row).numpy()
        features = self._table[:, phases]  # (2, n, directions, octaves)
        ordered: NDArray[np.float32] = np.moveaxis(features, (1, 3), (0, 2))
        return np.ascontiguousarray(ordered).reshape(len(rows), -1)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        if len(rows) < _PHASES:
            return self._few(rows, first_row)
        directions = self._n_directions
        offsets = torch.arange(directions, dtype=torch.int32) * _PHASES
        counts = torch.zeros(directions * _PHASES, dtype=torch.int64)
        waiting: list[torch.Tensor] = []
        for start, block, count in row_blocks(rows):
            phases = self._phases(block, first_row + start)[:count]
            waiting.append(phases.add_(offsets).reshape(-1))
            if len(waiting) == _COUNTED_BLOCKS or start + count == len(rows):
                counts += torch.bincount(torch.cat(waiting), minlength=len(counts))
                waiting.clear()
        # Halves of 22 bits times up to 2**18 rows: float64 products are exact.
        weights = counts.reshape(directions, _PHASES).double().numpy()
        high, low = (weights @ half for half in self._halves)  # (2, directions, J)
        total = high.astype(np.int64) * 2**_HALF + low.astype(np.int64)
        return Int128Array.from_int64(np.moveaxis(total, 2, 1).reshape(-1).copy())

    def _few(self, rows: NDArray[np.floating], first_row: int) -> Int128Array:
        """Total of rows for which counters of all phases do not pay."""
        total = np.zeros((2, self._n_directions, self.octaves), np.int64)
        for start, block, count in row_blocks(rows):
            phases = self._phases(block, first_row + start)[:count].numpy()
            for part in np.array_split(phases, -(-count // ROW_MULTIPLE)):
                total += self._integers[:, part].sum(axis=1)
        return Int128Array.from_int64(np.moveaxis(total, 2, 1).reshape(-1).copy())

    def _phases(self, rows: NDArray[np.floating], first_row: int) -> torch.Tensor:
        """Numbers of the phases of a padded block, (n, directions), int32."""
        with torch.no_grad():
            scaled = scaled_float32(rows, self.scaling, first_row)
            turns = (scaled @ self._turns)[:, : self._n_directions]
            turns = turns - turns.floor()
            numbers = turns.mul_(_PHASES).round_().int()
            return numbers.bitwise_and_(_PHASES - 1)
