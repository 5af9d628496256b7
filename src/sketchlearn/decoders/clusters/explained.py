r"""Clusters of one shape that explain the cells of a sketch.

A mixture of Gaussians of one covariance, one for each of some centers, is held against
the cells: points drawn from it are weighted until every cell has its share and its
mean, and the mixture is fitted to them again. If in the end no more points lie in the
wrong cells than chance would have it, the mixture explains the cells: it knows how rows
lie inside of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.cells import Cells
from sketchlearn.decoders.density.mixture import Mixture

__all__ = ["CenterTuning", "explaining_mixture"]

_NO_SHARE = 1e-9
"""A component with a smaller share has no mean that could be told; it is dropped."""


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

    least_variance: float = 1e-4
    """Of a component in any direction, as a share of the mean variance."""


def explaining_mixture(
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
    return _with_second_moments(cells, best.weights, best.means, tuning)


def _assigned(
    cells: Cells, centers: NDArray[np.float64], tuning: CenterTuning
) -> Mixture:
    """A component for each center, with the cells that are nearest to it, and more.

    A tenth of the weight is the same for all: a cell may hold several centers.
    """
    gaps = centers @ cells.means.T - (centers**2).sum(axis=1, keepdims=True) / 2
    member = gaps.argmax(axis=0) == np.arange(len(centers))[:, None]
    weights = 0.9 * (member @ cells.shares) + 0.1 / len(centers)
    return _with_second_moments(cells, weights, centers, tuning)


def _with_second_moments(
    cells: Cells,
    weights: NDArray[np.float64],
    means: NDArray[np.float64],
    tuning: CenterTuning,
) -> Mixture:
    """The mixture with these means that has the second moments of all rows."""
    root = _root(cells, cells.second - (weights[:, None] * means).T @ means, tuning)
    return _tied(weights, means, root)


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
    kept = shares > _NO_SHARE
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
