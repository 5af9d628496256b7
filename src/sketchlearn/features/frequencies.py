"""Random frequencies: laws to draw them by, and the rounding of rows for them."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.arithmetic.elementary import TURN, ceil_log2, floor_log2, log
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_bound, require_positive_int
from sketchlearn.features.cost import LOOP, Cost
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import Sinusoids

__all__ = ["FrequencyLaw", "random_sinusoids", "sinusoid_cost"]

FrequencyLaw = Literal["gaussian", "folded", "adapted"]

_SINUSOID_ROW_BITS = 16
"""Rows are rounded to this many bits below the scale of the kernel, and one more for
every four times as many features: errors of many features add up."""

_FREQUENCY_BITS = 16
"""And frequencies, in turns per scale, to this many."""

_SINUSOID_LIMIT = 2.0**52


def random_sinusoids(
    n_features: int,
    count: int,
    *,
    scale: float,
    law: FrequencyLaw,
    seed: int,
    scaling: Scaling | None,
    octaves: int = 1,
) -> tuple[RowLattice, Sinusoids]:
    """Sinusoids at random frequencies of a law, and the rounding of rows for them."""
    scale = require_bound("scale", scale)
    if law not in get_args(FrequencyLaw):
        raise FeatureMapError(
            f"law must be one of {', '.join(get_args(FrequencyLaw))}; got {law!r}."
        )
    require_positive_int("n_features", n_features)
    fine = _SINUSOID_ROW_BITS + ceil_log2(n_features) // 2
    row_bits = fine - floor_log2(scale)
    turns = _unit_frequencies(n_features, count, law, seed) / (TURN * scale)
    sinusoids = Sinusoids(
        turns,
        row_bits=row_bits,
        phase_bits=fine + _FREQUENCY_BITS,
        octaves=octaves,
    )
    return RowLattice(scaling, row_bits, _SINUSOID_LIMIT), sinusoids


def sinusoid_cost(n_features: int, sketch_size: int, *, octaves: int = 1) -> Cost:
    """What random frequencies take."""
    d, m = n_features, sketch_size
    h = -(-m // (2 * octaves))
    numbers = (6 + 2 * octaves) * d * h + 40 * h + 8 * m
    work = (100 + 20 * octaves) * d * h + LOOP * (d + h)
    return Cost(d, m, numbers, work)


def _unit_frequencies(
    n_features: int, count: int, law: FrequencyLaw, seed: int
) -> NDArray[np.float64]:
    """Columns of unit scale, shape (n_features, count)."""
    draws = Draws(seed)
    if law == "gaussian":
        return draws.normal(n_features, count)
    directions = draws.directions(n_features, count)
    if law == "folded":
        return directions * np.abs(draws.normal(count))
    return directions * _adapted_radii(count, draws)


def _adapted_radii(count: int, draws: Draws) -> NDArray[np.float64]:
    """Exact draws from the adapted-radius law, by rejection from Gamma(3/2).

    Such a Gamma variable is half the square of a normal one plus an exponential one.
    """
    radii = np.empty(0)
    while len(radii) < count:
        tries = 4 * count + 16
        gamma = np.square(draws.normal(tries)) / 2 - log(draws.uniform(tries))
        radii = np.concatenate([radii, 2 * np.sqrt(gamma[gamma >= 2] / 2 - 1)])
    return radii[:count]
