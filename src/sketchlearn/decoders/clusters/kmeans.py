r"""k-means on a density instead of on rows, for every k.

Where a sketch has cells, their density says nothing of how rows lie inside of a cell. A
mixture of Gaussians of one covariance, one for each center found on that density, does.
It is held against the cells: points drawn from it are weighted until every cell has its
share and its mean, and the mixture is fitted to them again. If in the end no more
points lie in the wrong cells than chance would have it, the mixture explains the cells,
and k-means is solved on it; if not, the density of the cells has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from sketchlearn.decoders.density.cells import Cells
from sketchlearn.decoders.density.lloyd import lloyd
from sketchlearn.decoders.density.mixture import Density, Mixture
from sketchlearn.decoders.density.reading import Reading

__all__ = [
    "CenterTuning",
    "Centers",
    "cell_inertia",
    "cluster_reading",
    "solve_kmeans",
]


@final
@dataclass(frozen=True)
class CenterTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    points: int = 4096
    """That stand for a density, and for a mixture that is held against cells."""

    rounds: int = 30
    """Of weighting points by the cells and fitting the mixture to them again."""

    patience: int = 6
    """Rounds without fewer misplaced rows that end it before."""

    explained: float = 1.4
    """Misplaced rows, in units of what chance has, up to which a mixture explains the
    cells: 0.5 to 1.2 on synthetic mixtures, more on most training tables; on the others
    its centers are as good as those of the cells."""

    pace: float = 0.9
    """As long as more are misplaced, what three rounds leave of them at most: on rows
    that are no such mixture it soon stays as it is."""

    blurred: float = 0.7
    """Inertia on the density of the cells, of the least that cells allow for, below
    which clusters are narrower than cells: then mixtures of fewer components are tried
    too. On training tables with good clusters 0.8 and more."""

    rows_per_cell: float = 20.0
    """With fewer rows, chance has so many misplaced that nothing can be told: on
    training tables with six rows for each cell, centers got worse by 0.03."""

    least_weight: float = 1e-4
    """Components with a smaller share are dropped."""

    least_variance: float = 1e-4
    """Of a component in any direction, as a share of the mean variance."""


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
        mixture = _explaining_mixture(cells, centers, count, seed, tuning)
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


def _explaining_mixture(
    cells: Cells,
    centers: NDArray[np.float64],
    count: float,
    seed: int,
    tuning: CenterTuning,
) -> Mixture | None:
    """A mixture of one covariance about these centers that explains the cells.

    None if there is none.
    """
    mixture = _assigned(cells, centers, tuning)
    best, least, found = mixture, np.inf, 0
    before: list[float] = []
    for done in range(tuning.rounds):
        rng = np.random.default_rng([seed, 4])  # the same points, moved
        points, given = mixture.spread_points(2 * tuning.points, rng)
        chance = cells.expected_misplaced(len(points), count)
        located = cells.locate(points)
        misplaced = cells.misplaced(located, given) / chance
        if misplaced < least:
            best, least, found = mixture, misplaced, done
        before.append(misplaced)
        is_slow = done >= 3 and misplaced > tuning.pace * before[-4]
        if is_slow and least > tuning.explained:
            return None
        if done >= found + tuning.patience:
            break
        weights = cells.weigh(points, located, given)
        mixture = _fitted(cells, mixture, points, weights, tuning)
    if least > tuning.explained:
        return None
    weights, means = best.weights, best.means
    root = _root(cells, cells.second - (weights[:, None] * means).T @ means, tuning)
    return _tied(weights, means, root)


def _assigned(
    cells: Cells, centers: NDArray[np.float64], tuning: CenterTuning
) -> Mixture:
    """A component for each center, with the cells that are nearest to it, and more.

    A tenth of the weight is the same for all: a cell may hold several centers.
    """
    gaps = centers @ cells.means.T - (centers**2).sum(axis=1, keepdims=True) / 2
    member = gaps.argmax(axis=0) == np.arange(len(centers))[:, None]
    weights = 0.9 * (member @ cells.shares) + 0.1 / len(centers)
    root = _root(cells, cells.second - (weights[:, None] * centers).T @ centers, tuning)
    return _tied(weights, centers, root)


def _fitted(
    cells: Cells,
    mixture: Mixture,
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    tuning: CenterTuning,
) -> Mixture:
    """The mixture whose components have the weighted points that were drawn of them."""
    r = points.shape[1]
    member = weights.reshape(len(mixture.weights), -1)
    shares = member.sum(axis=1)
    kept = shares > tuning.least_weight
    member, own = member[kept], points.reshape(len(shares), -1, r)[kept]
    means = np.einsum("jp,jpa->ja", member, own) / shares[kept, None]
    away = (own - means[:, None]).reshape(-1, r)
    root = _root(cells, (away * member.reshape(-1, 1)).T @ away, tuning)
    return _tied(shares[kept] / shares[kept].sum(), means, root)


def _tied(
    weights: NDArray[np.float64],
    means: NDArray[np.float64],
    root: NDArray[np.float64],
) -> Mixture:
    return Mixture(weights, means, np.tile(root, (len(weights), 1, 1)))


def _root(
    cells: Cells, within: NDArray[np.float64], tuning: CenterTuning
) -> NDArray[np.float64]:
    """Root of a covariance that is nowhere too narrow."""
    values, vectors = np.linalg.eigh(within)
    least = tuning.least_variance * np.trace(cells.second) / len(values)
    return np.asarray(vectors * np.sqrt(np.maximum(values, least)))
