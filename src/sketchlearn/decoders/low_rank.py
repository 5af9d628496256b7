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
low-rank part: δ is a fixed share of the smallest generalised eigenvalue of
:math:`(\Omega'^\top P\,\Omega', \Omega'^\top\Omega')`, chosen on meta-training data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import ClippedFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import CrossMomentFeatures, MomentFeatures
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch

__all__ = ["Moments", "NystromDecoder", "second_moment_part"]


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
    """

    count: float
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def of_features(self, features: ArrayLike) -> Moments:
        """Moments of some of the features, in the order given."""
        chosen = np.asarray(features)
        d = len(self.mean)
        whole = chosen.ndim == 1 and chosen.size and chosen.dtype.kind in "iu"
        if not whole or chosen.min() < -d or chosen.max() >= d:
            raise FeatureMapError(
                f"features must be feature numbers below {d}; got {features!r}."
            )
        covariance = self.covariance[np.ix_(chosen, chosen)]
        return Moments(self.count, self.mean[chosen], covariance)


@final
@dataclass(frozen=True)
class NystromDecoder(AbstractDecoder[Moments]):
    """Mean and covariance from a sketch of moments or cross moments.

    Parameters
    ----------
    bulk : float
        Share of the smallest sketched eigenvalue that is left to the diagonal.
    """

    bulk: float = 0.6

    @override
    def decode(self, sketch: Sketch) -> Decoding[Moments]:
        part, where = second_moment_part(sketch.feature_map)
        values = sketch.mean[where]
        d = part.n_features
        mean = values[:d]
        residual = 0.0
        if isinstance(part, MomentFeatures):
            covariance = _symmetric(values[d:], d) - np.outer(mean, mean)
        else:
            covariance, residual = self._nystrom(part, values)
        scaling = part.scaling or Scaling.identity(d)
        moments = Moments(
            count=sketch.count,
            mean=mean / scaling.factor + scaling.shift,
            covariance=covariance / np.outer(scaling.factor, scaling.factor),
        )
        return Decoding(moments, residual)

    def _nystrom(
        self, part: CrossMomentFeatures, values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float]:
        d, kept, omega = part.n_features, part.kept, part.omega
        mean = values[:d]
        variance = np.maximum(values[d : 2 * d] - mean**2, 0.0)
        seen = values[2 * d :].reshape(len(kept), omega.shape[1])
        seen = seen - np.outer(mean[kept], mean[kept] @ omega)  # centred: C Omega
        # Below one lattice step of spread a feature is a constant.
        active = variance[kept] > 4.0**-part.frac_bits
        chosen, scale = kept[active], np.sqrt(variance[kept][active])
        covariance = np.diag(variance)
        if not len(chosen):
            return covariance, 0.0
        correlation, residual = self._correlation(
            seen[active] / scale[:, None], omega[active] * scale[:, None]
        )
        block = np.ix_(chosen, chosen)
        covariance[block] = correlation * np.outer(scale, scale)
        for t, target in enumerate(part.targets):
            if target in chosen:
                exact = seen[active, part.n_columns + t]
                covariance[chosen, target] = covariance[target, chosen] = exact
        covariance[chosen, chosen] = variance[chosen]
        return covariance, residual

    def _correlation(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float]:
        """Correlations P from P Ω, and how badly they miss P Ω."""
        omega, seen = _independent(omega, seen)
        core = omega.T @ seen
        smallest = max(float(np.linalg.eigvalsh((core + core.T) / 2)[0]), 0.0)
        shifted = seen - self.bulk * smallest * omega
        core = omega.T @ shifted
        values, vectors = np.linalg.eigh((core + core.T) / 2)
        strong = values > 1e-9 * max(values[-1], 0.0)
        if not strong.any():
            return np.eye(len(seen)), 1.0
        loadings = shifted @ (vectors[:, strong] / np.sqrt(values[strong]))
        communality = (loadings**2).sum(axis=1, keepdims=True)
        loadings /= np.sqrt(np.maximum(communality, 1.0))
        correlation = loadings @ loadings.T
        np.fill_diagonal(correlation, 1.0)
        missed = float(np.linalg.norm(correlation @ omega - seen))
        return correlation, missed / max(float(np.linalg.norm(seen)), 1e-300)


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


def _independent(
    omega: NDArray[np.float64], seen: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormalise the columns of Ω, and P Ω along with them."""
    gram = omega.T @ omega
    values, vectors = eigh(gram)
    strong = values > 1e-12 * values[-1]
    basis = vectors[:, strong] / np.sqrt(values[strong])
    return omega @ basis, seen @ basis


def _symmetric(lower: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Symmetric matrix from its lower triangle, row by row."""
    matrix = np.zeros((size, size))
    i, j = np.tril_indices(size)
    matrix[i, j] = matrix[j, i] = lower
    return matrix
