"""How wide classes are at least, beside one another and beside what is rounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.estimators.mixture import CompressiveGaussianMixture
from sketchlearn.features.scaling import Scaling

__all__ = ["NARROWEST", "pool_variances"]

_STEPS = 4.0
"""Least deviation, in steps of the rounded rows: means are off by half of one."""

NARROWEST, _CONSTANT = 1e-6, 1e-12
"""Least variances, and those of features that only tell classes, as shares of
squares."""


def pool_variances(
    mixtures: Sequence[CompressiveGaussianMixture],
    priors: NDArray[np.float64],
    *,
    shrinkage: float,
) -> None:
    """Add a share of the pooled variances to every covariance.

    No deviation is less than a few steps of the rounded rows. A feature that is the
    same in all rows gets the same mean and a wide variance in every class: it tells
    nothing of rows in which it is another.

    Parameters
    ----------
    mixtures : sequence of CompressiveGaussianMixture
        One per class; they are changed.
    priors : array of shape (n_classes,)
        Their shares of the rows.
    shrinkage : float
        The share that is added.
    """
    d = mixtures[0].n_features_in_
    pooled, squares = np.zeros(d), np.zeros(d)
    means = [mixture.weights_ @ mixture.means_ for mixture in mixtures]
    centre: NDArray[np.float64] = priors @ np.stack(means)
    for prior, mixture in zip(priors, mixtures, strict=True):
        covariances, weights = mixture.covariances_, mixture.weights_
        if covariances.ndim == 3:
            covariances = np.einsum("jaa->ja", covariances)
        away = mixture.means_ - weights @ mixture.means_
        pooled += prior * (weights @ (covariances + away**2))
        squares += prior * (weights @ (mixture.means_ - centre) ** 2)
    steps, widths = _resolution(mixtures)
    floor = (_STEPS * steps) ** 2
    # A spread between the classes only, or none at all, which tells nothing.
    told = np.where(pooled <= _CONSTANT * squares, NARROWEST * squares, 0.0)
    still = pooled + squares <= steps**2
    extra = max(shrinkage, _CONSTANT) * pooled + np.maximum(told, floor)
    extra[still] = widths[still] ** 2
    for mixture in mixtures:
        full = mixture.covariances_.ndim == 3
        added = np.diag(extra) if full else extra
        mixture.covariances_ = mixture.covariances_ + added
        mixture.means_ = np.where(still, centre, mixture.means_)


def _resolution(
    mixtures: Sequence[CompressiveGaussianMixture],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What rows of each feature were rounded to, and half the planned range."""
    parts = [second_moment_part(m.sketch_.feature_map)[0] for m in mixtures]
    scalings = [part.scaling or Scaling.identity(part.n_features) for part in parts]
    widths = np.stack([1 / scaling.factor for scaling in scalings])
    steps = widths * [[2.0**-part.bits] for part in parts]
    return steps.max(axis=0), widths.max(axis=0)
