"""What the estimators that read a density share: sketching in one round or two."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.density.reading import Reading, read_sketch
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import ConvergenceWarning, FeatureMapError, RowsError
from sketchlearn.estimators.base import AbstractSketchEstimator, require_sketch
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.plans.advice import noisy_density
from sketchlearn.plans.rounds import DensityPlan, require_moderate
from sketchlearn.plans.scaling import extremes_of, plan_scaling, warn_of_late
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractDensityEstimator", "warn_all"]


class AbstractDensityEstimator(AbstractSketchEstimator):
    """An estimator that decodes a density from one or two rounds of sketching."""

    sketch_size: int | Literal["auto"]
    rounds: int | None
    bounds: tuple[ArrayLike, ArrayLike] | None
    random_state: int

    @abstractmethod
    def _density_plan(self) -> DensityPlan:
        """What the parameters ask to be sketched."""

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
        if first is None:
            return self._plan_first(n_features, rows, rounds=self.rounds or 1)
        if first.feature_map.n_features != n_features:
            raise FeatureMapError(
                f"first is a sketch of {first.feature_map.n_features} features, but "
                f"n_features={n_features}."
            )
        plan = self._density_plan()
        extremes = None if rows is None else extremes_of(rows)
        return plan.second(plan.after(first, extremes))

    def _plan_first(
        self, n_features: int, rows: NDArray[np.floating] | None, *, rounds: int
    ) -> AbstractFeatureMap:
        scaling, reach = plan_scaling(self.bounds, n_features, rows)
        return self._density_plan().first(
            n_features, scaling=scaling, reach=reach, rows=rows, rounds=rounds
        )

    @override
    def _sketch(self, rows: AbstractRowSource) -> Sketch:
        """Plan, sketch, and in two rounds plan and sketch again."""
        rounds = self._rounds_of(rows)
        if rounds == 1 and self.bounds is not None:  # nothing is read ahead
            return rows.sketch(self._plan_first(rows.n_features, None, rounds=1))
        extremes = rows.extremes()
        first = self._plan_first(rows.n_features, extremes, rounds=rounds)
        sketch = rows.sketch(first)
        if rounds == 2:
            plan = self._density_plan()
            second = plan.second(plan.after(sketch, extremes))
            if second is not first:
                sketch = rows.sketch(second)
        warn_of_late(sketch, extremes[0] == extremes[1])
        if not rows.is_repeatable:
            _warn_of_drift(sketch, extremes)
        return sketch

    def _rounds_of(self, rows: AbstractRowSource) -> int:
        """How often these rows are to be read, if they can be."""
        if self.rounds is None:
            is_once = self.bounds is not None or not rows.is_repeatable
            return 1 if is_once else 2
        if self.rounds == 2 and not rows.is_repeatable:
            raise RowsError(
                f"rounds=2 needs the rows twice, and {rows.source} cannot be read "
                "twice. Pass an array, a frame or files, or rounds=1."
            )
        return self.rounds

    @staticmethod
    def _read(sketch: Any, n_parts: int) -> Reading:
        """What a sketch says, unless no density of so many parts can be decoded."""
        require_sketch(sketch)
        require_moderate(second_moment_part(sketch.feature_map)[0].scaling)
        reading = read_sketch(sketch)
        warn_all([noisy_density(reading, n_parts)], stacklevel=4)
        return reading

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> AbstractRowSource:
        return self._open_features(X, reset=reset)

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan(rows.shape[1], rows=rows)


def warn_all(sentences: Iterable[str | None], *, stacklevel: int = 3) -> None:
    """Warn of everything there is to say."""
    for sentence in sentences:
        if sentence is not None:
            warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel)


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
