r"""Correlations seen through a test matrix: what a sketch of cross moments tells.

From the mean of
:class:`~sketchlearn.features.cross_moments.CrossMomentFeatures` one knows
:math:`\mu`, the variances :math:`D` and :math:`Y = R\Omega`; centring and
standardising after the fact gives the correlations :math:`P` seen through a test
matrix,

.. math::
    P\Omega' = D^{-1/2}\,(Y - \mu\mu^\top\Omega), \qquad \Omega' = D^{1/2}\Omega .

How the rest of P is filled in is the business of a decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from sketchlearn.decoders.moments.covariance.base import AbstractCovariance, Array
from sketchlearn.decoders.moments.noise_floor import NoiseTuning, directions_above
from sketchlearn.features.cross_moments import CrossMomentFeatures

__all__ = ["CorrelationEstimate", "SeenCorrelations", "independent", "missed_strength"]

CorrelationEstimate: TypeAlias = Callable[[Array, Array, float], AbstractCovariance]
"""Correlations P of shape (d, d), with unit diagonal, from P Ω, Ω and the standard
deviation of the noise on each entry of P Ω."""


@final
@dataclass(frozen=True, eq=False)
class SeenCorrelations:
    """Correlations P of the features that vary, through test vectors.

    Parameters
    ----------
    chosen : array of n ints
        The features: those with room in the sketch that vary, and are no targets.
    scale : array of shape (n,)
        Their standard deviations.
    seen, omega : arrays of shape (n, n_columns)
        P Ω and Ω.
    noise : float
        Standard deviation of the noise on each entry of ``seen``.
    """

    chosen: NDArray[np.int64]
    scale: Array
    seen: Array
    omega: Array
    noise: float

    @staticmethod
    def read(
        part: CrossMomentFeatures, variance: Array, seen: Array, noise: float
    ) -> SeenCorrelations:
        """From variances (d,), C Ω of the kept features, and the noise on each."""
        # Below one lattice step of spread a feature is a constant.
        floor = max(2.0**-part.frac_bits, 2 * noise)
        omega, columns, kept = part.omega, part.n_columns, part.kept
        targets = np.isin(kept, part.targets)
        active = (variance[kept] > floor) & ~targets
        scale = np.sqrt(variance[kept][active])
        # The targets' share of C Omega is known exactly: take it out.
        exact = seen[active][:, columns:]
        others = seen[active][:, :columns] - exact @ omega[targets, :columns]
        tests = omega[active, :columns] * scale[:, None]
        used = np.abs(tests).max(axis=0, initial=0.0) > 0
        spread = noise * float(np.sqrt(np.mean(scale**-2))) if len(scale) else noise
        return SeenCorrelations(
            kept[active],
            scale,
            (others / scale[:, None])[:, used],
            tests[:, used],
            spread,
        )

    def residual(self, correlation: AbstractCovariance) -> float:
        """Relative distance of what was seen from what correlations explain of it."""
        missed = float(np.linalg.norm(correlation @ self.omega - self.seen))
        return missed / max(float(np.linalg.norm(self.seen)), 1e-300)

    def directions(self, mean: Array, tuning: NoiseTuning) -> int:
        """Directions that stand out of the noise; ``mean`` is that of all features."""
        basis = independent(self.omega, self.seen)[1]
        middle = mean[self.chosen] / self.scale
        return directions_above(basis, self.omega, self.noise, middle, tuning)


def missed_strength(
    seen: Array,
    omega: Array,
    noise: float,
    estimate: CorrelationEstimate,
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
        correlation = estimate(seen @ joined, omega @ joined, noise)
        test = omega @ apart
        missed = seen @ apart - correlation @ test
        squares.append(float(missed @ missed / (test @ test)))
    return float(np.sqrt(max(squares)))


def independent(omega: Array, seen: Array) -> tuple[Array, Array]:
    """Orthonormalise the columns of Ω, and P Ω along with them."""
    if not omega.shape[1]:
        return omega, seen
    values, vectors = eigh(omega.T @ omega)
    strong = values > 1e-12 * values[-1]
    basis = vectors[:, strong] / np.sqrt(values[strong])
    return omega @ basis, seen @ basis
