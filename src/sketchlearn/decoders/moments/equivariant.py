r"""Moments by a learned prior over the features: the sketch has the last word.

A sketch of :math:`R\Omega` leaves most of the correlations open. Plain Nyström fills
the gap with independence; here a small network predicts what is likely instead. One set
of weights serves any number of features and any sketch size. How the weights are
learned is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.moments.base import AbstractMomentDecoder
from sketchlearn.decoders.moments.covariance.base import AbstractCovariance, Array
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.cross_moments import Places
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.decoders.moments.prior_network import FrozenPrior, PriorSpec
from sketchlearn.files.weights import AbstractLearned, Weights

__all__ = ["EquivariantDecoder"]

LEARNED_FEATURES = 1024
"""Of more features the prior is not asked: a promise of the estimators, which say so.
It was trained on up to 196, and its time grows with the square of their number."""


@final
@dataclass(frozen=True, eq=False)
class EquivariantDecoder(AbstractMomentDecoder, AbstractLearned):
    """Mean and covariance from a sketch of cross moments, by a learned prior.

    A sketch of more than ``LEARNED_FEATURES`` features is decoded by plain Nyström:
    attention takes time and memory by the square of their number. So is a noisy
    (private) one, by weights that have not been trained on noise. Other parameters as
    in :class:`~sketchlearn.decoders.moments.base.AbstractMomentDecoder`.

    Parameters
    ----------
    network : FrozenPrior
        With trained weights, in evaluation mode.
    """

    weights_kind: ClassVar = "equivariant"

    network: FrozenPrior

    @override
    def complete(
        self, seen: Array, omega: Array, noise: float, places: Places | None = None
    ) -> AbstractCovariance:
        count = len(omega) if places is None else places.count
        ordered = self.network.spec.ordered
        if count > LEARNED_FEATURES or (noise and not ordered):
            return NystromDecoder().complete(seen, omega, noise, places)
        if ordered or places is None:
            found = self.network(omega, seen, places=places, noise=noise)
            return DenseCovariance(found)
        alone = np.eye(count)
        alone[np.ix_(places.seen, places.seen)] = self.network(omega, seen)
        return DenseCovariance(alone)

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        return self.network.to_weights(card)

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        return cls(FrozenPrior(PriorSpec.from_dict(weights.spec), weights.tensors))
