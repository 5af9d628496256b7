"""Components of a mixture as estimators give them, with covariances to invert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.mixture import Density, Mixture
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.scaling import Scaling

__all__ = [
    "NARROWEST",
    "Components",
    "least_deviations",
    "pool_classes",
    "pooled_deviations",
    "rounding_steps",
]

_COLLINEAR = 1e-9
"""Share of its variance that a feature varies by itself, at least: collinear features,
whatever their units, get the width of their rounding."""

_STEPS = 4.0
"""Least deviation of a class, in steps of the rounded rows: means are off by half of
one."""

NARROWEST = 1e-6
"""Least variance of a feature that only tells classes apart, of its mean square."""

_CONSTANT = 1e-12
"""Share of its mean square below which a feature does not vary within classes."""


@final
@dataclass(frozen=True, eq=False)
class Components:
    """Weights, means and covariances of Gaussian components, in all features.

    Parameters
    ----------
    weights : array of shape (J,)
    means : array of shape (J, d)
    covariances : array of shape (J, d, d), or (J, d) if diagonal
    """

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    covariances: NDArray[np.float64]

    @classmethod
    def of_density(
        cls, density: Density, *, least_variance: float, is_diagonal: bool
    ) -> Components:
        """Those of a density, with covariances that can be inverted.

        Parameters
        ----------
        density : Density
        least_variance : float
            Added to the diagonals.
        is_diagonal : bool
            Whether correlations are dropped.
        """
        covariances = density.component_covariances
        variances = np.einsum("jaa->ja", covariances)
        still = (variances == 0).all(axis=0)
        if still.any() and not least_variance:
            raise RowsError(
                f"feature {int(np.argmax(still))} is constant: with reg_covar=0 its "
                "density is infinite. Leave it out, or take a positive reg_covar."
            )
        means = density.component_means
        if is_diagonal:
            covariances = variances
        found = cls(density.weights, means, np.asarray(covariances))
        return found.widened(least_variance + _COLLINEAR * variances)

    @property
    def variances(self) -> NDArray[np.float64]:
        """Of every component, shape (J, d)."""
        if self.covariances.ndim == 2:
            return self.covariances
        return np.asarray(np.einsum("jaa->ja", self.covariances))

    @property
    def mixture(self) -> Mixture:
        """The same with roots of the covariances, to draw from and to evaluate."""
        return Mixture.of_covariances(self.weights, self.means, self.covariances)

    def widened(self, added: NDArray[np.float64]) -> Components:
        """With variances added on every diagonal: shape (J, d) or (d,)."""
        if self.covariances.ndim == 3:
            added = added[..., None, :] * np.eye(added.shape[-1])
        return replace(self, covariances=self.covariances + added)


def pool_classes(
    classes: Sequence[Components],
    priors: NDArray[np.float64],
    *,
    shrinkage: float,
    steps: NDArray[np.float64],
    widths: NDArray[np.float64],
) -> list[Components]:
    """Add a share of the pooled variances to every covariance.

    No deviation is less than a few steps of the rounded rows. A feature that is the
    same in all rows gets the same mean and a wide variance in every class: it tells
    nothing of rows in which it is another.

    Parameters
    ----------
    classes : sequence of Components
        One per class.
    priors : array of shape (n_classes,)
        Their shares of the rows.
    shrinkage : float
        The share that is added.
    steps, widths : arrays of shape (d,)
        What rows of each feature were rounded to, and half the planned range.
    """
    d = classes[0].means.shape[1]
    pooled, squares = np.zeros(d), np.zeros(d)
    means = np.stack([one.weights @ one.means for one in classes])
    center: NDArray[np.float64] = priors @ means
    for prior, mean, one in zip(priors, means, classes, strict=True):
        pooled += prior * (one.weights @ (one.variances + (one.means - mean) ** 2))
        squares += prior * (one.weights @ (one.means - center) ** 2)
    floor = least_deviations(steps) ** 2
    # A spread between the classes only, or none at all, which tells nothing.
    told = np.where(pooled <= _CONSTANT * squares, NARROWEST * squares, 0.0)
    still = pooled + squares <= steps**2
    extra = max(shrinkage, _CONSTANT) * pooled + np.maximum(told, floor)
    extra[still] = widths[still] ** 2
    return [
        replace(one.widened(extra), means=np.where(still, center, one.means))
        for one in classes
    ]


def pooled_deviations(classes: Sequence[Moments]) -> NDArray[np.float64]:
    """Standard deviations of the features over all classes together."""
    counts = np.array([one.count for one in classes])
    means = np.stack([one.mean for one in classes])
    variances = np.stack([one.structure.variances for one in classes])
    shares = counts / counts.sum()
    away = means - shares @ means
    return np.asarray(np.sqrt(np.maximum(shares @ (variances + away**2), 0.0)))


def least_deviations(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least deviation of a class, from what rows of each feature were rounded to."""
    return _STEPS * steps


def rounding_steps(
    maps: Sequence[AbstractFeatureMap],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What rows of each feature were rounded to, and half the planned range."""
    parts = [second_moment_part(feature_map)[0] for feature_map in maps]
    scalings = [part.scaling or Scaling.identity(part.n_features) for part in parts]
    widths = np.stack([1 / scaling.factor for scaling in scalings])
    steps = widths * [[2.0**-part.bits] for part in parts]
    return steps.max(axis=0), widths.max(axis=0)
