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

from sketchlearn.decoders.density.reading import Reading
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

    least_variance: float = 0.1
    """Variance of a feature that is named, of the largest: distances hardly depend on
    others."""

    apart: float = 2.5
    """Of ranges read from rows, in deviations of their features: how many times less
    than the farthest others reach that are named. Planned ranges are up to twice those
    of the rows; of lognormal rows they reach three times as far as of Gaussian ones."""


def narrow_features(
    reading: Reading, tuning: ResolutionTuning | None = None
) -> list[int]:
    """Features that are too narrow beside their range, most of the variance first.

    Empty if the rows can be seen.
    """
    tuning, moments = tuning or ResolutionTuning(), reading.moments
    if hides_rows(reading, tuning):
        return wide_features(reading, tuning)
    part = reading.moment_map
    is_declared = part.origin == "declared"
    least = tuning.narrow_declared if is_declared else tuning.narrow_data
    if reading.cells is not None:
        least = 0.0 if is_declared else tuning.narrow_cells
    variances = np.maximum(moments.structure.variances, 0.0)
    narrow = np.sqrt(variances) * _scaling(reading).factor < least
    if variances[narrow].sum() <= variances.sum() / 2:
        return []
    return [j for j in wide_features(reading, tuning) if narrow[j]]


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
    structure, scaling = reading.moments.structure, _scaling(reading)
    noise = reading.noise * scaling.factor**-2.0
    total = max(float(structure.variances.sum()), 1e-300)
    largest = max(float(structure.largest(1)[0][0]), 1e-300)
    # Noise in all features together hides a strong direction less than each of them.
    return float(min(noise.sum() / total, 2 * np.sqrt(noise @ noise) / largest))


def wide_features(
    reading: Reading, tuning: ResolutionTuning | None = None
) -> list[int]:
    """Features of much variance whose range reaches farthest, most variance first."""
    tuning, scaling = tuning or ResolutionTuning(), _scaling(reading)
    variances = np.maximum(reading.moments.structure.variances, 0.0)
    wide = variances > tuning.least_variance * variances.max()
    deviations = np.sqrt(np.where(wide, variances, 1.0)) * scaling.factor
    center = np.abs(reading.moments.mean - scaling.shift) * scaling.factor
    reach = np.where(wide, (1 + center) / deviations, 0.0)
    if reading.moment_map.origin == "data":  # declared ones may all be too wide
        wide &= tuning.apart * reach > reach.max()
    return [int(j) for j in np.argsort(-variances, kind="stable") if wide[j]]


def _scaling(reading: Reading) -> Scaling:
    part = reading.moment_map
    return part.scaling or Scaling.identity(part.n_features)
