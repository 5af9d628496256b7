"""The moments of the rows, as far as a sketch tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.decoders.moments.covariance.base import AbstractCovariance
from sketchlearn.decoders.moments.cross_moments import Completion
from sketchlearn.decoders.moments.noise_floor import MomentNoise
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures

__all__ = ["Moments", "feature_numbers", "split_targets"]


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """First and second moments of the rows, in their own units.

    Parameters
    ----------
    count : float
        Number of rows.
    mean : array of shape (d,)
    structure : AbstractCovariance
        Centred second moments, divided by ``count``; positive semi-definite up to
        rounding. Of many features it has factors and is not written out.
    unseen_variance : array of shape (d,)
        Typical eigenvalue of what the sketch did not see of the covariance, in the
        units of each variance, for those who invert it: zero if exact or not asked for.
    n_directions : int
        Directions in which the covariance was seen: ``d`` if exact.
    noise : MomentNoise, optional
        Of a private sketch.
    completion : Completion, optional
        What an exact but compressed sketch saw, and checks of what was made of it,
        if asked for.
    """

    count: float
    mean: NDArray[np.float64]
    structure: AbstractCovariance
    unseen_variance: NDArray[np.float64]
    n_directions: int
    noise: MomentNoise | None = None
    completion: Completion | None = None

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance written out, shape (d, d)."""
        return self.structure.dense

    def of_features(self, features: ArrayLike) -> Moments:
        """Moments of some of the features, in the order given."""
        chosen = feature_numbers("features", features, len(self.mean))
        return replace(
            self,
            mean=self.mean[chosen],
            structure=self.structure.of_features(chosen),
            unseen_variance=self.unseen_variance[chosen],
            n_directions=min(self.n_directions, len(chosen)),
            noise=None if self.noise is None else self.noise.of_features(chosen),
            completion=None,
        )


def feature_numbers(name: str, values: ArrayLike, n_features: int) -> NDArray[Any]:
    """Feature numbers, counted from the end if negative, as numbers from 0."""
    found = np.asarray(values)
    whole = found.ndim == 1 and found.size and found.dtype.kind in "iu"
    if not whole or found.min() < -n_features or found.max() >= n_features:
        raise FeatureMapError(
            f"{name} must be feature numbers below {n_features}; got {values!r}."
        )
    return np.asarray(np.arange(n_features)[found])


def split_targets(
    part: MomentFeatures | CrossMomentFeatures, asked: Sequence[int] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the features and of the targets among what was sketched.

    Parameters
    ----------
    part : MomentFeatures or CrossMomentFeatures
        What was sketched of second moments.
    asked : sequence of int, optional
        The targets; by default those the map was planned for.

    Examples
    --------
    >>> xs, ys = split_targets(MomentFeatures(3, order="covariance"), [-1])
    >>> xs.tolist(), ys.tolist()
    ([0, 1], [2])
    """
    if asked is None and not part.targets:
        raise FeatureMapError(
            "this sketch was not planned with targets. Say which of its features "
            "are the targets: fit_sketch(sketch, targets=[...])."
        )
    wanted = part.targets if asked is None else asked
    targets = feature_numbers("targets", wanted, part.n_features)
    if len(set(targets.tolist())) < len(targets):
        raise FeatureMapError(f"targets names a feature twice: {asked!r}.")
    features = np.setdiff1d(np.arange(part.n_features), targets)
    if not len(features):
        raise FeatureMapError("no feature is left beside the targets.")
    return features, targets
