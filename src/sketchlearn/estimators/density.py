r"""What the estimators that read a density share: plans of one and of two rounds.

One round sketches moments and, where there is room, Fourier features at several
scales, with a map that needs nothing but the range of the features. Two rounds look at
the rows twice: what the first pass saw places what the second one sketches in the
principal directions. The second sketch holds the features of the first too, so that it
is all that is kept, and merging, adding and forgetting are plain arithmetic on it.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.clusters.resolution import (
    narrow_features,
    noise_share,
    wide_features,
)
from sketchlearn.decoders.density.prior import planned_range
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    RowRangeError,
    RowsError,
    TooNoisy,
)
from sketchlearn.estimators.base import AbstractSketchEstimator, require_sketch
from sketchlearn.estimators.parameters import seed_of
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Origin, Scaling
from sketchlearn.plans.moments import plan_second_moments
from sketchlearn.plans.scaling import extremes_of, plan_scaling, warn_of_late
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.survey import LARGEST
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "AbstractDensityEstimator",
    "SecondRound",
    "require_moderate",
]

WAVES = {1: (2, 0.3), 2: (1, 0.2)}
"""Octaves and widest kernel scale of the Fourier features in the first round of plans
of one and two rounds, for rows in [-1, 1]: best of a few on training sets."""

MOMENT_SHARE = 0.8
"""Share of the numbers of a two-round plan that second moments may take."""

_USUAL = 2000
"""Least size of "auto", and its size for one round."""

_HARDLY_SEEN, _NOTHING_SEEN = 0.125, 1.0
"""Noise of a release, as a share of the variance of the rows. Clusters of synthetic
rows were within a tenth of the best below 0.1, and 1.4 to 30 times worse above 0.3. The
moments of one Gaussian bear twice as much."""


class SecondRound:
    """What is known when the second map is planned.

    Parameters
    ----------
    first : Sketch or PrivateSketch
        Of the first round.
    room : int
        Numbers that both rounds may hold, beside means and variances.
    extremes : array of shape (2, d), optional
        Least and largest values that were seen.
    """

    def __init__(
        self,
        first: Sketch | PrivateSketch,
        room: int,
        extremes: NDArray[np.floating] | None,
    ) -> None:
        part, _ = second_moment_part(first.feature_map)
        self.part: MomentFeatures | CrossMomentFeatures = part
        self.moments: Moments = NystromDecoder().decode(first).params
        self.first = first
        found = first.feature_map.find(HarmonicFeatures)
        self.waves = [harmonics.feature_map for harmonics in found]
        taken = sum(wave.sketch_size for wave in self.waves)
        self.room = room - _counted(part) - taken
        low, high = planned_range(part.scaling, part.reach, part.n_features)
        if extremes is not None:
            low, high = np.maximum(low, extremes[0]), np.minimum(high, extremes[1])
        self.low, self.high = low, high
        declared = first.feature_map.origin == "declared" and extremes is None
        paid = isinstance(first, PrivateSketch) and not first.statement.seeded
        public = paid and declared
        self.origin: Origin = "declared" if public else "data"

    def scaled_basis(self, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        """Directions for scaled rows from directions for rows."""
        scaling = self.part.scaling
        return basis if scaling is None else basis / scaling.factor[:, None]

    @property
    def scaled_centre(self) -> NDArray[np.float64]:
        """The mean in units of the scaled rows."""
        scaling = self.part.scaling
        mean = self.moments.mean
        return mean if scaling is None else (mean - scaling.shift) * scaling.factor


class AbstractDensityEstimator(AbstractSketchEstimator):
    """An estimator that decodes a density from one or two rounds of sketching."""

    sketch_size: int | Literal["auto"]
    rounds: int | None
    bounds: tuple[ArrayLike, ArrayLike] | None
    random_state: int

    def _look_ahead(self, n_features: int, room: int) -> int:
        """Fourier features in the first of two rounds, out of ``room`` numbers."""
        return 0

    @abstractmethod
    def _cell_numbers(self, n_features: int) -> int:
        """Numbers that enough cells of a second round hold."""

    def _size(self, n_features: int, rounds: int) -> int:
        """Numbers the sketch may hold, all rounds together.

        For two rounds, "auto" leaves room for enough cells, and for all second moments
        as long as these take no more than their share.
        """
        if self.sketch_size != "auto":
            return self.sketch_size
        if rounds == 1:  # more of them would cost a release more than they tell
            return _USUAL
        cells = self._cell_numbers(n_features)
        share = MOMENT_SHARE / (1 - MOMENT_SHARE)
        moments = min(n_features * (n_features + 1) // 2, round(share * cells))
        return max(_USUAL, cells + moments)

    @abstractmethod
    def _plan_second(self, known: SecondRound) -> AbstractFeatureMap | None:
        """What the second round adds to the moments; None if there is no room."""

    @override
    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        rounds = self.rounds
        if rounds is None:
            once = self.bounds is not None or not rows.is_repeatable
            rounds = 1 if once else 2
        if rounds == 2 and not rows.is_repeatable:
            raise RowsError(
                f"rounds=2 needs the rows twice, and {rows.source} cannot be read "
                "twice. Pass an array, a frame or files, or rounds=1."
            )
        if rounds == 1 and self.bounds is not None:  # nothing is read ahead
            first = self._plan_first(rows.n_features, None, rounds=1)
            return rows.sketch(first)
        extremes = rows.extremes()
        sketch = self._sketch_rounds(rows, extremes, rounds)
        warn_of_late(sketch, extremes[0] == extremes[1])
        if not rows.is_repeatable:
            _warn_of_drift(sketch, extremes)
        return sketch

    def plan(
        self,
        n_features: int,
        *,
        rows: NDArray[np.floating] | None = None,
        first: Sketch | PrivateSketch | None = None,
    ) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for ``fit_sketch``.

        Parameters
        ----------
        n_features : int
            Numbers in a row.
        rows : array, optional
            A sample of the data to read scales from, where no ``bounds`` are
            declared; without either, values up to 32 are accepted.
        first : Sketch or PrivateSketch, optional
            The merged sketch of the first round: gives the map of the second. With
            ``rounds=2`` and without it, the map of the first round.

        Returns
        -------
        AbstractFeatureMap
        """
        self._check_parameters()
        if first is not None:
            if first.feature_map.n_features != n_features:
                raise FeatureMapError(
                    f"first is a sketch of {first.feature_map.n_features} features, "
                    f"but n_features={n_features}."
                )
            extremes = None if rows is None else extremes_of(rows)
            return self._plan_both(first, extremes)
        return self._plan_first(n_features, rows, rounds=self.rounds or 1)

    @staticmethod
    def _check_sketch(sketch: Any, n_parts: int) -> None:
        """Refuse what no density can be decoded from, to be told apart in parts."""
        require_sketch(sketch)
        require_moderate(second_moment_part(sketch.feature_map)[0].scaling)
        share = noise_share(sketch)
        what_to_do = (
            "Release more rows or with a larger epsilon, fewer numbers (a smaller "
            "sketch_size), or with bounds or a norm_bound closer to the rows."
        )
        if share > _NOTHING_SEEN:
            raise TooNoisy(
                f"the noise of this release is {share:.1f} times the variance of the "
                f"rows: a model of it would be one of noise. {what_to_do}"
            )
        if share > (_HARDLY_SEEN if n_parts > 1 else 2 * _HARDLY_SEEN):
            warnings.warn(
                f"the noise of this release is {share:.2f} of the variance of the "
                f"rows: the result may be far from the best. {what_to_do}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _warn_of_tails(
        self,
        sketch: Sketch | PrivateSketch,
        moments: Moments,
        *,
        is_blurred: bool = False,
    ) -> bool:
        """Say so where rows far out, or wide bounds, hide how the others lie."""
        found = narrow_features(sketch, moments)
        if is_blurred and not found:
            found = wide_features(moments)
        if not found:
            return False
        names = getattr(sketch, "columns", None)
        listed = ", ".join(str(j if names is None else repr(names[j])) for j in found)
        part, _ = second_moment_part(sketch.feature_map)
        cause = "a few rows lie far from all others"
        if part.origin == "declared" and not is_blurred:
            cause = "bounds are much wider than the rows"
        has_cells = bool(sketch.feature_map.find(CellFeatures))
        last = "." if has_cells else ", or sketch two rounds (rounds=2)."
        warnings.warn(
            f"in feature {listed} {cause}: how the others lie is hardly seen, and the "
            "result may be far from the best. Declare bounds close to the rows (rows "
            f"beyond are refused: leave them out or clip them), transform the feature"
            f"{last}",
            ConvergenceWarning,
            stacklevel=3,
        )
        return True

    def _sketch_rounds(
        self, rows: AbstractRowSource, extremes: NDArray[np.floating], rounds: int
    ) -> Sketch:
        d = extremes.shape[1]
        first = self._plan_first(d, extremes, rounds=rounds)
        sketch = rows.sketch(first)
        if rounds == 1:
            return sketch
        feature_map = self._plan_both(sketch, extremes)
        return sketch if feature_map is sketch.feature_map else rows.sketch(feature_map)

    def _plan_first(
        self, n_features: int, rows: NDArray[np.floating] | None, *, rounds: int
    ) -> AbstractFeatureMap:
        size = self._size(n_features, rounds)
        scaling, reach = plan_scaling(self.bounds, n_features, rows)
        require_moderate(scaling)
        seed = seed_of(self.random_state)
        needed = n_features * (n_features + 1) // 2
        exact = needed <= size // 2 if rounds == 1 else needed <= MOMENT_SHARE * size
        room = size if rounds == 1 else max(1, int(MOMENT_SHARE * size))
        moments = plan_second_moments(
            n_features=n_features,
            sketch_size=needed if exact else room,
            scaling=scaling,
            reach=reach,
            rows=rows,
            seed=seed,
        )
        left = size - needed if exact else 0
        waves = left if rounds == 1 else self._look_ahead(n_features, left)
        octaves, scale = WAVES[rounds]
        if waves < 2 * octaves:
            return moments
        fourier = HarmonicFeatures(
            n_features,
            waves // (2 * octaves) * (2 * octaves),
            octaves=octaves,
            scale=scale,
            seed=seed,
            scaling=scaling,
        )
        return ConcatenatedFeatures([moments, fourier])

    def _plan_both(
        self, first: Sketch | PrivateSketch, extremes: NDArray[np.floating] | None
    ) -> AbstractFeatureMap:
        size = self._size(first.feature_map.n_features, 2)
        known = SecondRound(first, size, extremes)
        second = self._plan_second(known)
        if second is None:
            return first.feature_map
        both = ConcatenatedFeatures([known.part, *known.waves, second])
        return both.with_columns(first.feature_map.columns)

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)


def _warn_of_drift(sketch: Sketch, extremes: NDArray[np.floating]) -> None:
    """Warn of features wider than any rows in the range they were planned for."""
    half = (extremes[1] - extremes[0]) / 2
    variances = NystromDecoder().decode(sketch).params.structure.variances
    beyond = np.flatnonzero((half > 0) & (np.sqrt(variances) > half))
    if not len(beyond):
        return
    columns = sketch.columns or tuple(f"feature {j}" for j in range(len(half)))
    names = ", ".join(columns[j] for j in beyond[:5])
    warnings.warn(
        f"later rows of this stream lie far beyond the first ones, which the sketch "
        f"was planned from ({names}): the model is another one than that of the same "
        "rows in an array. Declare bounds, or pass an array or files.",
        ConvergenceWarning,
        stacklevel=4,
    )


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


def _counted(part: MomentFeatures | CrossMomentFeatures) -> int:
    """Numbers of a moment map beside means and variances."""
    if isinstance(part, MomentFeatures):
        return part.sketch_size - part.n_features
    return part.sketch_size - 2 * part.n_features
