r"""Where a count may be: every small whole number, and intervals beyond.

A grid of B bins stands for :math:`\{0, \dots, L\}`: up to a few hundred each count is
a bin of its own; in longer ranges small counts are, and the others share intervals
whose length grows with the count. Inside of an interval a count is taken for a real
number, so that what a normal measurement says of it has a closed form however large
counts are and however small their error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["CountGrid", "GridTuning"]

Reals = NDArray[np.float64]

_REACH = 8.0
"""Standard deviations beyond which a measurement says no more than at the border: the
normal law has 1e-15 there."""

_LONGEST_EXACT = 128
"""Ranges as short as this have a bin for each count, which costs no more."""

_GROWTH = 1.2
"""Quotient of the ends of an interval: a power law changes by a third in it. Ten times
longer intervals cost one percent of the accuracy, shorter ones more bins."""

_SQRT_2PI = float(np.sqrt(2 * np.pi))


@final
@dataclass(frozen=True)
class GridTuning:
    """Numbers of a grid that were set by hand."""

    exact: int = 32
    """Counts up to this have a bin of their own in longer ranges: the law of rarer
    items is not smooth there."""


_GRID_TUNING = GridTuning()


@final
@dataclass(frozen=True, eq=False)
class CountGrid:
    """Bins of counts between 0 and ``largest``.

    Parameters
    ----------
    largest : int
        Largest count possible.
    points : array of shape (P,)
        The counts 0, 1, ... that have a bin of their own.
    edges : array of shape (B - P + 1,) or (0,)
        Ends of the intervals beyond, half a count below their first whole number.

    Examples
    --------
    >>> CountGrid.up_to(3).points
    array([0., 1., 2., 3.])
    >>> CountGrid.up_to(10**8).n_bins
    116
    """

    largest: int
    points: Reals
    edges: Reals

    @classmethod
    def up_to(cls, largest: int, tuning: GridTuning = _GRID_TUNING) -> CountGrid:
        """The grid of all counts up to the largest."""
        if largest <= _LONGEST_EXACT:
            return cls(largest, np.arange(largest + 1.0), np.zeros(0))
        edges = [tuning.exact + 1.0]
        while edges[-1] <= largest:
            end = max(np.floor(edges[-1] * _GROWTH), edges[-1] + 1.0)
            edges.append(min(end, largest + 1.0))
        return cls(largest, np.arange(tuning.exact + 1.0), np.array(edges) - 0.5)

    @property
    def n_bins(self) -> int:
        """Number of bins B."""
        return len(self.points) + max(len(self.edges) - 1, 0)

    @property
    def tops(self) -> Reals:
        """Largest whole number of each bin."""
        return np.concatenate([self.points, self.edges[1:] - 0.5])

    @property
    def middles(self) -> Reals:
        """Middle of each bin."""
        inner = (self.edges[1:] + self.edges[:-1]) / 2
        return np.concatenate([self.points, inner])

    def likelihood(self, seen: Reals, variance: Reals) -> Reals:
        r"""How probable what was seen of each item is in each bin.

        ``seen`` is the count with normal noise of the given ``variance``, one of each
        item. In an interval counts are equally probable. Each row has its own unit.

        Returns
        -------
        array of shape (n, B)
        """
        seen, scale = self._clipped(seen, variance)
        energy = (self.points - seen[:, None]) ** 2 / (2 * variance[:, None])
        if not len(self.edges):
            near: Reals = np.exp(energy.min(axis=1, keepdims=True) - energy)
            return near
        z = (self.edges - seen[:, None]) / scale[:, None]
        nearest = np.minimum(energy.min(axis=1), np.maximum(z[:, 0], 0.0) ** 2 / 2)
        unit = np.exp(nearest)[:, None]
        width = np.diff(self.edges) / scale[:, None]
        inside = unit * _between(z) * _SQRT_2PI / width
        return np.concatenate([np.exp(nearest[:, None] - energy), inside], axis=1)

    def moments(
        self, seen: Reals, variance: Reals, shares: Reals
    ) -> tuple[Reals, Reals]:
        """Mean and variance of the counts.

        Parameters
        ----------
        seen, variance : arrays of shape (n,)
            As for :meth:`likelihood`.
        shares : array of shape (n, B)
            Probability of each bin after what was seen.
        """
        n_points = len(self.points)
        mean = shares[:, :n_points] @ self.points
        square = shares[:, :n_points] @ self.points**2
        if len(self.edges):
            seen, scale = self._clipped(seen, variance)
            z = (self.edges - seen[:, None]) / scale[:, None]
            shift, spread = _truncated(z)
            middle = seen[:, None] + scale[:, None] * shift
            mean = mean + (shares[:, n_points:] * middle).sum(axis=1)
            inner = middle**2 + variance[:, None] * spread
            square = square + (shares[:, n_points:] * inner).sum(axis=1)
        return mean, np.maximum(square - mean**2, 0.0)

    def below(
        self, seen: Reals, variance: Reals, shares: Reals, counts: Reals
    ) -> Reals:
        """Probability that the count of each item is at most ``counts``, (n,)."""
        n_points, upto = len(self.points), np.cumsum(shares, axis=1)
        padded = np.concatenate([np.zeros((len(upto), 1)), upto], axis=1)
        bin_ = np.searchsorted(self.tops, counts, side="left")
        bin_ = np.minimum(bin_, self.n_bins - 1)
        row = np.arange(len(upto))
        part = (counts >= self.tops[bin_]).astype(np.float64)
        if len(self.edges):
            seen, scale = self._clipped(seen, variance)
            inner = np.flatnonzero((bin_ >= n_points) & (counts >= 0))
            low, high = (
                (self.edges[bin_[inner] - n_points + k] - seen[inner]) / scale[inner]
                for k in (0, 1)
            )
            at = (np.minimum(counts[inner], self.largest) + 0.5 - seen[inner]) / scale[
                inner
            ]
            whole = np.maximum(_between_two(low, high), 1e-300)
            part[inner] = np.clip(_between_two(low, at) / whole, 0.0, 1.0)
        found = padded[row, bin_] + shares[row, bin_] * part
        return np.where(counts < 0, 0.0, np.minimum(found, 1.0))

    def quantile(
        self, seen: Reals, variance: Reals, shares: Reals, level: float
    ) -> Reals:
        """Smallest count with at least ``level`` of the probability at or below it."""
        upto = np.cumsum(shares, axis=1)
        bin_ = np.minimum((upto < level * (1 - 1e-12)).sum(axis=1), self.n_bins - 1)
        found: Reals = self.tops[bin_]
        n_points = len(self.points)
        inner = np.flatnonzero(bin_ >= n_points)
        if len(inner):
            seen, scale = self._clipped(seen, variance)
            row, place = inner, bin_[inner]
            before = upto[row, place] - shares[row, place]
            part = (level - before) / np.maximum(shares[row, place], 1e-300)
            low, high = (
                (self.edges[place - n_points + k] - seen[row]) / scale[row]
                for k in (0, 1)
            )
            at = _point_between(low, high, np.clip(part, 0.0, 1.0))
            whole = np.round(seen[row] + scale[row] * at)
            found[row] = np.clip(whole, self.edges[place - n_points] + 0.5, found[row])
        return found

    def _clipped(self, seen: Reals, variance: Reals) -> tuple[Reals, Reals]:
        scale = np.sqrt(variance)
        reach = _REACH * scale
        return np.clip(seen, -reach, self.largest + reach), scale


def _between_two(low: Reals, high: Reals) -> Reals:
    """Normal probability between two points, exact in both tails."""
    tails = ndtr(-np.abs(low)), ndtr(-np.abs(high))
    return _from_tails(*tails, (low > 0) == (high > 0))


def _between(z: Reals) -> Reals:
    """Normal probability between neighbours of each row."""
    tails, right = ndtr(-np.abs(z)), z > 0
    return _from_tails(tails[:, :-1], tails[:, 1:], right[:, :-1] == right[:, 1:])


def _from_tails(low: Reals, high: Reals, one_side: NDArray[np.bool_]) -> Reals:
    """Probability between two points whose own tails have ``low`` and ``high``."""
    found: Reals = np.where(one_side, np.abs(high - low), 1 - low - high)
    return found


def _truncated(z: Reals) -> tuple[Reals, Reals]:
    """Mean and variance of the normal law cut to the intervals between neighbours."""
    low, high = z[:, :-1], z[:, 1:]
    density = np.exp(-0.5 * z * z) / _SQRT_2PI
    whole = np.maximum(_between(z), 1e-300)
    mean = np.clip((density[:, :-1] - density[:, 1:]) / whole, low, high)
    product = z * density
    spread = 1 + (product[:, :-1] - product[:, 1:]) / whole - mean**2
    return mean, np.clip(spread, 0.0, 1.0)


def _point_between(low: Reals, high: Reals, part: Reals) -> Reals:
    """Point with a part of the normal probability between two points below it."""
    mirrored = low > 0
    left = np.where(mirrored, ndtr(-low), ndtr(low))
    right = np.where(mirrored, ndtr(-high), ndtr(high))
    level = left + part * (right - left)
    at = ndtri(np.clip(level, 1e-300, 1.0))
    point: Reals = np.clip(np.where(mirrored, -at, at), low, high)
    return point
