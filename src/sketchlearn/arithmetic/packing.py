r"""Whole numbers of few bits, packed one after the other without a gap.

Numbers :math:`v_0, \dots, v_{m-1}` with the least of them :math:`v` are the bytes of

.. math:: \sum_i (v_i - v)\, 2^{b i},

least byte first, where :math:`b \ge 1` is the fewest bits that hold the largest
difference: :math:`\lceil b m / 8\rceil` bytes. There is one such form of any numbers.
This module knows nothing of what they count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["PackedInts", "bits_of", "pack_ints", "packed_bytes", "unpack_ints"]

_PACKED_AT_ONCE = 2**16
"""Numbers to pack at once: as each of their bits is a byte for a moment, what is needed
beside the numbers stays at a few megabytes. A multiple of 8, so that blocks end where
bytes do."""

_WORD = (1 << 64) - 1


@final
@dataclass(frozen=True, eq=False)
class PackedInts:
    """Whole numbers as bits.

    Parameters
    ----------
    least : int
        The least of them, to be added to each.
    bits : int
        Bits of each, 1 to 64.
    data : uint8 array
        ``packed_bytes(size, bits)`` bytes.
    """

    least: int
    bits: int
    data: NDArray[np.uint8]


def packed_bytes(size: int, bits: int) -> int:
    """How many bytes so many numbers of so many bits take.

    Examples
    --------
    >>> packed_bytes(100, 7)
    88
    """
    return (size * bits + 7) // 8


def bits_of(values: NDArray[np.int64]) -> int:
    """How many bits each of these numbers takes, 1 at least.

    Examples
    --------
    >>> bits_of(np.array([-3, 0, 4])), bits_of(np.array([9]))
    (3, 1)
    """
    return max(1, (int(values.max()) - int(values.min())).bit_length())


def pack_ints(values: NDArray[np.int64]) -> PackedInts:
    """Pack one number or more.

    Examples
    --------
    >>> packed = pack_ints(np.array([-1, 2, 0, 1]))
    >>> packed.least, packed.bits, [f"{byte:08b}" for byte in packed.data]
    (-1, 2, ['10011100'])
    """
    least, bits = int(values.min()), bits_of(values)
    # Wraps modulo 2**64 by design: the true difference is below 2**64.
    above = values.view(np.uint64) - np.uint64(least & _WORD)
    data = np.empty(packed_bytes(len(values), bits), np.uint8)
    for numbers, place in _blocks(len(values), bits):
        octets = above[numbers].astype("<u8").view(np.uint8).reshape(-1, 8)
        flags = np.unpackbits(octets, axis=1, count=bits, bitorder="little")
        data[place] = np.packbits(flags, bitorder="little")
    return PackedInts(least, bits, data)


def unpack_ints(packed: PackedInts, size: int) -> NDArray[np.int64]:
    """So many numbers again.

    Examples
    --------
    >>> unpack_ints(PackedInts(-1, 2, np.array([0b10011100], np.uint8)), 4)
    array([-1,  2,  0,  1])
    """
    bits = packed.bits
    above = np.empty(size, np.uint64)
    for numbers, place in _blocks(size, bits):
        count = numbers.stop - numbers.start
        flags = np.unpackbits(
            packed.data[place], count=count * bits, bitorder="little"
        ).reshape(count, bits)
        octets = np.zeros((count, 8), np.uint8)
        octets[:, : (bits + 7) // 8] = np.packbits(flags, axis=1, bitorder="little")
        above[numbers] = octets.view("<u8")[:, 0]
    above += np.uint64(packed.least & _WORD)  # wraps, as in packing
    return above.view(np.int64)


def _blocks(size: int, bits: int) -> Iterator[tuple[slice, slice]]:
    """Which numbers are in which bytes, block by block."""
    for start in range(0, size, _PACKED_AT_ONCE):
        stop = min(start + _PACKED_AT_ONCE, size)
        yield (
            slice(start, stop),
            slice(start * bits // 8, packed_bytes(stop, bits)),
        )
