"""Linear units of Iterative CKM before anything is learned: how they are drawn."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIRST_VALUES", "MAX_PADDED", "draw_units", "first_weight"]

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


def first_weight(n_units: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """W to begin with: early features weigh more, so that narrow rows are seen."""
    directions, positions = draw_units(MAX_PADDED, n_units, rng)
    uneven = directions / np.sqrt(np.arange(1.0, MAX_PADDED + 1))[:, None]
    spread = math.exp(FIRST_VALUES["spread"]) * positions.astype(np.float64)
    weight: NDArray[np.float64] = uneven / np.linalg.norm(uneven, axis=0)
    return weight * np.exp(FIRST_VALUES["radius"] + spread)
