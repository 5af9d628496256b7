r"""Correlations from a few columns, without any prior: Nyström with a known diagonal.

The Nyström approximation of a shifted P, with its known unit diagonal restored,

.. math::
    \hat P = M\,(\Omega^\top M)^{+} M^\top \;+\; \text{diagonal},
    \qquad M = (P - \delta I)\,\Omega .

The shift takes the bulk of the spectrum, which the diagonal puts back, out of the
low-rank part. δ is a share of the smallest generalised eigenvalue of
:math:`(\Omega^\top P\,\Omega, \Omega^\top\Omega)`, or less where that much would
explain the variance of a feature twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from typing_extensions import override

from sketchlearn.decoders.moments.base import AbstractMomentDecoder
from sketchlearn.decoders.moments.covariance.base import Array
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.cross_moments import Places, independent
from sketchlearn.decoders.moments.noise_floor import spectral_edge

__all__ = ["NystromDecoder", "NystromTuning"]

_SHIFTS = np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0])
"""Shares of the shift that are tried until no variance is explained twice; the last
one, no shift at all, always ends the search."""


@final
@dataclass(frozen=True)
class NystromTuning:
    """Hand-tuned numbers of :class:`NystromDecoder`."""

    bulk: float = 0.6
    """Share of the smallest sketched eigenvalue that is left to the diagonal, where
    that explains no variance twice. Chosen on training sets; checked by the error of
    PCA in ``benchmarks/tuning.py``."""


@final
@dataclass(frozen=True)
class NystromDecoder(AbstractMomentDecoder):
    """Mean and covariance from a sketch of moments or cross moments.

    Other parameters as in
    :class:`~sketchlearn.decoders.moments.base.AbstractMomentDecoder`.

    Parameters
    ----------
    tuning : NystromTuning
        Hand-tuned numbers.
    """

    tuning: NystromTuning = NystromTuning()

    @override
    def complete(
        self, seen: Array, omega: Array, noise: float, places: Places | None = None
    ) -> LowRankCovariance:
        shortest = float(np.linalg.norm(omega, axis=0).min())
        floor = spectral_edge(noise, omega.shape[1]) / max(shortest, 1e-300)
        loadings = _loadings(seen, omega, self.tuning.bulk, floor)
        if places is not None:
            loadings = places.spread(loadings)
        return LowRankCovariance(loadings, 1 - np.vecdot(loadings, loadings))


def _loadings(seen: Array, omega: Array, bulk: float, floor: float) -> Array:
    """Low-rank part L of P ≈ L Lᵀ + diagonal, from P Ω.

    The shift is the largest tried that explains no feature's variance twice.
    """
    omega, seen = independent(omega, seen)
    core = omega.T @ seen
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    smallest = max(values.min(initial=np.inf), 0.0) if len(values) else 0.0
    omega, seen = omega @ vectors, seen @ vectors
    for shift in bulk * _SHIFTS * smallest:
        left = values - shift
        strong = left > max(1e-9 * left.max(initial=0.0), floor, 1e-300)
        loadings = seen[:, strong] - shift * omega[:, strong]
        loadings /= np.sqrt(left[strong])
        communality = np.vecdot(loadings, loadings)[:, None]
        if communality.max(initial=0.0) <= 1.0:
            break
    return np.asarray(loadings / np.sqrt(np.maximum(communality, 1.0)))
