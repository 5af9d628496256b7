r"""Counts of all items from one sketch, with error bars.

A sketch of m numbers of the counts of d items, often many more, is a linear system
:math:`z = A x` that whole numbers of a plausible law solve in few ways. All items are
decoded together, so that what collides with an item is known about as well as the item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.linear_table import LinearTable
from sketchlearn.decoders.counts.message_passing import (
    JointTuning,
    Passed,
    pass_messages,
    solve,
)
from sketchlearn.decoders.counts.prior import PRIOR_TUNING, CountLaws, PriorTuning

__all__ = ["CountPosterior", "best_depth", "decode_counts"]

Reals = NDArray[np.float64]

_JOINT_TUNING = JointTuning()

_LARGE = 1.25
"""How many times more large counts of a sketch may be off than message passing says.
It is right for the mean of all items, and up to a sixth too small for the largest."""


@final
@dataclass(frozen=True, eq=False)
class CountPosterior:
    """What a sketch says of the count of each item.

    All numbers are in counts, not frequencies: divide by the number of rows.

    Parameters
    ----------
    mean : array of shape (d,)
        Expected count.
    variance : array of shape (d,)
        Variance of the count.
    presence : array of shape (d,)
        Probability that the count is not zero.
    channel : Channel
        The whole law of each count beyond ``smallest``.
    room : array of shape (d,)
        No count is larger by more than this than ``smallest``.
    smallest : int
        No count is smaller.
    """

    mean: Reals
    variance: Reals
    presence: Reals
    channel: Channel
    room: Reals
    smallest: int = 0

    @classmethod
    def of(cls, passed: Passed, room: Reals, smallest: int) -> CountPosterior:
        """Summaries of what is known of the counts beyond the smallest."""
        channel = passed.channel
        mean, variance, presence = channel.summary()
        if passed.alone:
            mean = np.maximum(channel.seen, 0.0)
        mean = np.minimum(mean, room) + smallest
        variance = np.where(room > 0, variance, 0.0)
        presence = np.where(room > 0, presence, 0.0)
        if smallest:
            presence = np.ones_like(presence)
        return cls(mean, variance, presence, channel, room, smallest)

    def take(self, items: ArrayLike) -> CountPosterior:
        """What is said of some of the items, by their place."""
        places = np.asarray(items, dtype=np.int64)
        return CountPosterior(
            self.mean[places],
            self.variance[places],
            self.presence[places],
            self.channel.take(places),
            self.room[places],
            self.smallest,
        )

    def interval(self, confidence: float) -> tuple[Reals, Reals]:
        """Whole numbers between which each count is, both ends included.

        The prior takes each item for any of them, and one that is asked for by name, or
        as the largest, is not: the interval holds both the posterior's and what its
        numbers alone leave open, with any prior. It is wide where they say little. Each
        end leaves at most half of ``1 - confidence`` outside; that of an item which is
        surely absent is 0 to 0.

        Parameters
        ----------
        confidence : float
            Probability to hold, between 0 and 1.
        """
        left = (1 - confidence) / 2
        low = self.channel.quantile(left)
        high = np.maximum(self.channel.quantile(1 - left), low)
        reach = _LARGE * float(ndtri(1 - left)) * np.sqrt(self.channel.variance)
        low = np.minimum(low, np.maximum(np.ceil(self.channel.seen - reach), 0.0))
        high = np.maximum(high, np.floor(self.channel.seen + reach))
        low, high = np.minimum(low, self.room), np.minimum(high, self.room)
        return low + self.smallest, high + self.smallest

    def below(self, counts: ArrayLike) -> Reals:
        """Probability that each count is at most the given one."""
        given = np.broadcast_to(np.asarray(counts, np.float64), self.mean.shape)
        beyond = given - self.smallest
        return np.where(beyond >= self.room, 1.0, self.channel.below(beyond))


def best_depth(sketch_size: int) -> int:
    """How many tables a signed sketch of so many numbers is best divided into.

    Each item is in every table once. Five tables measure about as well as a dense
    random matrix, fewer leave items that collide in all of them; tables of fewer than
    five buckets say little.
    """
    return max(1, min(5, sketch_size // 5))


def decode_counts(
    columns: sp.csr_array,
    z: ArrayLike,
    count: int,
    *,
    noise_variance: float = 0.0,
    smallest: int = 0,
    largest: int | None = None,
    total: float | None = None,
    tuning: JointTuning = _JOINT_TUNING,
    law_tuning: PriorTuning = PRIOR_TUNING,
) -> Decoding[CountPosterior]:
    """Decode the counts of all items together.

    Parameters
    ----------
    columns : sparse array of shape (d, m)
        What one item adds to the sums of each number.
    z : array of shape (m,)
        The sketch: sums of the columns of all items of all rows over ``count``.
    count : int
        Number of rows.
    noise_variance : float
        Variance of noise that was added to each number of ``z``, 0 for none.
    smallest : int
        Smallest count an item can have: 1 where all items are known to be there.
    largest : int, optional
        Largest count an item can have; ``count`` if a row holds an item once at most.
    total : float, optional
        Sum of all counts over ``count`` where it is known: 1 for rows of one item each.
    tuning : JointTuning
        Numbers set by hand.
    law_tuning : PriorTuning
        Those of the dictionary of laws.

    Returns
    -------
    Decoding of CountPosterior

    Examples
    --------
    >>> from sketchlearn import JointCountFeatures
    >>> items, counts = np.arange(200, dtype=np.uint64), np.zeros(200)
    >>> counts[[3, 70]] = 9, 4
    >>> columns = JointCountFeatures(200, width=12, depth=5).columns_of(items)
    >>> decoding = decode_counts(columns, columns.T @ counts / 10, 10)
    >>> decoding.params.mean[[3, 70, 71]].round().tolist()
    [9.0, 4.0, 0.0]
    """
    whole = np.asarray(z, dtype=np.float64) * count
    sums = whole - smallest * columns.sum(axis=0) if smallest else whole
    known = None if total is None else total * count - smallest * columns.shape[0]
    table = LinearTable.build(columns, sums, known)
    most = int(count if largest is None else largest) - smallest
    grid = CountGrid.up_to(max(most, 1))
    passed = solve(table, sums, grid, tuning=tuning) if noise_variance == 0 else None
    if passed is None:
        passed = pass_messages(
            table,
            sums,
            grid,
            CountLaws.build(grid, table.n_items, law_tuning),
            noise_variance=noise_variance * float(count) ** 2,
            tuning=tuning,
        )
    room = np.full(table.n_items, float(grid.largest))
    if noise_variance == 0:
        room = np.minimum(room, _room(table, sums))
    posterior = CountPosterior.of(passed, room, smallest)
    size = float(np.linalg.norm(whole))
    missed = float(np.linalg.norm(whole - table.columns.T @ posterior.mean))
    return Decoding(
        posterior,
        residual=missed / size if size else missed,
        n_iter=passed.n_rounds,
        converged=passed.explains,
    )


def _room(table: LinearTable, sums: Reals) -> Reals:
    """Count that an item cannot exceed: no number without signs holds more of it."""
    if not table.plain.any():
        return np.full(table.n_items, np.inf)
    held = np.maximum(sums, 0.0)[table.columns.indices] / table.columns.data
    held = held.reshape(table.n_items, -1)[:, table.plain]
    most: Reals = np.floor(held.min(axis=1) + 0.01)
    return most
