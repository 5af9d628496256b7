r"""What a sketch of cells says for certain about the inertia of given centres.

Every row of a cell is counted with one centre, the best one for the cell's mean. With
:math:`s_c` the sum of the rows in cell c, :math:`n_c` their number and
:math:`\mu_{a(c)}` that centre,

.. math::
    \sum_i \min_j \lVert x_i - \mu_j \rVert^2 \;\le\;
    \sum_i \lVert x_i \rVert^2 - 2 \sum_c s_c^\top \mu_{a(c)}
    + \sum_c n_c \lVert \mu_{a(c)} \rVert^2 ,

and the sketch holds every number on the right. Without cells, all rows are counted with
one centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.clusters.kmeans import Centers, cell_inertia
from sketchlearn.decoders.clusters.resolution import hides_rows, narrow_features
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.reading import Reading
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.scaling import Scaling

__all__ = ["Inertia", "InertiaTuning", "bound_inertia"]

_ROUNDING = 2.0**-18
"""Share of the variance that rounded rows and directions of cells may hide."""


@final
@dataclass(frozen=True)
class InertiaTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    split: float = 0.9
    """Of the bound, the least that the inertia was on training tables, where the cells
    had the right sizes: the rest is rows that are nearer to another center than their
    cell."""

    least: float = 0.5
    """Share of an estimate with cells that the inertia was never below: 0.8 on training
    tables, 0.7 for many narrow synthetic clusters."""

    least_without: float = 0.4
    """And of an estimate without cells."""

    blurred: float = 0.7
    """Share of the bound that a density explains where cells fit the rows: 0.8 and more
    on training tables where clusters were good, 0.65 and less where they were not."""

    hidden: float = 0.35
    """Power of the share of the bound that a density explains, where a few rows far out
    hide the others from it: the median of estimates was 0.15 of the inertia on raw
    training tables of one round, and is 0.8."""

    deviations: float = 3.0
    """Of known noise, by which the interval of a release is wider."""


@final
@dataclass(frozen=True)
class Inertia:
    """Summed squared distance of the rows to their centres, as far as it is known.

    Parameters
    ----------
    estimate : float
    low, high : float
        High is a bound, up to the noise of a release; low is an estimate that held on
        training tables.
    is_blurred : bool
        Whether the density explains so much less than the cells that they cannot tell
        where the rows in them are.
    unseen : float
        Most that as many centres could take off, of the estimate, in directions that
        have no cells.
    """

    estimate: float
    low: float
    high: float
    is_blurred: bool
    unseen: float


def bound_inertia(
    reading: Reading,
    density: Density,
    found: Centers,
    tuning: InertiaTuning | None = None,
) -> Inertia:
    """The inertia of centers of a density, from the sketch it was decoded from.

    Parameters
    ----------
    reading : Reading
        Of the sketch.
    density : Density
        Decoded from it.
    found : Centers
        Found in the density.
    tuning : InertiaTuning, optional
    """
    tuning, moments, cells = tuning or InertiaTuning(), reading.moments, reading.cells
    lift = None if cells is None else cells.frame.lift
    total = float(moments.structure.variances.sum())
    high, nearest = cell_inertia(reading, density, found.centers)
    estimate = found.inertia
    if 0 < estimate < high and narrow_features(reading):
        estimate = high * (estimate / high) ** tuning.hidden
    if lift is not None:
        least = 0.0 if found.is_explained else tuning.split * high
        estimate = max(min(estimate, high), least)
    if hides_rows(reading):  # differences of huge numbers
        estimate = max(estimate, _ROUNDING * total / 2)
    own = (found.centers - moments.mean)[nearest]
    wide = tuning.deviations * reading.noise * _error(reading, own, lift)
    wide += _ROUNDING * total
    least = tuning.least if lift is not None else tuning.least_without
    low = max(least * min(found.inertia, high) - wide, 0.0)
    is_exact = lift is not None and not reading.noise
    is_guess = is_exact and not found.is_explained
    is_seen = high > _ROUNDING * total
    is_blurred = is_guess and is_seen and found.inertia < tuning.blurred * high
    unseen = 0.0 if lift is None else _outside(moments, lift, len(found.centers))
    unseen /= max(estimate, 1e-300)
    n, high = moments.count, max(high, estimate) + wide
    return Inertia(n * estimate, n * low, n * high, is_blurred, unseen)


def _outside(moments: Moments, lift: NDArray[np.float64], n_centers: int) -> float:
    """Variance that centers, which span a direction less, could explain beside L."""
    count = min(n_centers - 1, len(moments.mean))
    if count <= lift.shape[1]:
        return 0.0
    basis = np.linalg.qr(lift)[0]
    inside = float(np.sum(basis * (moments.structure @ basis)))
    return max(float(moments.structure.largest(count)[0].sum()) - inside, 0.0)


def _error(
    reading: Reading,
    away: NDArray[np.float64],
    lift: NDArray[np.float64] | None,
) -> float:
    """Deviation of the bound, for unit noise on every number of the sketch."""
    part = reading.moment_map
    scaling = part.scaling or Scaling.identity(part.n_features)
    unit = float(1 / scaling.factor.min())  # fourth powers of rows may be no numbers
    variance = float(((scaling.factor * unit) ** -4.0).sum())
    if lift is not None:
        near, far = away / unit, lift / unit
        squares = (near**2).sum(axis=1)
        variance += float((squares**2).sum() + 4 * ((near @ far) ** 2).sum())
    return unit * unit * float(variance**0.5)
