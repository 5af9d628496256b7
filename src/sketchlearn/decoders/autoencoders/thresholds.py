r"""From where on an entry is a one: chosen from the moments of the rows alone.

Balanced accuracy weighs every one by :math:`1/2\pi` and every zero by
:math:`1/2(1 - \pi)`, with :math:`\pi` the share of ones. A linear reconstruction of a
feature is spread around two means, one for zeros and one for ones, and the sketch knows
both: :math:`\mu - r\mu` and :math:`\mu + r(1 - \mu)` with the share r of the
feature's variance that comes back.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["balanced_threshold", "share_of_ones"]

Array: TypeAlias = NDArray[np.float64]

_N_THRESHOLDS = 97
"""Thresholds that are tried, from 0.02 to 0.98: steps of a hundredth."""


def balanced_threshold(mean: Array, explained: Array) -> float:
    r"""The threshold that makes the balanced accuracy of a reconstruction largest.

    Reconstructions of a feature are taken to be normal given its value, with variance
    :math:`r(1 - r)\mu(1 - \mu)`.

    Parameters
    ----------
    mean : array of shape (d,)
        Share of ones of each feature.
    explained : array of shape (d,)
        Share r of each feature's variance that comes back.

    Examples
    --------
    >>> balanced_threshold(np.array([0.5, 0.5]), np.array([0.9, 0.9]))
    0.5
    """
    mean, r = np.clip(mean, 0.0, 1.0), np.clip(explained, 0.0, 1.0)
    spread = np.sqrt(np.maximum(r * (1 - r) * mean * (1 - mean), 1e-8))
    thresholds = np.linspace(0.02, 0.98, _N_THRESHOLDS)
    above = mean + r * (1 - mean) - thresholds[:, None]
    below = thresholds[:, None] - (mean - r * mean)
    ones = (mean * ndtr(above / spread)).sum(axis=1) / max(mean.sum(), 1e-12)
    zeros = ((1 - mean) * ndtr(below / spread)).sum(axis=1)
    scores = ones + zeros / max((1 - mean).sum(), 1e-12)
    best = np.flatnonzero(scores >= scores.max() * (1 - 1e-9))
    return float(np.round(thresholds[best].mean(), 9))


def share_of_ones(mean: NDArray[np.floating]) -> float:
    """Share of all entries that are ones, kept away from 0 and 1."""
    return float(np.clip(np.clip(mean, 0.0, 1.0).mean(), 1e-4, 1 - 1e-4))
