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
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.fields import require_fields
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import frozen_tensors

__all__ = ["COUNT_LAWS", "LearnedLaws", "relative_odds"]

Reals = NDArray[np.float64]

COUNT_LAWS = "count-laws"
"""The model of the package."""

_MOST_LAWS, _MOST_ODDS = 1024, 2**16
"""Each law is moved to many places: more would take more memory than their file."""

_FARTHEST = 12.0
"""Largest log-odds relative to the place of a law."""


def relative_odds(n_odds: int) -> Reals:
    """Log-odds, relative to the place of a law, whose probabilities are learned."""
    return np.linspace(-_FARTHEST, _FARTHEST, n_odds)


@final
@dataclass(frozen=True, eq=False)
class LearnedLaws(AbstractLearned):
    """Shapes of laws of frequencies, and how often each is met.

    Parameters
    ----------
    shapes : array of shape (K, G)
        Probability of each log-odds relative to the place of a law.
    absent : array of shape (K,)
        Share of items that never occur.
    weights : array of shape (K,)
        Share of datasets that have a shape, up to a common factor.

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

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        tensors = {
            name: np.asarray(getattr(self, name), np.float32)
            for name in ("shapes", "absent", "weights")
        }
        return Weights(self.weights_kind, {}, tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        require_fields(weights.spec, {}, "the spec of laws of counts")
        n_laws, n_odds = (*np.shape(weights.tensors.get("shapes", 0)), 0, 0)[:2]
        if not (0 < n_laws <= _MOST_LAWS and 1 < n_odds <= _MOST_ODDS):
            raise FeatureMapError(
                f"there are 1 to {_MOST_LAWS} laws of counts, each at 2 to "
                f"{_MOST_ODDS} log-odds; got {n_laws} laws at {n_odds}."
            )
        wanted = {"shapes": (n_laws, n_odds), "absent": (n_laws,), "weights": (n_laws,)}
        kept = frozen_tensors(weights.tensors, wanted.items())
        parts = {name: array.astype(np.float64) for name, array in kept.items()}
        laws = cls(**parts)
        if min(part.min() for part in parts.values()) < 0 or laws.absent.max() > 1:
            raise FeatureMapError("laws of counts have no negative shares.")
        if not laws.weights.sum() > 0:
            raise FeatureMapError("of laws of counts at least one is met.")
        return laws

    @classmethod
    def packaged(cls) -> LearnedLaws:
        """The laws that come with the package."""
        return _packaged()


@lru_cache(maxsize=1)
def _packaged() -> LearnedLaws:
    return LearnedLaws.from_weights(packaged_weights(COUNT_LAWS))
