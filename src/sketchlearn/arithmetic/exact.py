r"""Exact totals: features are integers, and integers add without error.

A feature :math:`f` lies on the lattice :math:`2^{-k}\mathbb{Z}` of its map: it is an
integer :math:`q = 2^k f`. Integers are summed in int64
for as long as that is safe and then carried into 128 bits, so that a total does not
depend on order, batch size or partition, and ``(a + b) - b`` is ``a`` to the bit.
This module knows nothing of rows, maps or sketches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, frexp
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowRangeError

__all__ = [
    "FEATURE_BITS",
    "SAFE_ROWS",
    "Int128Array",
    "frac_bits_for",
    "lattice_round",
    "lattice_sum",
]

FEATURE_BITS = 44
"""Integer features have so many bits, unless their map says otherwise."""

SAFE_ROWS = 2**18
"""This many integer features add up in int64 with one bit to spare."""

_LOW_WORD = (1 << 64) - 1
"""The lower 64 bits."""

_WHOLE_FLOATS = 2**53
"""Whole numbers up to this are float64, and their quotients are rounded once."""

_SAFE_EXPONENT = 900
"""Quotients of whole floats are at least 2**-53: scaled down by up to this power of
two they are still normal, so that nothing rounds twice."""

_ROUGHLY = 1e-9
"""Comparisons closer than this are made again with Python integers; the float64 values
that decide the others are off by 2**-51 at most, norms of 2**24 entries by 2**-30."""


def frac_bits_for(bound: float) -> int:
    """Finest lattice on which values up to ``bound`` stay within 44 bits.

    Returns ``k = 44 - ceil(log2(bound))``: the lattice step is ``2**-k``.

    Examples
    --------
    >>> frac_bits_for(1.0), frac_bits_for(1024.0), frac_bits_for(1025.0)
    (44, 34, 33)
    """
    if not 0 < bound < float("inf"):
        raise ValueError(f"bound must be a positive finite number; got {bound!r}.")
    mantissa, exponent = frexp(bound)
    return FEATURE_BITS - ceil(exponent - (mantissa == 0.5))


def lattice_round(features: NDArray[np.floating], frac_bits: int) -> NDArray[np.int64]:
    """Nearest lattice integers, ties to even: ``rint(features * 2**frac_bits)``.

    Values must satisfy ``abs(f) * 2**frac_bits < 2**51``.

    Examples
    --------
    >>> lattice_round(np.array([0.5, -0.25, 2.0**-45]), 44).tolist()
    [8796093022208, -4398046511104, 0]
    """
    # In the binade of the offset one unit in the last place is one lattice step, so
    # the addition itself rounds, and the bit patterns count lattice steps.
    offset = np.float64(1.5 * 2.0 ** (52 - frac_bits))
    shifted: NDArray[np.float64] = np.add(features, offset, dtype=np.float64)
    return shifted.view(np.int64) - offset.view(np.int64)


def lattice_sum(features: NDArray[np.floating], frac_bits: int) -> NDArray[np.int64]:
    """Exact column sums of the lattice integers of at most ``SAFE_ROWS`` rows.

    Equal to ``lattice_round(features, frac_bits).sum(axis=0)``, in two passes over
    memory.

    Examples
    --------
    >>> lattice_sum(np.array([[0.5, 1.0], [0.25, -1.0]], np.float32), 2).tolist()
    [3, 0]
    """
    assert len(features) <= SAFE_ROWS, "too many rows for an int64 sum"
    offset = np.float64(1.5 * 2.0 ** (52 - frac_bits))
    shifted: NDArray[np.float64] = np.add(features, offset, dtype=np.float64)
    total: NDArray[np.int64] = np.add.reduce(shifted.view(np.int64), axis=0)
    correction = (len(features) * int(offset.view(np.int64))) & _LOW_WORD
    # Wraps modulo 2**64 by design: the true total is below 2**63.
    wrapped = total.view(np.uint64) - np.uint64(correction)
    return wrapped.view(np.int64)


@final
@dataclass(frozen=True, eq=False)
class Int128Array:
    """A vector of signed 128-bit integers, ``hi * 2**64 + lo``.

    Addition and subtraction are exact; leaving the 128-bit range raises
    ``RowRangeError``, an ``OverflowError``.

    Parameters
    ----------
    hi : int64 array
        Upper words, two's complement.
    lo : uint64 array
        Lower words.

    Examples
    --------
    >>> a = Int128Array.from_ints([2**64, -1])
    >>> (a + a).to_ints(), (a - a).to_ints()
    ([36893488147419103232, -2], [0, 0])
    """

    hi: NDArray[np.int64]
    lo: NDArray[np.uint64]

    def __post_init__(self) -> None:
        assert self.hi.dtype == np.int64
        assert self.lo.dtype == np.uint64
        assert self.hi.shape == self.lo.shape == (self.hi.size,)
        self.hi.flags.writeable = False
        self.lo.flags.writeable = False

    @staticmethod
    def zeros(size: int) -> Int128Array:
        """All zero."""
        return Int128Array(np.zeros(size, np.int64), np.zeros(size, np.uint64))

    @staticmethod
    def from_int64(values: NDArray[np.int64]) -> Int128Array:
        """Widen."""
        low = np.ascontiguousarray(values, np.int64)
        return Int128Array(low >> 63, low.view(np.uint64).copy())

    def shifted(self, bits: int) -> Int128Array:
        """``self * 2**bits``, for ``bits >= 0``."""
        assert bits >= 0, "a lattice is refined, never made coarser"
        if bits == 0:
            return self
        if bits > 63:
            return self.shifted(63).shifted(bits - 63)
        carried = (self.lo >> np.uint64(64 - bits)).view(np.int64)
        hi = (self.hi << bits) | carried
        _refuse_overflow((hi >> bits) != self.hi)
        return Int128Array(hi, self.lo << np.uint64(bits))

    @staticmethod
    def from_ints(values: Iterable[int]) -> Int128Array:
        """From Python integers."""
        items = list(values)
        if any(not -(1 << 127) <= value < (1 << 127) for value in items):
            raise RowRangeError("a value does not fit in 128 bits.")
        hi = np.array([value >> 64 for value in items], np.int64)
        lo = np.array([value & _LOW_WORD for value in items], np.uint64)
        return Int128Array(hi, lo)

    def to_ints(self) -> list[int]:
        """As Python integers."""
        pairs = zip(self.hi.tolist(), self.lo.tolist(), strict=True)
        return [(hi << 64) + lo for hi, lo in pairs]

    def __len__(self) -> int:
        return len(self.hi)

    def __add__(self, other: Int128Array) -> Int128Array:
        lo = self.lo + other.lo
        hi = self.hi + other.hi + (lo < self.lo)
        _refuse_overflow(((self.hi ^ hi) & (other.hi ^ hi)) < 0)
        return Int128Array(hi, lo)

    def __sub__(self, other: Int128Array) -> Int128Array:
        lo = self.lo - other.lo
        hi = self.hi - other.hi - (self.lo < other.lo)
        _refuse_overflow(((self.hi ^ other.hi) & (self.hi ^ hi)) < 0)
        return Int128Array(hi, lo)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Int128Array):
            return NotImplemented
        return np.array_equal(self.hi, other.hi) and np.array_equal(self.lo, other.lo)

    __hash__ = None  # type: ignore[assignment]

    def less_than(self, other: Int128Array) -> NDArray[np.bool_]:
        """Elementwise ``self < other``."""
        tie: NDArray[np.bool_] = (self.hi == other.hi) & (self.lo < other.lo)
        return (self.hi < other.hi) | tie

    def within(self, low: int, high: int) -> bool:
        """Whether every entry lies in [low, high]."""
        least, most = max(low, -(1 << 127)), min(high, (1 << 127) - 1)
        if least > most:
            return len(self) == 0
        below = self.less_than(Int128Array.from_ints([least]))
        above = Int128Array.from_ints([most]).less_than(self)
        return not (below | above).any()

    def norm_at_most(self, bound: int) -> bool:
        """Whether the L2 norm is at most ``bound``, decided exactly."""
        rough = float(np.linalg.norm(self._rough()))
        if rough < bound * (1 - _ROUGHLY):
            return True
        others = self.take(np.flatnonzero((self.hi != 0) | (self.lo != 0)))
        return sum(value * value for value in others.to_ints()) <= bound * bound

    def _rough(self) -> NDArray[np.float64]:
        """The entries as float64, to about 52 bits."""
        negative = self.hi < 0
        # Of a negative number the two's complement, or its low word would round away.
        low = np.where(negative, ~self.lo + np.uint64(1), self.lo)
        carry = negative & (self.lo == 0)
        high = np.where(negative, ~self.hi + carry, self.hi)
        size = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
        rough: NDArray[np.float64] = np.where(negative, -size, size)
        return rough

    def where(self, mask: NDArray[np.bool_], other: Int128Array) -> Int128Array:
        """``self`` where ``mask`` holds, ``other`` elsewhere."""
        hi = np.where(mask, self.hi, other.hi)
        return Int128Array(hi, np.where(mask, self.lo, other.lo))

    def take(self, indices: NDArray[np.integer]) -> Int128Array:
        """The entries at these places."""
        return Int128Array(self.hi[indices], self.lo[indices])

    def divided_by(self, divisor: int) -> NDArray[np.float64]:
        """Quotients as float64, each correctly rounded.

        Powers of two that all entries have in common, and those of the divisor, change
        the exponent only. Where what is left are whole numbers of at most 53 bits, the
        division of floats rounds once; the other entries are divided as Python
        integers, which round correctly as well.
        """
        if divisor <= 0:
            return np.array([value / divisor for value in self.to_ints()], np.float64)
        common, own = self._common_twos(), _twos(divisor)
        odd = divisor >> own
        if odd > _WHOLE_FLOATS or own - common > _SAFE_EXPONENT:
            return np.array([value / divisor for value in self.to_ints()], np.float64)
        reduced = self._halved(common)
        low = reduced.lo.view(np.int64)
        small = (low >= -_WHOLE_FLOATS) & (low <= _WHOLE_FLOATS)
        small &= reduced.hi == low >> 63
        quotients: NDArray[np.float64] = np.ldexp(low / float(odd), common - own)
        rest = np.flatnonzero(~small)
        quotients[rest] = [value / divisor for value in self.take(rest).to_ints()]
        return quotients

    def in_units(self, bits: int) -> NDArray[np.int64] | None:
        """``self / 2**bits`` as int64; None unless all quotients are whole and fit.

        Examples
        --------
        >>> Int128Array.from_ints([2**70, -(2**69)]).in_units(69)
        array([ 2, -1])
        >>> Int128Array.from_ints([3]).in_units(1) is None
        True
        """
        if bits > 127:
            return None if self.hi.any() or self.lo.any() else self.hi
        if bits > self._common_twos():
            return None
        halved = self._halved(bits)
        low = halved.lo.view(np.int64)
        return low if (halved.hi == low >> 63).all() else None

    def block_sums(self, length: int) -> list[int]:
        """Sums of every ``length`` entries after one another, as Python integers.

        Examples
        --------
        >>> Int128Array.from_ints([1, 2, 2**100, -5]).block_sums(2)
        [3, 1267650600228229401496703205371]
        """
        half = np.uint64(32)
        high = self.hi.view(np.uint64)
        quarters = [self.lo << half, self.lo, high << half]
        words = [(word >> half).view(np.int64) for word in quarters] + [self.hi >> 32]
        sums = [word.reshape(-1, length).sum(axis=1).tolist() for word in words]
        return [
            a + (b << 32) + (c << 64) + (d << 96)
            for a, b, c, d in zip(*sums, strict=True)
        ]

    def _halved(self, bits: int) -> Int128Array:
        """``floor(self / 2**bits)``, for ``0 <= bits <= 127``."""
        if bits == 0:
            return self
        if bits > 63:
            top = Int128Array(self.hi >> 63, self.hi.view(np.uint64))
            return top._halved(bits - 64)
        carried = self.hi.view(np.uint64) << np.uint64(64 - bits)
        return Int128Array(self.hi >> bits, (self.lo >> np.uint64(bits)) | carried)

    def _common_twos(self) -> int:
        """The largest power of two that divides all entries; 127 if all are 0."""
        low = int(np.bitwise_or.reduce(self.lo))
        return _twos(low or int(np.bitwise_or.reduce(self.hi)) << 64 or 1 << 127)

    def tobytes(self) -> bytes:
        """Little-endian upper words, then lower words."""
        return self.hi.astype("<i8").tobytes() + self.lo.astype("<u8").tobytes()

    @staticmethod
    def concatenate(parts: Sequence[Int128Array]) -> Int128Array:
        """One vector after the other."""
        hi = np.concatenate([part.hi for part in parts])
        return Int128Array(hi, np.concatenate([part.lo for part in parts]))


def _twos(value: int) -> int:
    """The largest power of two that divides a number other than 0."""
    return (value & -value).bit_length() - 1


def _refuse_overflow(mask: NDArray[np.bool_]) -> None:
    if mask.any():
        raise RowRangeError(
            "an exact total left the range of 128 bits: no rows can have summed to it."
        )
