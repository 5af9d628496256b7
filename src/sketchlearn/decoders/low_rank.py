r"""Second moments from a sketch: exact where it holds them all, Nyström otherwise.

From the mean of :class:`~sketchlearn.features.moments.CrossMomentFeatures` one knows
:math:`\mu`, the variances :math:`D` and :math:`Y = R\Omega`; centring and
standardising after the fact gives the correlations :math:`P` seen through a test
matrix,

.. math::
    P\Omega' = D^{-1/2}\,(Y - \mu\mu^\top\Omega), \qquad \Omega' = D^{1/2}\Omega,

and the Nyström approximation of a shifted P, with its known unit diagonal restored,

.. math::
    \hat P = M\,(\Omega'^\top M)^{+} M^\top \;+\; \text{diagonal},
    \qquad M = (P - \delta I)\,\Omega' .

The shift takes the bulk of the spectrum, which the diagonal puts back, out of the
low-rank part. δ is a share of the smallest generalised eigenvalue of
:math:`(\Omega'^\top P\,\Omega', \Omega'^\top\Omega')`, chosen on meta-training data, or
less where that much would explain the variance of a feature twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import ClippedFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import CrossMomentFeatures, MomentFeatures
from sketchlearn.privacy import PrivateSketch
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch

__all__ = ["Moments", "NystromDecoder", "feature_numbers", "second_moment_part"]


_SHARES = np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0])


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """First and second moments of the rows, in their own units.

    Parameters
    ----------
    count : float
        Number of rows.
    mean : array of shape (d,)
    covariance : array of shape (d, d)
        Centred, divided by ``count``; symmetric, positive semi-definite up to
        rounding.
    doubt : array of shape (d,)
        Variances to add on the diagonal before the covariance is inverted, so that
        what the sketch did not see is not taken for independent: zero if exact.
    n_directions : int
        Directions in which the covariance was seen: ``d`` if exact.
    """

    count: float
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    doubt: NDArray[np.float64]
    n_directions: int

    def of_features(self, features: ArrayLike) -> Moments:
        """Moments of some of the features, in the order given."""
        chosen = feature_numbers("features", features, len(self.mean))
        covariance = self.covariance[np.ix_(chosen, chosen)]
        return Moments(
            self.count,
            self.mean[chosen],
            covariance,
            self.doubt[chosen],
            min(self.n_directions, len(chosen)),
        )


@final
@dataclass(frozen=True)
class NystromDecoder(AbstractDecoder[Moments]):
    """Mean and covariance from a sketch of moments or cross moments.

    Parameters
    ----------
    bulk : float
        Share of the smallest sketched eigenvalue that is left to the diagonal.
    clamp : bool
        Bring the numbers of a private sketch back into their public bounds first.
    """

    bulk: float = 0.6
    clamp: bool = True

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Moments]:
        part, where = second_moment_part(sketch.feature_map)
        mean, second, noise = self._centred(sketch, part, where)
        d, residual, directions = part.n_features, 0.0, part.n_features
        doubt = np.zeros(d)
        if isinstance(part, MomentFeatures):
            covariance = _symmetric(second, d)
            if noise:
                covariance = _denoised(covariance, noise)
        else:
            covariance, doubt, residual = self._nystrom(part, second, noise)
            directions = part.n_columns
        scaling = part.scaling or Scaling.identity(d)
        moments = Moments(
            count=sketch.count,
            mean=mean / scaling.factor + scaling.shift,
            covariance=covariance / scaling.factor / scaling.factor[:, None],
            doubt=doubt / scaling.factor / scaling.factor,
            n_directions=directions,
        )
        return Decoding(moments, residual)

    def _centred(
        self,
        sketch: Sketch | PrivateSketch,
        part: MomentFeatures | CrossMomentFeatures,
        where: slice,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Mean, centred second moments, and the noise on each of them.

        An exact sketch is centred in integers, N Σxy - Σx Σy, and rounded once.
        """
        d, noise = part.n_features, 0.0
        means: NDArray[Any]
        seconds: NDArray[Any]
        if isinstance(sketch, Sketch):
            if sketch.count == 0:
                raise RowsError("an empty sketch (0 rows) has nothing to decode.")
            whole = sketch.count * Fraction(2) ** sketch.features.frac_bits
            values = [Fraction(v) / whole for v in sketch.total.to_ints()[where]]
            means, seconds = np.array(values[:d], object), np.array(values[d:], object)
        else:
            means, seconds = sketch.mean[where][:d], sketch.mean[where][d:]
            noise = sketch.noise_std / sketch.count
            if self.clamp:
                means = np.clip(means, -part.reach, part.reach)
                seconds = np.clip(seconds, -(part.reach**2), part.reach**2)
        centre = _products_of_means(part, means)
        return means.astype(np.float64), (seconds - centre).astype(np.float64), noise

    def _nystrom(
        self, part: CrossMomentFeatures, second: NDArray[np.float64], noise: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        d, kept, omega = part.n_features, part.kept, part.omega
        variance = np.maximum(second[:d], 0.0)
        seen = second[d:].reshape(len(kept), omega.shape[1])  # C Omega
        covariance, doubt = np.diag(variance), np.zeros(d)
        # Below one lattice step of spread a feature is a constant.
        floor = max(2.0**-part.frac_bits, 2 * noise)
        active = (variance[kept] > floor) & ~np.isin(kept, part.targets)
        chosen, scale = kept[active], np.sqrt(variance[kept][active])
        residual = 0.0
        if len(chosen):
            # The targets' share of C Omega is known exactly: take it out.
            columns, targets = part.n_columns, np.isin(kept, part.targets)
            exact = seen[active][:, columns:]
            others = seen[active][:, :columns] - exact @ omega[targets, :columns]
            seen_as, tests = others / scale[:, None], omega[active, :columns]
            tests = tests * scale[:, None]
            spread = noise * float(np.sqrt(np.mean(scale**-2)))
            correlation, unseen, residual = self._correlation(seen_as, tests, spread)
            strength = _strength(seen_as, tests, self.bulk)
            doubt[chosen] = (strength - 1) * unseen * scale**2
            covariance[np.ix_(chosen, chosen)] = correlation * np.outer(scale, scale)
        for t, target in enumerate(part.targets):
            covariance[kept, target] = covariance[target, kept] = seen[
                :, part.n_columns + t
            ]
        np.fill_diagonal(covariance, variance)
        return covariance, doubt, residual

    def _correlation(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Correlations P from P Ω, variance not seen, and how badly P Ω is missed."""
        shortest = float(np.linalg.norm(omega, axis=0).min())
        floor = 2 * noise * omega.shape[1] ** 0.5 / max(shortest, 1e-300)
        loadings = _loadings(seen, omega, self.bulk, floor)
        correlation = loadings @ loadings.T
        unseen = np.maximum(1.0 - np.diag(correlation), 0.0)
        np.fill_diagonal(correlation, 1.0)
        missed = float(np.linalg.norm(correlation @ omega - seen))
        residual = missed / max(float(np.linalg.norm(seen)), 1e-300)
        return correlation, unseen, residual


def feature_numbers(name: str, values: ArrayLike, n_features: int) -> NDArray[Any]:
    """Feature numbers, counted from the end if negative, as numbers from 0."""
    found = np.asarray(values)
    whole = found.ndim == 1 and found.size and found.dtype.kind in "iu"
    if not whole or found.min() < -n_features or found.max() >= n_features:
        raise FeatureMapError(
            f"{name} must be feature numbers below {n_features}; got {values!r}."
        )
    return np.asarray(np.arange(n_features)[found])


def second_moment_part(
    feature_map: AbstractFeatureMap,
) -> tuple[MomentFeatures | CrossMomentFeatures, slice]:
    """The part of a map that holds second moments, and where it stands."""
    if isinstance(feature_map, ClippedFeatures):
        return second_moment_part(feature_map.inner)
    if isinstance(feature_map, CrossMomentFeatures):
        return feature_map, slice(0, feature_map.sketch_size)
    if isinstance(feature_map, MomentFeatures) and feature_map.order == "covariance":
        return feature_map, slice(0, feature_map.sketch_size)
    if isinstance(feature_map, ConcatenatedFeatures):
        for index, part in enumerate(feature_map.parts):
            try:
                found, inner = second_moment_part(part)
            except FeatureMapError:
                continue
            start = feature_map.offset(index).start
            return found, slice(start + inner.start, start + inner.stop)
    raise FeatureMapError(
        f"a sketch of {feature_map.kind!r} features holds no second moments. Sketch "
        "with the map of CompressivePCA(...).plan(n_features) or "
        "CompressiveRidge(...).plan(n_features)."
    )


def _loadings(
    seen: NDArray[np.float64], omega: NDArray[np.float64], bulk: float, floor: float
) -> NDArray[np.float64]:
    """Low-rank part L of P ≈ L Lᵀ + diagonal, from P Ω.

    The shift is the largest tried that explains no feature's variance twice.
    """
    omega, seen = _independent(omega, seen)
    core = omega.T @ seen
    values = np.linalg.eigvalsh((core + core.T) / 2)
    smallest = max(values.min(initial=np.inf), 0.0) if len(values) else 0.0
    for share in bulk * _SHARES:
        shifted = seen - share * smallest * omega
        core = omega.T @ shifted
        values, vectors = np.linalg.eigh((core + core.T) / 2)
        strong = values > max(1e-9 * values.max(initial=0.0), floor, 1e-300)
        loadings = shifted @ (vectors[:, strong] / np.sqrt(values[strong]))
        communality = (loadings**2).sum(axis=1, keepdims=True)
        if communality.max(initial=0.0) <= 1.0:
            break
    return np.asarray(loadings / np.sqrt(np.maximum(communality, 1.0)))


def _strength(
    seen: NDArray[np.float64], omega: NDArray[np.float64], bulk: float
) -> float:
    r"""How strongly what the columns of Ω do not see is correlated.

    Columns are left out one at a time. What the others leave unexplained, scaled to
    unit diagonal, is seen through the missing one exactly, and for random signs
    :math:`\lVert E\omega\rVert^2 / \lVert\omega\rVert^2 \approx \mathrm{tr}E^2 / d`
    is the mean eigenvalue of E, weighted by itself: 1 if the residual is white, d if
    it is one common factor.
    """
    ratios = [1.0]
    columns = np.arange(omega.shape[1])
    for j in columns[:: max(1, len(columns) // 8)]:
        loadings = _loadings(seen[:, columns != j], omega[:, columns != j], bulk, 0.0)
        unseen = np.maximum(1 - (loadings**2).sum(axis=1), 0.02)
        left = seen[:, j] - loadings @ (loadings.T @ omega[:, j])
        length = (omega[:, j] ** 2 * unseen).sum()
        ratios.append(float((left**2 / unseen).sum() / max(length, 1e-300)))
    return min(max(ratios), float(len(seen)))


def _products_of_means(
    part: MomentFeatures | CrossMomentFeatures, means: NDArray[Any]
) -> NDArray[Any]:
    """What the second moments of a constant row at the mean would be."""
    if isinstance(part, MomentFeatures):
        i, j = np.tril_indices(part.n_features)
        return np.asarray(means[i] * means[j])
    omega: NDArray[Any] = part.omega
    if means.dtype == object:
        exact = [Fraction(float(w)) for w in omega.ravel()]
        omega = np.array(exact, object).reshape(omega.shape)
    kept = means[part.kept]
    cross = np.outer(kept, kept @ omega).ravel()
    return np.concatenate([means * means, cross])


def _independent(
    omega: NDArray[np.float64], seen: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormalise the columns of Ω, and P Ω along with them."""
    if not omega.shape[1]:
        return omega, seen
    values, vectors = eigh(omega.T @ omega)
    strong = values > 1e-12 * values[-1]
    basis = vectors[:, strong] / np.sqrt(values[strong])
    return omega @ basis, seen @ basis


def _denoised(noisy: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    r"""A covariance from a noisy one.

    Symmetric noise has eigenvalues up to :math:`2\sigma\sqrt d`: larger ones are kept,
    shrunk to what they were before the noise, over the diagonal of the variances,
    which are shrunk towards their mean (James and Stein).
    """
    diagonal = np.diag(noisy)
    away = diagonal - diagonal.mean()
    squares = max(float(away @ away), 1e-300)
    keep = max(1 - max(len(away) - 3, 0) * noise**2 / squares, 2.0**-10)
    variance = np.maximum(diagonal.mean() + keep * away, 0.0)
    values, vectors = np.linalg.eigh(noisy)
    edge = 2 * noise * len(noisy) ** 0.5
    strong = values > edge
    kept = values[strong] * np.sqrt(1 - (edge / values[strong]) ** 2)
    loadings = vectors[:, strong] * np.sqrt(kept)
    explained = np.maximum((loadings**2).sum(axis=1, keepdims=True), 1e-300)
    loadings *= np.sqrt(np.minimum(variance[:, None] / explained, 1.0))
    matrix: NDArray[np.float64] = loadings @ loadings.T
    np.fill_diagonal(matrix, np.maximum(variance, np.diag(matrix)))
    return matrix


def _symmetric(lower: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Symmetric matrix from its lower triangle, row by row."""
    matrix = np.zeros((size, size))
    i, j = np.tril_indices(size)
    matrix[i, j] = matrix[j, i] = lower
    return matrix
