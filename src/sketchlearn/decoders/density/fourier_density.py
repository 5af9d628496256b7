r"""Densities from Fourier features: the mixture with the same characteristic function.

A mixture with components to spare is fitted first, from several starts; where fewer are
asked for, it is reduced to them and fitted again.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.mixture import GaussianMixture

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.density.fourier_fit import (
    CovarianceShape,
    Fit,
    FourierTarget,
    fit_mixture,
    mixture_loss,
)
from sketchlearn.decoders.density.lloyd import cut_into_pieces
from sketchlearn.decoders.density.mixture import Density, Mixture, outside_variance
from sketchlearn.decoders.density.moment_density import (
    VARIES,
    constant_density,
    principal_directions,
)
from sketchlearn.decoders.density.prior import guess_rows
from sketchlearn.decoders.density.reading import FourierMap, Reading
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.scaling import Scaling

__all__ = ["FourierDensity", "FourierTuning"]


@final
@dataclass(frozen=True)
class FourierTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    components: tuple[int, int] = (8, 40)
    """Fewest and most components of a mixture that has them to spare; one for each
    Fourier feature of a direction in between."""

    starts: int = 3
    """Mixtures a fit starts from: one guessed from the moments, and random ones."""

    max_iter: int = 300
    """Steps of a descent; a third of them tell a good start from a bad one."""

    enough: float = 1.5
    """Loss, in units of what sampling and noise leave at best, that is not worth
    lowering by more components or freer covariances."""

    believable: float = 3.0
    """The same, up to which rows are a mixture of as many components as were asked
    for; beyond it a fit to Fourier features misleads."""

    precise: float = 3e-3
    """What sampling and noise leave, of the power of the sketch, up to which single
    covariances can be told."""


@final
@dataclass(frozen=True)
class FourierDensity:
    """Fits a mixture to the Fourier features of a sketch.

    Parameters
    ----------
    n_components : int, optional
        Components; by default as many as the sketch can bear.
    shape : {"auto", "tied", "diag", "full"}
        Covariances. "auto" takes one diagonal covariance for all components and frees
        them if the sketch shows that this is not enough.
    seed : int
        Of the starting points.
    tuning : FourierTuning
    """

    n_components: int | None
    shape: Literal["auto"] | CovarianceShape
    seed: int
    tuning: FourierTuning = FourierTuning()

    def decode(self, reading: Reading) -> Decoding[Density]:
        """The density of what was read."""
        moments = reading.moments
        lift = self._axes(moments)
        if not lift.shape[1]:
            return Decoding(constant_density(moments))
        target = _target(reading.fourier, moments, lift)
        guessed = guess_rows(reading.fourier[0][0].scaling, 1.0, moments, self.seed)
        local = (guessed - moments.mean) @ np.linalg.pinv(lift).T
        # What sampling and privacy noise leave unexplained at best.
        h = len(target.cosines)
        floor = h / moments.count + 2 * h * reading.noise**2
        best = self._descend(target, local, floor)
        outside = outside_variance(moments.structure, lift)
        density = Density(moments.count, best.mixture, lift, moments.mean, outside)
        residual = best.loss**0.5 / max(target.power**0.5, 1e-300)
        return Decoding(density, residual, best.n_iter, best.converged)

    def _axes(self, moments: Moments) -> NDArray[np.float64]:
        """Directions in which rows have unit variance, shape (d, r)."""
        if self.shape == "diag":
            spread = np.sqrt(np.maximum(moments.structure.variances, 0.0))
            return np.diag(spread)[:, spread > VARIES**0.5 * spread.max()]
        values, vectors = principal_directions(moments)
        return vectors * np.sqrt(values)

    def _descend(
        self, target: FourierTarget, guessed: NDArray[np.float64], floor: float
    ) -> Fit:
        """A mixture with components to spare, reduced to those asked for."""
        rng, tuning = np.random.default_rng(self.seed), self.tuning
        asked = self.n_components or 0
        if asked:
            alone = _gaussian(target, asked, diagonal=self.shape in ("tied", "diag"))
            if asked == 1 or alone.loss <= tuning.enough * floor:
                return alone  # more cannot be told from the sketch
        h, r = target.frequencies.shape
        size = max(int(np.clip(h // r, *tuning.components)), 2 * asked)
        best = self._spare(target, guessed, size, floor, rng)
        if not asked:
            return best
        shape: CovarianceShape = "diag" if self.shape == "auto" else self.shape
        reduced = _reduced(best.mixture, asked, len(guessed), rng)
        starts = [reduced, cut_into_pieces(guessed, asked, int(rng.integers(2**31)))]
        fitted = self._best(target, starts, shape, tuning.max_iter)
        is_precise = floor <= tuning.precise * target.power
        if fitted.loss <= tuning.believable * floor and is_precise:
            return fitted
        # Rows that are no such mixture, or too few: matching features misleads.
        if shape == "diag":
            reduced = replace(reduced, factors=np.sqrt(reduced.variances))
        return Fit(reduced, mixture_loss(target, reduced))

    def _spare(
        self,
        target: FourierTarget,
        guessed: NDArray[np.float64],
        size: int,
        floor: float,
        rng: np.random.Generator,
    ) -> Fit:
        """The best fit of so many components.

        Short descents tell the good start; only that one is followed to its end.
        """
        tuning, r = self.tuning, guessed.shape[1]
        starts = [cut_into_pieces(guessed, size, int(rng.integers(2**31)))]
        for _ in range(tuning.starts - 1):
            means = 0.8 * rng.standard_normal((size, r))
            widths = np.full((size, r), 0.5)
            starts.append(Mixture(np.full(size, 1 / size), means, widths))
        best = self._best(target, starts, "tied", tuning.max_iter // 3)
        steps = tuning.max_iter
        best = fit_mixture(target, best.mixture, shape="tied", max_iter=steps)
        if self.shape != "tied" and best.loss > tuning.enough * floor:
            best = fit_mixture(target, best.mixture, shape="diag", max_iter=steps)
        return best

    def _best(
        self,
        target: FourierTarget,
        starts: list[Mixture],
        shape: CovarianceShape,
        max_iter: int,
    ) -> Fit:
        fits = [
            fit_mixture(target, start, shape=shape, max_iter=max_iter)
            for start in starts
        ]
        return min(fits, key=lambda fit: fit.loss)


def _target(
    parts: tuple[tuple[FourierMap, NDArray[np.float64]], ...],
    moments: Moments,
    lift: NDArray[np.float64],
) -> FourierTarget:
    """Frequencies for standardised coordinates, and the sketch centred at the mean."""
    frequencies, turned = [], []
    for part, values in parts:
        h = part.sketch_size // 2
        scaling = part.scaling or Scaling.identity(part.n_features)
        own = scaling.factor[:, None] * part.frequencies.astype(np.float64)
        phases = (moments.mean - scaling.shift) @ own
        turned.append((values[:h] + 1j * values[h:]) * np.exp(-1j * phases))
        frequencies.append(own.T @ lift)
    z = np.concatenate(turned)
    back = np.asarray(np.linalg.pinv(lift), np.float64)
    second = back @ (moments.structure @ back.T)
    return FourierTarget(np.concatenate(frequencies), z.real, z.imag, second)


def _gaussian(target: FourierTarget, size: int, *, diagonal: bool) -> Fit:
    """The Gaussian of the moments, as ``size`` equal components."""
    r = target.frequencies.shape[1]
    factor = np.eye(r) if diagonal else np.linalg.cholesky(target.second)
    factors = np.tile(factor.astype(np.float64), (size, 1, 1))
    alone = Mixture(np.full(size, 1 / size), np.zeros((size, r)), factors)
    return Fit(alone, mixture_loss(target, alone))


def _reduced(
    mixture: Mixture, size: int, n_points: int, rng: np.random.Generator
) -> Mixture:
    """A mixture of fewer components, by EM on points drawn from the larger one."""
    points, _ = mixture.sample(n_points, rng)
    search = GaussianMixture(
        size, n_init=3, tol=1e-2, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        search.fit(points)
    return Mixture.of_covariances(search.weights_, search.means_, search.covariances_)
