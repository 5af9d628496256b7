"""Texts: many of them as bytes, to be hashed together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["AT_ONCE", "SHORT_WORDS", "Texts"]

AT_ONCE = 2**14
"""Texts hashed at once: what they need stays in the cache."""

_AT_ONCE_BYTES = 2**22
"""The same, of long texts."""

SHORT_WORDS = 8
"""Words of a text that are hashed one after the other, for all texts at once."""


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
    >>> Texts.from_arrow(pa.array(["", "item"])).take(np.array([1]))
    [b'item']
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def words(self) -> NDArray[np.uint64]:
        """Eight bytes from each place on, as a number."""
        return np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

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

    def blocks(self) -> Iterator[tuple[slice, Texts]]:
        """Some texts at a time, with zeros after their bytes, and which they are."""
        first = 0
        while first < len(self):
            begin = self.starts[first]
            until = int(np.searchsorted(self.starts, begin + _AT_ONCE_BYTES))
            stop = max(first + 1, min(first + AT_ONCE, until))
            starts, lengths = self.starts[first:stop], self.lengths[first:stop]
            end = int(starts[-1] + lengths[-1])
            padded = np.zeros(end - begin + 8 * SHORT_WORDS, np.uint8)
            padded[: end - begin] = self.data[begin:end]
            yield slice(first, stop), Texts(padded, starts - begin, lengths)
            first = stop
