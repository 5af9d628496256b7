r"""Keys: the 64 bits by which an item is known, in every language and for ever.

An integer is its own key, in two's complement. The key of a text is a hash of its
UTF-8 bytes. Let these be :math:`n` bytes, cut into words of eight, each read as a
number with its lowest byte first and the last one padded with zeros (no bytes are one
word of zeros). Then, modulo :math:`2^{64}`,

.. math::
    \mathrm{key} = M\Big(n + G + \sum_k M\big(w_k + (k + 1)\, G\big)\Big), \qquad
    G = \texttt{0x9E3779B97F4A7C15},

where :math:`M` is the mixing function of splitmix64: :math:`M(w + (k + 1) G)` is the
number after :math:`k` others that this generator draws from the seed :math:`w`. Sums
have no order, so all words of many texts are hashed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.arithmetic.draws import GOLDEN, hash_keys
from sketchlearn.rows.items import Keys

__all__ = ["Texts", "integer_keys"]

_AT_ONCE = 2**15
"""Texts hashed at once: what they need stays in the cache."""

_AT_ONCE_BYTES = 2**22
"""The same, of long texts."""

_SHORT_WORDS = 8
"""Words of a text that are hashed one after the other, for all texts at once."""

_KEPT = np.array([2 ** (8 * n) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
"""Of a word of which n bytes belong to the text: the bits of these."""


def integer_keys(values: NDArray[np.integer]) -> Keys:
    """Keys of integers of any type: themselves, in two's complement.

    Examples
    --------
    >>> integer_keys(np.array([5, -1], np.int8)).tolist()
    [5, 18446744073709551615]
    """
    wide = np.uint64 if values.dtype.kind == "u" else np.int64
    return np.ascontiguousarray(values, wide).view(np.uint64)


@final
@dataclass(frozen=True, eq=False)
class Texts:
    """Some texts as bytes: text i is ``data[starts[i]:starts[i] + lengths[i]]``.

    Parameters
    ----------
    data : uint8 array
        Bytes of all texts.
    starts, lengths : int64 array
        Where each of them is; they do not overlap, and later ones stand later.

    Examples
    --------
    >>> [hex(key) for key in Texts.from_arrow(pa.array(["", "item"])).keys.tolist()]
    ['0xa706dd2f4d197e6f', '0x15cbb6b4417e162']
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def from_arrow(cls, texts: pa.Array) -> Texts:
        """Of an Arrow array of (large) strings or binaries, none of them missing."""
        large = pa.types.is_large_string(texts.type)
        large = large or pa.types.is_large_binary(texts.type)
        _, places, data = texts.buffers()
        if not len(texts) or places is None:
            nothing = np.zeros(0, np.int64)
            return cls(np.zeros(0, np.uint8), nothing, nothing)
        offsets = np.frombuffer(places, np.int64 if large else np.int32)
        offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
        whole = np.zeros(0, np.uint8)
        if data is not None:
            whole = np.frombuffer(data, np.uint8)
        starts = offsets[:-1].astype(np.int64)
        return cls(whole, starts, np.diff(offsets).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, positions: NDArray[np.int64]) -> list[bytes]:
        """Some of the texts."""
        starts, ends = self.starts[positions], (self.starts + self.lengths)[positions]
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return [self.data[start:end].tobytes() for start, end in pairs]

    def part(self, start: int, stop: int) -> Texts:
        """Some of the texts, one after the other."""
        return Texts(self.data, self.starts[start:stop], self.lengths[start:stop])

    @cached_property
    def keys(self) -> Keys:
        """Their hashes, as the head of this module defines them."""
        keys = np.empty(len(self), np.uint64)
        first = 0
        while first < len(self):
            begin = self.starts[first]
            until = int(np.searchsorted(self.starts, begin + _AT_ONCE_BYTES))
            stop = max(first + 1, min(first + _AT_ONCE, until))
            starts, lengths = self.starts[first:stop], self.lengths[first:stop]
            end = int(starts[-1] + lengths[-1])
            padded = np.zeros(end - begin + 8 * _SHORT_WORDS, np.uint8)
            padded[: end - begin] = self.data[begin:end]
            keys[first:stop] = _hash(padded, starts - begin, lengths)
            first = stop
        return keys


def _hash(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Keys:
    """Hashes of texts whose bytes are followed by as many zeros as are read of all."""
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    sums = _hash_words(words, starts, lengths, 0)
    longest = int(lengths.max())
    for number in range(1, min(-(-longest // 8), _SHORT_WORDS)):
        reach = lengths > 8 * number
        if 2 * np.count_nonzero(reach) > len(reach):
            sums += reach * _hash_words(words, starts, lengths, number)
        else:
            sums[reach] += _hash_words(words, starts[reach], lengths[reach], number)
    long = np.flatnonzero(lengths > 8 * _SHORT_WORDS)
    if len(long):
        sums[long] += _hash_long(words, starts[long], lengths[long])
    sums += lengths.view(np.uint64)
    return hash_keys(sums, 0)


def _hash_words(
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    number: int | NDArray[np.int64],
) -> NDArray[np.uint64]:
    """The hash of the word with this number, of each text."""
    found = words[starts + 8 * number].astype(np.uint64, copy=False)
    found &= _KEPT.take(lengths - 8 * number, mode="clip")
    found += np.atleast_1d(number).astype(np.uint64) * np.uint64(GOLDEN)
    return hash_keys(found, 0)


def _hash_long(
    words: NDArray[np.uint64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Sums of the hashes of all but the first words of long texts."""
    counts = -(-lengths // 8) - _SHORT_WORDS
    firsts = np.cumsum(counts) - counts
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(owners)) - firsts[owners] + _SHORT_WORDS
    hashes = _hash_words(words, starts[owners], lengths[owners], numbers)
    sums: NDArray[np.uint64] = np.add.reduceat(hashes, firsts)
    return sums
