"""Batches of correlations with a sketch of each, and the cases of a validation."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.backend import Tensor
from sketchlearn.meta.correlation_matrices import dataset_correlations
from sketchlearn.meta.datasets import MetaDataset

__all__ = ["Case", "Episodes", "checked_cases", "thinned"]

CHECKED_SIZES = (100, 500, 1000, 2000)
"""Sketch sizes of the validation, as in the paper's figures."""


@final
class Episodes(NamedTuple):
    """A batch: correlations, and a sketch of each."""

    matrices: Tensor
    """P, shape (b, d, d)."""

    omega: Tensor
    """Ω, shape (b, p, n_columns)."""

    seen: Tensor
    """P Ω of the features with room, and noise."""

    places: Tensor
    """Where these features stand, shape (p,)."""

    noise: Tensor
    """Standard deviation of the noise on P Ω, shape (b,)."""


Case = tuple[int, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]
"""Sketch size, correlations, features with room, and Ω."""


def checked_cases(
    data: MetaDataset, max_features: int, *, in_order: bool
) -> list[Case]:
    """Sketch size, correlations, features with room and Ω: always the same.

    Features are in random order and, if asked for, in their own as well.
    """
    whole = dataset_correlations(data, active_only=True).astype(np.float64)
    rng = np.random.default_rng(0)
    drawn = rng.permutation(len(whole))[:max_features]
    orders = [drawn, np.sort(drawn)] if in_order else [drawn]
    cases: list[Case] = []
    for chosen in orders:
        matrix, d = whole[np.ix_(chosen, chosen)], len(chosen)
        for size in CHECKED_SIZES:
            if d * (d + 1) // 2 > size:
                places = thinned(d, min(d, size), rng)
                columns = max(size // len(places), 1)
                seed = int(rng.integers(2**62))
                omega = random_groups(len(places), columns, seed)
                cases.append((size, matrix, places, omega))
    return cases


def thinned(d: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many of d places, one out of each of as many stretches of about equal length.

    Examples
    --------
    >>> thinned(4, 4, np.random.default_rng(0)).tolist()
    [0, 1, 2, 3]
    """
    starts = np.arange(count + 1) * d // count
    return rng.integers(starts[:-1], starts[1:])
