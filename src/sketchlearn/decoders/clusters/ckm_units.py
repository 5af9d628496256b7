"""Linear units of Iterative CKM before anything is learned: how they are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIRST_VALUES", "MAX_PADDED", "MatrixLaw", "draw_units"]

MAX_PADDED = 196
"""Features that rows of the paper's form are padded to."""

FIRST_VALUES = {
    "radius": 1.0,
    "by_features": -0.12,
    "by_size": 0.27,
    "spread": -0.8,
    "axis": 0.0,
    "rate": -2.5,
    "initial_std": -1.7,
    "atom": -0.1,
    "pull": 0.3,
    "pull_by_features": 0.7,
    "pull_by_size": 0.8,
}
"""Learned numbers by name, where training begins; shipped weights have their own."""


def draw_units(
    n_features: int, n_units: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Unit vectors (n_features, n_units) and their normal places in a law (n_units)."""
    directions = rng.standard_normal((n_features, n_units), np.float32)
    directions /= np.linalg.norm(directions, axis=0)
    return directions, rng.standard_normal(n_units, np.float32)


@final
@dataclass(frozen=True, kw_only=True)
class MatrixLaw:
    r"""How W of the paper's form is drawn, before its entries are searched.

    A column is a vector of random direction and of length
    :math:`R\,e^{s q}`, q standard normal. Before it gets that length, entry i is

    .. math:: i^{-f} a_i + g\, b_i

    with white a and with b correlated as :math:`e^{-|i - j| / \ell}`: early features
    weigh more, so that narrow rows are seen, and neighbours of wide rows are seen
    together, as far as their order means anything.

    Examples
    --------
    >>> MatrixLaw().draw(500, np.random.default_rng(0)).shape
    (196, 500)
    """

    radius: float = 2.0
    """R."""

    spread: float = 0.3
    """s."""

    falloff: float = 0.7
    """f."""

    share: float = 0.2
    """g."""

    length: float = 10.0
    """:math:`\\ell`, in features."""

    def draw(self, n_units: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """W, of shape (196, n_units); fewer units are the first of more."""
        drawn = rng.standard_normal((n_units, 2 * MAX_PADDED + 1))
        white, noise, positions = np.split(drawn.T, [MAX_PADDED, 2 * MAX_PADDED])
        smooth, kept = noise, math.exp(-1 / self.length)
        for i in range(1, MAX_PADDED):
            smooth[i] = kept * smooth[i - 1] + math.sqrt(1 - kept**2) * noise[i]
        places = np.arange(1.0, MAX_PADDED + 1)[:, None]
        mixed = places**-self.falloff * white + self.share * smooth
        lengths = self.radius * np.exp(self.spread * positions)
        weight: NDArray[np.float64] = mixed * lengths / np.linalg.norm(mixed, axis=0)
        return weight
