r"""Observed noise: whether numbers have the law that was stated of them.

Each test is passed by noise of that law but for a chance of :math:`10^{-9}`. What is
rarer than one number in the table is not seen here: far tails are reached by
:mod:`sketchlearn.privacy.forced_draws`.
"""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm, poisson

__all__ = ["count_fault", "noise_fault", "smallest_found"]

_CHANCE = 1e-9
"""That a test finds a fault where there is none; an audit makes about 100."""

_WIDEST_PAIRS = 512
"""Numbers of a release whose pairs are compared: the first and the last of them."""


def noise_fault(noise: list[list[int]], sigma: int) -> str | None:
    """What is wrong with noise that should be independent and of ``sigma``."""
    flat = [value for row in noise for value in row]
    if any(type(value) is not int for value in flat):
        return "numbers that are no whole steps of the lattice"
    z = np.array(flat, np.float64).reshape(len(noise), -1) / sigma
    (n, m), size = z.shape, z.size
    far = float(norm.isf(_CHANCE / 2))
    repeats = size - len({abs(value) for value in flat})
    if poisson.sf(repeats - 1, size**2 / (2 * sqrt(pi) * sigma)) < _CHANCE:
        return "noise that repeats"
    if abs(2 * sum(value & 1 for value in flat) - size) > far * sqrt(size):
        return "lowest bits that are not fair"
    squares = z**2
    columns = chi2.cdf(squares.sum(axis=0), n)
    whole = chi2.cdf(squares.sum(), size)
    if not _CHANCE / m < min(columns) <= max(columns) < 1 - _CHANCE / m:
        return "another spread of one number than stated"
    if not _CHANCE < whole < 1 - _CHANCE:
        return "another spread than stated"
    edges = np.arange(-4.0, 4.25, 0.5)
    if _misfit(z.ravel(), edges, norm.cdf(edges)):
        return "another shape than that of Gaussian noise"
    if m > 1 and _correlation(z) > norm.isf(_CHANCE / (m * m)) / sqrt(n):
        return "numbers of one release that share noise"
    if abs((z[1:] * z[:-1]).sum()) > far * sqrt(size):
        return "releases that share noise"
    return None


def count_fault(counts: NDArray[np.int64], epsilon: float) -> str | None:
    """What is wrong with the noise of Laplace counts."""
    decay = exp(-epsilon)
    edges = np.unique(np.ceil(np.arange(0.25, 5, 0.25) / epsilon))
    if _misfit(np.abs(counts), edges, 1 - 2 * decay**edges / (1 + decay)):
        return "another spread of the count than stated"
    signs = np.sign(counts)
    if abs(signs.sum()) > norm.isf(_CHANCE / 2) * sqrt(np.abs(signs).sum() + 1):
        return "a count that leans to one side"
    return None


def smallest_found(numbers: int) -> float:
    """The part that noise must lack to be found in 999 of 1,000 such tables."""
    return float(norm.isf(_CHANCE) + norm.isf(1e-3)) / sqrt(2 * numbers)


def _correlation(z: NDArray[np.float64]) -> float:
    """The largest between two numbers of a release."""
    half = _WIDEST_PAIRS // 2
    if z.shape[1] > _WIDEST_PAIRS:
        z = np.concatenate([z[:, :half], z[:, -half:]], axis=1)
    table = np.corrcoef(z, rowvar=False) - np.eye(z.shape[1])
    return float(np.abs(table).max())


def _misfit(
    values: NDArray[Any], edges: NDArray[np.float64], below: NDArray[np.float64]
) -> bool:
    """Whether values are below edges another part of the time than they should."""
    common = np.minimum(below, 1 - below) * len(values) >= 25
    found = np.searchsorted(edges[common], values, side="right")
    counts = np.bincount(found, minlength=common.sum() + 1)
    expected = np.diff(below[common], prepend=0.0, append=1.0) * len(values)
    return bool(
        chi2.sf(((counts - expected) ** 2 / expected).sum(), common.sum()) < _CHANCE
    )
