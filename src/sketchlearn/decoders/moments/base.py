"""Moments of the rows from a sketch: exact where it holds them all.

What a sketch of cross moments does not hold of the correlations is completed, and how
is what decoders differ in. All else is the same for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.moments.centring import centred_moments, second_moment_part
from sketchlearn.decoders.moments.covariance.base import AbstractCovariance, Array
from sketchlearn.decoders.moments.covariance.dense import (
    DenseCovariance,
    symmetric_matrix,
)
from sketchlearn.decoders.moments.covariance.low_rank import placed_among, with_targets
from sketchlearn.decoders.moments.cross_moments import (
    Completion,
    Places,
    Proposal,
    SeenCorrelations,
    held_out,
    missed_strength,
)
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import (
    MomentNoise,
    NoiseTuning,
    denoised_covariance,
    mean_noise,
)
from sketchlearn.decoders.moments.precision import (
    require_representable,
    warn_of_coarse_rounding,
)
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractMomentDecoder"]


@dataclass(frozen=True, kw_only=True)
class AbstractMomentDecoder(AbstractDecoder[Moments]):
    """Mean and covariance from a sketch of moments or cross moments.

    The sketch may hold them alone or as a part.

    Parameters
    ----------
    clamp : bool
        Bring the numbers of a private sketch back into their public bounds first.
    with_unseen : bool
        Also check the completion and estimate ``unseen_variance``, by leaving columns
        of Ω out in turn, for covariances that will be inverted. Features without room
        are then left alone, whatever could be guessed of them.
    noise_tuning : NoiseTuning
        Hand-tuned numbers for releases.
    rounds_rows : bool
        Whether rows may have been rounded when they were sketched: warn where they vary
        by little more. Zeros and ones never are.
    """

    clamp: bool = True
    with_unseen: bool = False
    noise_tuning: NoiseTuning = NoiseTuning()
    rounds_rows: bool = True

    @abstractmethod
    def complete(
        self, seen: Array, omega: Array, noise: float, places: Places | None = None
    ) -> AbstractCovariance:
        """Correlations P from P Ω and Ω, both (d, n_columns), with unit diagonal.

        ``noise`` is the standard deviation of the noise on each entry of P Ω. With
        ``places``, those are of some features and P is of all.
        """

    def correlate(self, seen: Array, omega: Array, noise: float) -> Array:
        """The same written out, shape (d, d)."""
        return self.complete(seen, omega, noise).dense

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Moments]:
        part, where = second_moment_part(sketch.feature_map)
        mean, second = centred_moments(sketch, part, where, clamp=self.clamp)
        noise = mean_noise(sketch)
        if part.is_compressed:
            found = self._completed(part, second, noise, mean)
        else:
            found = self._whole(second, noise, mean)
        variances = found.structure.variances
        is_clipped = any(one.clips for one in sketch.feature_map.parts())
        if self.rounds_rows and not noise and not is_clipped:
            warn_of_coarse_rounding(variances, part, sketch.count)
        scaling = part.scaling or Scaling.identity(part.n_features)
        require_representable(variances, scaling, sketch.columns)
        unit = 1 / scaling.factor
        moments = Moments(
            count=sketch.count,
            mean=mean * unit + scaling.shift,
            structure=found.structure.scaled(unit),
            unseen_variance=found.unseen_variance * unit * unit,
            n_directions=found.n_directions,
            noise=MomentNoise(noise, unit, scaling.shift) if noise else None,
            completion=found.completion and found.completion.scaled(unit),
        )
        return Decoding(moments, found.residual)

    def _whole(self, second: Array, noise: float, mean: Array) -> _Found:
        """From all second moments about the mean."""
        d, matrix = len(mean), symmetric_matrix(second)
        if not noise:
            return _Found(DenseCovariance(matrix), np.zeros(d), d)
        structure, directions = denoised_covariance(
            matrix, noise, mean, self.noise_tuning
        )
        return _Found(structure, np.zeros(d), directions)

    def _completed(
        self, part: CrossMomentFeatures, second: Array, noise: float, mean: Array
    ) -> _Found:
        """From variances and C Ω."""
        d, kept = part.n_features, part.kept
        variance = np.maximum(second[:d], 0.0)
        table = second[d:].reshape(len(kept), part.omega.shape[1])  # C Omega
        known = SeenCorrelations.read(part, variance, table, noise)
        if self.with_unseen:  # what is guessed is not to be inverted
            known = known.alone()
        unseen, residual, directions = np.zeros(d), 0.0, 0 if noise else part.n_columns
        correlation: AbstractCovariance = DenseCovariance(np.eye(0))
        completion = None
        if len(known.chosen):
            seen, omega, spread = known.seen, known.omega, known.noise
            correlation = self.complete(seen, omega, spread, known.places)
            residual = known.residual(correlation)
            if noise:
                directions = known.directions(mean, self.noise_tuning)
            if self.with_unseen:
                folds = held_out(seen, omega, spread, self.complete)
                unseen[known.chosen] = missed_strength(folds) * known.scale**2
                alone = Proposal(np.arange(len(omega)), correlation, folds)
                if part.targets and not noise:
                    beside = SeenCorrelations.read(
                        part, variance, table, noise, with_targets=True
                    )
                    completion = self._beside_targets(beside, alone)
        structure = placed_among(
            correlation.scaled(np.sqrt(variance[known.varying])),
            known.varying,
            variance,
        )
        if part.targets:
            cross = np.zeros((d, len(part.targets)))
            cross[kept] = table[:, part.n_columns :]
            structure = with_targets(structure, np.array(part.targets), cross)
        return _Found(structure, unseen, directions, residual, completion)

    def _beside_targets(self, known: SeenCorrelations, alone: Proposal) -> Completion:
        """Complete features and targets together, too."""
        seen, omega, count = known.seen, known.omega, len(known.units)
        features = np.delete(np.arange(len(omega)), known.units)
        together = Proposal(
            np.arange(len(omega)),
            self.complete(seen, omega, known.noise),
            held_out(seen, omega, known.noise, self.complete, n_targets=count),
        )
        return Completion(known, (replace(alone, places=features), together))


@final
@dataclass(frozen=True, eq=False)
class _Found:
    """What was decoded, in units of scaled rows."""

    structure: AbstractCovariance
    unseen_variance: Array
    n_directions: int
    residual: float = 0.0
    completion: Completion | None = None
