"""Time of k-means against the number of rows: sketches and scikit-learn.

Rows are unit Gaussian clusters around centers of standard deviation 3, in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from sketchlearn.experiments.kmeans.methods import OUR_KMEANS, kmeans_method
from sketchlearn.experiments.kmeans.sets import N_CLUSTERS, inertia

__all__ = [
    "COUNTS",
    "LLOYD",
    "TIMED",
    "TimingCurves",
    "gaussian_clusters",
    "measure_times",
]

COUNTS = (10_000, 100_000, 1_000_000)
LLOYD = "lloyd"
TIMED = (
    OUR_KMEANS,
    "one-round",
    "ckm-paper",
    "ckm",
    "ompr-gaussian",
    "ompr-dirac-rff",
    "ompr-nystrom",
)
"""Methods whose time is measured by default."""


@final
@dataclass(frozen=True, eq=False)
class TimingCurves:
    """Seconds and inertia over that of Lloyd's, a value for each number of rows."""

    counts: tuple[int, ...]
    n_features: int
    sketch_size: int
    seconds: dict[str, list[float]]
    ratios: dict[str, list[float]]


def gaussian_clusters(
    n_rows: int,
    n_features: int,
    *,
    rng: np.random.Generator,
    n_clusters: int = N_CLUSTERS,
    spread: float = 3.0,
) -> NDArray[np.float64]:
    """Rows around random centers of standard deviation ``spread``, with unit noise."""
    centers = spread * rng.standard_normal((n_clusters, n_features))
    rows: NDArray[np.float64] = centers[rng.integers(n_clusters, size=n_rows)]
    rows += rng.standard_normal(rows.shape)
    return rows


def measure_times(
    counts: Sequence[int] = COUNTS,
    *,
    methods: Sequence[str] = TIMED,
    n_features: int = 10,
    sketch_size: int = 500,
    say: Callable[[str], object] = lambda text: None,
) -> TimingCurves:
    """Sketch and decode growing tables, and run Lloyd's algorithm on them.

    Parameters
    ----------
    counts : sequence of int
        Numbers of rows.
    methods : sequence of str
        What to compare with Lloyd's algorithm.
    n_features, sketch_size : int
        Sizes of a row and of a sketch.
    say : callable
        Receives lines of progress.
    """
    seconds: dict[str, list[float]] = {name: [] for name in (*methods, LLOYD)}
    ratios: dict[str, list[float]] = {name: [] for name in (*methods, LLOYD)}
    for count in counts:
        rows = gaussian_clusters(count, n_features, rng=np.random.default_rng(0))
        low, high = rows.min(axis=0), rows.max(axis=0)
        rows = (rows - low) / (high - low)
        found = {}
        for name in seconds:
            start = time.perf_counter()
            found[name] = _centers(name, rows, sketch_size)
            seconds[name].append(time.perf_counter() - start)
            say(f"{count} rows  {name}  {seconds[name][-1]:.1f} s")
        best = inertia(rows, found[LLOYD])
        for name, centers in found.items():
            ratios[name].append(inertia(rows, centers) / best)
    return TimingCurves(tuple(counts), n_features, sketch_size, seconds, ratios)


def _centers(name: str, rows: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    if name != LLOYD:
        return kmeans_method(name).centers(rows, size, 0)
    search = KMeans(N_CLUSTERS, n_init=10, random_state=0)
    return np.asarray(search.fit(rows).cluster_centers_)
