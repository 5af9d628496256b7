r"""What noise alone would look like: the level that a signal has to exceed.

A release says how much noise was added to it, so that a decoder can compare what it
finds with what it would have found in noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "MomentNoise",
    "NoiseTuning",
    "denoised_covariance",
    "directions_above",
    "mean_noise",
    "spectral_edge",
]

_ORDER_KEPT = 2.0**-10
"""Share of the differences of noisy variances that is always kept; any small number
keeps their order and changes nothing else."""

Array: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True)
class NoiseTuning:
    """Hand-tuned numbers: what stands out of the noise of a release."""

    clear_edge: float = 1.25
    """An eigenvalue so many times the edge of the noise counts as a direction: three
    quarters (of the square) of its vector are signal, by the law of a spiked Wigner
    matrix. Checked by how often noise alone has a direction, and a signal none."""

    clear_level: float = 2.0
    """Singular values of P Ω so many times the largest of noise alone count as
    directions. Checked by the same."""


_NOISE = NoiseTuning()


def mean_noise(sketch: Sketch | PrivateSketch) -> float:
    """Standard deviation of the noise on each entry of ``sketch.mean``.

    The same for every entry, whatever part of the map it belongs to, in the units of
    the features (rows scaled by the map); zero for an exact sketch. The noise on the
    number of rows, which multiplies all entries alike, is not in it.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> from sketchlearn.testing import release_seeded
    >>> exact = sl.sketch_rows(np.zeros((1000, 2)), sl.FourierFeatures(2, 16))
    >>> mean_noise(exact)
    0.0
    >>> private = release_seeded(exact, 0, epsilon=1.0, delta=1e-6)
    >>> bool(0.5 < np.std(private.mean - exact.mean) / mean_noise(private) < 1.5)
    True
    """
    if isinstance(sketch, Sketch):
        return 0.0
    return sketch.noise_std / sketch.count


def spectral_edge(noise: float, size: int) -> float:
    r"""Largest eigenvalue of a symmetric matrix of noise, :math:`2\sigma\sqrt{n}`.

    Eigenvalues beyond it are signal (Wigner's semicircle).

    Examples
    --------
    >>> spectral_edge(0.5, 9)
    3.0
    """
    return 2 * noise * sqrt(size)


@final
@dataclass(frozen=True, eq=False)
class MomentNoise:
    r"""Noise on the first and second moments of a release.

    Means of feature i have noise :math:`\sigma u_i`, second moments of i and j about
    the shift of the map :math:`\sigma u_i u_j`.

    Parameters
    ----------
    std : float
        σ, in units of scaled rows.
    unit : array of shape (d,)
        u, what one is in the units of the rows.
    shift : array of shape (d,)
        What the map subtracts from rows.
    """

    std: float
    unit: Array
    shift: Array

    def of_features(self, chosen: NDArray[np.int64]) -> MomentNoise:
        """That on some of the features."""
        return MomentNoise(self.std, self.unit[chosen], self.shift[chosen])

    def of_variances(self, mean: Array) -> Array:
        """Standard deviations of the noise on the variances, from that on the mean."""
        unit, middle = self.unit, mean - self.shift
        return np.asarray(self.std * unit * np.sqrt(unit**2 + 4 * middle**2))

    def of_regression(
        self,
        target: MomentNoise,
        mean: Array,
        coef: Array,
        solve: Callable[..., Array],
        *,
        n_probes: int,
    ) -> float:
        r"""Variance that coefficients :math:`w = A^{-1}c` may explain of noise alone.

        The noise n on :math:`c - Cw` comes from both, and from the means they are
        centred with; it explains :math:`E\,n^\top A^{-1} n`.

        Parameters
        ----------
        target : MomentNoise
            Of the one feature that is predicted.
        mean : array of shape (d + 1,)
            Means of the features and, last, of the target.
        coef : array of shape (d,)
            w.
        solve : callable
            From vectors of shape (d, n) to :math:`A^{-1}` times them.
        n_probes : int
            Random vectors that the expectation is estimated with.
        """
        middle = mean - np.append(self.shift, target.shift)
        rest = float(middle[-1] - middle[:-1] @ coef)
        both = float(target.unit[0] ** 2 + np.sum((self.unit * coef) ** 2))
        signs = np.where(Draws(0).uniform(len(coef) * n_probes) < 0.5, -1.0, 1.0)
        probes = signs.reshape(len(coef), n_probes) * self.unit[:, None]
        tests = np.concatenate([probes, middle[:-1, None]], axis=1)
        sizes = np.einsum("ij,ij->j", tests, solve(tests))
        explained = (both + rest**2) * sizes[:-1].mean() + both * sizes[-1]
        return float(self.std**2 * explained)


def denoised_covariance(
    noisy: Array, noise: float, mean: Array, tuning: NoiseTuning = _NOISE
) -> tuple[DenseCovariance, int]:
    r"""A covariance from a noisy one, and how many of its directions are no noise.

    Symmetric noise has eigenvalues up to :math:`2\sigma\sqrt d`: larger ones are kept,
    shrunk to what they were before the noise, over the diagonal of the variances,
    which are shrunk towards their mean (James and Stein).
    """
    diagonal = np.diag(noisy)
    away = diagonal - diagonal.mean()
    squares = max(float(away @ away), 1e-300)
    keep = max(1 - max(len(away) - 3, 0) * noise**2 / squares, _ORDER_KEPT)
    variance = np.maximum(diagonal.mean() + keep * away, 0.0)
    values, vectors = np.linalg.eigh(noisy)
    edge = spectral_edge(noise, len(noisy))
    strong = values > edge
    kept = values[strong] * np.sqrt(1 - (edge / values[strong]) ** 2)
    loadings = vectors[:, strong] * np.sqrt(kept)
    explained = np.maximum((loadings**2).sum(axis=1, keepdims=True), 1e-300)
    loadings *= np.sqrt(np.minimum(variance[:, None] / explained, 1.0))
    matrix: Array = loadings @ loadings.T
    np.fill_diagonal(matrix, np.maximum(variance, np.diag(matrix)))
    clear = tuning.clear_edge * edge * (1 + float(np.linalg.norm(mean)) / 2)
    return DenseCovariance(matrix), int((values > clear).sum())


def directions_above(
    seen: Array, omega: Array, noise: float, mean: Array, tuning: NoiseTuning = _NOISE
) -> int:
    r"""How many directions of P Ω stand out of the noise on it and on the mean.

    A matrix of noise has singular values up to
    :math:`\sigma(\sqrt d + \sqrt\ell)`; the noise on the mean :math:`\mu` adds
    :math:`e\,\mu^\top\Omega + \mu\, e^\top\Omega`.

    Parameters
    ----------
    seen : array of shape (d, n)
        P times an orthonormal basis of the columns of Ω.
    omega : array of shape (d, n_columns)
        Ω, in units of the standard deviations.
    noise : float
        σ, on each entry of P Ω.
    mean : array of shape (d,)
        μ, in units of the standard deviations.
    tuning : NoiseTuning
        How far they must stand out.
    """
    length = max(float(np.linalg.norm(omega, axis=0).min()), 1e-300)
    offset = float(np.abs(mean @ omega).max()) / length
    d, columns = omega.shape
    bulk = d**0.5 + columns**0.5
    level = noise / length * bulk
    level += noise * (offset * d**0.5 + float(np.linalg.norm(mean)))
    values = np.linalg.svd(seen, compute_uv=False)
    return int((values > tuning.clear_level * level).sum())
