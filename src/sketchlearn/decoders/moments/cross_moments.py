r"""Correlations seen through a test matrix: what a sketch of cross moments tells.

From the mean of
:class:`~sketchlearn.features.cross_moments.CrossMomentFeatures` one knows
:math:`\mu`, the variances :math:`D` and :math:`Y = R\Omega`; centring and
standardising after the fact gives the correlations :math:`P` seen through a test
matrix,

.. math::
    P\Omega' = D^{-1/2}\,(Y - \mu\mu^\top\Omega), \qquad \Omega' = D^{1/2}\Omega .

How the rest of P is filled in is the business of a decoder; how well it does that can
be told from columns of Ω it was not given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from sketchlearn.decoders.moments.covariance.base import AbstractCovariance, Array
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.noise_floor import NoiseTuning, directions_above
from sketchlearn.features.cross_moments import CrossMomentFeatures

__all__ = [
    "Completion",
    "CorrelationEstimate",
    "HeldOut",
    "Places",
    "Proposal",
    "SeenCorrelations",
    "held_out",
    "independent",
    "missed_strength",
]

_MOST_FOLDS = 7
"""Columns that are left out in turn: each takes as long as decoding does."""

CorrelationEstimate: TypeAlias = Callable[[Array, Array, float], AbstractCovariance]
"""Correlations P of shape (d, d), with unit diagonal, from P Ω, Ω and the standard
deviation of the noise on each entry of P Ω."""


@final
@dataclass(frozen=True, eq=False)
class Places:
    """Where features that were seen stand among all that vary.

    Parameters
    ----------
    seen : array of p ints
        Their places, increasing.
    count : int
        Number of all.
    """

    seen: NDArray[np.int64]
    count: int

    def spread(self, values: Array) -> Array:
        """Zeros for those that were not seen: (p, n) → (count, n)."""
        whole = np.zeros((self.count, values.shape[1]))
        whole[self.seen] = values
        return whole


@final
@dataclass(frozen=True, eq=False)
class SeenCorrelations:
    """Correlations P of the features that vary, through test vectors.

    Parameters
    ----------
    chosen : array of n ints
        The features: those with room in the sketch that vary. Targets are among them
        only if asked for.
    scale : array of shape (n,)
        Their standard deviations.
    seen, omega : arrays of shape (n, n_columns)
        P Ω and Ω. Groups come first and hold no target; the last columns are
        multiples of the unit vectors of the targets.
    noise : float
        Standard deviation of the noise on each entry of ``seen``.
    units : array of ints
        Which of ``chosen`` the targets are, in the order of their columns.
    varying : array of ints
        All features that vary, with room in the sketch or without; the same as
        ``chosen`` where there are targets, which those without room say nothing of,
        and none where nothing was seen.
    """

    chosen: NDArray[np.int64]
    scale: Array
    seen: Array
    omega: Array
    noise: float
    units: NDArray[np.int64]
    varying: NDArray[np.int64]

    def alone(self) -> SeenCorrelations:
        """The same without the features that have no room."""
        return replace(self, varying=self.chosen)

    @staticmethod
    def read(
        part: CrossMomentFeatures,
        variance: Array,
        seen: Array,
        noise: float,
        *,
        with_targets: bool = False,
    ) -> SeenCorrelations:
        """From variances (d,), C Ω of the kept features, and the noise on each."""
        # Below one lattice step of spread a feature is a constant.
        floor = max(2.0**-part.frac_bits, 2 * noise)
        omega, columns, kept = part.omega, part.n_columns, part.kept
        targets = np.isin(kept, part.targets)
        active = variance[kept] > floor
        if not with_targets:
            active &= ~targets
        is_alone = bool(part.targets) or not active.any()
        scale = np.sqrt(variance[kept][active])
        # The targets' share of C Omega is known exactly: take it out.
        exact = seen[active][:, columns:]
        groups = seen[active][:, :columns] - exact @ omega[targets, :columns]
        tests = omega[active] * scale[:, None]
        tests[targets[active], :columns] = 0.0
        used = np.abs(tests).max(axis=0, initial=0.0) > 0
        spread = noise * float(np.sqrt(np.mean(scale**-2))) if len(scale) else noise
        return SeenCorrelations(
            kept[active],
            scale,
            (np.concatenate([groups, exact], axis=1) / scale[:, None])[:, used],
            tests[:, used],
            spread,
            np.flatnonzero(targets[active]),
            kept[active] if is_alone else np.flatnonzero(variance > floor),
        )

    @property
    def places(self) -> Places | None:
        """Where features with room stand among all that vary; None if all have."""
        if len(self.varying) == len(self.chosen):
            return None
        return Places(np.searchsorted(self.varying, self.chosen), len(self.varying))

    def residual(self, correlation: AbstractCovariance) -> float:
        """Relative distance of what was seen from what correlations explain of it."""
        places = self.places
        if places is None:
            explained = correlation @ self.omega
        else:
            explained = (correlation @ places.spread(self.omega))[places.seen]
        missed = float(np.linalg.norm(explained - self.seen))
        return missed / max(float(np.linalg.norm(self.seen)), 1e-300)

    def directions(self, mean: Array, tuning: NoiseTuning) -> int:
        """Directions that stand out of the noise; ``mean`` is that of all features."""
        basis = independent(self.omega, self.seen)[1]
        middle = mean[self.chosen] / self.scale
        return directions_above(basis, self.omega, self.noise, middle, tuning)


@final
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Correlations from all columns of Ω but one, and what that one shows.

    Parameters
    ----------
    correlation : AbstractCovariance
        Completed without it.
    join : array of shape (n_columns, n_columns - 1)
        What Ω was multiplied by.
    test, seen : arrays of shape (n,)
        The column, a difference of two groups that were joined, and P times it.
    """

    correlation: AbstractCovariance
    join: Array
    test: Array
    seen: Array

    @property
    def missed(self) -> Array:
        """What was seen and not predicted, for a test vector of length one."""
        missed = self.seen - self.correlation @ self.test
        return np.asarray(missed / np.linalg.norm(self.test))


def held_out(
    seen: Array,
    omega: Array,
    noise: float,
    estimate: CorrelationEstimate,
    *,
    n_targets: int = 0,
) -> tuple[HeldOut, ...]:
    """Correlations estimated again with two groups joined, up to seven times.

    The last ``n_targets`` columns stay. One group is left out; one column alone is
    predicted by independence.
    """
    columns = omega.shape[1]
    groups = columns - n_targets
    found = []
    for j in np.unique(np.linspace(0, max(groups - 2, 0), _MOST_FOLDS).astype(int)):
        join, apart = np.eye(columns), np.zeros(columns)
        if groups == 1:
            apart[0], join = 1.0, join[:, 1:]
        else:
            join[j + 1, j], apart[j : j + 2] = 1.0, (1.0, -1.0)
            join = np.delete(join, j + 1, axis=1)
        alone = LowRankCovariance(np.zeros((len(omega), 0)), np.ones(len(omega)))
        left = alone if columns == 1 else estimate(seen @ join, omega @ join, noise)
        found.append(HeldOut(left, join, omega @ apart, seen @ apart))
    return tuple(found)


def missed_strength(folds: tuple[HeldOut, ...]) -> float:
    r"""How large the eigenvalues of the error E of estimated correlations are.

    For a random ω,
    :math:`\lVert E\omega\rVert^2 / \lVert\omega\rVert^2 \approx \mathrm{tr}E^2/d`,
    the mean squared eigenvalue.
    """
    return max((float(np.linalg.norm(fold.missed)) for fold in folds), default=0.0)


@final
@dataclass(frozen=True, eq=False)
class Proposal:
    """Completed correlations, and checks of how they were.

    Parameters
    ----------
    places : array of n ints
        Which features of those that were seen they are of.
    correlation : AbstractCovariance
        Of shape (n, n).
    folds : tuple of HeldOut
        The same without some columns of Ω.
    """

    places: NDArray[np.int64]
    correlation: AbstractCovariance
    folds: tuple[HeldOut, ...]


@final
@dataclass(frozen=True, eq=False)
class Completion:
    """What was seen of features and targets, and what can be made of it.

    Parameters
    ----------
    known : SeenCorrelations
        With targets.
    proposals : tuple of Proposal
        Features alone, and as they are if what the targets do not tell of them is
        independent.
    """

    known: SeenCorrelations
    proposals: tuple[Proposal, ...]

    def scaled(self, unit: Array) -> Completion:
        """The same for features multiplied by ``unit``, one number for each."""
        scale = self.known.scale * unit[self.known.chosen]
        return replace(self, known=replace(self.known, scale=scale))


def independent(omega: Array, seen: Array) -> tuple[Array, Array]:
    """Orthonormalise the columns of Ω, and P Ω along with them."""
    if not omega.shape[1]:
        return omega, seen
    values, vectors = eigh(omega.T @ omega)
    strong = values > 1e-12 * values[-1]
    basis = vectors[:, strong] / np.sqrt(values[strong])
    return omega @ basis, seen @ basis
