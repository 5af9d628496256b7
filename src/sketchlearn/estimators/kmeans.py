"""k-means from one sketch, for every k."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
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
from sketchlearn.decoders.density.decoder import (
    DensityDecoder,
    is_moments,
    principal_directions,
)
from sketchlearn.decoders.density.mixture import Clusters, Density, find_clusters, lloyd
from sketchlearn.decoders.density.prior import copula_rows
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import ConvergenceWarning, RowsError, import_extra
from sketchlearn.estimators.density import (
    MOMENT_SHARE,
    AbstractDensityEstimator,
    SecondRound,
)
from sketchlearn.estimators.inputs import require_in_memory
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
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.kinds import kind_of
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CompressiveKMeans", "SelectionOfK"]
__public__ = ["CompressiveKMeans"]

_DIRECTIONS, _MOST_DIRECTIONS = 14, 64
"""Directions that cells have where there are few clusters, and at most: the centres of
k clusters differ in k - 1."""

_MOST_NUMBERS = 200_000
"""Size of "auto" up to which cells get more directions than a few."""

_PRIOR_ROWS = 8192
_WAVE_SHARE = 0.6
"""Of the room, what Fourier features of the first of two rounds may take."""

_WAVES = (2.2, 2.5)
"""How many of them at least and at most, for each coordinate of ten centres, or of
``n_clusters`` if there are more: with fewer, clusters cannot be told apart."""

_MOST_SEEN, _MOST_COMPONENTS = 20, 30
"""Clusters up to which the first of two rounds has Fourier features, and that a mixture
fitted to them can tell apart; more are for cells."""

_FARTHEST = 7.9
"""Largest coordinate of a row in units of the cells: leaves them 40 binary digits, and
fewer could not stand beside those of exact moments."""

_CELLS, _ENOUGH_CELLS, _FEWEST_CELLS = 24, 6, 2
"""Cells for each cluster: by default, where they have many directions, and at least.
With 24, the median of training tables is 1.02 to 1.08 times the inertia of Lloyd's for
20 to 100 clusters; with fewer than two, 1.2 times and more."""

_UNSEEN = 0.2
"""Share of the inertia that centres could explain in directions without cells: below
it, clusters of training tables were within a tenth of the best."""

_WEAK = 1e-3
"""Directions with less than this share of the largest variance get no cells."""


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
    rounds, moments and, for few features, Fourier features of a first pass place the
    cells of a partition, and a second pass counts and averages the rows in each; where
    the cells bear out the mixture of the first pass, it is the density, and otherwise
    the cells are.

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
        Summed squared distance of the rows to their centres, *estimated*: within a
        tenth with two rounds on most tables, up to half too large for many clusters
        that are narrower than cells, and far too small at times with one round.
        ``-score(X)`` is the inertia of rows at hand.
    inertia_interval_ : pair of float
        The inertia is never above the second (with two rounds, every row counted with
        the centre of its cell; with one, all rows with one centre), up to the noise of
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
        """Fit, and the number of the nearest centre of each row.

        Files are read once more for it, batch by batch. A stream cannot be: it is
        refused before anything is read.
        """
        if kind_of(X).is_read_once:
            raise RowsError(
                "a stream cannot be read again to label its rows. Nothing was read. "
                "Call fit, and predict for each batch, or pass an array or files."
            )
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
        self._check_sketch(sketch, k)
        if isinstance(sketch, Sketch) and sketch.count < k:
            raise RowsError(
                f"n_samples={sketch.count} should be >= n_clusters={k}: ask for fewer "
                "clusters or sketch more rows."
            )
        density = self._decode(sketch)
        small = self._size(len(density.centre), 1)
        is_small = 2 * sketch.size < small and bool(density.factors.any())
        if is_small and is_moments(sketch.feature_map):
            warnings.warn(
                "this sketch holds moments alone: clusters are guessed from them. "
                "Sketch with plan(n_features), and for two rounds again with "
                "plan(n_features, first=...).",
                ConvergenceWarning,
                stacklevel=2,
            )
        is_small = is_small or self._warn_of_size(sketch, k)
        found = self._clusters(density, k)
        if len(np.unique(found.centers, axis=0)) < k:
            warnings.warn(
                f"the sketch shows fewer than n_clusters={k} distinct places: some "
                "centres are the same.",
                ConvergenceWarning,
                stacklevel=2,
            )
        moments = NystromDecoder().decode(sketch).params
        inertia = bound_inertia(sketch, moments, density, found)
        blurred = inertia.is_blurred and not is_small
        told = self._warn_of_tails(sketch, moments, is_blurred=blurred)
        if inertia.unseen > _UNSEEN and not is_small and not told:
            self._warn_of_directions(sketch)
        self.cluster_centers_ = found.centers
        self.inertia_ = inertia.estimate
        self.inertia_interval_ = (inertia.low, inertia.high)
        self.n_iter_ = found.n_iter
        self.n_samples_seen_ = density.count
        self.density_: Density = density
        self._name_features(sketch, np.arange(len(density.centre)))
        self.sketch_ = sketch
        if hasattr(self, "labels_"):
            del self.labels_
        return self

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Number of the nearest centre of each row."""
        return self._nearest(self._check_rows(X))

    @override
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit rows in memory, and give their distances to every centre."""
        require_in_memory(X, "fit_transform")
        return super().fit_transform(X, y, **fit_params)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Distance of each row to every centre."""
        return self._distances(self._check_rows(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the inertia of rows: summed squared distances to their centres."""
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
        points, weights = self.density_.points(np.random.default_rng(0))
        basis = np.linalg.qr(self.density_.lift)[0]
        inertias, scores = [], []
        ks = [require_positive_int("candidates", k) for k in candidates]
        for k in ks:
            found = self._clusters(self.density_, k)
            local = (found.centers - self.density_.centre) @ basis
            gaps = np.sort(euclidean_distances(points, local), axis=1)
            second = gaps[:, min(1, k - 1)]
            ratio = gaps[:, 0] / np.where(second > 0, second, 1.0)
            scores.append(float(weights @ (1 - ratio)) if k > 1 else 0.0)
            inertias.append(found.inertia * self.density_.count)
        return SelectionOfK(tuple(ks), np.array(inertias), np.array(scores))

    def _nearest(self, rows: NDArray[np.floating]) -> NDArray[np.int32]:
        return np.asarray(self._distances(rows).argmin(axis=1), np.int32)

    def _distances(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Distances to the centres; squares of rows far from zero would hide them."""
        middle = self.cluster_centers_.mean(axis=0)
        centres = self.cluster_centers_ - middle
        return np.asarray(euclidean_distances(rows - middle, centres))

    def _warn_of_size(self, sketch: Sketch | PrivateSketch, k: int) -> bool:
        """Say so, and return True, where a sketch is too small for so many."""
        if k == 1 or isinstance(sketch, PrivateSketch):
            return False  # a larger release would be a noisier one
        d = sketch.feature_map.n_features
        found = sketch.feature_map.find(CellFeatures)
        cells = [len(part.feature_map.anchors) for part in found]
        harmonics = sketch.feature_map.find(HarmonicFeatures)
        waves = sum(part.feature_map.sketch_size for part in harmonics)
        advice = f"use sketch_size >= {CompressiveKMeans(k)._size(d, 2)}"
        enough = (k <= _MOST_COMPONENTS and waves >= _WAVES[0] * d * k) or is_moments(
            sketch.feature_map
        )
        what = f"a sketch of {sketch.size} numbers is too small to tell"
        if cells:
            enough = enough or cells[0] >= min(_FEWEST_CELLS * k, int(sketch.count))
        else:
            what = f"one round, in {sketch.size} numbers, does not tell"
            advice += " and rounds=2"
        if not enough:
            warnings.warn(
                f"{what} n_clusters={k} clusters of {d} features apart: {advice}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return not enough

    @staticmethod
    def _warn_of_directions(sketch: Sketch | PrivateSketch) -> None:
        """Say so where cells leave out directions that clusters may differ in."""
        if isinstance(sketch, PrivateSketch):
            return  # a larger release would be a noisier one
        warnings.warn(
            f"a sketch of {sketch.size} numbers has cells in so few directions that "
            "clusters which differ in others cannot be told apart: the result may be "
            "far from the best. Use a larger sketch_size.",
            ConvergenceWarning,
            stacklevel=3,
        )

    @override
    def _cell_numbers(self, n_features: int) -> int:
        cells = _CELLS * self.n_clusters
        moments = n_features * (n_features + 1) // 2
        room = max(_MOST_NUMBERS - moments, round((1 - MOMENT_SHARE) * _MOST_NUMBERS))
        return cells * (1 + self._directions(n_features, room // cells - 1))

    def _directions(self, n_features: int, affordable: int) -> int:
        """How many directions cells have, of which some more are affordable."""
        most = min(_MOST_DIRECTIONS, self.n_clusters - 1, affordable)
        return min(n_features, max(_DIRECTIONS, most))

    @override
    def _look_ahead(self, n_features: int, room: int) -> int:
        unknown = n_features * max(self.n_clusters, 10)
        waves = int(min(_WAVE_SHARE * room, _WAVES[1] * unknown))
        # A release pays for every feature with noise: it does without.
        few = self.bounds is None and self.n_clusters <= _MOST_SEEN
        return waves if few and waves >= _WAVES[0] * unknown else 0

    @override
    def _plan_second(self, known: SecondRound) -> AbstractFeatureMap | None:
        values, directions = principal_directions(known.moments)
        strong = int((values > _WEAK * values[:1]).sum())
        affordable = known.room // (_ENOUGH_CELLS * self.n_clusters) - 1
        r = self._directions(known.moments.n_directions, affordable)
        r = min(r, strong, known.room // 4)
        if r < 1:
            return None
        # Wide bounds would make z coarse beside the moments; any unit will do.
        part, ways = known.part, np.abs(known.scaled_basis(directions[:, :r]))
        farthest = ways.T @ (part.reach + np.abs(known.scaled_centre))
        unit = max(float(np.sqrt(values[0])), float(farthest.max()) / _FARTHEST)
        basis = directions[:, :r] / unit
        seed = seed_of(self.random_state)
        local = (self._guessed_rows(known) - known.moments.mean) @ basis
        n_cells = min(known.room // (1 + r), len(np.unique(local, axis=0)))
        search = lloyd(local, n_cells, max_iter=20, seed=seed)
        return CellFeatures(
            search.cluster_centers_,
            basis=known.scaled_basis(basis),
            centre=known.scaled_centre,
            reach=known.part.reach,
            origin=known.origin,
            scaling=known.part.scaling,
        )

    def _guessed_rows(self, known: SecondRound) -> NDArray[np.float64]:
        """Rows as the first round suggests them, to place cells among."""
        seed = seed_of(self.random_state)
        rng, count = np.random.default_rng([seed, 2]), _PRIOR_ROWS
        if known.waves:
            count //= 2
        rows = copula_rows(known.moments, known.low, known.high, n_rows=count, rng=rng)
        if not known.waves:
            return rows
        found = DensityDecoder(seed=seed).decode(known.first).params
        others = found.sample(_PRIOR_ROWS - count, rng)[0]
        return np.concatenate([rows, np.clip(others, known.low, known.high)])

    def _decode(self, sketch: Sketch | PrivateSketch) -> Density:
        """The density of a sketch; the one at hand for another k of the same."""
        if getattr(self, "sketch_", None) is sketch:
            return self.density_
        seed = seed_of(self.random_state)
        return DensityDecoder(seed=seed).decode(sketch).params

    def _clusters(self, density: Density, k: int) -> Clusters:
        rng = np.random.default_rng([seed_of(self.random_state), 3])
        return find_clusters(density, k, rng=rng, n_init=self.n_init)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


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
        Mean of one minus the distance to the nearest centre over the distance to the
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
