"""k-means from one sketch, for every k."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.clusters.inertia import bound_inertia
from sketchlearn.decoders.clusters.kmeans import cluster_reading
from sketchlearn.decoders.clusters.selection import SelectionOfK, compare_numbers
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.errors import RowsError
from sketchlearn.estimators.density import AbstractDensityEstimator, warn_all
from sketchlearn.estimators.inputs import require_in_memory, require_read_again
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    BOUNDS,
    RANDOM_STATE,
    ROUNDS,
    SKETCH_SIZE,
    Constraints,
    seed_of,
)
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.plans.advice import cluster_advice
from sketchlearn.plans.cells import ClusterCells
from sketchlearn.plans.rounds import DensityPlan
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.kinds import kind_of
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveKMeans"]
__public__ = ["CompressiveKMeans"]


@final
class CompressiveKMeans(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    AbstractDensityEstimator,
):
    """k-means from one small sketch that serves every k.

    The sketch is decoded into a density, and k-means is solved on the density. With
    one round, a Gaussian mixture is fitted to moments and Fourier features. With two
    rounds, the moments of a first pass place the cells of a partition, and a second
    pass counts and averages the rows in each; the cells are the density. Where they
    show that the rows are clusters of one shape, centers are found on these.

    Parameters
    ----------
    n_clusters : int
        k.
    sketch_size : int or "auto"
        Numbers the sketch may hold, beside means and variances, all rounds together.
        "auto" grows with the clusters and features: 2,000 at least, and with two
        rounds enough for 24 cells for each cluster, in as many directions as clusters
        may differ in, up to 64 and 200,000 numbers.
    rounds : {1, 2} or None
        Passes over the rows. Two are more accurate, but the second map is planned
        from the rows: estimators fitted apart do not merge (share a :meth:`plan`),
        and a stream cannot be read twice. None takes two, unless ``bounds`` are
        declared or the rows are a stream.
    bounds : pair (low, high), optional
        Declared range of the features: two numbers or two vectors. Values beyond it
        (rounded out to a power of two) are refused. Without it, scales are read from
        the rows: all of them, or the first ones of an iterator.
    n_init : int
        Starts of Lloyd's algorithm on the density; the best is kept.
    random_state : int
        Seed of the sketch and of the search; the same on every party that is to
        merge. None is 0.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features_in_)
    inertia_ : float
        Summed squared distance of the rows to their centers, *estimated*: within a
        tenth with two rounds on most tables, up to half too large for many clusters
        that are narrower than cells, and far too small at times with one round.
        ``-score(X)`` is the inertia of rows at hand.
    inertia_interval_ : pair of float
        The inertia is never above the second (with two rounds, every row counted with
        the center of its cell; with one, all rows with one center), up to the noise of
        a release. The first is a guess and no bound: the inertia was not below it on
        training tables and synthetic rows.
    labels_ : array of shape (n,)
        Of the rows passed to ``fit``, where they were in memory, or to
        ``fit_predict``; gone after ``partial_fit``, ``forget``, ``merge`` and
        ``fit_sketch``.
    density_ : Density
        What the sketch says of the rows.
    n_iter_, n_samples_seen_, n_features_in_ : int
    sketch_ : Sketch
        All that is kept of the data.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2)) * 0.1 + rng.choice([-1.0, 1.0], (2000, 1))
    >>> km = CompressiveKMeans(n_clusters=2, sketch_size=200).fit(X)
    >>> bool(abs(np.sort(km.cluster_centers_[:, 0]) - [-1, 1]).max() < 0.05)
    True
    """

    _parameter_constraints: Constraints = {
        "n_clusters": [AT_LEAST_ONE],
        "sketch_size": SKETCH_SIZE,
        "rounds": ROUNDS,
        "bounds": BOUNDS,
        "n_init": [AT_LEAST_ONE],
        "random_state": RANDOM_STATE,
    }
    command = "kmeans"
    command_options = {
        "clusters": "n_clusters",
        "components": "n_clusters",
        "rounds": "rounds",
    }
    command_output = ("cluster_centers_", "inertia_")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        sketch_size: int | Literal["auto"] = "auto",
        rounds: int | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        n_init: int = 10,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.sketch_size = sketch_size
        self.rounds = rounds
        self.bounds = bounds
        self.n_init = n_init
        self.random_state = random_state

    @override
    def fit(self, X: Any, y: Any = None) -> Self:
        with self._all_or_nothing():
            super().fit(X, y)
            if kind_of(X).is_validated:
                self.labels_ = self.predict(X)
        return self

    @override
    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int32]:
        """Fit, and the number of the nearest center of each row.

        Files are read once more for it, batch by batch. A stream cannot be, and rows
        of an engine are not read here: both are refused before anything is read.
        """
        require_read_again(X)
        with self._all_or_nothing():
            self.fit(X, y)
            if not hasattr(self, "labels_"):
                found = [self._nearest(rows) for rows in self._batches(X)]
                self.labels_ = np.concatenate(found)
        return self.labels_

    @override
    def fit_sketch(
        self, sketch: Sketch | PrivateSketch, *, n_clusters: int | None = None
    ) -> Self:
        """Decode a sketch made with a map from :meth:`plan`.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Of moments, with Fourier features or cells beside them.
        n_clusters : int, optional
            k for this time; the estimator's own by default.

        Returns
        -------
        self
        """
        self._check_parameters()
        k = self.n_clusters if n_clusters is None else n_clusters
        k = require_positive_int("n_clusters", k)
        reading = self._read(sketch, k)
        if isinstance(sketch, Sketch) and sketch.count < k:
            raise RowsError(
                f"n_samples={sketch.count} should be >= n_clusters={k}: ask for fewer "
                "clusters or sketch more rows."
            )
        seed = seed_of(self.random_state)
        if getattr(self, "sketch_", None) is sketch:  # another k of the same
            density = self.density_
        else:
            density = DensityDecoder(seed=seed).decode_reading(reading).params
        found = cluster_reading(reading, density, k, seed=seed, n_init=self.n_init)
        inertia = bound_inertia(reading, density, found)
        plan = self._density_plan()
        warn_all(cluster_advice(reading, density, found, inertia, plan))
        self.cluster_centers_ = found.centers
        self.inertia_ = inertia.estimate
        self.inertia_interval_ = (inertia.low, inertia.high)
        self.n_iter_ = found.n_iter
        self.n_samples_seen_ = density.count
        self.density_: Density = density
        self._name_features(sketch, np.arange(len(density.center)))
        self.sketch_ = sketch
        if hasattr(self, "labels_"):
            del self.labels_
        return self

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Number of the nearest center of each row."""
        return self._nearest(self._check_rows(X))

    @override
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit rows in memory, and give their distances to every center."""
        require_in_memory(X, "fit_transform")
        return super().fit_transform(X, y, **fit_params)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Distance of each row to every center."""
        return self._learned_rows(X, self._distances(self._check_rows(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the inertia of rows: summed squared distances to their centers."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    def sample(self, n_samples: int = 1) -> NDArray[np.float64]:
        """Draw synthetic rows from the density."""
        check_is_fitted(self, "density_")
        rng = np.random.default_rng([seed_of(self.random_state), 1])
        n_rows = require_positive_int("n_samples", n_samples)
        return self.density_.sample(n_rows, rng)[0]

    def select_k(self, candidates: Iterable[int] = range(2, 21)) -> SelectionOfK:
        """Compare numbers of clusters on the density, without looking at rows.

        Parameters
        ----------
        candidates : iterable of int
            Numbers of clusters to try, each at least 2.

        Returns
        -------
        SelectionOfK
        """
        check_is_fitted(self, "density_")
        ks = [require_positive_int("candidates", k) for k in candidates]
        seed = seed_of(self.random_state)
        return compare_numbers(self.density_, ks, seed=seed, n_init=self.n_init)

    def _nearest(self, rows: NDArray[np.floating]) -> NDArray[np.int32]:
        return np.asarray(self._distances(rows).argmin(axis=1), np.int32)

    def _distances(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Distances to the centers; squares of rows far from zero would hide them."""
        middle = self.cluster_centers_.mean(axis=0)
        centers = self.cluster_centers_ - middle
        return np.asarray(euclidean_distances(rows - middle, centers))

    @override
    def _density_plan(self) -> DensityPlan:
        cells = ClusterCells(self.n_clusters)
        return DensityPlan(cells, self.sketch_size, seed_of(self.random_state))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)
