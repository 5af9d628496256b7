r"""One noisy look at each count, and what it says together with a prior.

Message passing turns a sketch into one number for each item,

.. math:: r_j = x_j + \mathcal{N}(0, \tau_j),

the count with normal noise. Here such a number and a prior become the law of the count:
its mean, its variance, the probability that it is not zero, and its quantiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.counts.grid import CountGrid

__all__ = ["Channel"]

Reals = NDArray[np.float64]

_BLOCK = 8192
"""Items that are looked at together: a block of 120 bins has 8 MB."""

_NODES = 2048
"""Entries of a table that stands for more items."""

_NODE_STEP = 1 / 8
"""Distance of its entries in standard deviations."""


@final
@dataclass(frozen=True, eq=False)
class Channel:
    """What is known of each of n counts.

    Parameters
    ----------
    grid : CountGrid
        Where counts may be.
    prior : array of shape (B,)
        Probability of each bin before anything is seen, not necessarily of sum one.
    seen : array of shape (n,)
        The count of each item with noise.
    variance : array of shape (n,)
        Variance of this noise.

    Examples
    --------
    >>> grid = CountGrid.up_to(2)
    >>> known = Channel(grid, np.ones(3), np.array([0.9]), np.array([0.01]))
    >>> mean, variance, presence = known.summary()
    >>> mean.round(3), presence.round(3)
    (array([1.]), array([1.]))
    """

    grid: CountGrid
    prior: Reals
    seen: Reals
    variance: Reals

    def take(self, items: NDArray[np.int64] | slice) -> Channel:
        """What is known of some of the items."""
        return Channel(self.grid, self.prior, self.seen[items], self.variance[items])

    def with_prior(self, prior: Reals) -> Channel:
        """The same numbers seen with another prior."""
        other = Channel(self.grid, prior, self.seen, self.variance)
        if "likelihood" in self.__dict__:
            other.__dict__["likelihood"] = self.likelihood
        return other

    @cached_property
    def likelihood(self) -> Reals:
        """How probable what is seen is in each bin, shape (n, B)."""
        return self.grid.likelihood(self.seen, self.variance)

    def summary(self) -> tuple[Reals, Reals, Reals]:
        """Mean, variance and probability of not being zero of each count.

        Items of one variance are looked up in a table if they are many; it is finer
        than their noise by far.
        """
        if len(self.seen) > 2 * _NODES and np.ptp(self.variance) == 0:
            return self._looked_up()
        found = self._in_blocks(lambda part: np.stack(part._moments(), axis=1))
        return found[:, 0], found[:, 1], found[:, 2]

    def below(self, counts: Reals) -> Reals:
        """Probability that each count is at most the given one."""

        def of(part: Channel, given: Reals) -> Reals:
            return part.grid.below(part.seen, part.variance, part._shares(), given)

        parts = [
            of(self.take(slice(at, at + _BLOCK)), counts[at : at + _BLOCK])
            for at in range(0, len(self.seen), _BLOCK)
        ]
        return np.concatenate([np.zeros(0), *parts])

    def quantile(self, level: float) -> Reals:
        """Smallest count with at least ``level`` of the probability up to it."""
        return self._in_blocks(
            lambda part: part.grid.quantile(
                part.seen, part.variance, part._shares(), level
            )
        )

    def _shares(self) -> Reals:
        """Probability of each bin, shape (n, B)."""
        shares = self.likelihood * self.prior
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return shares

    def _moments(self) -> tuple[Reals, Reals, Reals]:
        shares = self._shares()
        mean, variance = self.grid.moments(self.seen, self.variance, shares)
        return mean, variance, 1 - shares[:, 0]

    def _in_blocks(self, function: Callable[[Channel], Reals]) -> Reals:
        if len(self.seen) <= _BLOCK:
            return function(self)
        starts = range(0, len(self.seen), _BLOCK)
        return np.concatenate(
            [function(self.take(slice(s, s + _BLOCK))) for s in starts]
        )

    def _looked_up(self) -> tuple[Reals, Reals, Reals]:
        scale = float(np.sqrt(self.variance[0]))
        first = max(float(self.seen.min()), -8.0 * scale)
        nodes: Reals = first + scale * _NODE_STEP * np.arange(_NODES, dtype=np.float64)
        table = Channel(
            self.grid, self.prior, nodes, np.full(_NODES, self.variance[0])
        )._moments()
        found = tuple(np.interp(self.seen, nodes, column) for column in table)
        beyond = np.flatnonzero(self.seen > nodes[-1])
        if len(beyond):
            others = self.take(beyond)
            rest = others._in_blocks(lambda part: np.stack(part._moments(), axis=1))
            for column, values in zip(found, rest.T, strict=True):
                column[beyond] = values
        return found[0], found[1], found[2]
