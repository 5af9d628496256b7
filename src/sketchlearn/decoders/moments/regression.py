r"""Linear regression from moments, and how much of it the noise of a release explains.

From the covariances :math:`C` of the features and :math:`c` with a target,

.. math::
    w = (C + \mathrm{diag}(p))^{-1} c, \qquad
    p = \alpha / N + \text{unseen} + \text{noise}.

What a sketch did not see of C, and what noise may have taken from it, is a penalty; of
an exact sketch that kept c, coefficients are checked instead
(:mod:`~sketchlearn.decoders.moments.checked_regression`). No covariance is taken that
the variances rule out, and no coefficients are given that explain more variance than
there is, so that any moments, however noisy, have finite ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.checked_regression import (
    CheckedTuning,
    checked_regression,
)
from sketchlearn.decoders.moments.covariance.base import AbstractCovariance
from sketchlearn.decoders.moments.cross_moments import missed_strength
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import spectral_edge
from sketchlearn.errors import RowRangeError

__all__ = ["Regression", "RegressionTuning", "fit_regression"]

_MOST_DOUBLINGS = 64
"""After so many, a penalty exceeds what float64 can tell from the variances."""

Array: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True)
class RegressionTuning:
    """Hand-tuned numbers: penalties for what a sketch does not tell of the features."""

    noise_penalty: float = 0.5
    """Variances to add to those of noisy features, in units of the edge of the noise.
    Checked by the R² of ridge from a release, in ``benchmarks/tuning.py``."""

    unseen_penalty: float = 3.0
    """Variances to add for what a compressed sketch did not see, in units of its
    typical eigenvalue. Chosen on training sets; checked by the R² of ridge from
    compressed sketches, in ``benchmarks/tuning.py``."""

    first_penalty: float = 0.1
    """Variances to add first, in units of those of the features, where coefficients
    promise more than there is; doubled until they do not. Checked by the R² where
    features are more alike than was seen, in ``benchmarks/tuning.py``."""

    n_probes: int = 32
    """Random vectors that the share of noise in what is explained is estimated with.
    Checked by its error in ``benchmarks/tuning.py``: 6 % for twelve features."""


_REGRESSION, _CHECKED = RegressionTuning(), CheckedTuning()


@final
@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients, and what is known of their worth.

    Parameters
    ----------
    coef : array of shape (n_targets, d)
    intercept : array of shape (n_targets,)
    variance, explained, noise : arrays of shape (n_targets,)
        Of each target: its variance, what the coefficients explain of it by the
        moments they are from, and what of that they would explain of noise alone.
    unseen : float
        Typical eigenvalue of what the sketch did not see of the correlations of the
        features; zero if it is exact.
    score : array of shape (n_targets,)
        R² on the rows that were sketched: exact from all second moments, else as
        estimated, with a doubt for what was not seen and without what noise explains.
    """

    coef: Array
    intercept: Array
    variance: Array
    explained: Array
    noise: Array
    unseen: float
    score: Array


def fit_regression(
    moments: Moments,
    features: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    alpha: float,
    fit_intercept: bool = True,
    tuning: RegressionTuning = _REGRESSION,
    checked: CheckedTuning = _CHECKED,
) -> Regression:
    """Ridge regression of some features on others.

    Parameters
    ----------
    moments : Moments
        Of features and targets.
    features, targets : arrays of ints
        Which is which.
    alpha : float
        Penalty on the sum over rows.
    fit_intercept : bool
        Whether the plane may pass beside the origin.
    tuning, checked : RegressionTuning and CheckedTuning
        Hand-tuned numbers.

    Raises
    ------
    RowRangeError
        If a coefficient is larger than a float can be.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> known = DenseCovariance(np.array([[1.0, 2.0], [2.0, 5.0]]))
    >>> two = Moments(9.0, np.array([0.0, 3.0]), known, np.zeros(2), 2)
    >>> line = fit_regression(two, np.array([0]), np.array([1]), alpha=0.0)
    >>> line.coef.tolist(), line.intercept.tolist(), line.explained.tolist()
    ([[2.0]], [3.0], [4.0])
    """
    found = _by_checks(
        moments, features, targets, alpha=alpha, centred=fit_intercept, tuning=checked
    )
    if found is None:
        found = _by_penalties(
            moments,
            features,
            targets,
            alpha=alpha,
            centred=fit_intercept,
            tuning=tuning,
        )
    if not (np.isfinite(found.coef).all() and np.isfinite(found.intercept).all()):
        raise RowRangeError(
            "a coefficient is larger than a float can be. Nothing was fitted. Bring "
            "features and targets to units that are less far apart."
        )
    return found


def _by_checks(
    moments: Moments,
    features: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    alpha: float,
    centred: bool,
    tuning: CheckedTuning,
) -> Regression | None:
    """From what a compressed sketch knows exactly, if it kept what that takes."""
    if moments.completion is None:
        return None
    found = [
        checked_regression(
            moments.completion,
            features,
            int(target),
            mean=np.zeros_like(moments.mean) if centred else moments.mean,
            penalty=alpha / moments.count,
            tuning=tuning,
        )
        for target in targets
    ]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    coef = np.stack([one.coef for one in known])
    error = np.array([one.error for one in known])
    variance = moments.structure.variances[targets]
    return Regression(
        coef,
        _intercept(moments, features, targets, coef, centred=centred),
        variance,
        variance - error,
        np.zeros(len(targets)),
        min(missed_strength(one.folds) for one in moments.completion.proposals),
        _score(error, variance),
    )


def _by_penalties(
    moments: Moments,
    features: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    alpha: float,
    centred: bool,
    tuning: RegressionTuning,
) -> Regression:
    """From moments that are exact, noisy, or have columns of no target."""
    second = moments.structure
    if not centred:
        second = second.plus_outer(moments.mean)
    left, variance = second.of_features(features), second.variances[targets]
    own, unseen = np.maximum(left.variances, 0.0), moments.unseen_variance[features]
    right = second.columns(targets)[features]
    doubt = tuning.unseen_penalty * unseen
    penalty = alpha / moments.count + doubt
    if moments.noise is not None:
        # No covariance exceeds the product of the standard deviations.
        most = np.sqrt(own)[:, None] * np.sqrt(np.maximum(variance, 0.0))
        right = np.clip(right, -most, most)
        noise = moments.noise.of_features(features)
        edge = spectral_edge(noise.std, len(features))
        penalty = penalty + tuning.noise_penalty * edge * noise.unit**2
    more = np.where(unseen > 0, own, 0.0) * tuning.first_penalty
    coef, penalty = _possible(left, right, variance, penalty, more)
    solve = partial(left.solve, penalty=penalty)
    of_noise = np.array(
        [
            _noise_explained(moments, features, target, row, solve, tuning)
            for target, row in zip(targets, coef, strict=True)
        ]
    )
    explained = np.einsum("ij,ji->i", coef, right)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(coef, (left @ coef.T).T) + coef**2 @ doubt
        error = variance - 2 * explained + squares + 2 * of_noise
    if unseen.any():  # covariances with targets of a compressed sketch keep their noise
        explained = explained - of_noise
    return Regression(
        coef,
        _intercept(moments, features, targets, coef, centred=centred),
        variance,
        explained,
        of_noise,
        _unseen_share(unseen, own),
        _score(error, moments.structure.variances[targets]),
    )


def _intercept(
    moments: Moments,
    features: NDArray[np.int64],
    targets: NDArray[np.int64],
    coef: Array,
    *,
    centred: bool,
) -> Array:
    if not centred:
        return np.zeros(len(targets))
    return moments.mean[targets] - coef @ moments.mean[features]


def _score(error: Array, variance: Array) -> Array:
    """R² from mean squared errors; of a constant, 1 without an error and 0 with one."""
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.maximum(error, 0.0) / np.where(variance > 0, variance, 1.0)
        return np.where(variance > 0, 1 - share, np.where(error > 0, 0.0, 1.0))


def _possible(
    left: AbstractCovariance,
    right: Array,
    variance: Array,
    penalty: Array,
    more: Array,
) -> tuple[Array, Array]:
    """Coefficients that explain no more variance than there is, and their penalty.

    Where they do, the features are more alike than the sketch shows: penalise until
    the promise is possible, or promise nothing.
    """
    coef = left.solve(right, penalty).T
    if not more.any():
        return coef, penalty
    for _ in range(_MOST_DOUBLINGS):
        if not (np.einsum("ij,ji->i", coef, right) > variance).any():
            return coef, penalty
        penalty, more = penalty + more, 2 * more
        coef = left.solve(right, penalty).T
    possible = np.einsum("ij,ji->i", coef, right) <= variance
    return np.where(possible[:, None], coef, 0.0), penalty


def _noise_explained(
    moments: Moments,
    features: NDArray[np.int64],
    target: int,
    coef: Array,
    solve: Callable[..., Array],
    tuning: RegressionTuning,
) -> float:
    if moments.noise is None:
        return 0.0
    own = moments.noise.of_features(np.array([target]))
    explained = moments.noise.of_features(features).of_regression(
        own,
        moments.mean[np.append(features, target)],
        coef,
        solve,
        n_probes=tuning.n_probes,
    )
    # The variance that there is to explain has noise as well.
    return max(explained, float(own.of_variances(moments.mean[[target]])[0]))


def _unseen_share(unseen: Array, own: Array) -> float:
    """Typical eigenvalue of what was not seen of the correlations."""
    partly = (unseen > 0) & (own > 0)
    return float(np.median(unseen[partly] / own[partly])) if partly.any() else 0.0
