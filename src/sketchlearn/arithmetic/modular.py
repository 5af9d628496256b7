"""Sums modulo 2**128: the only additions here that wrap around.

Exact totals refuse to leave 128 bits (:mod:`sketchlearn.arithmetic.exact`). What is
hidden by a uniform mask must wrap instead, or its size would tell of what it hides.
"""

from __future__ import annotations

import numpy as np

from sketchlearn.arithmetic.exact import Int128Array

__all__ = ["add_modulo", "from_stream", "subtract_modulo"]


def add_modulo(left: Int128Array, right: Int128Array) -> Int128Array:
    """``left + right`` modulo 2**128, as signed numbers.

    Examples
    --------
    >>> most, one = Int128Array.from_ints([2**127 - 1]), Int128Array.from_ints([1])
    >>> add_modulo(most, one).to_ints() == [-(2**127)]
    True
    """
    low = left.lo + right.lo
    high = left.hi + right.hi + (low < left.lo)
    return Int128Array(high, low)


def subtract_modulo(left: Int128Array, right: Int128Array) -> Int128Array:
    """``left - right`` modulo 2**128, as signed numbers.

    Examples
    --------
    >>> least, one = Int128Array.from_ints([-(2**127)]), Int128Array.from_ints([1])
    >>> subtract_modulo(least, one).to_ints() == [2**127 - 1]
    True
    """
    low = left.lo - right.lo
    high = left.hi - right.hi - (left.lo < right.lo)
    return Int128Array(high, low)


def from_stream(stream: bytes) -> Int128Array:
    """Numbers of 16 bytes each, little-endian, two's complement.

    Examples
    --------
    >>> from_stream(bytes([2] + [0] * 15 + [255] * 16)).to_ints()
    [2, -1]
    """
    words = np.frombuffer(stream, "<u8").reshape(-1, 2).astype(np.uint64)
    low, high = np.ascontiguousarray(words.T)
    return Int128Array(high.view(np.int64), low)
