r"""Laws of frequencies that were learned from many datasets.

How frequent items are follows few shapes, whatever the items: most pixels of drawings
are rare, alleles are spread evenly, categories have a long tail. A learned law is such
a shape: a probability of each log-odds relative to its place, and a share of items that
never occur. Moved along the log-odds it serves any mean count, and as it is a law of
frequencies any number of items and rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import SketchFileError
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import Weights

__all__ = ["COUNT_LAWS", "LearnedLaws", "relative_odds"]

Reals = NDArray[np.float64]

COUNT_LAWS = "count-laws"
"""The model of the package."""

_FARTHEST = 12.0
"""Largest log-odds relative to the place of a law."""


def relative_odds(n_odds: int) -> Reals:
    """Log-odds, relative to the place of a law, whose probabilities are learned."""
    return np.linspace(-_FARTHEST, _FARTHEST, n_odds)


@final
@dataclass(frozen=True, eq=False)
class LearnedLaws:
    """Shapes of laws of frequencies, and how often each is met.

    Parameters
    ----------
    shapes : array of shape (K, G)
        Probability of each log-odds relative to the place of a law.
    absent : array of shape (K,)
        Share of items that never occur.
    weights : array of shape (K,)
        Share of datasets that have a shape.

    Examples
    --------
    >>> laws = LearnedLaws(np.ones((1, 5)) / 5, np.zeros(1), np.ones(1))
    >>> laws.odds(np.array([-1.0, 0.0, 1.0]), np.array([0.0])).round(2)
    array([[[0.  , 0.33, 0.33, 0.33, 0.  ]]])
    """

    shapes: Reals
    absent: Reals
    weights: Reals
    weights_kind: ClassVar = "count-laws"

    def odds(self, places: Reals, middles: Reals) -> Reals:
        """All laws at some places, shape (K, len(middles), len(places) + 2).

        The first entry is the share of items that never occur, the last that of
        those in every row.
        """
        at = places - middles[:, None]
        grid = relative_odds(self.shapes.shape[1])
        found = np.zeros((len(self.shapes), len(middles), len(places) + 2))
        for law, shape in zip(found, self.shapes, strict=True):
            law[:, 1:-1] = np.interp(at, grid, shape) + 1e-12
        found /= found.sum(axis=2, keepdims=True)
        found *= 1 - self.absent[:, None, None]
        found[:, :, 0] += self.absent[:, None]
        return found

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Tensors and card as one value, to be saved."""
        tensors = {
            name: np.asarray(getattr(self, name), np.float32)
            for name in ("shapes", "absent", "weights")
        }
        return Weights(self.weights_kind, {}, tensors, card or {})

    @classmethod
    def from_weights(cls, weights: Weights) -> Self:
        """What was saved, if it is laws."""
        if weights.kind != cls.weights_kind:
            raise SketchFileError(
                f"these are weights of {weights.kind!r}, and not of "
                f"{cls.weights_kind!r}."
            )
        names = ("shapes", "absent", "weights")
        parts = [np.asarray(weights.tensors[name], np.float64) for name in names]
        shapes, absent, shares = parts
        if shapes.ndim != 2 or {absent.shape, shares.shape} != {(len(shapes),)}:
            raise SketchFileError("laws of counts need a share for each shape.")
        if min(part.min() for part in parts) < 0:
            raise SketchFileError("laws of counts have no negative shares.")
        return cls(shapes, absent, shares / shares.sum())

    @classmethod
    def packaged(cls) -> LearnedLaws:
        """The laws that come with the package."""
        return _packaged()


@lru_cache(maxsize=1)
def _packaged() -> LearnedLaws:
    return LearnedLaws.from_weights(packaged_weights(COUNT_LAWS))
