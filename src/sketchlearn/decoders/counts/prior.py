r"""What counts of items look like before anything is seen of a single one.

Items are exchangeable: each has a frequency p drawn from one law, and a count that is
binomial with p. The law is a mixture of a dictionary,

* Zipf laws :math:`p_j = \min(1, s\, j^{-\alpha})` with the item's rank j drawn at
  random, which are the skewed streams,
* narrow laws, all items equally frequent,
* broad laws, bell-shaped in :math:`\log p/(1-p)`, which are pixels and genotypes,

and the shares of the mixture are fitted to what a sketch says of all items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, digamma, expit, logit

from sketchlearn.decoders.counts.grid import CountGrid

__all__ = ["CountLaws", "PriorTuning"]

Reals = NDArray[np.float64]

_TOP_LOGIT = 7.0
"""Largest log-odds of a frequency below one."""

_LOGIT_STEP = 0.08
"""Distance of the log-odds at which the binomial law is written out."""

_SMALLEST_SHARE = 1e-12
"""No count is impossible, and no law is ever given up."""


@final
@dataclass(frozen=True)
class PriorTuning:
    """Numbers of the dictionary that were set by hand."""

    exponents: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)
    """Exponents of the Zipf laws."""

    tops: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
    """Frequencies of their first item."""

    step: float = 0.5
    """Distance of narrow laws in log-odds; broad laws are twice as far apart."""

    rarest: float = 5.0
    """The rarest narrow law expects exp(-rarest) of an item: no rarer one is seen."""

    strength: float = 20.0
    """Items that the dictionary counts for, spread evenly over its laws."""


_PRIOR_TUNING = PriorTuning()


@final
@dataclass(frozen=True, eq=False)
class CountLaws:
    """A dictionary of laws of counts.

    Parameters
    ----------
    masses : array of shape (K, B)
        Probability of each bin of a grid under each law.
    strength : array of shape (K,)
        Items that each law counts for before anything is seen.
    """

    masses: Reals
    strength: Reals

    @classmethod
    def build(
        cls, grid: CountGrid, n_items: int, tuning: PriorTuning = _PRIOR_TUNING
    ) -> CountLaws:
        """The dictionary for so many items on a grid."""
        lowest = float(-np.log(grid.largest) - tuning.rarest)
        places = np.arange(lowest, _TOP_LOGIT + _LOGIT_STEP, _LOGIT_STEP)
        odds = [
            *_zipf_laws(places, n_items, tuning),
            *_narrow_laws(places, tuning),
            *_broad_laws(places, tuning),
        ]
        masses = np.array(odds) @ _binomial(grid, places)
        masses /= masses.sum(axis=1, keepdims=True)
        return cls(masses, np.full(len(masses), tuning.strength / len(masses)))

    @property
    def start(self) -> Reals:
        """Shares before anything is seen."""
        return self.strength / self.strength.sum()

    def mix(self, shares: Reals) -> Reals:
        """Probability of each bin under a mixture."""
        mixed: Reals = shares @ self.masses + _SMALLEST_SHARE
        return mixed

    def fit(
        self,
        shares: Reals,
        likelihood: Reals,
        items: Reals | None = None,
        *,
        n_steps: int = 1,
    ) -> Reals:
        r"""Shares that explain what was seen better: variational steps.

        .. math::
            n_k = \sum_j \frac{w_k Z_{jk}}{\sum_l w_l Z_{jl}}, \qquad
            w_k \propto \exp \psi(c_k + n_k),

        where :math:`Z_{jk}` is the likelihood of item j under law k and c the strength.

        Parameters
        ----------
        shares : array of shape (K,)
            Shares so far.
        likelihood : array of shape (n, B)
            Likelihood of each bin for each of n items, or kinds of items.
        items : array of shape (n,), optional
            How many items each row of the likelihood stands for.
        n_steps : int
            How many steps.
        """
        evidence = likelihood @ self.masses.T
        for _ in range(n_steps):
            parts = evidence * shares
            whole = np.maximum(parts.sum(axis=1), 1e-300)
            weights = (1.0 if items is None else items) / whole
            shares = np.exp(digamma(self.strength + weights @ parts))
            shares = np.maximum(shares / shares.sum(), _SMALLEST_SHARE)
        return shares


def _binomial(grid: CountGrid, places: Reals) -> Reals:
    """Law of the count at each log-odds, shape (len(places) + 2, B): p from 0 to 1."""
    p = np.concatenate([[0.0], expit(places), [1.0]])[:, None]
    upto = bdtr(grid.tops, grid.largest, p)
    upto[-1] = grid.tops >= grid.largest
    masses: Reals = np.maximum(np.diff(upto, axis=1, prepend=0.0), 0.0)
    return masses


def _spread(places: Reals, p: Reals, weights: Reals) -> Reals:
    """Frequencies as weights of the log-odds around them, 0 and 1 at the ends."""
    padded = np.concatenate(
        [[places[0] - _LOGIT_STEP], places, [places[-1] + _LOGIT_STEP]]
    )
    found = np.zeros(len(padded))
    with np.errstate(divide="ignore"):
        at = (np.clip(logit(p), padded[0], padded[-1]) - padded[0]) / _LOGIT_STEP
    left = np.minimum(at.astype(np.int64), len(padded) - 2)
    np.add.at(found, left, weights * (left + 1 - at))
    np.add.at(found, left + 1, weights * (at - left))
    spread: Reals = found / found.sum()
    return spread


def _zipf_laws(places: Reals, n_items: int, tuning: PriorTuning) -> list[Reals]:
    ends = np.unique(np.round(np.geomspace(1, n_items + 1, 2000)))
    ranks, weights = np.sqrt(ends[:-1] * (ends[1:] - 1)), np.diff(ends)
    return [
        _spread(places, np.minimum(1.0, top * ranks**-exponent), weights)
        for exponent in tuning.exponents
        for top in tuning.tops
    ]


def _narrow_laws(places: Reals, tuning: PriorTuning) -> list[Reals]:
    middles = np.arange(places[0], _TOP_LOGIT, tuning.step)
    return [_spread(places, expit(at)[None], np.ones(1)) for at in middles]


def _broad_laws(places: Reals, tuning: PriorTuning) -> list[Reals]:
    width = 2 * tuning.step
    return [
        _spread(places, expit(places), np.exp(-0.5 * ((places - at) / width) ** 2))
        for at in np.arange(places[0], _TOP_LOGIT, width)
    ]
