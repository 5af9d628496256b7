"""Whether rows are wide enough, beside the range of a plan, for a sketch to see them.

Fourier features resolve a fixed part of the planned range, and cells are placed inside
it. One row far out, or bounds far too wide, leave the others in a small part of it,
where clusters look alike. A feature is narrow if its deviation is small beside half the
range, and the rows are if most of their variance is in narrow features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.reading import Reading
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.scaling import Scaling

__all__ = [
    "ResolutionTuning",
    "hides_rows",
    "narrow_features",
    "noise_share",
    "wide_features",
]


@final
@dataclass(frozen=True)
class ResolutionTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    narrow_data: float = 0.125
    """Least deviation, in units of half the range, of one round where the range is that
    of the rows: clusters of training tables were 2.7 to 12 times worse than the best
    below 0.11. Not all bad ones are told: some tables of 0.15 and more had 1.4 to 2.4
    times the best inertia."""

    narrow_declared: float = 0.06
    """And where the range was declared: synthetic clusters were within a tenth of the
    best down to 0.07."""

    narrow_cells: float = 0.05
    """And for cells placed in the range of the rows. Within declared bounds there is no
    least one: cells are placed by the moments whatever was declared."""

    rare: float = 0.01
    """Share of the rows in all cells of few."""

    left: float = 2.0**-12
    """Share of the variance that such cells leave all others, at most, if these lie in
    what rounding leaves of the moments."""


def narrow_features(
    reading: Reading, tuning: ResolutionTuning | None = None
) -> list[int]:
    """Features that are too narrow beside their range, most of the variance first.

    Empty if the rows can be seen.
    """
    tuning, moments = tuning or ResolutionTuning(), reading.moments
    if hides_rows(reading, tuning):
        return wide_features(moments)
    part = reading.moment_map
    is_declared = part.origin == "declared"
    least = tuning.narrow_declared if is_declared else tuning.narrow_data
    if reading.cells is not None:
        least = 0.0 if is_declared else tuning.narrow_cells
    variances, ratios = _ratios(moments, part.scaling)
    narrow = ratios < least
    if variances[narrow].sum() <= variances.sum() / 2:
        return []
    return [j for j in wide_features(moments) if narrow[j]]


def hides_rows(reading: Reading, tuning: ResolutionTuning | None = None) -> bool:
    """Whether nearly all variance is that of cells with hardly any rows.

    Then all others lie in what rounding leaves of the moments. False without cells,
    and for releases, whose cells of few rows are noise.
    """
    tuning, cells = tuning or ResolutionTuning(), reading.cells
    if cells is None or reading.noise:
        return False
    shares, order = cells.shares, np.argsort(cells.shares)
    rare = np.empty(len(shares), bool)
    rare[order] = np.cumsum(shares[order]) < tuning.rare
    usual = shares[~rare] @ cells.means[~rare] / max(shares[~rare].sum(), 1e-9)
    squares = ((cells.means - usual) ** 2).sum(axis=1)
    between = 2 * shares @ cells.means @ usual - usual @ usual
    total = float(np.trace(cells.second) - between)
    return bool(shares[rare] @ squares[rare] > (1 - tuning.left) * total > 0)


def noise_share(reading: Reading) -> float:
    """Noise of the variances of a release, as a share of the variances; else 0.

    On average, or in the strongest direction where that is less.

    Clusters of releases of synthetic rows were good below a tenth, and those of pure
    noise above one.
    """
    if not reading.noise:
        return 0.0
    part, structure = reading.moment_map, reading.moments.structure
    scaling = part.scaling or Scaling.identity(part.n_features)
    noise = reading.noise * scaling.factor**-2.0
    total = max(float(structure.variances.sum()), 1e-300)
    largest = max(float(structure.largest(1)[0][0]), 1e-300)
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
