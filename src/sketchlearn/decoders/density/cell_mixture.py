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
from scipy.special import logsumexp
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.density.blur import variance_blur
from sketchlearn.decoders.density.cells import CellFrame, Cells
from sketchlearn.decoders.density.lloyd import lloyd
from sketchlearn.decoders.density.mixture import Density, Mixture
from sketchlearn.decoders.density.moment_density import (
    VARIES,
    gaussian_density,
    standard_directions,
)
from sketchlearn.decoders.density.reading import Reading, read_sketch
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CellMixtureDecoder", "CellMixtureTuning"]

_MOST_EM_STEPS = 100
"""A guard: EM ends before, by its tolerance."""


@final
@dataclass(frozen=True)
class CellMixtureTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    points: tuple[int, int] = (2000, 8192)
    """Fewest and most points drawn from the cells; one for each row in between."""

    points_per_number: int = 8
    """Points drawn from a mixture for each number of the cells."""

    most_numbers: int = 160
    """Cells with more numbers would take too many points to hold a mixture against."""

    rows_per_number: float = 2.0
    """With fewer, the moments of cells are noise that a mixture should not explain."""

    many_cells: int = 30
    """With so many cells for each component, hardly any holds several components."""

    explained: float = 0.08
    """Share of misplaced rows up to which a refined mixture is kept."""

    starts: tuple[int, ...] = (10, 1, 1)
    """Runs of k-means, of which the best is a start of EM."""

    tolerance: float = 1e-3
    """Gain of log-likelihood below which EM ends."""


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
    tuning : CellMixtureTuning
    """

    n_components: int
    shape: Literal["diag", "full"] = "full"
    least_variance: float = 1e-6
    n_rounds: int = 15
    seed: int = 0
    tuning: CellMixtureTuning = CellMixtureTuning()

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Density]:
        return self.decode_reading(read_sketch(sketch, is_blurred=True))

    def decode_reading(self, reading: Reading) -> Decoding[Density]:
        """The mixture of a sketch that was read already, its variances widened."""
        cells, moments = reading.cells, reading.moments
        if cells is None or self.n_components == 1:
            return Decoding(gaussian_density(moments))
        if not reading.noise:
            return self._mixture(cells, moments)
        blur = float((variance_blur(moments) @ cells.frame.basis**2).mean())
        seen = replace(self, least_variance=max(self.least_variance, blur))
        return seen._mixture(cells, moments)

    def _mixture(self, cells: Cells, moments: Moments) -> Decoding[Density]:
        rng, tuning = np.random.default_rng(self.seed), self.tuning
        start = self._start(cells, moments.count, rng)
        rounds = self.n_rounds if self._can_refine(cells, moments.count) else 0
        numbers = cells.frame.part.sketch_size * (rounds > 0)
        n_points = max(tuning.points[1], tuning.points_per_number * numbers)
        mixture, misfit = self._refine(start, cells, rounds, n_points, rng)
        is_diagonal = self.shape == "diag"
        density = _lifted(mixture, cells.frame, moments, is_diagonal=is_diagonal)
        return Decoding(density, misfit, rounds)

    def _can_refine(self, cells: Cells, count: float) -> bool:
        """Whether cells know enough, from enough rows, and it is worth the time."""
        part, tuning = cells.frame.part, self.tuning
        is_known = part.n_crossed == part.basis.shape[1] or self.shape == "diag"
        is_known = is_known and cells.has_second_moments
        is_blurred = len(part.anchors) < tuning.many_cells * self.n_components
        has_rows = count > tuning.rows_per_number * part.sketch_size
        is_small = part.cell_size <= tuning.most_numbers
        return is_known and is_blurred and has_rows and is_small

    def _start(self, cells: Cells, count: float, rng: np.random.Generator) -> Mixture:
        """The best mixture that EM finds for points drawn from the cells."""
        points = cells.draw(int(np.clip(count, *self.tuning.points)), rng)
        size = min(self.n_components, len(np.unique(points, axis=0)))
        found = []
        for n_init in self.tuning.starts:
            seed = int(rng.integers(2**31))
            search = lloyd(points, size, n_init=n_init, seed=seed)
            found.append(self._climb(points, np.eye(size)[search.labels_]))
        return max(found, key=lambda pair: pair[1])[0]

    def _climb(
        self, points: NDArray[np.float64], members: NDArray[np.float64]
    ) -> tuple[Mixture, float]:
        """EM from the members of clusters, and the log-likelihood it reaches."""
        weights = np.full(len(points), 1 / len(points))
        mixture, level = self._maximise(points, members / len(points)), -np.inf
        for _ in range(_MOST_EM_STEPS):
            mixture, reached = self._step(mixture, points, weights)
            if reached - level < self.tuning.tolerance:
                break
            level = reached
        return mixture, level

    def _refine(
        self,
        mixture: Mixture,
        cells: Cells,
        n_rounds: int,
        n_points: int,
        rng: np.random.Generator,
    ) -> tuple[Mixture, float]:
        """The mixture that explains the cells best, and the share of misplaced rows.

        Rows that are no such mixture drive it astray: then the start is kept.
        """
        start, first = mixture, np.inf
        best, least = mixture, np.inf
        for left in range(n_rounds, -1, -1):
            points, _ = mixture.sample(n_points, rng)
            located = cells.locate(points)
            misplaced = cells.misplaced(located)
            first = min(first, misplaced) if mixture is start else first
            if misplaced < least:
                best, least = mixture, misplaced
            if left:
                weights = cells.weigh(points, located)
                for _ in range(2):
                    mixture, _ = self._step(mixture, points, weights)
        return (best, least) if least <= self.tuning.explained else (start, first)

    def _step(
        self,
        mixture: Mixture,
        points: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> tuple[Mixture, float]:
        """One step of EM on weighted points, and the log-likelihood before it."""
        logs = mixture.log_densities(points)
        total = logsumexp(logs, axis=1, keepdims=True)
        members = np.exp(logs - total) * weights[:, None]
        return self._maximise(points, members), float(weights @ total[:, 0])

    def _maximise(
        self, points: NDArray[np.float64], members: NDArray[np.float64]
    ) -> Mixture:
        """The mixture of points whose shares in every component are known."""
        shares = members.sum(axis=0) + 1e-12
        means = members.T @ points / shares[:, None]
        if self.shape == "diag":
            squares = members.T @ points**2 / shares[:, None] - means**2
            variances = np.maximum(squares, 0.0) + self.least_variance
            return Mixture(shares / shares.sum(), means, np.sqrt(variances))
        ridge = self.least_variance * np.eye(points.shape[1])
        covariances = np.empty((len(shares), *ridge.shape))
        for j, mean in enumerate(means):
            away = points - mean
            covariances[j] = (away * members[:, j, None]).T @ away / shares[j] + ridge
        return Mixture.of_covariances(shares / shares.sum(), means, covariances)


def _lifted(
    mixture: Mixture, frame: CellFrame, moments: Moments, *, is_diagonal: bool
) -> Density:
    """The mixture over all directions: those without cells follow linearly."""
    lift, back = standard_directions(moments)
    basis, covariance = frame.basis, moments.covariance
    seen = basis.T @ covariance @ basis
    gain = covariance @ basis @ np.linalg.pinv(seen, hermitian=True)
    left = covariance - gain @ seen @ gain.T
    if is_diagonal:  # coordinates are features, which keep what their cells say
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        varies = spread > 0
        lift = np.diag(spread)[:, varies]
        back = np.eye(len(spread))[:, varies] / spread[varies]
        own = (basis != 0).any(axis=1)
        inverse = np.divide(1, basis, out=np.zeros_like(basis), where=basis != 0)
        gain[own] = inverse[own]
        left[own], left[:, own] = 0.0, 0.0
    local = back.T @ gain
    roots = local @ mixture.full_factors
    inside = roots @ np.swapaxes(roots, 1, 2) + back.T @ left @ back
    values, vectors = np.linalg.eigh(inside)
    factors = np.asarray(vectors * np.sqrt(np.maximum(values, VARIES))[:, None, :])
    means = (mixture.means - frame.of_rows(moments.mean)) @ local.T
    whole = Mixture(mixture.weights, means, factors)
    return Density(moments.count, whole, lift, moments.mean, 0.0)
