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

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.linear_table import LinearTable
from sketchlearn.decoders.counts.prior import CountLaws, FittedPrior, PriorTuning

__all__ = ["JointTuning", "Passed", "pass_messages"]

Reals = NDArray[np.float64]

_FITTED_ITEMS = 2048
"""Items the prior is fitted to: as many more change no share noticeably."""


@final
@dataclass(frozen=True)
class JointTuning:
    """Numbers of joint decoding that were set by hand."""

    damping: float = 0.7
    """Part of a new round that is taken; the rest is the round before. Without
    damping rounds swing on tables of a hundred numbers."""

    n_rounds: int = 80
    """Most rounds."""

    tolerance: float = 1e-3
    """Rounds end when estimates move by this part of their standard deviation."""

    smallest_noise: float = 0.05
    """Standard deviation of r, in counts, that is as good as none."""

    refit_every: int = 3
    """Rounds from one fit of the prior to the next."""

    prior: PriorTuning = field(default_factory=PriorTuning)
    """Of the dictionary of laws."""


@final
@dataclass(frozen=True, eq=False)
class Passed:
    """Where message passing ended."""

    channel: Channel
    mean: Reals
    n_rounds: int
    converged: bool


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
    lengths = np.maximum(table.lengths, 1e-6)
    start = np.zeros(table.n_items)
    state = _State(start, table.left_over(sums, start))
    prior, before = FittedPrior.start(laws, _mean(start, grid)), start
    converged, n_rounds = False, 0
    while n_rounds < tuning.n_rounds and not converged:
        noise = max(float(state.rest @ state.rest) / table.freedom, noise_variance)
        variance = np.maximum(noise / lengths**2, tuning.smallest_noise**2)
        seen = state.counts + table.pull_back(state.rest) / lengths**2
        seen += table.missing(sums, seen) / table.n_items
        channel = Channel(grid, prior.law, seen, variance)
        if n_rounds % tuning.refit_every == 0:
            prior = _refit(prior, laws, channel)
            channel = channel.with_prior(prior.law)
        mean, spread, _ = channel.summary()
        moved = float(np.square(mean - before).mean())
        converged = moved < tuning.tolerance**2 * (float(spread.mean()) + 1e-4)
        before, n_rounds = mean, n_rounds + 1
        state = _next(table, sums, state, mean, spread, lengths, noise, tuning)
    return Passed(channel, mean, n_rounds, converged)


def _mean(seen: Reals, grid: CountGrid) -> float:
    """Mean count of what is seen, inside of what is possible."""
    least = 0.5 / len(seen)
    return float(np.clip(seen.mean(), min(least, 0.5), grid.largest - 0.01))


def _refit(prior: FittedPrior, laws: CountLaws, channel: Channel) -> FittedPrior:
    """The prior that explains what is seen of the items now."""
    mean, items = _mean(channel.seen, channel.grid), None
    if len(channel.seen) > _FITTED_ITEMS:
        channel, items = _representatives(channel)
    return prior.refit(laws, mean, channel.likelihood, items)


def _representatives(channel: Channel) -> tuple[Channel, Reals]:
    """The largest items one by one, the others by evenly spaced ones."""
    order = np.argsort(channel.seen)
    n_top = _FITTED_ITEMS // 4
    bulk = np.linspace(0, len(order) - n_top, _FITTED_ITEMS - n_top + 1).astype(int)
    chosen = np.concatenate(
        [order[(bulk[:-1] + bulk[1:]) // 2], order[len(order) - n_top :]]
    )
    items = np.concatenate([np.diff(bulk), np.ones(n_top)]).astype(np.float64)
    return channel.take(chosen), items


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
    """Estimates and what they leave over, damped."""
    part = tuning.damping
    counts = part * mean + (1 - part) * state.counts
    memory = float((spread * lengths**2).sum()) / max(noise, 1e-300) / table.freedom
    rest = table.left_over(sums, counts) + memory * state.rest
    rest = part * rest + (1 - part) * state.rest
    return replace(state, counts=counts, rest=rest)
