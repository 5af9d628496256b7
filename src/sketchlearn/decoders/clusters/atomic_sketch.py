"""A sketch as classical decoders see it: a target that atoms of clusters add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.decoders.clusters.atoms import (
    AbstractAtoms,
    FourierAtoms,
    nystrom_atoms,
)
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.parts import Part
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import VALUE_BITS
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AtomicSketch", "FittedAtoms", "read_atomic"]


@final
@dataclass(frozen=True, eq=False)
class FittedAtoms:
    """Clusters whose atoms explain a sketch, in the units of the rows.

    Parameters
    ----------
    centers : array of shape (n_clusters, n_features)
    weights : array of shape (n_clusters,)
        Shares of the rows; they sum to one.
    variances : array of shape (n_clusters, n_features)
        Variance of each cluster along each feature; zero where points were fitted.
    """

    centers: NDArray[np.float64]
    weights: NDArray[np.float64]
    variances: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class AtomicSketch:
    """The part of a sketch that atoms can explain.

    Parameters
    ----------
    target : array of shape (size,)
        Mean features, freed from clipping.
    atoms : AbstractAtoms
        What single clusters would give.
    scaling : Scaling
        From the units of the rows to those of the atoms.
    noise : float
        Standard deviation of an entry of ``target``: sampling, privacy, rounding.
    is_bounded : bool
        Whether the map declares a range, ``[-1, 1]`` in scaled units.
    """

    target: NDArray[np.float64]
    atoms: AbstractAtoms
    scaling: Scaling
    noise: float
    is_bounded: bool

    def box(
        self, bounds: tuple[ArrayLike, ArrayLike] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where centers may lie, in scaled units: as declared, or [-1, 1]."""
        if bounds is None:
            if not self.is_bounded:
                raise FeatureMapError(
                    "bounds are needed: the sketch does not say where its rows lie. "
                    "Pass bounds=(low, high), or sketch with a map that has "
                    "scaling=Scaling.from_bounds(low, high)."
                )
            return -np.ones(self.atoms.n_features), np.ones(self.atoms.n_features)
        low, high = (_as_vector(side, self.atoms.n_features) for side in bounds)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise FeatureMapError("bounds must be finite numbers, low and high.")
        if not (low <= high).all():
            raise FeatureMapError(
                "bounds are reversed: each low must be at most its high."
            )
        return self.scaling(low[None])[0], self.scaling(high[None])[0]

    def fitted(
        self,
        centers: NDArray[np.float64],
        weights: NDArray[np.float64],
        variances: NDArray[np.float64],
    ) -> FittedAtoms:
        """Found clusters in the units of the rows, the heaviest first."""
        total = weights.sum()
        even = np.full(len(weights), 1 / len(weights))
        shares = weights / total if total > 0 else even
        order = np.argsort(-shares, kind="stable")
        factor, shift = self.scaling.factor, self.scaling.shift
        return FittedAtoms(
            centers=centers[order] / factor + shift,
            weights=shares[order],
            variances=variances[order] / factor**2,
        )


def read_atomic(sketch: Sketch | PrivateSketch) -> AtomicSketch:
    """The Fourier or Nyström part of a sketch, with the atoms that belong to it."""
    part = _find(sketch.feature_map)
    features, atoms, norm = part.feature_map, *_atoms(part.feature_map)
    shrink = 1.0
    if features.norm_bound is not None:
        # Fourier features all have the same norm, so clipping only shortens them.
        alone = [clip.norm_bound for clip in part.clips if clip.where == part.where]
        shrink = min([1.0, *(bound / norm**0.5 for bound in alone)])
    target = sketch.mean[part.where] / shrink
    scatter = max(norm - float(target @ target), 0.0) / len(target)
    variance = scatter / sketch.count + 2.0 ** (-2 * VALUE_BITS)
    variance += (mean_noise(sketch) / shrink) ** 2
    return AtomicSketch(
        target=target,
        atoms=atoms,
        scaling=features.scaling or Scaling.identity(features.n_features),
        noise=float(np.sqrt(variance)),
        is_bounded=features.scaling is not None,
    )


def _atoms(
    features: FourierFeatures | NystromFeatures,
) -> tuple[AbstractAtoms, float]:
    """Atoms, and the squared norm of a row's features: about 1 at most for Nyström."""
    match features:
        case FourierFeatures():
            frequencies = features.frequencies.astype(np.float64)
            return FourierAtoms(frequencies), features.sketch_size / 2
        case NystromFeatures():
            return nystrom_atoms(features), 1.0


def _find(feature_map: AbstractFeatureMap) -> Part[FourierFeatures | NystromFeatures]:
    """The first part that has atoms."""
    found = feature_map.find(FourierFeatures, NystromFeatures)
    if found:
        return found[0]
    kinds = ", ".join(part.feature_map.kind for part in feature_map.parts())
    raise FeatureMapError(
        f"a sketch of {kinds!r} features has no atoms to decode. Sketch "
        "with FourierFeatures or NystromFeatures."
    )


def _as_vector(side: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """A bound for each feature, from one number or one for each."""
    values = np.asarray(side, np.float64)
    if values.shape not in ((), (n_features,)):
        raise FeatureMapError(
            f"bounds must be two numbers or two vectors of length {n_features}; got "
            f"shape {values.shape}."
        )
    return np.array(np.broadcast_to(values, (n_features,)))
