r"""Linear regression from a compressed sketch: known exactly, or checked.

Of the error of coefficients w a compressed sketch knows all but :math:`w^\top Pw`, and
of that all but :math:`v^\top Pv` of the part v of w that no column of Ω reaches,

.. math::
    w = \Omega a + v, \qquad v^\top P\,\Omega = 0, \qquad
    \mathrm{mse}(w) = \mathrm{mse}(\Omega a) - 2v^\top c + v^\top P v .

So the best :math:`\Omega a` is known exactly, and so is that beside one more feature;
nothing beyond it is certain. Completed correlations :math:`\hat P = P - E`, of the
features alone and of features and targets together, propose more, at several
penalties, and have to bear a doubt,

.. math::
    v^\top P v \approx v^\top\hat P v + \kappa\,\lVert v\rVert\,\lVert Ev\rVert,

where :math:`\lVert Ev\rVert` is measured: columns of Ω are left out in turn, and show
what the others predict of them. The candidate with the least error by that is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from sketchlearn.decoders.moments.covariance.base import AbstractCovariance, Array
from sketchlearn.decoders.moments.cross_moments import (
    Completion,
    Proposal,
    SeenCorrelations,
    missed_strength,
)

__all__ = ["Checked", "CheckedTuning", "checked_regression"]

_PENALTIES = np.geomspace(0.01, 100.0, 9)
"""On unit variances: from hardly any to more than the eigenvalues that are missed."""

_SINGULAR = 1e-9
"""Shares of a variance, or of the largest eigenvalue, that rounding may have made."""


@final
@dataclass(frozen=True)
class CheckedTuning:
    """Hand-tuned numbers of a checked regression."""

    doubt: float = 0.6
    """κ of correlations that were completed together with the targets. One would be the
    worst case, if Ev were known. Chosen on eleven training sets: 0.75 promised less and
    predicted worse, 0.5 promised up to 0.04 too much, and on factor models more.
    Checked by the R² of ridge and by what it promises too much, in
    ``benchmarks/tuning.py``."""

    doubt_alone: float = 2.0
    """κ where features were completed alone: their errors lean to the targets, which
    were not asked. The worst case, and twice that for measuring Ev in few directions.
    Chosen together with ``doubt``, over 3; checked by the same."""

    fewest_columns: int = 5
    """Groups of Ω that completed correlations are checked with at least; with fewer,
    they are followed where that cannot be wrong. Of random factor models, some with up
    to four promised up to 2 too much, and none with five."""


_CHECKED = CheckedTuning()


@final
@dataclass(frozen=True, eq=False)
class Checked:
    """Coefficients of one target, and their mean squared error.

    Parameters
    ----------
    coef : array of shape (n,)
        Of the features in the order asked for, in the units of the rows.
    error : float
        Exact where the sketch knows it, else as estimated, with the doubt.
    """

    coef: Array
    error: float


def checked_regression(
    completion: Completion,
    features: NDArray[np.int64],
    target: int,
    *,
    mean: Array,
    penalty: float,
    tuning: CheckedTuning = _CHECKED,
) -> Checked | None:
    """Ridge coefficients of one target, or None if its covariances were not kept.

    Features without room, and those that do not vary, get none.

    Parameters
    ----------
    completion : Completion
        In the units of the rows.
    features, target : array of ints, int
        Which is which.
    mean : array of shape (d,)
        About what moments are not centred: zeros for a regression with intercept.
    penalty : float
        On the squared coefficients, for each row.
    tuning : CheckedTuning
        Hand-tuned numbers.
    """
    known = completion.known
    places = known.units[known.chosen[known.units] == target]
    if not len(places):
        return None
    wanted = np.flatnonzero(np.isin(known.chosen, features))
    scale = known.scale[wanted]
    middle = mean[known.chosen] / known.scale
    problem = _Problem.of(known, wanted, places[0], middle, penalty / scale**2)
    feature, exactly = problem.one_feature
    candidates, guesses = [feature[:, None] * [0.0, 1.0]], [np.array([0.0, exactly])]
    is_checked = known.omega.shape[1] - len(known.units) >= tuning.fewest_columns
    for proposal in completion.proposals:
        if np.isin(wanted, proposal.places).all():
            among = np.searchsorted(proposal.places, wanted)
            together = places[0] in proposal.places
            doubt = tuning.doubt if together else tuning.doubt_alone
            if is_checked:
                more, guessed = problem.proposed(proposal, among, doubt)
            else:
                more, guessed = problem.bounded(proposal, among)
            candidates.append(more)
            guesses.append(guessed)
    beside, squares = np.concatenate(candidates, axis=1), np.concatenate(guesses)
    errors = problem.error - 2 * problem.gains(beside) + squares
    whole = problem.within[:, None] + beside
    best = int(np.argmin(errors + problem.penalty @ whole**2))
    coef = np.zeros(len(features))
    place = np.searchsorted(features, known.chosen[wanted])
    size = known.scale[places[0]]
    coef[place] = whole[:, best] / scale * size
    return Checked(coef, max(float(errors[best]), 0.0) * size**2)


@final
@dataclass(frozen=True, eq=False)
class _Problem:
    """One target in units of standard deviations, B = P + diag(penalty).

    P are moments about what ``middle`` is the mean from.
    """

    omega: Array  # (n, k)
    seen: Array  # B omega
    cross: Array  # (n,)
    own: Array  # diagonal of B
    variance: float
    penalty: Array
    middle: Array

    @staticmethod
    def of(
        known: SeenCorrelations,
        wanted: NDArray[np.int64],
        target: int,
        middle: Array,
        penalty: Array,
    ) -> _Problem:
        """The columns of Ω that are sums of wanted features; others are zero here."""
        aside = np.flatnonzero(known.omega[target])[0]
        cross = known.seen[:, aside] / known.omega[target, aside]
        cross = cross + middle * middle[target]
        others = np.delete(known.omega, wanted, axis=0).any(axis=0)
        omega = np.where(others, 0.0, known.omega[wanted])
        middles = middle[wanted]
        seen = np.where(others, 0.0, known.seen[wanted])
        seen = seen + np.outer(middles, middles @ omega)
        return _Problem(
            omega,
            seen + penalty[:, None] * omega,
            cross[wanted],
            1 + middles**2 + penalty,
            float(1 + middle[target] ** 2),
            penalty,
            middles,
        )

    @cached_property
    def inverse(self) -> Array:
        """Of Ωᵀ B Ω, where it has one."""
        core = self.omega.T @ self.seen
        if not core.any():
            return np.zeros_like(core)
        values, vectors = eigh((core + core.T) / 2)
        strong = values > _SINGULAR * values[-1]
        return np.asarray(vectors[:, strong] / values[strong] @ vectors[:, strong].T)

    @cached_property
    def within(self) -> Array:
        """The best coefficients Ω a."""
        return self.omega @ (self.inverse @ (self.omega.T @ self.cross))

    @cached_property
    def error(self) -> float:
        """Their exact mean squared error."""
        start = self.within
        squares = start @ (self.seen @ (self.inverse @ (self.omega.T @ self.cross)))
        squares -= self.penalty @ start**2
        return max(float(self.variance - 2 * start @ self.cross + squares), 0.0)

    @cached_property
    def one_feature(self) -> tuple[Array, float]:
        """The one feature that is worth most beside Ω, and its vᵀ P v exactly."""
        taken = self.seen @ self.inverse
        left = self.own - np.vecdot(taken, self.seen)
        cross = self.cross - taken @ (self.omega.T @ self.cross)
        varies = left > _SINGULAR * self.own
        size = np.where(varies, cross / np.where(varies, left, 1.0), 0.0)
        best = int(np.argmax(size * cross)) if len(size) else 0
        alone = np.zeros(len(size))
        alone[best : best + 1] = size[best : best + 1]
        v = self.beyond(alone)
        squares = float(np.sum(left * alone**2) - self.penalty @ v**2)
        return v, squares

    def beyond(self, vectors: Array) -> Array:
        """The part v of coefficients with vᵀ B Ω = 0."""
        return np.asarray(
            vectors - self.omega @ (self.inverse @ (self.seen.T @ vectors))
        )

    def gains(self, vectors: Array) -> Array:
        """vᵀ (c - P Ω a), exactly."""
        return (self.cross + self.penalty * self.within) @ vectors

    def path(self, correlation: AbstractCovariance) -> Array:
        """The v of ridge with these correlations, a column for each penalty."""
        second = correlation
        if self.middle.any():
            second = second.plus_outer(self.middle)
        found = [
            second.solve(self.cross[:, None], self.penalty + more)
            for more in _PENALTIES
        ]
        return self.beyond(np.concatenate(found, axis=1))

    def bounded(
        self, proposal: Proposal, among: NDArray[np.int64]
    ) -> tuple[Array, Array]:
        """Candidates v from completed correlations, and the most vᵀ P v can be.

        No correlation is larger than one.
        """
        v = self.path(proposal.correlation.of_features(among))
        return v, np.abs(v).sum(axis=0) ** 2 + (self.middle @ v) ** 2

    def proposed(
        self, proposal: Proposal, among: NDArray[np.int64], doubt: float
    ) -> tuple[Array, Array]:
        """Candidates v from completed correlations, and their vᵀ P v with the doubt.

        ``among`` are the places of the features in the proposal.
        """
        correlation = proposal.correlation.of_features(among)
        v = self.path(correlation)
        squares = np.sum(v * (correlation @ v), axis=0) + (self.middle @ v) ** 2
        # The target varies no more than it does: P is at least what its column says.
        squares = np.maximum(squares, self.gains(v) ** 2 / max(self.error, 1e-300))
        length = np.linalg.norm(v, axis=0)
        # The typical size of Ev, and what each direction that was left out shows of it.
        missed = [(missed_strength(proposal.folds) * length) ** 2]
        for fold in proposal.folds:
            columns = len(fold.join)
            known = replace(
                self,
                omega=self.omega[:, :columns] @ fold.join,
                seen=self.seen[:, :columns] @ fold.join,
            )
            other = known.path(fold.correlation.of_features(among))
            missed.append(len(v) * (fold.missed[among] @ other) ** 2)
        return v, squares + doubt * length * np.sqrt(np.mean(missed, axis=0))
