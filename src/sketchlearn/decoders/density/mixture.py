r"""A Gaussian mixture, and a density of rows made of one.

The mixture lives on a few directions of the rows; the density lifts it to all of them,
with isotropic noise in the others. Clusters for every k, samples and likelihoods are
read off the density; there is one sampler and one log density for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from sketchlearn.decoders.moments.covariance.base import AbstractCovariance

__all__ = ["Density", "Mixture", "outside_variance"]

_TINY = 1e-300
"""Instead of a zero that is divided by, or whose logarithm is taken."""

_LEAST_WIDTH = 1e-12
"""Least variance of a component that has no width, as that of rows which are all the
same, of the largest there is: its log density is then finite."""


@final
@dataclass(frozen=True, eq=False)
class Mixture:
    r"""Gaussian components :math:`\sum_j \alpha_j\, \mathcal{N}(\mu_j, F_j F_j^\top)`.

    Parameters
    ----------
    weights : array of shape (J,)
        Positive or zero, of sum one.
    means : array of shape (J, r)
    factors : array of shape (J, r, r), or (J, r)
        Roots of the covariances; of diagonal ones, the standard deviations.

    Examples
    --------
    >>> two = Mixture(np.ones(2) / 2, np.array([[-3.0], [3.0]]), np.ones((2, 1)))
    >>> np.round(two.log_density(np.array([[3.0]])), 3)
    array([-1.612])
    """

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    factors: NDArray[np.float64]

    @classmethod
    def of_covariances(
        cls,
        weights: NDArray[np.float64],
        means: NDArray[np.float64],
        covariances: NDArray[np.float64],
    ) -> Mixture:
        """From positive definite covariances, or the variances of diagonal ones."""
        is_diagonal = covariances.ndim == 2
        roots = np.sqrt(covariances) if is_diagonal else np.linalg.cholesky(covariances)
        return cls(weights, means, np.asarray(roots))

    @property
    def full_factors(self) -> NDArray[np.float64]:
        """Roots of the covariances as matrices, shape (J, r, r)."""
        if self.factors.ndim == 3:
            return self.factors
        return np.asarray(self.factors[..., None] * np.eye(self.factors.shape[1]))

    @property
    def variances(self) -> NDArray[np.float64]:
        """Of every component, shape (J, r)."""
        squares = self.factors**2
        return np.asarray(squares if squares.ndim == 2 else squares.sum(axis=2))

    def sample(
        self, n_points: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw points, and the component of each."""
        labels = rng.choice(len(self.weights), n_points, p=self.weights)
        points = rng.standard_normal((n_points, self.means.shape[1]))
        if self.factors.ndim == 2:
            return self.means[labels] + points * self.factors[labels], labels
        for j, factor in enumerate(self.factors):
            inside = labels == j
            points[inside] = points[inside] @ factor.T
        return self.means[labels] + points, labels

    def spread_points(
        self, n_points: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """About so many points with weights, equally many for each component.

        Each component's lie symmetrically about its mean.
        """
        half = max(1, n_points // (2 * len(self.weights)))
        unit = rng.standard_normal((len(self.weights), half, self.means.shape[1]))
        unit = np.concatenate([unit, -unit], axis=1)
        if self.factors.ndim == 2:
            unit *= self.factors[:, None]
        else:
            unit = unit @ np.swapaxes(self.factors, 1, 2)
        points = (self.means[:, None] + unit).reshape(-1, self.means.shape[1])
        return points, np.repeat(self.weights / (2 * half), 2 * half)

    def log_densities(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log of weight times density of every component, shape (n, J)."""
        r = self.means.shape[1]
        result = np.empty((len(points), len(self.weights)))
        largest = float(self.variances.max(initial=0.0))
        least = max(_LEAST_WIDTH * largest, _TINY)
        for j, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            away = (points - mean).T
            if factor.ndim == 1:
                widths = np.where(factor > 0, factor, least**0.5)
                whitened = away / widths[:, None]
            else:
                root = _lower_root(factor, least)
                widths = np.diag(root)
                whitened = solve_triangular(root, away, lower=True)
            weight = np.log(max(float(self.weights[j]), _TINY))
            volume = np.log(widths).sum() + r * np.log(2 * np.pi) / 2
            result[:, j] = weight - (whitened**2).sum(axis=0) / 2 - volume
        return result

    def log_density(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log density of each point."""
        return np.asarray(logsumexp(self.log_densities(points), axis=1))


@final
@dataclass(frozen=True, eq=False)
class Density:
    r"""A Gaussian mixture on some directions, and isotropic noise on the others.

    .. math::
        x = c + L z + \text{noise}, \qquad
        z \sim \sum_j \alpha_j\, \mathcal{N}(\mu_j, F_j F_j^\top) .

    Parameters
    ----------
    count : float
        Number of rows it was decoded from.
    mixture : Mixture
        Of z.
    lift : array of shape (d, r)
        L, of full column rank.
    center : array of shape (d,)
    noise : float
        Variance in each of the d - r directions orthogonal to L.
    """

    count: float
    mixture: Mixture
    lift: NDArray[np.float64]
    center: NDArray[np.float64]
    noise: float

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of the components."""
        return self.mixture.weights

    @property
    def component_means(self) -> NDArray[np.float64]:
        """Means of the components as rows, shape (J, d)."""
        return self.center + self.mixture.means @ self.lift.T

    @property
    def component_covariances(self) -> NDArray[np.float64]:
        """Covariances of the components, shape (J, d, d)."""
        roots = self.lift @ self.mixture.full_factors  # (J, d, r)
        basis = self.axes
        outside = self.noise * (np.eye(len(basis)) - basis @ basis.T)
        return np.asarray(roots @ np.swapaxes(roots, 1, 2) + outside)

    @property
    def axes(self) -> NDArray[np.float64]:
        """Orthonormal directions that span the columns of L, shape (d, r)."""
        return np.asarray(np.linalg.qr(self.lift)[0])

    @property
    def outside(self) -> float:
        """Summed variance in the directions orthogonal to L."""
        d, r = self.lift.shape
        return float(self.noise * (d - r))

    def sample(
        self, n_rows: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows, and the component of each."""
        z, labels = self.mixture.sample(n_rows, rng)
        rows = self.center + z @ self.lift.T
        if self.noise > 0:
            noise = rng.standard_normal(rows.shape) * self.noise**0.5
            rows += noise - noise @ self.axes @ self.axes.T
        return rows, labels

    def on_axes(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates on :attr:`axes` of points of the mixture."""
        return np.asarray(z @ np.linalg.qr(self.lift)[1].T)

    def log_densities(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log of weight times density of every component, shape (n, J)."""
        basis, triangle = np.linalg.qr(self.lift)
        centred = rows - self.center
        local = centred @ basis
        mixture = self.mixture
        turned = Mixture(
            mixture.weights, mixture.means @ triangle.T, triangle @ mixture.full_factors
        )
        d, r = self.lift.shape
        inside = turned.log_densities(local)
        if d == r:
            return inside
        outside = np.maximum((centred**2).sum(axis=1) - (local**2).sum(axis=1), 0.0)
        noise = max(self.noise, _TINY)
        rest = -(outside / noise + (d - r) * np.log(2 * np.pi * noise)) / 2
        return np.asarray(inside + rest[:, None])

    def score_samples(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log density of each row."""
        return np.asarray(logsumexp(self.log_densities(rows), axis=1))


def outside_variance(
    covariance: AbstractCovariance, lift: NDArray[np.float64]
) -> float:
    """Mean variance in the directions orthogonal to the columns of ``lift``.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> outside_variance(DenseCovariance(np.diag([4.0, 2.0, 3.0])), np.eye(3)[:, :1])
    2.5
    """
    d, r = lift.shape
    basis = np.linalg.qr(lift)[0]
    inside = float(np.sum(basis * (covariance @ basis)))
    return max(float(covariance.variances.sum()) - inside, 0.0) / max(int(d - r), 1)


def _lower_root(factor: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """A triangular root of ``F Fᵀ`` with pivots that can be divided by."""
    if not np.triu(factor, 1).any() and (np.diag(factor) > 0).all():
        return factor
    covariance = factor @ factor.T + least * np.eye(len(factor))
    return np.asarray(np.linalg.cholesky(covariance))
