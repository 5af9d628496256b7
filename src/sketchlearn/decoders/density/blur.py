r"""Densities of releases: nowhere narrower than the noise lets one see.

The variances of a release are known up to noise of a known deviation. A direction whose
variance is below it may look constant, and a density that believes so gives the rows no
probability at all. A share of that deviation on every variance costs little where rows
are wide and keeps the density positive where they are not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.moments import Moments

__all__ = ["blurred_moments", "hidden_nats", "variance_blur"]

_SHARE = 0.7
"""Of the deviation of a variance. Gaussians of synthetic releases lost least, against
those of the rows, for 0.5 to 1; for 0.25, six nats more at times."""


def variance_blur(moments: Moments) -> NDArray[np.float64]:
    """What the variances of a release are widened by, shape (d,); 0 if exact."""
    if moments.noise is None:
        return np.zeros(len(moments.mean))
    return _SHARE * moments.noise.of_variances(moments.mean)


def blurred_moments(moments: Moments) -> Moments:
    """The same moments, with variances wide enough for the noise on them.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.noise_floor import MomentNoise
    >>> still = Moments(9.0, np.zeros(1), DenseCovariance(np.zeros((1, 1))),
    ...     np.zeros(1), 1, MomentNoise(0.1, np.ones(1), np.zeros(1)))
    >>> bool(abs(blurred_moments(still).covariance[0, 0] - 0.07) < 1e-12)
    True
    """
    if moments.noise is None:
        return moments
    known, more = moments.structure, variance_blur(moments)
    if isinstance(known, LowRankCovariance):
        return replace(moments, structure=replace(known, own=known.own + more))
    return replace(moments, structure=DenseCovariance(known.dense + np.diag(more)))


def hidden_nats(
    moments: Moments,
    weights: NDArray[np.float64],
    covariances: NDArray[np.float64],
) -> float:
    r"""Log density that rows may lose to the noise on the variances of a release.

    With :math:`s_i` the deviation of the noise on the variance of feature i and
    :math:`v_i` the variance that the others leave it in a component,
    :math:`\tfrac12 \sum_i \log(1 + s_i / v_i)`, averaged over the components; 0 if
    exact.
    """
    if moments.noise is None:
        return 0.0
    noise = moments.noise.of_variances(moments.mean)
    if covariances.ndim == 2:
        own = 1 / covariances
    else:
        own = np.einsum("jaa->ja", np.linalg.pinv(covariances, hermitian=True))
    lost = np.log1p(noise * np.maximum(own, 0.0)).sum(axis=1) / 2
    return float(weights @ lost)
