"""Parts of a feature map: the plain maps inside it, and where their features stand.

Maps are clipped and set side by side; whoever reads a sketch asks the whole map for
its parts and never takes it apart. How a map holds others is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, final

__all__ = ["Clip", "Part", "all_clips"]

_Map = TypeVar("_Map", covariant=True)


@final
@dataclass(frozen=True)
class Clip:
    """A stretch of the feature vector that is shortened to a norm.

    Parameters
    ----------
    where : slice
        The numbers that are shortened together.
    norm_bound : float
        Their largest norm.
    """

    where: slice
    norm_bound: float

    def moved(self, start: int) -> Clip:
        """The same, for a vector that begins ``start`` numbers later."""
        return replace(self, where=_moved(self.where, start))


@final
@dataclass(frozen=True)
class Part(Generic[_Map]):
    """A plain map inside a feature map.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Neither clipped nor concatenated.
    where : slice
        Where its features stand in the whole vector.
    clips : tuple of Clip
        How they are shortened, alone or with others, in this order; empty if they are
        not.
    """

    feature_map: _Map
    where: slice
    clips: tuple[Clip, ...] = ()

    def moved(self, start: int) -> Part[_Map]:
        """The same, in a vector that begins ``start`` numbers later."""
        clips = tuple(clip.moved(start) for clip in self.clips)
        return replace(self, where=_moved(self.where, start), clips=clips)

    def clipped(self, clip: Clip) -> Part[_Map]:
        """The same, shortened once more."""
        return replace(self, clips=(*self.clips, clip))


def all_clips(parts: Iterable[Part[Any]]) -> list[Clip]:
    """Every clip of some parts once, in an order in which they can be done.

    What is clipped with others was clipped alone before.
    """
    found: list[Clip] = []
    for part in parts:
        found += [clip for clip in part.clips if clip not in found]
    return sorted(found, key=lambda clip: clip.where.stop - clip.where.start)


def _moved(where: slice, start: int) -> slice:
    return slice(where.start + start, where.stop + start)
