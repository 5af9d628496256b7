r"""Density decoding: a sketch becomes a density, and everything else follows from it.

The density is a Gaussian mixture on a few directions of the rows. Where the sketch
holds the cells of a partition, every cell is a component, in closed form. Where it
holds Fourier features, a mixture is fitted to them
(:mod:`sketchlearn.decoders.density.fourier_fit`). Where it holds only moments, a
density with these moments stands in. Clusters for every k, samples and likelihoods are
read off the density; no row is looked at again.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.density.blur import blurred_moments
from sketchlearn.decoders.density.cells import (
    CellStatistics,
)
from sketchlearn.decoders.density.fourier_fit import (
    CovarianceShape,
    FittedMixture,
    FourierTarget,
    fit_mixture,
    mixture_loss,
)
from sketchlearn.decoders.density.mixture import Density, lloyd, outside_variance
from sketchlearn.decoders.density.prior import copula_rows, planned_range
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["DensityDecoder", "is_moments", "principal_directions"]

_Fourier: TypeAlias = FourierFeatures | HarmonicFeatures

_PRIOR_ROWS = 4096
_PRIOR_CELLS = 256
_MOST_DIRECTIONS = 20
_MOST_COMPONENTS = 40
_AGREES = 0.025
"""Misfit up to which cells bear out a mixture: unit clusters have 0.01, real tables of
the training split 0.04 and more."""

_PRECISE = 3e-3
"""Noise of a sketch, relative to its power, up to which it may shape covariances."""

_FLAT = 1e-9
"""Directions with less than this share of the largest variance are constant."""


@final
@dataclass(frozen=True)
class DensityDecoder(AbstractDecoder[Density]):
    """The density of the rows from a sketch of cells, Fourier features or moments.

    Parameters
    ----------
    n_components : int, optional
        Components of a fitted mixture; by default as many as the sketch can bear, up
        to 40. Cells are components as they are.
    shape : {"auto", "tied", "diag", "full"}
        Covariances of a fitted mixture. "auto" takes one diagonal covariance for all
        components and frees them if the sketch shows that this is not enough.
    restarts : int
        Starting points of a fit: the density guessed from moments, and random ones.
    max_iter : int
        Steps of a descent.
    seed : int
        Of the starting points.
    """

    n_components: int | None = None
    shape: Literal["auto"] | CovarianceShape = "auto"
    restarts: int = 3
    max_iter: int = 300
    seed: int = 0

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Density]:
        moments = NystromDecoder().decode(sketch).params
        if self.n_components is not None:
            moments = blurred_moments(moments)
        noise = mean_noise(sketch)
        waves: list[tuple[_Fourier, NDArray[np.float64]]] = []
        cells: CellStatistics | None = None
        for cell in sketch.feature_map.find(CellFeatures):
            values = sketch.mean[cell.where]
            cells = CellStatistics.read(cell.feature_map, values, moments, noise=noise)
        for wave in sketch.feature_map.find(FourierFeatures, HarmonicFeatures):
            waves.append((wave.feature_map, sketch.mean[wave.where]))
        if cells is not None:
            return Decoding(self._from_cells(cells, waves, moments, noise))
        if waves:
            return self._fitted(waves, moments, noise)
        part, _ = second_moment_part(sketch.feature_map)
        rows = _prior(part.scaling, part.reach, moments, self.seed)
        return Decoding(_mixture_of_rows(rows, moments, self.n_components, self.seed))

    def _from_cells(
        self,
        cells: CellStatistics,
        waves: list[tuple[_Fourier, NDArray[np.float64]]],
        moments: Moments,
        noise: float,
    ) -> Density:
        """The mixture of the Fourier features if the cells agree, or the cells."""
        if waves and not noise:
            fitted = self._fitted(waves, moments, noise).params
            rng = np.random.default_rng(self.seed)
            matched, misfit = cells.matched(fitted, rng=rng)
            if misfit <= _AGREES:
                return matched
        return cells.density()

    def _fitted(
        self,
        parts: list[tuple[_Fourier, NDArray[np.float64]]],
        moments: Moments,
        noise: float,
    ) -> Decoding[Density]:
        lift = self._axes(moments)
        if not lift.shape[1]:
            return Decoding(_constant(moments))
        target = _target(parts, moments, lift)
        prior = _prior(parts[0][0].scaling, 1.0, moments, self.seed) - moments.mean
        prior = prior @ np.linalg.pinv(lift).T
        # What sampling and privacy noise leave unexplained at best.
        h = len(target.cosines)
        floor = h / moments.count + 2 * h * noise**2
        best = self._descend(target, prior, floor)
        size = float(np.sqrt((target.cosines**2 + target.sines**2).sum()))
        density = Density(
            moments.count,
            best.weights,
            best.means,
            best.factors,
            lift,
            moments.mean,
            outside_variance(moments.covariance, lift),
        )
        residual = best.loss**0.5 / max(size, 1e-300)
        return Decoding(density, residual, best.n_iter, best.converged)

    def _descend(
        self, target: FourierTarget, prior: NDArray[np.float64], floor: float
    ) -> FittedMixture:
        """A mixture with components to spare, reduced to those asked for."""
        rng = np.random.default_rng(self.seed)
        h, r = target.frequencies.shape
        asked = self.n_components or 0
        if asked:
            alone = _gaussian(target, asked, diagonal=self.shape in ("tied", "diag"))
            if asked == 1 or alone.loss <= 1.5 * floor:
                return alone  # more cannot be told from the sketch
        size = max(int(np.clip(h // r, 8, _MOST_COMPONENTS)), 2 * asked)
        # Short descents tell the good start; only that one is followed to its end.
        starts = [
            _start(prior, size, rng, random=restart > 0)
            for restart in range(self.restarts)
        ]
        best = self._best(target, starts, "tied", self.max_iter // 3)
        best = fit_mixture(target, best, shape="tied", max_iter=self.max_iter)
        if self.shape != "tied" and best.loss > 1.5 * floor:
            best = fit_mixture(target, best, shape="diag", max_iter=self.max_iter)
        if not asked:
            return best
        shape: CovarianceShape = "diag" if self.shape == "auto" else self.shape
        reduced = _reduced(best, asked, rng)
        starts = [reduced, _start(prior, asked, rng, random=False)]
        fitted = self._best(target, starts, shape, self.max_iter)
        power = float((target.cosines**2 + target.sines**2).sum())
        if fitted.loss <= 3 * floor and floor <= _PRECISE * power:
            return fitted
        # Rows that are no such mixture, or too few: matching waves misleads.
        if shape == "diag":
            reduced = _diagonal(reduced)
        return replace(reduced, loss=mixture_loss(target, reduced))

    def _best(
        self,
        target: FourierTarget,
        starts: list[FittedMixture],
        shape: CovarianceShape,
        max_iter: int,
    ) -> FittedMixture:
        fits = [
            fit_mixture(target, start, shape=shape, max_iter=max_iter)
            for start in starts
        ]
        return min(fits, key=lambda fit: fit.loss)

    def _axes(self, moments: Moments) -> NDArray[np.float64]:
        """Directions in which rows have unit variance, shape (d, r)."""
        if self.shape == "diag":
            spread = np.sqrt(np.maximum(moments.structure.variances, 0.0))
            return np.diag(spread)[:, spread > _FLAT**0.5 * spread.max()]
        values, vectors = principal_directions(moments)
        return vectors * np.sqrt(values)


def is_moments(feature_map: AbstractFeatureMap) -> bool:
    """Whether a map holds moments alone, which cannot tell clusters apart."""
    found = feature_map.find(MomentFeatures, CrossMomentFeatures)
    return len(found) == len(feature_map.parts())


def principal_directions(
    moments: Moments,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances, largest first, and orthonormal directions (d, r) that vary."""
    values, vectors = np.linalg.eigh(moments.covariance)
    kept = values > max(_FLAT * values[-1], 1e-300)
    return values[kept][::-1], vectors[:, kept][:, ::-1]


def _target(
    parts: list[tuple[_Fourier, NDArray[np.float64]]],
    moments: Moments,
    lift: NDArray[np.float64],
) -> FourierTarget:
    """Frequencies for standardised coordinates, and the sketch centred at the mean."""
    frequencies, turned = [], []
    for part, values in parts:
        waves, h = part.frequencies.astype(np.float64), part.sketch_size // 2
        scaling = part.scaling or Scaling.identity(part.n_features)
        waves = scaling.factor[:, None] * waves
        phases = (moments.mean - scaling.shift) @ waves
        turned.append((values[:h] + 1j * values[h:]) * np.exp(-1j * phases))
        frequencies.append(waves.T @ lift)
    z = np.concatenate(turned)
    back = np.linalg.pinv(lift)
    second = back @ moments.covariance @ back.T
    return FourierTarget(np.concatenate(frequencies), z.real, z.imag, second)


def _gaussian(target: FourierTarget, size: int, *, diagonal: bool) -> FittedMixture:
    """The Gaussian of the moments, as ``size`` equal components."""
    r = target.frequencies.shape[1]
    factor = np.eye(r) if diagonal else np.linalg.cholesky(target.second)
    factors = np.tile(factor.astype(np.float64), (size, 1, 1))
    alone = FittedMixture(np.full(size, 1 / size), np.zeros((size, r)), factors, 0.0)
    return replace(alone, loss=mixture_loss(target, alone))


def _start(
    prior: NDArray[np.float64], size: int, rng: np.random.Generator, *, random: bool
) -> FittedMixture:
    """A mixture to begin with: the prior in ``size`` pieces, or a random one."""
    r = prior.shape[1]
    if random:
        means = 0.8 * rng.standard_normal((size, r))
        return FittedMixture(
            np.full(size, 1 / size), means, np.tile(np.eye(r) / 2, (size, 1, 1)), 0.0
        )
    weights, means, variances = _pieces(prior, size, rng)
    return FittedMixture(weights, means, np.sqrt(variances)[..., None] * np.eye(r), 0.0)


def _reduced(
    mixture: FittedMixture, size: int, rng: np.random.Generator
) -> FittedMixture:
    """A mixture of fewer components, by EM on points drawn from the larger one."""
    labels = rng.choice(len(mixture.weights), _PRIOR_ROWS, p=mixture.weights)
    unit = rng.standard_normal((_PRIOR_ROWS, mixture.means.shape[1], 1))
    points = mixture.means[labels] + (mixture.factors[labels] @ unit)[..., 0]
    search = GaussianMixture(
        size, n_init=3, tol=1e-2, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        search.fit(points)
    factors = np.linalg.cholesky(search.covariances_)
    return FittedMixture(search.weights_, search.means_, factors, 0.0)


def _diagonal(mixture: FittedMixture) -> FittedMixture:
    """The same mixture without correlations inside its components."""
    spread = np.sqrt(np.einsum("jab,jab->ja", mixture.factors, mixture.factors))
    return replace(mixture, factors=spread[..., None] * np.eye(spread.shape[1]))


def _pieces(
    rows: NDArray[np.float64], size: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Shares, means and variances of rows cut into at most ``size`` pieces."""
    size = min(size, len(np.unique(rows, axis=0)))
    seed = int(rng.integers(2**31))
    labels = lloyd(rows, size, max_iter=20, seed=seed).labels_
    counts = np.bincount(labels, minlength=size).astype(np.float64)
    member = (labels == np.arange(size)[:, None]) / counts[:, None]
    means = member @ rows
    variances = np.maximum(member @ rows**2 - means**2, 0.0)
    return counts / len(rows), means, variances


def _mixture_of_rows(
    rows: NDArray[np.float64], moments: Moments, n_components: int | None, seed: int
) -> Density:
    """The density of rows guessed from moments, in pieces."""
    values, directions = principal_directions(moments)
    if not len(values):
        return _constant(moments)
    lift = (directions * np.sqrt(values))[:, :_MOST_DIRECTIONS]
    local = (rows - moments.mean) @ np.linalg.pinv(lift).T
    rng = np.random.default_rng(seed)
    weights, means, variances = _pieces(local, n_components or _PRIOR_CELLS, rng)
    factors = np.sqrt(np.maximum(variances, 1e-6))[..., None] * np.eye(lift.shape[1])
    outside = outside_variance(moments.covariance, lift)
    return Density(moments.count, weights, means, factors, lift, moments.mean, outside)


def _constant(moments: Moments) -> Density:
    """The density of rows that are all the same."""
    d = len(moments.mean)
    one, none = np.ones(1), np.zeros((1, d))
    still = np.zeros((1, d, d))
    return Density(moments.count, one, none, still, np.eye(d), moments.mean, 0.0)


def _prior(
    scaling: Scaling | None, reach: float, moments: Moments, seed: int
) -> NDArray[np.float64]:
    """Rows guessed from the moments, inside the range the map was planned for."""
    low, high = planned_range(scaling, reach, len(moments.mean))
    rng = np.random.default_rng(seed)
    return copula_rows(moments, low, high, n_rows=_PRIOR_ROWS, rng=rng)
