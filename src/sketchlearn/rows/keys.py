r"""Keys: the 64 bits by which an item is known, in every language and for ever.

How an item becomes a key is a recipe, which the map of a sketch names; those of
different recipes never meet. Texts are taken by their UTF-8 bytes.

``siphash``
    An integer is its own key, in two's complement. The key of a text of up to 512 bytes
    is SipHash-2-4 under the key ``00 01 .. 0f``, and of a longer one BLAKE2b of 8
    bytes under that key, read with the lowest byte first. Everybody can compute it: who
    chooses texts finds two of one key in :math:`2^{32}` tries, and one of a given key
    in :math:`2^{64}`.
``siphash:`` and 32 hexadecimal digits
    The same under a secret key, which the digits tell from others, and integers are
    hashed as well (SipHash-2-4 of eight bytes, under another key made from the same
    secret): who does not know it cannot tell which items collide.
``sums``
    What sketches name that name no recipe. An integer is its own key. A text of
    :math:`n` bytes is cut into words of eight, each read as a number with its lowest
    byte first and the last one padded with zeros (no bytes are one word of zeros).
    Then, modulo :math:`2^{64}`,

    .. math::
        \mathrm{key} = M\Big(n + G + \sum_k M\big(w_k + (k + 1)\, G\big)\Big), \qquad
        G = \texttt{0x9E3779B97F4A7C15},

    where :math:`M` is the mixing function of splitmix64. Anybody makes a text of a
    given key in a minute: it is there to read, extend and merge older sketches.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import GOLDEN, hash_keys
from sketchlearn.arithmetic.siphash import siphash
from sketchlearn.errors import FeatureMapError
from sketchlearn.rows.items import Keys
from sketchlearn.rows.texts import AT_ONCE, SHORT_WORDS, Texts

__all__ = ["SIPHASH", "SUMS", "ItemKey", "KeyRecipe", "integer_keys"]
__public__ = ["ItemKey"]

_PUBLIC_KEY = bytes(range(16))

_LONG_BYTES = 512
"""Texts beyond it are hashed one by one: there are few, and their words are many."""

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
class ItemKey(bytes):
    """A secret under which items are hashed: at least 16 random bytes, shown nowhere.

    Who chooses ids can choose such as fall together, unless the hash has a key that he
    does not know. Files of sketches hold 128 bits of a digest of the key, to tell it
    from others; a pickled map or estimator holds the key itself.

    Parameters
    ----------
    secret : bytes
        At least 16. Keep it where you keep passwords: without it the sketch can be
        merged, and neither asked nor added to.

    Examples
    --------
    >>> ItemKey(bytes(16))
    ItemKey(...)
    >>> len(ItemKey.generate())
    32
    """

    def __new__(cls, secret: bytes) -> Self:
        """Check that a secret is one."""
        if not isinstance(secret, bytes) or len(secret) < 16:
            size = f" of {len(secret)}" if isinstance(secret, bytes) else ""
            raise FeatureMapError(
                f"the key of items must be 16 or more secret bytes; got a "
                f"{type(secret).__name__}{size}. Make one with ItemKey.generate()."
            )
        return super().__new__(cls, secret)

    @classmethod
    def generate(cls) -> Self:
        """A new key, of 32 bytes of the operating system."""
        return cls(os.urandom(32))

    @override
    def __repr__(self) -> str:
        return "ItemKey(...)"

    __str__ = __repr__


@final
@dataclass(frozen=True)
class KeyRecipe:
    """How items become keys; see the head of this module.

    Parameters
    ----------
    name : str
        What descriptions of maps call it.
    key : ItemKey, optional
        The secret, if the recipe has one and it is at hand.
    """

    name: str
    key: ItemKey | None = field(default=None, compare=False)

    @classmethod
    def under(cls, key: bytes | None) -> KeyRecipe:
        """The recipe of a key, or the public one."""
        if key is None:
            return SIPHASH
        secret = ItemKey(key)
        known_by = hashlib.sha256(b"sketchlearn item key: name" + secret).hexdigest()
        return cls(f"{SIPHASH.name}:{known_by[:32]}", secret)

    @property
    def is_secret(self) -> bool:
        """Whether keys depend on a secret."""
        return ":" in self.name

    @property
    def is_at_hand(self) -> bool:
        """Whether the secret is known here, if there is one."""
        return not self.is_secret or self.key is not None

    def with_key(self, key: bytes | None) -> KeyRecipe:
        """The same recipe with its secret, if it is this one."""
        if key is None:
            _refuse_missing_key()
        given = KeyRecipe.under(key)
        if given == self:
            return given
        raise FeatureMapError(
            "this sketch was hashed "
            + ("with another secret key" if self.is_secret else "without a secret key")
            + ", which is part of its map. Give the key it was made with, or sketch "
            "the items again."
        )

    def of_texts(self, texts: Texts) -> Keys:
        """Key of each text."""
        keys = np.empty(len(texts), np.uint64)
        secret = b"" if self == SUMS else self._hash_keys[0]
        for where, part in texts.blocks():
            keys[where] = _siphashed(part, secret) if secret else _summed(part)
        return keys

    def of_integers(self, values: NDArray[np.integer]) -> Keys:
        """Key of each integer."""
        own = integer_keys(values)
        if not self.is_secret:
            return own
        keys = np.empty(len(own), np.uint64)
        for first in range(0, len(own), AT_ONCE):
            part = own[first : first + AT_ONCE]
            words = [part, np.full(len(part), 8 << 56, np.uint64)]
            keys[first : first + AT_ONCE] = siphash(
                words, self._hash_keys[1], len(part)
            )
        return keys

    @property
    def _hash_keys(self) -> tuple[bytes, bytes]:
        """Keys of SipHash, for texts and for integers."""
        if not self.is_secret:
            return _PUBLIC_KEY, _PUBLIC_KEY
        if self.key is None:
            _refuse_missing_key()
        made = hashlib.sha256(b"sketchlearn item key: hash" + self.key).digest()
        return made[:16], made[16:]


def _refuse_missing_key() -> NoReturn:
    raise FeatureMapError(
        "this sketch was hashed with a secret key, which files do not hold. Give it: "
        "FrequencyEstimator(..., key=key).fit_sketch(sketch), or "
        "sketch.with_map(sketch.feature_map.with_key(key))."
    )


SIPHASH = KeyRecipe("siphash")
"""The recipe of new sketches: everybody can compute it."""

SUMS = KeyRecipe("sums")
"""The recipe of sketches that name none."""


def _summed(texts: Texts) -> Keys:
    """Keys of the recipe ``sums``, of texts whose bytes zeros follow."""
    words, starts, lengths = texts.words, texts.starts, texts.lengths
    sums = _hash_words(words, starts, lengths, 0)
    longest = int(lengths.max())
    for number in range(1, min(-(-longest // 8), SHORT_WORDS)):
        reach = lengths > 8 * number
        if 2 * np.count_nonzero(reach) > len(reach):
            sums += reach * _hash_words(words, starts, lengths, number)
        else:
            sums[reach] += _hash_words(words, starts[reach], lengths[reach], number)
    long = np.flatnonzero(lengths > 8 * SHORT_WORDS)
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
    counts = -(-lengths // 8) - SHORT_WORDS
    firsts = np.cumsum(counts) - counts
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(owners)) - firsts[owners] + SHORT_WORDS
    hashes = _hash_words(words, starts[owners], lengths[owners], numbers)
    sums: NDArray[np.uint64] = np.add.reduceat(hashes, firsts)
    return sums


def _siphashed(texts: Texts, key: bytes) -> Keys:
    """Keys of the recipe ``siphash``, of texts whose bytes zeros follow."""
    long = np.flatnonzero(texts.lengths > _LONG_BYTES)
    sizes = np.minimum(texts.lengths, _LONG_BYTES) // 8
    order = np.argsort(-sizes.astype(np.int8), kind="stable")  # a radix sort
    chosen = Texts(texts.data, texts.starts[order], texts.lengths[order])
    keys = np.empty(len(texts), np.uint64)
    keys[order] = siphash(_sip_words(chosen, sizes[order]), key, len(texts))
    for position, text in zip(long.tolist(), texts.take(long), strict=True):
        digest = hashlib.blake2b(text, digest_size=8, key=key).digest()
        keys[position] = int.from_bytes(digest, "little")
    return keys


def _sip_words(texts: Texts, sizes: NDArray[np.int64]) -> Iterator[NDArray[np.uint64]]:
    """Words as SipHash takes them, of texts of so many whole words, falling."""
    words, starts, lengths = texts.words, texts.starts, texts.lengths
    at_least = [*np.cumsum(np.bincount(sizes)[::-1])[::-1].tolist(), 0]
    for number, (left, whole) in enumerate(pairwise(at_least)):
        found = words[starts[:left] + 8 * number].astype(np.uint64, copy=False)
        last = lengths[whole:left]
        found[whole:] &= _KEPT.take(last - 8 * number, mode="clip")
        found[whole:] |= last.view(np.uint64) << np.uint64(56)
        yield found
