r"""k-means on a density instead of on rows, for every k.

Where a sketch has cells, their density says nothing of how rows lie inside of a cell.
If a mixture of clusters of one shape explains the cells
(:mod:`sketchlearn.decoders.clusters.explained`), k-means is solved on that mixture; if
not, the density of the cells has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from sketchlearn.decoders.clusters.explained import CenterTuning, explaining_mixture
from sketchlearn.decoders.density.lloyd import lloyd
from sketchlearn.decoders.density.mixture import Density, Mixture
from sketchlearn.decoders.density.reading import Reading

__all__ = ["Centers", "cell_inertia", "cluster_reading", "solve_kmeans"]


@final
@dataclass(frozen=True, eq=False)
class Centers:
    """Centers of a density, and the inertia they would have by it.

    Parameters
    ----------
    centers : array of shape (k, d)
    inertia : float
        Expected squared distance of a row to its nearest center.
    n_iter : int
    is_explained : bool
        Whether they are those of a mixture that explains the cells.
    """

    centers: NDArray[np.float64]
    inertia: float
    n_iter: int
    is_explained: bool = False


def cluster_reading(
    reading: Reading,
    density: Density,
    n_clusters: int,
    *,
    seed: int,
    n_init: int = 10,
    tuning: CenterTuning | None = None,
) -> Centers:
    """Centers of the rows of a sketch.

    Parameters
    ----------
    reading : Reading
        Of the sketch.
    density : Density
        Decoded from it.
    n_clusters : int
        k.
    seed : int
        Of the points that stand for the density, and of the starts.
    n_init : int
        Starts of Lloyd's algorithm.
    tuning : CenterTuning, optional
    """
    tuning = tuning or CenterTuning()
    rng = np.random.default_rng([seed, 3])
    found = solve_kmeans(density, n_clusters, rng=rng, n_init=n_init, tuning=tuning)
    cells = reading.cells
    is_single = n_clusters == 1 or not density.lift.any()
    if cells is None or cells.has_second_moments or reading.noise or is_single:
        return found
    count = reading.moments.count
    if count < tuning.rows_per_cell * int((cells.shares > 0).sum()):
        return found
    sizes, (most, _) = {n_clusters}, cell_inertia(reading, density, found.centers)
    if found.inertia < tuning.blurred * most:
        sizes |= {n_clusters // 2, 3 * n_clusters // 4}
    for size in sorted(sizes):
        start = found
        if size != n_clusters:
            start = solve_kmeans(density, size, rng=rng, n_init=n_init, tuning=tuning)
        centers = cells.frame.of_rows(start.centers)
        mixture = explaining_mixture(cells, centers, count, seed, tuning)
        if mixture is not None:
            better = cells.lifted(mixture, reading.moments)
            solved = solve_kmeans(
                better, n_clusters, rng=rng, n_init=n_init, tuning=tuning
            )
            inertia = _inertia_in_cells(reading, better, mixture, solved, rng, tuning)
            return replace(solved, inertia=inertia, is_explained=True)
    return found


def _inertia_in_cells(
    reading: Reading,
    density: Density,
    mixture: Mixture,
    found: Centers,
    rng: np.random.Generator,
    tuning: CenterTuning,
) -> float:
    """The inertia that cells allow for, less what rows save that leave their cell.

    Cells have a center in common; points of the mixture tell which share of the
    inertia is left if each row has its own nearest one.
    """
    cells = reading.cells
    assert cells is not None
    most, _ = cell_inertia(reading, density, found.centers)
    centers = cells.frame.of_rows(found.centers)
    points, weights = mixture.spread_points(2 * tuning.points, rng)
    common = euclidean_distances(cells.means, centers).argmin(axis=1)
    gaps = euclidean_distances(points, centers, squared=True)
    kept = gaps[np.arange(len(points)), common[cells.locate(points)]]
    share = float(weights @ gaps.min(axis=1) / max(float(weights @ kept), 1e-300))
    return density.outside + max(most - density.outside, 0.0) * share


def cell_inertia(
    reading: Reading, density: Density, centers: NDArray[np.float64]
) -> tuple[float, NDArray[np.int64]]:
    """Mean squared distance to centers if the rows of a cell have one in common.

    Of all centers, the one nearest to the mean of the cell; without cells, the one
    nearest to the mean of all rows. No inertia of these centers is larger. Also the
    number of that center, for each cell that holds rows.
    """
    moments, cells = reading.moments, reading.cells
    shares, means = np.ones(1), moments.mean[None]
    if cells is not None:
        seen = cells.shares > 0
        shares = cells.shares[seen]
        means = density.center + cells.means[seen] @ cells.frame.lift.T
    means = means - moments.mean  # squares of huge rows would hide distances
    distances = euclidean_distances(means, centers - moments.mean, squared=True)
    gain = distances.min(axis=1) - (means**2).sum(axis=1)
    total = float(moments.structure.variances.sum())
    return max(float(total + shares @ gain), 0.0), distances.argmin(axis=1)


def solve_kmeans(
    density: Density,
    n_clusters: int,
    *,
    rng: np.random.Generator,
    n_init: int = 10,
    tuning: CenterTuning | None = None,
) -> Centers:
    """Solve k-means on a density.

    Where the density has fewer distinct points than clusters, the last centers are
    repeated. Where it has as many components as clusters, their means are the one
    start.

    Examples
    --------
    >>> two = Mixture(np.ones(2) / 2, np.array([[-1.0], [1.0]]), np.zeros((2, 1)))
    >>> line = Density(9.0, two, np.ones((1, 1)), np.zeros(1), 0.0)
    >>> found = solve_kmeans(line, 2, rng=np.random.default_rng(0))
    >>> np.sort(found.centers, axis=0).ravel(), found.inertia
    (array([-1.,  1.]), 0.0)
    """
    n_points = (tuning or CenterTuning()).points
    points, weights = density.mixture.spread_points(n_points, rng)
    points, weights = density.on_axes(points)[weights > 0], weights[weights > 0]
    k = min(n_clusters, len(np.unique(points, axis=0)))
    means = density.on_axes(density.mixture.means)
    start = means if len(means) == k else None
    found = lloyd(
        points,
        k,
        n_init=n_init if start is None else 1,
        start=start,
        seed=int(rng.integers(2**31)),
        weights=weights * len(points),
    )
    local = found.cluster_centers_
    local = np.concatenate([local, np.repeat(local[-1:], n_clusters - k, axis=0)])
    inertia = float(found.inertia_) / len(points) + density.outside
    centers = density.center + local @ density.axes.T
    return Centers(centers, inertia, int(found.n_iter_))
