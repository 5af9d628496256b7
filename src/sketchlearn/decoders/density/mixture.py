r"""A density of rows: a Gaussian mixture on a few directions, noise on the others.

Clusters for every k, samples and likelihoods are read off it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

__all__ = ["Clusters", "Density", "find_clusters", "lloyd", "outside_variance"]

_POINTS = 4096


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
    weights : array of shape (J,)
    means : array of shape (J, r)
    factors : array of shape (J, r, r)
    lift : array of shape (d, r)
        L, of full column rank.
    centre : array of shape (d,)
    noise : float
        Variance in each of the d - r directions orthogonal to L.
    """

    count: float
    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    factors: NDArray[np.float64]
    lift: NDArray[np.float64]
    centre: NDArray[np.float64]
    noise: float

    @property
    def component_means(self) -> NDArray[np.float64]:
        """Means of the components as rows, shape (J, d)."""
        return self.centre + self.means @ self.lift.T

    @property
    def component_covariances(self) -> NDArray[np.float64]:
        """Covariances of the components, shape (J, d, d)."""
        roots = self.lift @ self.factors  # (J, d, r)
        basis = np.linalg.qr(self.lift)[0]
        outside = self.noise * (np.eye(len(basis)) - basis @ basis.T)
        return np.asarray(roots @ np.swapaxes(roots, 1, 2) + outside)

    def sample(
        self, n_rows: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows, and the component of each."""
        labels = rng.choice(len(self.weights), n_rows, p=self.weights)
        unit = rng.standard_normal((n_rows, self.means.shape[1], 1))
        z = self.means[labels] + (self.factors[labels] @ unit)[..., 0]
        basis = np.linalg.qr(self.lift)[0]
        noise = rng.standard_normal((n_rows, len(self.centre))) * self.noise**0.5
        noise -= noise @ basis @ basis.T
        return self.centre + z @ self.lift.T + noise, labels

    def points(
        self, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weighted points that stand for the mixture, equally many per component.

        In orthonormal coordinates of the columns of ``lift``.
        """
        half = max(1, _POINTS // (2 * len(self.weights)))
        unit = rng.standard_normal((len(self.weights), half, self.means.shape[1]))
        unit = np.concatenate([unit, -unit], axis=1)
        z = self.means[:, None] + unit @ np.swapaxes(self.factors, 1, 2)
        triangle = np.linalg.qr(self.lift)[1]
        weights = np.repeat(self.weights / (2 * half), 2 * half)
        return z.reshape(-1, z.shape[2]) @ triangle.T, weights

    def log_densities(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log of weight times density of every component, shape (n, J)."""
        basis, triangle = np.linalg.qr(self.lift)
        centred = rows - self.centre
        local = centred @ basis
        d, r = self.lift.shape
        outside = np.maximum((centred**2).sum(axis=1) - (local**2).sum(axis=1), 0.0)
        noise = max(self.noise, 1e-300)
        rest = -(outside / noise + (d - r) * np.log(2 * np.pi * noise)) / 2
        result = np.empty((len(rows), len(self.weights)))
        roots = triangle @ self.factors
        # Components without width, as those of rows that are all the same.
        least = max(1e-12 * float((roots**2).sum(axis=2).max()), 1e-300) * np.eye(r)
        for j, mean in enumerate(self.means):
            root = np.linalg.cholesky(roots[j] @ roots[j].T + least)
            whitened = np.linalg.solve(root, (local - mean @ triangle.T).T)
            volume = np.log(np.diag(root)).sum() + r * np.log(2 * np.pi) / 2
            weight = np.log(max(float(self.weights[j]), 1e-300))
            result[:, j] = weight - (whitened**2).sum(axis=0) / 2 - volume
        return result + (rest[:, None] if d > r else 0.0)

    def score_samples(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Log density of each row."""
        return np.asarray(logsumexp(self.log_densities(rows), axis=1))


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Centres of a density, and the inertia they would have by it.

    Parameters
    ----------
    centers : array of shape (k, d)
    inertia : float
        Expected squared distance of a row to its nearest centre.
    n_iter : int
    """

    centers: NDArray[np.float64]
    inertia: float
    n_iter: int


def find_clusters(
    density: Density, n_clusters: int, *, rng: np.random.Generator, n_init: int = 10
) -> Clusters:
    """Solve k-means on a density instead of on rows.

    Where the density has fewer distinct points than clusters, the last centres are
    repeated.

    Examples
    --------
    >>> two = Density(9.0, np.ones(2) / 2, np.array([[-1.0], [1.0]]),
    ...     np.zeros((2, 1, 1)), np.ones((1, 1)), np.zeros(1), 0.0)
    >>> found = find_clusters(two, 2, rng=np.random.default_rng(0))
    >>> np.sort(found.centers, axis=0).ravel(), found.inertia
    (array([-1.,  1.]), 0.0)
    """
    points, weights = density.points(rng)
    points, weights = points[weights > 0], weights[weights > 0]
    distinct = len(np.unique(points, axis=0))
    k = min(n_clusters, distinct)
    seed = int(rng.integers(2**31))
    found = lloyd(points, k, n_init=n_init, seed=seed, weights=weights * len(points))
    local = found.cluster_centers_
    local = np.concatenate([local, np.repeat(local[-1:], n_clusters - k, axis=0)])
    basis = np.linalg.qr(density.lift)[0]
    outside = density.noise * (len(basis) - basis.shape[1])
    inertia = float(found.inertia_) / len(points) + outside
    return Clusters(density.centre + local @ basis.T, inertia, int(found.n_iter_))


def lloyd(
    points: NDArray[np.float64],
    k: int,
    *,
    seed: int,
    n_init: int = 1,
    max_iter: int = 300,
    weights: NDArray[np.float64] | None = None,
) -> KMeans:
    """k-means on points of our own, of which some may be nearly the same."""
    search = KMeans(k, n_init=n_init, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        return search.fit(points, sample_weight=weights)


def outside_variance(
    covariance: NDArray[np.float64], lift: NDArray[np.float64]
) -> float:
    """Mean variance in the directions orthogonal to the columns of ``lift``.

    Examples
    --------
    >>> outside_variance(np.diag([4.0, 2.0, 3.0]), np.eye(3)[:, :1])
    2.5
    """
    d, r = lift.shape
    basis = np.linalg.qr(lift)[0]
    inside = np.trace(basis.T @ covariance @ basis)
    return max(float(np.trace(covariance) - inside), 0.0) / max(int(d - r), 1)
