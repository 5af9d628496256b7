"""Whether rows are wide enough, beside the range of a plan, for a sketch to see them.

Fourier features resolve a fixed part of the planned range, and cells are placed inside
it. One row far out, or bounds far too wide, leave the others in a small part of it,
where clusters look alike. A feature is narrow if its deviation is small beside half the
range, and the rows are if most of their variance is in narrow features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.cells import CellStatistics
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["hides_rows", "narrow_features", "noise_share", "wide_features"]

_NARROW = {"data": 0.125, "declared": 0.06}
"""Least ratio for one round. Where the range is that of the rows, one-round clusters of
training tables were 2.7 to 12 times worse than the best below 0.11; synthetic clusters
within declared bounds were within a tenth down to 0.07. Not all bad clusters are told:
some tables of a ratio of 0.15 and more had 1.4 to 2.4 times the best inertia."""

_NARROW_CELLS = {"data": 0.05, "declared": 0.0}
"""And for cells, which are placed by the moments whatever was declared."""


_RARE, _OTHERS = 0.01, 2.0**-12
"""Share of the rows in all cells of few, and of the variance that all others leave."""


def narrow_features(sketch: Sketch | PrivateSketch, moments: Moments) -> list[int]:
    """Features that are too narrow beside their range, most of the variance first.

    Empty if the rows can be seen. The moments are those of the sketch.
    """
    part, _ = second_moment_part(sketch.feature_map)
    has_cells = bool(sketch.feature_map.find(CellFeatures))
    least = (_NARROW_CELLS if has_cells else _NARROW)[part.origin]
    if hides_rows(sketch, moments):
        return wide_features(moments)
    variances, ratios = _ratios(moments, part.scaling)
    narrow = ratios < least
    if variances[narrow].sum() <= variances.sum() / 2:
        return []
    return [j for j in wide_features(moments) if narrow[j]]


def hides_rows(sketch: Sketch | PrivateSketch, moments: Moments) -> bool:
    """Whether nearly all variance is that of cells with hardly any rows.

    Then all others lie in what rounding leaves of the moments. False without cells,
    and for releases, whose cells of few rows are noise.
    """
    if isinstance(sketch, PrivateSketch):
        return False
    for part in sketch.feature_map.find(CellFeatures):
        values = sketch.mean[part.where]
        cells = CellStatistics.read(part.feature_map, values, moments)
        shares, order = cells.shares, np.argsort(cells.shares)
        rare = np.empty(len(shares), bool)
        rare[order] = np.cumsum(shares[order]) < _RARE
        usual = shares[~rare] @ cells.means[~rare] / max(shares[~rare].sum(), 1e-9)
        squares = ((cells.means - usual) ** 2).sum(axis=1)
        between = 2 * shares @ cells.means @ usual - usual @ usual
        total = float(np.trace(cells.second) - between)
        return bool(shares[rare] @ squares[rare] > (1 - _OTHERS) * total > 0)
    return False


def noise_share(sketch: Sketch | PrivateSketch) -> float:
    """Noise of the variances of a release, as a share of the variances; else 0.

    On average, or in the strongest direction where that is less.

    Clusters of releases of synthetic rows were good below a tenth, and those of pure
    noise above one.
    """
    if not isinstance(sketch, PrivateSketch):
        return 0.0
    moments = NystromDecoder().decode(sketch).params
    part, _ = second_moment_part(sketch.feature_map)
    scaling = part.scaling or Scaling.identity(part.n_features)
    noise = mean_noise(sketch) * scaling.factor**-2.0
    total = max(float(moments.structure.variances.sum()), 1e-300)
    largest = max(float(np.linalg.eigvalsh(moments.covariance)[-1]), 1e-300)
    # Noise in all features together hides a strong direction less than each of them.
    return float(min(noise.sum() / total, 2 * np.sqrt(noise @ noise) / largest))


def wide_features(moments: Moments) -> list[int]:
    """At most three features with most of the variance."""
    return [int(j) for j in np.argsort(-moments.structure.variances)[:3]]


def _ratios(
    moments: Moments, scaling: Scaling | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances, and deviations in units of half the planned range."""
    variances = np.maximum(moments.structure.variances, 0.0)
    factor = (scaling or Scaling.identity(len(variances))).factor
    return variances, np.sqrt(variances) * factor
