r"""SipHash-2-4 of many messages at once: a hash of 64 bits under a key of 128.

Without the key nobody can tell which messages collide. Each message keeps a state of
four words; a round is twenty-six operations on arrays, whatever the messages are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["siphash"]

_START = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)

Words = NDArray[np.uint64]


def siphash(words: Iterable[Words], key: bytes, count: int) -> Words:
    """Hashes of messages that are given word by word.

    Parameters
    ----------
    words : iterable of uint64 array
        The first word of all messages, then the second, and so on. Where messages
        differ in length longer ones come first, and an array is as long as there are
        messages that still have a word. The last word of each holds its last bytes and
        in its highest byte the length of the message, modulo 256.
    key : bytes
        16 of them.
    count : int
        Number of messages.

    References
    ----------
    Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012.

    Examples
    --------
    >>> empty = np.zeros(1, np.uint64)
    >>> siphash([empty], bytes(range(16)), 1).tobytes().hex()
    '310e0edd47db6f72'
    """
    halves = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")]
    state = [np.full(count, _START[i] ^ halves[i % 2], np.uint64) for i in range(4)]
    spare = np.empty(count, np.uint64)
    for word in words:
        some = [part[: len(word)] for part in state]
        some[3] ^= word
        _rounds(some, spare[: len(word)], 2)
        some[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _rounds(state, spare, 4)
    state[0] ^= state[1]
    state[2] ^= state[3]
    state[0] ^= state[2]
    return state[0]


def _rounds(state: list[Words], spare: Words, times: int) -> None:
    """Mix states in place."""
    v0, v1, v2, v3 = state
    for _ in range(times):
        v0 += v1
        _rotate(v1, 13, spare)
        v1 ^= v0
        _rotate(v0, 32, spare)
        v2 += v3
        _rotate(v3, 16, spare)
        v3 ^= v2
        v0 += v3
        _rotate(v3, 21, spare)
        v3 ^= v0
        v2 += v1
        _rotate(v1, 17, spare)
        v1 ^= v2
        _rotate(v2, 32, spare)


def _rotate(words: Words, bits: int, spare: Words) -> None:
    """Rotate words to the left, in place."""
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    np.left_shift(words, np.uint64(bits), out=words)
    words |= spare
