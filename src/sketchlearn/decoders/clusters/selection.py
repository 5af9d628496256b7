"""How many clusters a density has, without looking at rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from sketchlearn.decoders.clusters.explained import CenterTuning
from sketchlearn.decoders.clusters.kmeans import solve_kmeans
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.errors import import_extra

__all__ = ["SelectionOfK", "compare_numbers"]


def compare_numbers(
    density: Density, candidates: Sequence[int], *, seed: int, n_init: int
) -> SelectionOfK:
    """Solve k-means on a density for several k.

    Parameters
    ----------
    density : Density
    candidates : sequence of int
        Numbers of clusters.
    seed : int
    n_init : int
        Starts of Lloyd's algorithm for each.
    """
    rng = np.random.default_rng(0)
    points, weights = density.mixture.spread_points(CenterTuning().points, rng)
    points, axes = density.on_axes(points), density.axes
    inertias, scores = [], []
    for k in candidates:
        rng = np.random.default_rng([seed, 3])
        found = solve_kmeans(density, k, rng=rng, n_init=n_init)
        local = (found.centers - density.center) @ axes
        gaps = np.sort(euclidean_distances(points, local), axis=1)
        second = gaps[:, min(1, k - 1)]
        ratio = gaps[:, 0] / np.where(second > 0, second, 1.0)
        scores.append(float(weights @ (1 - ratio)) if k > 1 else 0.0)
        inertias.append(found.inertia * density.count)
    return SelectionOfK(tuple(candidates), np.array(inertias), np.array(scores))


@final
@dataclass(frozen=True, eq=False)
class SelectionOfK:
    """How well different numbers of clusters fit a density.

    Parameters
    ----------
    candidates : tuple of int
    inertias : array
        Estimated inertia for each number of clusters.
    scores : array
        Mean of one minus the distance to the nearest center over the distance to the
        next: a silhouette, 1 for tight clusters far apart.
    """

    candidates: tuple[int, ...]
    inertias: NDArray[np.float64]
    scores: NDArray[np.float64]

    @property
    def best(self) -> int:
        """The number of clusters with the best score."""
        return self.candidates[int(self.scores.argmax())]

    def plot(self, axes: Any = None) -> Any:
        """Draw inertia and score against k with matplotlib; returns the axes."""
        pyplot = import_extra("matplotlib.pyplot", "plots")
        if axes is None:
            axes = pyplot.subplots()[1]
        axes.plot(self.candidates, self.inertias, "o-", color="C0")
        axes.set(xlabel="number of clusters", ylabel="estimated inertia")
        axes.xaxis.get_major_locator().set_params(integer=True)
        other = axes.twinx()
        other.plot(self.candidates, self.scores, "s--", color="C1")
        other.set_ylabel("silhouette (dashed)")
        other.axvline(self.best, color="C1", alpha=0.3)
        return axes
