"""The test sets for k-means, and how centers are judged on them.

196 features at random at most, in the order of the dataset, scaled to [0, 1] (paper,
appendix Experimental details); features that never vary are left out. Centers are
judged by their inertia over that of Lloyd's algorithm (scikit-learn, best of ten
starts). Nothing is trained or chosen here.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from sketchlearn.errors import RowsError
from sketchlearn.experiments.protocol import random_features, select_test_sets
from sketchlearn.meta.datasets import MetaDataset

__all__ = ["N_CLUSTERS", "ClusterSet", "inertia", "load_cluster_sets"]

N_CLUSTERS = 10
"""k of the whole experiment."""


@final
@dataclass(frozen=True, eq=False)
class ClusterSet:
    """One dataset as the experiment sees it.

    Examples
    --------
    >>> data = ClusterSet("line", np.arange(11.0)[:, None])
    >>> data.ratio(np.arange(11.0)[:, None]), data.lloyd
    (0.0, 0.5)
    """

    name: str
    """Name in its collection."""

    rows: NDArray[np.float64]
    """Rows with features in [0, 1], shape (n, d)."""

    @property
    def n_features(self) -> int:
        """d, at most 196."""
        return int(self.rows.shape[1])

    @cached_property
    def lloyd(self) -> float:
        """Inertia of the best of ten runs of Lloyd's algorithm."""
        search = KMeans(N_CLUSTERS, n_init=10, random_state=0)
        return float(search.fit(self.rows).inertia_)

    @property
    def lloyd_error(self) -> float:
        """The same as a mean over rows: the MSE of the paper's figure."""
        return self.lloyd / len(self.rows)

    def ratio(self, centers: NDArray[np.float64]) -> float:
        """Inertia of centers over that of Lloyd's algorithm; 1 is as good."""
        return inertia(self.rows, centers) / self.lloyd


def inertia(rows: NDArray[np.floating], centers: NDArray[np.floating]) -> float:
    """Summed squared distance of rows to their nearest center.

    Examples
    --------
    >>> inertia(np.array([[0.0], [3.0]]), np.array([[1.0], [3.0]]))
    1.0
    """
    gaps = euclidean_distances(rows, centers, squared=True)
    return float(gaps.min(axis=1).sum())


def load_cluster_sets(
    folder: str | os.PathLike[str], names: Collection[str] | None = None
) -> list[ClusterSet]:
    """Real test sets of a folder, the fewest features first.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these; all by default.
    """
    chosen = select_test_sets(folder, names, real_only=True)
    sets = [_scaled(data) for data in chosen]
    return sorted(sets, key=lambda data: (data.n_features, data.name))


def _scaled(data: MetaDataset) -> ClusterSet:
    rows = data.rows[:, np.sort(random_features(data))].astype(np.float64)
    low, high = rows.min(axis=0), rows.max(axis=0)
    varies = high > low
    if not varies.any():
        raise RowsError(f"test set {data.name!r} has no feature that varies.")
    return ClusterSet(data.name, (rows - low)[:, varies] / (high - low)[varies])
