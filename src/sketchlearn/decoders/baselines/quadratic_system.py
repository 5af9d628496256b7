"""A quadratic sketch as a system of equations for a second moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.decoders.baselines.quadratic_operator import (
    AbstractMeasurements,
    least_norm_solution,
    measurements_of,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["QuadraticSystem", "frobenius"]


@final
@dataclass(frozen=True, eq=False)
class QuadraticSystem:
    """Measurements, what they should be, and the diagonal if it is known, else zero."""

    whole: AbstractMeasurements
    measurements: AbstractMeasurements
    sketched: NDArray[np.float64]
    values: NDArray[np.float64]
    diagonal: NDArray[np.float64]

    @staticmethod
    def of(sketch: Sketch | PrivateSketch, known: ArrayLike | None) -> QuadraticSystem:
        """The equations of a sketch, without what a known diagonal explains."""
        features = _quadratic_map(sketch)
        diagonal = _diagonal(known, features.n_features)
        whole = measurements_of(features)
        if known is None:
            return QuadraticSystem(whole, whole, sketch.mean, sketch.mean, diagonal)
        left = sketch.mean - whole.of_matrix(np.diag(diagonal))
        others = measurements_of(features, off_diagonal_only=True)
        return QuadraticSystem(whole, others, sketch.mean, left, diagonal)

    def residual(self, moment: NDArray[np.float64]) -> float:
        """Relative distance of the sketch from that of a moment."""
        missed = self.whole.of_matrix(moment) - self.sketched
        return frobenius(missed) / max(frobenius(self.sketched), 1e-300)

    def start(self, rank: int, least_share: float) -> NDArray[np.float64]:
        """Leading eigenvectors of the pseudo-inverse, scaled to explain the sketch."""
        values, vectors = np.linalg.eigh(
            least_norm_solution(self.measurements, self.values)
        )
        # A column of zeros would stay zero: its gradient vanishes.
        kept = np.maximum(values[-rank:], least_share * max(values[-1], 0.0))
        factor = self.shortened(vectors[:, -rank:] * np.sqrt(kept))
        seen = self.measurements.of_factor(factor)
        scale = float(seen @ self.values) / max(float(seen @ seen), 1e-300)
        return self.shortened(factor * np.sqrt(max(scale, least_share)))

    def shortened(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows no longer than the known diagonal allows."""
        if not self.measurements.off_diagonal_only:
            return factor
        limit, length = np.sqrt(self.diagonal), np.linalg.norm(factor, axis=1)
        share = np.minimum(limit / np.maximum(length, 1e-300), 1.0)
        return np.asarray(factor * share[:, None])


def _quadratic_map(sketch: Sketch | PrivateSketch) -> QuadraticFeatures:
    found = sketch.feature_map.find(QuadraticFeatures)
    parts = sketch.feature_map.parts()
    if len(found) == len(parts) == 1:
        return found[0].feature_map
    kinds = ", ".join(part.feature_map.kind for part in parts)
    raise FeatureMapError(
        f"a sketch of {kinds!r} features holds no random quadratic "
        "measurements. Sketch with QuadraticFeatures(n_features, sketch_size)."
    )


def _diagonal(known: ArrayLike | None, n_features: int) -> NDArray[np.float64]:
    if known is None:
        return np.zeros(n_features)
    diagonal = np.asarray(known, np.float64)
    fits = diagonal.shape in ((), (n_features,))
    if not fits or not np.isfinite(diagonal).all() or (diagonal < 0).any():
        raise FeatureMapError(
            f"known_diagonal must be one number or {n_features} numbers, finite and "
            f"not negative; got {known!r}."
        )
    return np.broadcast_to(diagonal, (n_features,)).copy()


def frobenius(array: NDArray[np.float64]) -> float:
    """Root of the sum of squares.

    Examples
    --------
    >>> frobenius(np.array([[3.0], [4.0]]))
    5.0
    """
    return float(np.linalg.norm(array))
