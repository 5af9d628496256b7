r"""Gaussian mixtures from cells with second moments.

Points drawn from the cells, each a Gaussian piece, are given to EM. That mixture is
near, but pieces of several components in one cell were blurred. It is then held against
the sketch: points drawn from the mixture are weighted as little as possible until every
cell has its share, mean and second moments, and one step of EM follows. The weighting
projects on all densities with the sketched moments, the step on all mixtures, so that
the divergence between the two shrinks with every round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.density.blur import blurred_moments, variance_blur
from sketchlearn.decoders.density.cell_moments import CellMoments
from sketchlearn.decoders.density.cells import basis_of, centre_of
from sketchlearn.decoders.density.mixture import Density, lloyd
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CellMixtureDecoder", "find_cells"]

_FEWEST, _MOST = 2000, 8192
"""Points drawn from the cells."""

_POINTS_PER_NUMBER = 8
"""Points drawn from a mixture for each number of the cells."""

_MOST_NUMBERS = 160
"""Cells with more numbers would take too many points to hold a mixture against."""

_ROWS_PER_NUMBER = 2
"""With fewer, the moments of cells are noise that a mixture should not explain."""

_MANY_CELLS = 30
"""With so many cells for each component, hardly any holds several components."""

_EXPLAINED = 0.08
"""Share of misplaced rows up to which a refined mixture is believed."""

_ASTRAY = 0.05
"""Share of rows more than at the start that tells that refining leads nowhere."""

_STARTS = (10, 1, 1)
"""Runs of k-means, of which the best is a start of EM."""

_MOST_STEPS, _TOLERANCE = 100, 1e-3
"""Of EM on points drawn from the cells."""

_FLAT = 1e-9
"""Directions with less than this share of the largest variance are constant."""


@final
@dataclass(frozen=True)
class CellMixtureDecoder(AbstractDecoder[Density]):
    """A Gaussian mixture from a sketch of moments and cells with second moments.

    Parameters
    ----------
    n_components : int
        Components; one is the Gaussian of the moments. Fewer are found where the
        sketch shows fewer distinct places or no cells.
    shape : {"full", "diag"}
        Covariances of the components. "diag" needs cells along the features.
    least_variance : float
        Added to the variances of the components, in the coordinates of the cells.
    n_rounds : int
        Rounds of holding the mixture against the cells.
    seed : int
        Of the points.
    """

    n_components: int
    shape: Literal["diag", "full"] = "full"
    least_variance: float = 1e-6
    n_rounds: int = 15
    seed: int = 0

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Density]:
        moments = blurred_moments(NystromDecoder().decode(sketch).params)
        found = find_cells(sketch.feature_map)
        if found is None or self.n_components == 1:
            return Decoding(_gaussian(moments))
        part, where = found
        noise = mean_noise(sketch)
        cells = CellMoments.read(part, sketch.mean[where], moments, noise=noise)
        if noise:
            return replace(self, least_variance=self._least(part, moments))._mixture(
                cells, part, moments
            )
        return self._mixture(cells, part, moments)

    def _least(self, part: CellFeatures, moments: Moments) -> float:
        """Least variance that a release shows in the coordinates of the cells."""
        blur = variance_blur(moments) @ basis_of(part) ** 2
        return max(self.least_variance, float(blur.mean()))

    def _mixture(
        self, cells: CellMoments, part: CellFeatures, moments: Moments
    ) -> Decoding[Density]:
        rng = np.random.default_rng(self.seed)
        start = self._start(cells, moments.count, rng)
        rounds = self.n_rounds if self._can_refine(part, moments.count) else 0
        n_points = max(_MOST, _POINTS_PER_NUMBER * part.sketch_size * (rounds > 0))
        mixture, misfit = self._refine(start, cells, rounds, n_points, rng)
        density = _density(mixture, part, moments, diagonal=self.shape == "diag")
        return Decoding(density, misfit, rounds)

    def _can_refine(self, part: CellFeatures, count: float) -> bool:
        """Whether cells know enough, from enough rows, and it is worth the time."""
        known = part.n_crossed == part.basis.shape[1] or self.shape == "diag"
        blurred = len(part.anchors) < _MANY_CELLS * self.n_components
        enough = count > _ROWS_PER_NUMBER * part.sketch_size
        return known and blurred and enough and part.cell_size <= _MOST_NUMBERS

    def _start(
        self, cells: CellMoments, count: float, rng: np.random.Generator
    ) -> _Mixture:
        """The best mixture that EM finds for points drawn from the cells."""
        points = cells.draw(int(np.clip(count, _FEWEST, _MOST)), rng)
        size = min(self.n_components, len(np.unique(points, axis=0)))
        found = []
        for n_init in _STARTS:
            seed = int(rng.integers(2**31))
            search = lloyd(points, size, n_init=n_init, seed=seed)
            found.append(self._climb(points, np.eye(size)[search.labels_]))
        return max(found, key=lambda pair: pair[1])[0]

    def _climb(
        self, points: NDArray[np.float64], members: NDArray[np.float64]
    ) -> tuple[_Mixture, float]:
        """EM from the members of clusters, and the log-likelihood it reaches."""
        weights = np.full(len(points), 1 / len(points))
        mixture, level = self._maximise(points, members / len(points)), -np.inf
        for _ in range(_MOST_STEPS):
            mixture, reached = self._step(mixture, points, weights)
            if reached - level < _TOLERANCE:
                break
            level = reached
        return mixture, level

    def _refine(
        self,
        mixture: _Mixture,
        cells: CellMoments,
        n_rounds: int,
        n_points: int,
        rng: np.random.Generator,
    ) -> tuple[_Mixture, float]:
        """The mixture that explains the cells best, and the share of misplaced rows.

        Rows that are no such mixture drive it astray: then the start is kept.
        """
        start, first = mixture, np.inf
        best, least = mixture, np.inf
        for left in range(n_rounds, -1, -1):
            points = mixture.draw(n_points, rng)
            placed = np.bincount(cells.locate(points), minlength=len(cells.shares))
            misplaced = float(np.abs(placed / n_points - cells.shares).sum() / 2)
            first = min(first, misplaced) if mixture is start else first
            if misplaced < least:
                best, least = mixture, misplaced
            if misplaced > first + _ASTRAY:
                break
            if left:
                weights = cells.weigh(points)
                for _ in range(2):
                    mixture, _ = self._step(mixture, points, weights)
        return (best, least) if least <= _EXPLAINED else (start, first)

    def _step(
        self,
        mixture: _Mixture,
        points: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> tuple[_Mixture, float]:
        """One step of EM on weighted points, and the log-likelihood before it."""
        logs = mixture.log_densities(points)
        total = logsumexp(logs, axis=1, keepdims=True)
        members = np.exp(logs - total) * weights[:, None]
        return self._maximise(points, members), float(weights @ total[:, 0])

    def _maximise(
        self, points: NDArray[np.float64], members: NDArray[np.float64]
    ) -> _Mixture:
        """The mixture of points whose shares in every component are known."""
        shares = members.sum(axis=0) + 1e-12
        means = members.T @ points / shares[:, None]
        ridge = self.least_variance * np.eye(points.shape[1])
        roots = np.empty((len(shares), *ridge.shape))
        for j, mean in enumerate(means):
            away = points - mean
            covariance = (away * members[:, j, None]).T @ away / shares[j]
            if self.shape == "diag":
                covariance = np.diag(np.diag(covariance))
            roots[j] = np.linalg.cholesky(covariance + ridge)
        return _Mixture(shares / shares.sum(), means, roots)


@final
@dataclass(frozen=True, eq=False)
class _Mixture:
    """A mixture in the coordinates of the cells, with triangular roots."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    roots: NDArray[np.float64]

    def draw(self, n_points: int, rng: np.random.Generator) -> NDArray[np.float64]:
        labels = rng.choice(len(self.weights), n_points, p=self.weights)
        unit = rng.standard_normal((n_points, self.means.shape[1]))
        points = np.empty_like(unit)
        for j, (mean, root) in enumerate(zip(self.means, self.roots, strict=True)):
            points[labels == j] = mean + unit[labels == j] @ root.T
        return points

    def log_densities(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log of weight times density of every component, up to a constant."""
        result = np.empty((len(points), len(self.weights)))
        for j, (mean, root) in enumerate(zip(self.means, self.roots, strict=True)):
            unit = solve_triangular(root, (points - mean).T, lower=True)
            volume = np.log(np.diag(root)).sum() - np.log(self.weights[j])
            result[:, j] = -(unit**2).sum(axis=0) / 2 - volume
        return result


def find_cells(feature_map: AbstractFeatureMap) -> tuple[CellFeatures, slice] | None:
    """The cells with second moments inside a map, and where they stand."""
    for part in feature_map.find(CellFeatures):
        if part.feature_map.n_crossed is not None:
            return part.feature_map, part.where
    return None


def _axes(moments: Moments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions in which rows have unit variance, (d, r), and the way back.

    Principal directions of standardised features: units do not matter.
    """
    spread = np.sqrt(np.maximum(moments.structure.variances, 0.0))
    safe = np.where(spread > 0, spread, 1.0)
    values, vectors = np.linalg.eigh(moments.covariance / safe / safe[:, None])
    kept = values > max(_FLAT * values[-1], 1e-300)
    roots = np.sqrt(values[kept])
    return vectors[:, kept] * roots * safe[:, None], (
        vectors[:, kept] / roots / safe[:, None]
    )


def _gaussian(moments: Moments) -> Density:
    """The density of one component."""
    lift, _ = _axes(moments)
    r = lift.shape[1]
    if not r:
        lift, r = np.eye(len(moments.mean)), len(moments.mean)
        factors = np.zeros((1, r, r))
    else:
        factors = np.eye(r)[None]
    none = np.zeros((1, r))
    return Density(moments.count, np.ones(1), none, factors, lift, moments.mean, 0.0)


def _density(
    mixture: _Mixture, part: CellFeatures, moments: Moments, *, diagonal: bool
) -> Density:
    """The mixture over all directions: those without cells follow linearly."""
    lift, back = _axes(moments)
    basis, covariance = basis_of(part), moments.covariance
    seen = basis.T @ covariance @ basis
    gain = covariance @ basis @ np.linalg.pinv(seen, hermitian=True)
    left = covariance - gain @ seen @ gain.T
    if diagonal:  # coordinates are features, which keep what their cells say
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        varies = spread > 0
        lift, back = np.diag(spread)[:, varies], np.diag(1 / spread[varies])
        back = np.eye(len(spread))[:, varies] @ back
        own = (basis != 0).any(axis=1)
        inverse = np.divide(1, basis, out=np.zeros_like(basis), where=basis != 0)
        gain[own] = inverse[own]
        left[own], left[:, own] = 0.0, 0.0
    rest = back.T @ left @ back
    middle = basis.T @ (moments.mean - centre_of(part))
    local = back.T @ gain
    roots = local @ mixture.roots
    inside = roots @ np.swapaxes(roots, 1, 2) + rest
    values, vectors = np.linalg.eigh(inside)
    factors = np.asarray(vectors * np.sqrt(np.maximum(values, _FLAT))[:, None, :])
    means = (mixture.means - middle) @ local.T
    weights, count = mixture.weights, moments.count
    return Density(count, weights, means, factors, lift, moments.mean, 0.0)
