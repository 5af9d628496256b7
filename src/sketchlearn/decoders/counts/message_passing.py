r"""All counts of a sketch at once: approximate message passing with a fitted prior.

With columns :math:`A_j` of length one (see :mod:`.linear_table`) each round is

.. math::
    r = x + A^\top e, \qquad \tau = |e|^2 / m, \qquad
    x' = E[x \mid r, \tau], \qquad
    e' = z - A x' + e\, \frac{1}{m \tau} \sum_j \operatorname{Var}[x_j \mid r, \tau],

and the last term makes r look like the true counts with normal noise of variance
:math:`\tau`. Between rounds the prior is fitted to r (:mod:`.prior`), and where the sum
of counts is known r is moved to have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import lsqr

from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.fitted_prior import Energy, refit_prior
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.linear_table import LinearTable
from sketchlearn.decoders.counts.prior import CountLaws

__all__ = ["JointTuning", "Passed", "pass_messages", "solve"]

Reals = NDArray[np.float64]

_NO_SQUARES = 1e-6
"""Squares of counts that are as good as none: sums are whole numbers."""

_MOST_STEPS_OUT = 40
"""Guard of the steps that take out items: each halves the largest, at least."""

_NO_SPREAD = 1e-4
"""A variance of counts that is as good as none."""


@final
@dataclass(frozen=True)
class JointTuning:
    """Numbers of joint decoding that were set by hand."""

    damping: float = 0.7
    """Part of a new round that is taken; the rest is the round before. Without
    damping rounds swing on tables of a hundred numbers."""

    n_rounds: int = 80
    """Most rounds."""

    tolerance: float = 0.02
    """Rounds end when estimates move by this part of their standard deviation."""

    unexplained: float = 3.0
    """Numbers have so many times the variance that the items leave open: they hold
    something else. A quarter more is what chance gives."""

    smallest_noise: float = 0.05
    """Standard deviation of r, in counts, that is as good as none."""

    lost: float = 3.0
    """Rounds got lost that leave so many times more than there was in the numbers."""

    largest_system: int = 2000
    """Most items whose counts are solved for one by one, which takes their cube."""

    n_polish: int = 10
    """Iterations that fit their counts to the numbers, by least squares."""

    stands_out: float = 6.0
    """Standard deviations by which an item stands out: rarer than one of 1e8."""

    refit_every: int = 3
    """Rounds from one fit of the prior to the next."""


@final
@dataclass(frozen=True, eq=False)
class Passed:
    """Where message passing ended."""

    channel: Channel
    n_rounds: int
    explains: bool
    """Whether items explain the numbers as well as they should."""

    alone: bool = False
    """Whether each item was read from its own numbers: then its count is what is seen
    of it, and its law is for intervals only."""


@final
@dataclass(frozen=True, eq=False)
class _State:
    """What a round hands to the next."""

    counts: Reals
    rest: Reals


def pass_messages(
    table: LinearTable,
    sums: Reals,
    grid: CountGrid,
    laws: CountLaws,
    *,
    noise_variance: float = 0.0,
    tuning: JointTuning,
) -> Passed:
    """Decode counts from the sums of their columns.

    Parameters
    ----------
    table : LinearTable
        A column for each item.
    sums : array of shape (m,)
        The numbers of the sketch, in units of counts.
    grid : CountGrid
        Where counts may be.
    laws : CountLaws
        What counts may look like.
    noise_variance : float
        Variance of noise that was added to each of the sums.
    tuning : JointTuning
        Numbers set by hand.
    """
    start = _largest_first(table, sums, np.maximum(table.lengths, 1e-6), tuning)
    for part in (1.0, 0.5, 0.25):
        calmer = replace(tuning, damping=part * tuning.damping)
        passed = _pass(table, sums, grid, laws, start, noise_variance, calmer)
        if passed is not None:
            break
    alone, error = _alone(table, sums, grid, noise_variance, tuning)
    if passed is None or error < float(passed.channel.summary()[1].mean()):
        return alone
    return passed


def _explains(
    table: LinearTable,
    rest: Reals,
    spread: Reals,
    noise_variance: float,
    tuning: JointTuning,
) -> bool:
    """Whether what is left of the numbers is what items leave open."""
    left = float(rest @ rest) / table.freedom
    known = float((spread * table.lengths**2).sum()) / table.freedom + noise_variance
    return left <= tuning.unexplained * (known + tuning.smallest_noise**2)


def solve(
    table: LinearTable, sums: Reals, grid: CountGrid, *, tuning: JointTuning
) -> Passed | None:
    """The only counts that have these sums, None if others have them too.

    Only as many items as numbers and no more than a few thousand are tried.
    """
    if table.n_items > min(table.n_numbers, tuning.largest_system):
        return None
    system = table.columns.T.toarray()
    solution = np.linalg.lstsq(system, sums, rcond=1e-9)
    counts: Reals = np.asarray(solution[0], np.float64)
    rank = int(solution[2])
    missed = float(np.abs(system @ counts - sums).max(initial=0.0))
    if rank < table.n_items or missed > 0.01 + 1e-6 * float(np.abs(sums).max()):
        return None
    sure = np.full(len(counts), tuning.smallest_noise**2)
    flat = np.diff(np.concatenate([[-1.0], grid.tops]))
    whole = np.minimum(np.maximum(np.round(counts), 0.0), float(grid.largest))
    return Passed(Channel(grid, flat, whole, sure), 0, True)


def _pass(
    table: LinearTable,
    sums: Reals,
    grid: CountGrid,
    laws: CountLaws,
    start: Reals,
    noise_variance: float,
    tuning: JointTuning,
) -> Passed | None:
    """Rounds with one damping, until they stand still; None if they get lost.

    Rounds that do neither go around in a circle: the mean of the last half of them is
    what they circle around.
    """
    lengths = np.maximum(table.lengths, 1e-6)
    state = _State(start, table.left_over(sums, start))
    whole = table.left_over(sums, np.zeros(table.n_items))
    prior, before, late = None, start, None
    energy = None if start.any() else _energy(table, sums, noise_variance)
    no_prior = np.ones(grid.n_bins)
    still, n_rounds = False, 0
    most = tuning.lost * float(whole @ whole) + _NO_SQUARES
    while n_rounds < tuning.n_rounds and not still:
        noise = max(float(state.rest @ state.rest) / table.freedom, noise_variance)
        if n_rounds == 0:
            noise *= _hidden_by_fit(table, start)
        variance = np.maximum(noise / lengths**2, tuning.smallest_noise**2)
        seen = state.counts + table.pull_back(state.rest) / lengths**2
        seen += table.missing(sums, seen) / table.n_items
        channel = Channel(grid, no_prior, seen, variance)
        if prior is None or n_rounds % tuning.refit_every == 0:
            exact = table.total is not None
            prior = refit_prior(prior, laws, channel, start > 0, energy, exact=exact)
        channel = channel.with_prior(prior.law)
        mean, spread, _ = channel.summary()
        step = float(np.square(mean - before).mean() / (spread.mean() + _NO_SPREAD))
        still = step < tuning.tolerance**2 and n_rounds >= 2 * tuning.refit_every
        before, n_rounds = mean, n_rounds + 1
        state = _next(table, sums, state, mean, spread, lengths, noise, tuning)
        if not float(state.rest @ state.rest) <= most:
            return None
        if 2 * n_rounds > tuning.n_rounds:
            late = _mean_of(late, channel, n_rounds - tuning.n_rounds // 2)
    if late is not None and not still:
        channel = late
    explains = _explains(table, state.rest, spread, noise_variance, tuning)
    return Passed(channel, n_rounds, explains)


def _alone(
    table: LinearTable,
    sums: Reals,
    grid: CountGrid,
    noise_variance: float,
    tuning: JointTuning,
) -> tuple[Passed, float]:
    """Each item by its own numbers, as a Count-Sketch answers, and its square error.

    How far answers are off is read from items that are not there: their numbers are
    each those of another item. One whose numbers disagree may be off by as much as the
    two around their median.
    """
    nothing, mean = np.zeros(table.n_items), 0.0
    if len(table.plain) and not table.plain.all():
        looks = table.looks(sums)  # signs leave no common part
    else:
        looks = table.looks(table.left_over(sums, nothing))
        mean = table.missing(sums, nothing) / table.n_items
    seen, gaps = _medians(looks)
    seen = seen + mean
    shifts = 1 + np.arange(looks.shape[1]) * (len(looks) // looks.shape[1])
    absent = np.column_stack([np.roll(looks[:, k], n) for k, n in enumerate(shifts)])
    errors = np.abs(_medians(absent)[0])
    noise = (float(np.quantile(errors, 0.95)) / 2) ** 2 + noise_variance
    variance = np.maximum(gaps, max(noise, tuning.smallest_noise**2))
    flat = np.diff(np.concatenate([[-1.0], grid.tops]))
    error = float(np.square(errors).mean()) / 2  # those below 0 are answered by 0
    return Passed(Channel(grid, flat, seen, variance), 0, False, True), error


def _medians(looks: Reals) -> tuple[Reals, Reals]:
    """Median of each row, and the square of half the way between its neighbours."""
    looks = np.sort(looks, axis=1)
    left, right = (looks.shape[1] - 1) // 2, looks.shape[1] // 2
    middle = (looks[:, left] + looks[:, right]) / 2
    if left == right:
        left, right = max(left - 1, 0), min(right + 1, looks.shape[1] - 1)
    return middle, np.square(looks[:, right] - looks[:, left]) / 4


def _hidden_by_fit(table: LinearTable, start: Reals) -> float:
    """How many times smaller least squares made what is left over than the noise is.

    A fit of k counts to m numbers leaves (m - k) / m of the noise, and an item that had
    no part in it sees m / (m - k) times the noise.
    """
    free = max(table.freedom - int((start > 0).sum()), 1.0)
    return (table.freedom / free) ** 2


def _energy(table: LinearTable, sums: Reals, noise_variance: float) -> Energy:
    """What the squares of the numbers say; few large items would say it all."""
    rest = table.left_over(sums, np.zeros(table.n_items))
    square = max(float(rest @ rest) / table.freedom, _NO_SQUARES)
    load = float((table.lengths**2).sum()) / table.freedom
    return Energy(square, table.freedom, load, noise_variance, bool(table.common.any()))


def _mean_of(late: Channel | None, new: Channel, number: int) -> Channel:
    """The mean of rounds, of which the new one is the ``number``-th."""
    if late is None:
        return new
    seen, variance, prior = (
        old + (one - old) / number
        for old, one in (
            (late.seen, new.seen),
            (late.variance, new.variance),
            (late.prior, new.prior),
        )
    )
    return Channel(new.grid, prior, seen, variance)


def _largest_first(
    table: LinearTable, sums: Reals, lengths: Reals, tuning: JointTuning
) -> Reals:
    """Items that stand out of everything else, the largest first.

    An item with a large part of all counts is no normal noise to those it collides
    with. Each step takes items of at least half the largest product with what is left,
    and fits the counts of all that were taken.
    """
    counts = np.zeros(table.n_items)
    rest = table.left_over(sums, counts)
    for _ in range(_MOST_STEPS_OUT):
        gain = table.pull_back(rest) / lengths**2
        top = float(gain.max(initial=0.0))
        noise = float(np.sqrt(rest @ rest / table.freedom)) / float(lengths.max())
        if top <= tuning.stands_out * noise:
            break
        large = np.flatnonzero((counts > 0) | (gain > top / 2))
        columns = table.columns[large].T
        taken = counts.copy()
        found = counts[large] + lsqr(columns, rest, iter_lim=tuning.n_polish)[0]
        taken[large] = np.maximum(found, 0.0)
        left = table.left_over(sums, taken)
        if left @ left >= rest @ rest:  # one item's counts, taken for several
            break
        counts, rest = taken, left
    return counts


def _next(
    table: LinearTable,
    sums: Reals,
    state: _State,
    mean: Reals,
    spread: Reals,
    lengths: Reals,
    noise: float,
    tuning: JointTuning,
) -> _State:
    """Estimates and what they leave over, damped; its noise is never taken for 0."""
    part = tuning.damping
    counts = part * mean + (1 - part) * state.counts
    least = tuning.smallest_noise**2 * float(np.mean(lengths**2))
    memory = float((spread * lengths**2).sum()) / max(noise, least) / table.freedom
    rest = table.left_over(sums, counts) + memory * state.rest
    rest = part * rest + (1 - part) * state.rest
    return _State(counts, rest)
