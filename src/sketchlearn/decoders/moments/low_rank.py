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

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.moments.centring import centred_moments
from sketchlearn.decoders.moments.covariance import (
    AbstractCovariance,
    DenseCovariance,
    LowRankCovariance,
    placed_among,
    with_targets,
)
from sketchlearn.decoders.moments.noise_floor import (
    MomentNoise,
    denoised_covariance,
    directions_above,
    mean_noise,
)
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    RowRangeError,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.moments import CrossMomentFeatures, MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "CorrelationEstimate",
    "Moments",
    "NystromDecoder",
    "NystromTuning",
    "decode_moments",
    "feature_numbers",
    "second_moment_part",
    "symmetric_matrix",
]


DOUBT = 3.0
"""Variance to doubt, in units of the typical error; chosen on meta-training data."""

_LARGEST_EXPONENT = 960
"""Variances beyond this power of two are refused: sums of them must be finite."""

_FEWEST_STEPS = 4.0
"""Rounding steps that the rows of a feature should differ by."""

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
    structure : AbstractCovariance
        Centred second moments, divided by ``count``; positive semi-definite up to
        rounding. Of many features it has factors and is not written out.
    doubt : array of shape (d,)
        Variances to add on the diagonal before the covariance is inverted, so that
        what the sketch did not see is not taken for independent: zero if exact.
    n_directions : int
        Directions in which the covariance was seen: ``d`` if exact.
    noise : MomentNoise, optional
        Of a private sketch.
    """

    count: float
    mean: NDArray[np.float64]
    structure: AbstractCovariance
    doubt: NDArray[np.float64]
    n_directions: int
    noise: MomentNoise | None = None

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
            doubt=self.doubt[chosen],
            n_directions=min(self.n_directions, len(chosen)),
            noise=None if self.noise is None else self.noise.of_features(chosen),
        )


class CorrelationEstimate(Protocol):
    """Correlations P of shape (d, d), with unit diagonal, from P Ω and Ω.

    ``noise`` is the standard deviation of the noise on each entry of P Ω.
    """

    def __call__(  # noqa: D102
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> AbstractCovariance: ...


@final
@dataclass(frozen=True)
class NystromTuning:
    """Hand-tuned numbers of :class:`NystromDecoder`."""

    bulk: float = 0.6
    """Share of the smallest sketched eigenvalue that is left to the diagonal, where
    that explains no variance twice. Set by the LRE of ``benchmarks/pca.py`` on training
    sets."""


@final
@dataclass(frozen=True)
class NystromDecoder(AbstractDecoder[Moments]):
    """Mean and covariance from a sketch of moments or cross moments.

    Parameters
    ----------
    clamp : bool
        Bring the numbers of a private sketch back into their public bounds first.
    with_doubt : bool
        Also estimate ``doubt``, for covariances that will be inverted.
    tuning : NystromTuning
        Hand-tuned numbers.
    """

    clamp: bool = True
    with_doubt: bool = False
    tuning: NystromTuning = NystromTuning()

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Moments]:
        return decode_moments(
            sketch, self.complete, clamp=self.clamp, with_doubt=self.with_doubt
        )

    def complete(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> LowRankCovariance:
        """Correlations P from P Ω and Ω, both (d, n_columns), as factors."""
        shortest = float(np.linalg.norm(omega, axis=0).min())
        floor = 2 * noise * omega.shape[1] ** 0.5 / max(shortest, 1e-300)
        loadings = _loadings(seen, omega, self.tuning.bulk, floor)
        return LowRankCovariance(loadings, 1 - np.vecdot(loadings, loadings))

    def correlate(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> NDArray[np.float64]:
        """Correlations P of shape (d, d) from P Ω and Ω, both (d, n_columns)."""
        return self.complete(seen, omega, noise).dense


def decode_moments(
    sketch: Sketch | PrivateSketch,
    correlate: CorrelationEstimate,
    *,
    clamp: bool = True,
    with_doubt: bool = False,
) -> Decoding[Moments]:
    """Moments of the rows, with correlations estimated where they are not all seen.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of moments or cross moments, alone or as a part of the map.
    correlate : CorrelationEstimate
        Used for a sketch of cross moments.
    clamp : bool
        Bring the numbers of a private sketch back into their public bounds first.
    with_doubt : bool
        Whether to estimate ``doubt``, by leaving columns of Ω out in turn.
    """
    part, where = second_moment_part(sketch.feature_map)
    mean, second = centred_moments(sketch, part, where, clamp=clamp)
    noise, d, residual = mean_noise(sketch), part.n_features, 0.0
    doubt, directions = np.zeros(d), d
    structure: AbstractCovariance
    if isinstance(part, MomentFeatures):
        structure = DenseCovariance(symmetric_matrix(second))
        if noise:
            structure, directions = denoised_covariance(structure.matrix, noise, mean)
    else:
        structure, doubt, residual, directions = _completed(
            part, second, noise, mean, correlate, with_doubt
        )
    clipped = any(found.clips for found in sketch.feature_map.parts())
    if not noise and not clipped:
        _warn_of_coarse_rounding(structure.variances, part, sketch.count)
    scaling = part.scaling or Scaling.identity(d)
    _require_representable(structure.variances, scaling)
    unit = 1 / scaling.factor
    moments = Moments(
        count=sketch.count,
        mean=mean * unit + scaling.shift,
        structure=structure.scaled(unit),
        doubt=doubt * unit * unit,
        n_directions=directions,
        noise=MomentNoise(noise, unit, scaling.shift) if noise else None,
    )
    return Decoding(moments, residual)


def _require_representable(variances: NDArray[np.float64], scaling: Scaling) -> None:
    """Refuse moments that float64 cannot hold in the units of the rows."""
    exponents = np.frexp(np.maximum(variances, 2.0**-200))[1]
    exponents = exponents - 2 * np.frexp(scaling.factor)[1]
    worst = int(np.argmax(exponents))
    varies = bool((variances > 0).any())
    if exponents[worst] > _LARGEST_EXPONENT:
        reason = "so large that its square is more than"
    elif varies and exponents[variances > 0].max() < -_LARGEST_EXPONENT:
        reason = "like the others, so small that its square is less than"
    else:
        return
    raise RowRangeError(
        f"feature {worst} is of size {1 / scaling.factor[worst]:.1g}, {reason} a float "
        "can hold. Nothing was fitted. Change the units of the rows."
    )


def _warn_of_coarse_rounding(
    variances: NDArray[np.float64],
    part: MomentFeatures | CrossMomentFeatures,
    count: float,
) -> None:
    """Say so where the rows differ by hardly more than they were rounded by."""
    few = (_FEWEST_STEPS * 2.0**-part.bits) ** 2
    lost = (variances > 0) & (variances < few)
    if not lost.any() and (variances.any() or part.origin == "data" or count < 2):
        return
    which = f"feature {int(np.argmax(lost))}" if lost.any() else "no feature"
    varies = "varies by little more" if lost.any() else "varies by more"
    warnings.warn(
        f"{which} {varies} than the rounding of the rows, {2.0**-part.bits:.1g} of the "
        "planned range: variances and models of it mean little. Declare bounds close "
        "to the rows, or let the plan see them.",
        ConvergenceWarning,
        stacklevel=2,
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


def symmetric_matrix(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Symmetric matrices from their lower triangles, row by row.

    Parameters
    ----------
    lower : array of shape (..., d (d + 1) / 2)

    Returns
    -------
    array of shape (..., d, d)

    Examples
    --------
    >>> symmetric_matrix(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = round((2 * lower.shape[-1] + 0.25) ** 0.5 - 0.5)
    matrix = np.zeros((*lower.shape[:-1], size, size))
    i, j = np.tril_indices(size)
    matrix[..., i, j] = matrix[..., j, i] = lower
    return matrix


def second_moment_part(
    feature_map: AbstractFeatureMap,
) -> tuple[MomentFeatures | CrossMomentFeatures, slice]:
    """The part of a map that holds second moments, and where it stands."""
    for part in feature_map.find(MomentFeatures, CrossMomentFeatures):
        found = part.feature_map
        if not isinstance(found, MomentFeatures) or found.order == "covariance":
            return found, part.where
    kinds = ", ".join(part.feature_map.kind for part in feature_map.parts())
    raise FeatureMapError(
        f"a sketch of {kinds!r} features holds no second moments. Sketch "
        "with the map that plan(n_features) of the estimator gives."
    )


def _loadings(
    seen: NDArray[np.float64], omega: NDArray[np.float64], bulk: float, floor: float
) -> NDArray[np.float64]:
    """Low-rank part L of P ≈ L Lᵀ + diagonal, from P Ω.

    The shift is the largest tried that explains no feature's variance twice.
    """
    omega, seen = _independent(omega, seen)
    core = omega.T @ seen
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    smallest = max(values.min(initial=np.inf), 0.0) if len(values) else 0.0
    omega, seen = omega @ vectors, seen @ vectors
    for shift in bulk * _SHARES * smallest:
        left = values - shift
        strong = left > max(1e-9 * left.max(initial=0.0), floor, 1e-300)
        loadings = seen[:, strong] - shift * omega[:, strong]
        loadings /= np.sqrt(left[strong])
        communality = np.vecdot(loadings, loadings)[:, None]
        if communality.max(initial=0.0) <= 1.0:
            break
    return np.asarray(loadings / np.sqrt(np.maximum(communality, 1.0)))


def _completed(
    part: CrossMomentFeatures,
    second: NDArray[np.float64],
    noise: float,
    mean: NDArray[np.float64],
    correlate: CorrelationEstimate,
    with_doubt: bool,
) -> tuple[AbstractCovariance, NDArray[np.float64], float, int]:
    """Covariance, doubt, residual and number of directions from variances and C Ω."""
    d, kept, omega = part.n_features, part.kept, part.omega
    variance = np.maximum(second[:d], 0.0)
    seen = second[d:].reshape(len(kept), omega.shape[1])  # C Omega
    doubt, residual, directions = np.zeros(d), 0.0, 0 if noise else part.n_columns
    # Below one lattice step of spread a feature is a constant.
    floor = max(2.0**-part.frac_bits, 2 * noise)
    targets = np.isin(kept, part.targets)
    active = (variance[kept] > floor) & ~targets
    chosen, scale = kept[active], np.sqrt(variance[kept][active])
    correlation: AbstractCovariance = DenseCovariance(np.eye(0))
    if len(chosen):
        # The targets' share of C Omega is known exactly: take it out.
        columns = part.n_columns
        exact = seen[active][:, columns:]
        others = seen[active][:, :columns] - exact @ omega[targets, :columns]
        seen_as, tests = others / scale[:, None], omega[active, :columns]
        tests = tests * scale[:, None]
        used = np.abs(tests).max(axis=0) > 0
        seen_as, tests = seen_as[:, used], tests[:, used]
        spread = noise * float(np.sqrt(np.mean(scale**-2)))
        correlation = correlate(seen_as, tests, spread)
        missed = float(np.linalg.norm(correlation @ tests - seen_as))
        residual = missed / max(float(np.linalg.norm(seen_as)), 1e-300)
        if noise:
            directions = directions_above(
                _independent(tests, seen_as)[1], tests, spread, mean[chosen] / scale
            )
        if with_doubt:
            strength = _missed_strength(seen_as, tests, spread, correlate)
            doubt[chosen] = DOUBT * strength * scale**2
    structure = placed_among(correlation.scaled(scale), chosen, variance)
    if part.targets:
        cross = np.zeros((d, len(part.targets)))
        cross[kept] = seen[:, part.n_columns :]
        structure = with_targets(structure, np.array(part.targets), cross)
    return structure, doubt, residual, directions


def _missed_strength(
    seen: NDArray[np.float64],
    omega: NDArray[np.float64],
    noise: float,
    correlate: CorrelationEstimate,
) -> float:
    r"""How large the eigenvalues of the error E of estimated correlations are.

    Columns of Ω are joined two by two: what the columns that are left predict of the
    difference ω of the two, against what was seen of it, is Eω, and for random ω
    :math:`\lVert E\omega\rVert^2 / \lVert\omega\rVert^2 \approx \mathrm{tr}E^2/d`,
    the mean squared eigenvalue. With one column, independence is the prediction.
    """
    columns = omega.shape[1]
    if columns == 1:
        return float(np.linalg.norm(seen - omega) / np.linalg.norm(omega))
    squares = []
    for j in range(0, columns - 1, max(1, columns // 4)):
        joined, apart = np.eye(columns), np.zeros(columns)
        joined[j + 1, j], apart[j : j + 2] = 1.0, (1.0, -1.0)
        joined = np.delete(joined, j + 1, axis=1)
        correlation = correlate(seen @ joined, omega @ joined, noise)
        test = omega @ apart
        missed = seen @ apart - correlation @ test
        squares.append(float(missed @ missed / (test @ test)))
    return float(np.sqrt(max(squares)))


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
