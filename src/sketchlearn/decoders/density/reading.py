"""What a sketch for densities says as it stands, before anything is fitted to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.blur import blurred_moments
from sketchlearn.decoders.density.cell_reading import read_cells
from sketchlearn.decoders.density.cells import Cells, CellTuning
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["FourierMap", "Reading", "holds_only_moments", "read_sketch"]

FourierMap: TypeAlias = FourierFeatures | HarmonicFeatures


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """Moments, cells and Fourier features of a sketch.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        What was read.
    moments : Moments
    cells : Cells or None
        None if the sketch has none.
    fourier : tuple of pairs
        Of a map and the means of its features.
    noise : float
        Deviation of the noise on every number of the sketch; 0 if exact.
    """

    sketch: Sketch | PrivateSketch
    moments: Moments
    cells: Cells | None
    fourier: tuple[tuple[FourierMap, NDArray[np.float64]], ...]
    noise: float

    @property
    def moment_map(self) -> MomentFeatures | CrossMomentFeatures:
        """The map of the moments, which knows range and scales."""
        return second_moment_part(self.sketch.feature_map)[0]


def read_sketch(
    sketch: Sketch | PrivateSketch,
    *,
    is_blurred: bool = False,
    tuning: CellTuning | None = None,
) -> Reading:
    """Read everything a density can be decoded from.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of moments, with cells or Fourier features beside them.
    is_blurred : bool
        Widen the variances of a release by the noise on them, for densities that are
        nowhere too narrow.
    tuning : CellTuning, optional
    """
    moments = NystromDecoder().decode(sketch).params
    if is_blurred:
        moments = blurred_moments(moments)
    fourier = tuple(
        (part.feature_map, sketch.mean[part.where])
        for part in sketch.feature_map.find(FourierFeatures, HarmonicFeatures)
    )
    cells = read_cells(sketch, moments, tuning)
    return Reading(sketch, moments, cells, fourier, mean_noise(sketch))


def holds_only_moments(feature_map: AbstractFeatureMap) -> bool:
    """Whether a map holds moments alone, which cannot tell clusters apart."""
    found = feature_map.find(MomentFeatures, CrossMomentFeatures)
    return len(found) == len(feature_map.parts())
