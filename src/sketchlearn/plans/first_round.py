"""The first of two rounds, summed up for the plan of the second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.prior import planned_range
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Origin
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["FirstRound"]


@final
@dataclass(frozen=True, eq=False)
class FirstRound:
    """What is known when the second map is planned.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Of the first round.
    moment_map : MomentFeatures or CrossMomentFeatures
        Its part that the second map holds too.
    moments : Moments
        Of the rows.
    low, high : arrays of shape (d,)
        Range of the rows, as far as it was declared or seen.
    room : int
        Numbers left for cells.
    origin : {"declared", "data"}
        Whether what is known was declared or paid for, or read from rows.
    """

    feature_map: AbstractFeatureMap
    moment_map: MomentFeatures | CrossMomentFeatures
    moments: Moments
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    room: int
    origin: Origin

    @classmethod
    def of(
        cls,
        first: Sketch | PrivateSketch,
        size: int,
        extremes: NDArray[np.floating] | None,
    ) -> FirstRound:
        """From the sketch of the first round.

        Parameters
        ----------
        first : Sketch or PrivateSketch
        size : int
            Numbers that both rounds may hold, beside means and variances.
        extremes : array of shape (2, d), optional
            Least and largest values that were seen.
        """
        part, _ = second_moment_part(first.feature_map)
        low, high = planned_range(part.scaling, part.reach, part.n_features)
        if extremes is not None:
            low, high = np.maximum(low, extremes[0]), np.minimum(high, extremes[1])
        is_declared = first.feature_map.origin == "declared" and extremes is None
        is_paid = isinstance(first, PrivateSketch) and not first.statement.seeded
        has_all = bool(first.feature_map.find(MomentFeatures))
        beside = part.n_features * (1 if has_all else 2)  # means, and variances
        return cls(
            first.feature_map,
            part,
            NystromDecoder().decode(first).params,
            low,
            high,
            size - (part.sketch_size - beside),
            "declared" if is_declared and is_paid else "data",
        )

    def scaled_basis(self, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        """Directions for scaled rows from directions for rows."""
        scaling = self.moment_map.scaling
        return basis if scaling is None else basis / scaling.factor[:, None]

    @property
    def scaled_center(self) -> NDArray[np.float64]:
        """The mean in units of the scaled rows."""
        scaling, mean = self.moment_map.scaling, self.moments.mean
        return mean if scaling is None else (mean - scaling.shift) * scaling.factor
