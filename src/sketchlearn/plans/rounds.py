r"""Plans of one and of two rounds for densities.

One round sketches moments and, where there is room, Fourier features at several scales,
with a map that needs nothing but the range of the features. Two rounds look at the rows
twice: the moments of the first pass place the cells of the second. The second sketch
holds the moments too, so that it is all that is kept, and merging, adding and
forgetting are plain arithmetic on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowRangeError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.plans.cells import AbstractCellPlan
from sketchlearn.plans.first_round import FirstRound
from sketchlearn.plans.moments import plan_second_moments
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.survey import LARGEST
from sketchlearn.sketching.sketch import Sketch

__all__ = ["DensityPlan", "RoundTuning", "require_moderate"]


@final
@dataclass(frozen=True)
class RoundTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    octaves: int = 2
    """Scales of the Fourier features of one round: best of a few on training sets."""

    scale: float = 0.3
    """Widest of them, for rows in [-1, 1]."""

    moment_share: float = 0.8
    """Of the numbers of two rounds, what second moments may take."""

    least_size: int = 2000
    """Of "auto", and its size for one round: more would cost a release more than they
    tell."""

    most_size: int = 200_000
    """Of "auto", up to which cells get more directions than a few."""


@final
@dataclass(frozen=True, eq=False)
class DensityPlan:
    """What to sketch for a density, in one round or two.

    Parameters
    ----------
    cells : AbstractCellPlan
        Of the second round.
    sketch_size : int or "auto"
        Numbers that both rounds may hold, beside means and variances.
    seed : int
    tuning : RoundTuning
    """

    cells: AbstractCellPlan
    sketch_size: int | Literal["auto"]
    seed: int
    tuning: RoundTuning = RoundTuning()

    def size(self, n_features: int, rounds: int) -> int:
        """Numbers the sketch may hold, all rounds together.

        For two rounds, "auto" leaves room for enough cells, and for all second moments
        as long as these take no more than their share.
        """
        if self.sketch_size != "auto":
            return self.sketch_size
        tuning = self.tuning
        if rounds == 1:
            return tuning.least_size
        exact = n_features * (n_features + 1) // 2
        share = 1 - tuning.moment_share
        most = max(tuning.most_size - exact, round(share * tuning.most_size))
        cells = self.cells.numbers(n_features, most)
        moments = min(exact, round((1 / share - 1) * cells))
        return max(tuning.least_size, cells + moments)

    def first(
        self,
        n_features: int,
        *,
        scaling: Scaling,
        reach: float,
        rows: NDArray[np.floating] | None,
        rounds: int,
    ) -> AbstractFeatureMap:
        """The map of the only round, or of the first of two."""
        require_moderate(scaling)
        size, tuning = self.size(n_features, rounds), self.tuning
        exact = n_features * (n_features + 1) // 2
        room = size if rounds == 1 else max(1, int(tuning.moment_share * size))
        is_exact = exact <= (size // 2 if rounds == 1 else tuning.moment_share * size)
        moments = plan_second_moments(
            n_features=n_features,
            sketch_size=exact if is_exact else room,
            scaling=scaling,
            reach=reach,
            rows=rows,
            seed=self.seed,
        )
        step = 2 * tuning.octaves
        left = (size - exact) // step * step
        if rounds == 2 or not is_exact or left < step:
            return moments
        fourier = HarmonicFeatures(
            n_features,
            left,
            octaves=tuning.octaves,
            scale=tuning.scale,
            seed=self.seed,
            scaling=scaling,
        )
        return ConcatenatedFeatures([moments, fourier])

    def after(
        self,
        first: Sketch | PrivateSketch,
        extremes: NDArray[np.floating] | None = None,
    ) -> FirstRound:
        """What the first round tells, with the room that it leaves."""
        size = self.size(first.feature_map.n_features, 2)
        return FirstRound.of(first, size, extremes)

    def second(self, known: FirstRound) -> AbstractFeatureMap:
        """The map of both rounds; that of the first if there is no room for cells."""
        cells = self.cells.place(known, self.seed)
        if cells is None:
            return known.feature_map
        both = ConcatenatedFeatures([known.moment_map, cells])
        return both.with_columns(known.feature_map.columns)


def require_moderate(scaling: Scaling | None) -> None:
    """Refuse features whose squares are no numbers, or all zero.

    Values and ranges are smaller than ``LARGEST``, and ranges larger than its inverse.

    Examples
    --------
    >>> require_moderate(Scaling.from_bounds(0.0, 1e9, n_features=1))
    """
    if scaling is None:
        return
    reach = 1 / scaling.factor
    large = np.maximum(reach, np.abs(scaling.shift)) > LARGEST
    wrong = large | (reach < 1 / LARGEST)
    if wrong.any():
        column = int(np.argmax(wrong))
        what = "lie beyond 1e144" if large[column] else "differ by less than 1e-144"
        raise RowRangeError(
            f"values of feature {column} {what}: squared distances and variances would "
            "be no numbers. Nothing was fitted. Divide the feature by its scale first."
        )
