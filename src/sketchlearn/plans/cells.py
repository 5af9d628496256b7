r"""Where cells with second moments should lie, from the moments of the rows.

Rows are seen in principal directions of features in given units, with every direction
scaled by the fourth root of its variance: halfway between the rows as they are, whose
widest directions would take all cells, and whitened rows, whose noise would. Anchors
are the centres of rows guessed from the moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.mixture import lloyd
from sketchlearn.decoders.density.prior import copula_rows
from sketchlearn.decoders.moments.moments import Moments

__all__ = ["CellPlan", "place_cells"]

_PRIOR_ROWS = 4096
_WEAK = 1e-6
"""Directions with less than this share of the largest variance get no cells."""

_FEWEST_CELLS = 8

_THIN = 1e-4
"""Directions with a smaller share of the largest variance are scaled as if they had it:
their squares would be lost to rounding otherwise."""


@final
@dataclass(frozen=True, eq=False)
class CellPlan:
    """Cells for :class:`~sketchlearn.features.cells.CellFeatures`.

    Parameters
    ----------
    anchors : array of shape (A, r)
    basis : array of shape (d, r)
        For rows in their own units, less their mean.
    n_crossed : int
        Coordinates whose products are worth their place.
    """

    anchors: NDArray[np.float64]
    basis: NDArray[np.float64]
    n_crossed: int


def place_cells(
    moments: Moments,
    *,
    units: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    room: int,
    n_components: int,
    along_features: bool,
    seed: int,
) -> CellPlan | None:
    """Cells with as much of their second moments as there is room for.

    Parameters
    ----------
    moments : Moments
        Of the rows.
    units : array of shape (d,)
        What counts as one in each feature; positive.
    low, high : arrays of shape (d,)
        Range of each feature.
    room : int
        Numbers that all cells together may hold.
    n_components : int
        Components that the cells should tell apart.
    along_features : bool
        Coordinates are features rather than principal directions, without products.
    seed : int
        Of the anchors.

    Returns
    -------
    CellPlan or None
        None if there is no room for two cells, or nothing varies.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> known = DenseCovariance(np.diag([4.0, 1.0]))
    >>> two = Moments(9.0, np.zeros(2), known, np.zeros(2), 2)
    >>> plan = place_cells(two, units=np.ones(2), low=np.full(2, -9.0),
    ...     high=np.full(2, 9.0), room=60, n_components=1, along_features=False, seed=0)
    >>> plan.anchors.shape, plan.n_crossed, bool(abs(plan.basis[0, 0] - 0.5) < 1e-6)
    ((10, 2), 2, True)
    """
    covariance = moments.covariance / units / units[:, None]
    if along_features:
        values, vectors = np.diag(covariance), np.eye(len(units))
    else:
        values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    strong = int((values > max(_WEAK * values[0], 1e-300)).sum())
    r = min(strong, len(values) if along_features else moments.n_directions)
    fewest = max(_FEWEST_CELLS, 3 * n_components)
    if along_features:  # every feature, as long as cells can tell components apart
        fewest = n_components + 1
    r = min(r, max((room // fewest - 1) // 2, 1), (room // 2 - 1) // 2)
    if r < 1:
        return None
    scales = (values[0] * np.maximum(values[:r], _THIN * values[0])) ** -0.25
    basis = vectors[:, :r] * scales / units[:, None]
    crossed = 0 if along_features else _affordable(r, room, n_components)
    rng = np.random.default_rng([seed, 2])
    rows = copula_rows(moments, low, high, n_rows=_PRIOR_ROWS, rng=rng)
    local = (rows - moments.mean) @ basis
    n_cells = room // (1 + 2 * r + crossed * (crossed - 1) // 2)
    n_cells = min(n_cells, len(np.unique(local, axis=0)))
    search = lloyd(local, n_cells, max_iter=20, seed=seed)
    return CellPlan(search.cluster_centers_, basis, crossed)


def _affordable(r: int, room: int, n_components: int) -> int:
    """Coordinates whose products are worth their place beside means and squares.

    All of them if that leaves more cells than components, otherwise as many as leave
    three cells for each: measured on training tables and synthetic mixtures.
    """
    whole = 1 + 2 * r + r * (r - 1) // 2
    if room // whole >= max(_FEWEST_CELLS, n_components + 4):
        return r
    cell_size = room // max(_FEWEST_CELLS, 3 * n_components)
    crossed = 1
    while crossed < r and 1 + 2 * r + crossed * (crossed + 1) // 2 <= cell_size:
        crossed += 1
    return crossed
