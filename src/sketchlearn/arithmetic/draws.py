r"""Draws that are the same everywhere: random weights from a seed, for ever.

A feature map that names its seed must give the same weights in ten years, on another
machine and in another language. So uniform numbers are a hash of their position (the
generator splitmix64), and what is made of them uses
:mod:`sketchlearn.arithmetic.elementary` only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.arithmetic.elementary import cosines_of_turns, log, sequential_sum

__all__ = ["GOLDEN", "Draws", "hash_keys"]

GOLDEN = 0x9E3779B97F4A7C15
"""Step of splitmix64: 2**64 over the golden ratio, odd. Part of every drawn weight."""


class Draws:
    """A stream of random numbers that depends on its seed alone.

    Parameters
    ----------
    seed : int
        Same seed, same numbers.

    Examples
    --------
    >>> [round(float(x), 6) for x in Draws(0).uniform(2)]
    [0.883311, 0.431528]
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._next = int(seed), 0

    def words(self, count: int) -> NDArray[np.uint64]:
        """64 random bits each."""
        places = np.arange(self._next, self._next + count, dtype=np.uint64)
        self._next += count
        return hash_keys(places * np.uint64(GOLDEN), self._seed)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """In (0, 1), odd multiples of :math:`2^{-53}`."""
        steps = (self.words(count) >> np.uint64(12)).astype(np.float64)
        uniform: NDArray[np.float64] = (steps + 0.5) * 2.0**-52
        return uniform

    def normal(self, *shape: int) -> NDArray[np.float64]:
        r"""Standard normal, by pairs :math:`\sqrt{-2\ln u}\,(\cos, \sin)(2\pi v)`."""
        count = int(np.prod(shape, dtype=np.int64))
        half = -(-count // 2)
        radii = np.sqrt(-2 * log(self.uniform(half)))
        cosines, sines = cosines_of_turns(self.uniform(half))
        both = np.stack([radii * cosines, radii * sines], axis=1)
        return both.ravel()[:count].reshape(shape)

    def directions(self, n_features: int, count: int) -> NDArray[np.float64]:
        """Columns uniform on the unit sphere, shape (n_features, count)."""
        columns = self.normal(n_features, count)
        return columns / np.sqrt(sequential_sum(columns * columns))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The numbers below ``count`` in random order."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)


def hash_keys(keys: ArrayLike, seed: int) -> NDArray[np.uint64]:
    """Stable 64-bit hashes (splitmix64): the same on every machine, for ever.

    Parameters
    ----------
    keys : array of uint64
        What to hash.
    seed : int
        Different seeds give unrelated hashes.

    Examples
    --------
    >>> hex(int(hash_keys(np.array([0], np.uint64), 0)[0]))
    '0xe220a8397b1dcdaf'
    """
    # Two rounds, so that neighbouring seeds do not give shifted hash sequences.
    start = np.uint64(0)
    if seed:
        start = _mix(np.array([seed * GOLDEN % 2**64], np.uint64))[0]
    with np.errstate(over="ignore"):
        return _mix(np.asarray(keys, np.uint64) + (start + np.uint64(GOLDEN)))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix an array in place: half of the time of large ones is writing to memory."""
    part = z >> np.uint64(30)
    z ^= part
    z *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(z, np.uint64(27), out=part)
    z ^= part
    z *= np.uint64(0x94D049BB133111EB)
    np.right_shift(z, np.uint64(31), out=part)
    z ^= part
    return z
