r"""What counts of items look like before anything is seen of a single one.

Items are exchangeable: each has a frequency p drawn from one law, and a count that is
binomial with p. A dictionary has laws of several shapes,

* Zipf: :math:`p_j = \min(1, s\, j^{-\alpha})` with the item's rank j drawn at random
  (those of the paper, of which the scale is known, are there as they are),
* bells in :math:`\log p/(1-p)` of several widths, with a share of items that never
  occur,
* all items equally frequent,

each at all places (s, or the middle of the bell). The mean count is known well, so each
shape is taken where it has this mean. How well a shape alone explains what is seen of
all items gives its weight; a mixture of shapes may then explain it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, expit, logit

from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.learned_laws import LearnedLaws
from sketchlearn.errors import ConfigError

__all__ = [
    "PRIOR_TUNING",
    "SMALLEST_SHARE",
    "CountLaws",
    "PriorTuning",
    "binomial_laws",
]

Reals = NDArray[np.float64]

_TOP_LOGIT = 7.0
"""Largest log-odds of a frequency below one."""

_LOGIT_STEP = 0.08
"""Distance of the log-odds at which the binomial law is written out."""

_PLACE_STEP = 0.1
"""Distance of the places of a law, in log-odds: between them it is mixed of both, which
must not make it wider than a binomial law of a hundred rows is."""

SMALLEST_SHARE = 1e-12
"""No count is impossible, and no law is ever given up."""


@final
@dataclass(frozen=True)
class PriorTuning:
    """Numbers of the dictionary that were set by hand."""

    exponents: tuple[float, ...] = tuple(np.arange(1, 19) / 8)
    """Exponents of the Zipf laws."""

    fillings: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.1)
    """Values of the paper's beta for which its Zipf laws are there as they are."""

    widths: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    """Widths of bells."""

    absent: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6)
    """Shares of items that never occur beside the bell."""

    rarest: float = 5.0
    """The rarest place expects exp(-rarest) of an item: no rarer one is seen."""

    favour: float = 50.0
    """Odds of each of them against a law whose mean is fitted: the mean of items in
    signed tables is not well known, and a fitted one keeps its errors."""

    learned: float = 100.0
    """Odds of all learned laws together against one of the others."""

    trust: float = 1000.0
    """Items that the weights of single shapes count for in a mixture of them."""

    def __post_init__(self) -> None:
        if not all(0 < beta <= 1 for beta in self.fillings):
            raise ConfigError(f"fillings must be in (0, 1]; got {self.fillings!r}.")


PRIOR_TUNING = PriorTuning()


@final
@dataclass(frozen=True, eq=False)
class CountLaws:
    """A dictionary of laws of counts.

    Parameters
    ----------
    bank : array of shape (K, G, B)
        Probability of each bin of a grid under K shapes at G places.
    means : array of shape (K, G)
        Mean count there, increasing from place to place.
    fixed : array of shape (F, B)
        Laws that have their place: the Zipf laws of the paper.
    trust : float
        Items that the weights of single shapes count for.
    odds : array of shape (K,)
        Odds of each shape before anything is seen.
    middles : array of shape (B,)
        Count that each bin stands for.
    favour : float
        Odds of a fixed law.
    """

    bank: Reals
    means: Reals
    fixed: Reals
    trust: float
    odds: Reals
    middles: Reals
    favour: float = 1.0

    @classmethod
    def build(
        cls,
        grid: CountGrid,
        n_items: int,
        tuning: PriorTuning = PRIOR_TUNING,
        learned: LearnedLaws | None = None,
    ) -> CountLaws:
        """The dictionary for so many items on a grid.

        With the learned laws of the package, or others.
        """
        return _build(grid.largest, n_items, tuning, learned or LearnedLaws.packaged())

    @property
    def n_shapes(self) -> int:
        """Number of shapes K."""
        return len(self.bank)

    def at_mean(self, mean: float) -> Reals:
        """All shapes where their mean is ``mean``, shape (K, B)."""
        n_places = self.means.shape[1]
        right = np.clip((self.means < mean).sum(axis=1), 1, n_places - 1)
        shape = np.arange(self.n_shapes)
        low, high = self.means[shape, right - 1], self.means[shape, right]
        part = np.clip((mean - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)[:, None]
        left_law, right_law = self.bank[shape, right - 1], self.bank[shape, right]
        laws: Reals = (1 - part) * left_law + part * right_law
        return laws + SMALLEST_SHARE

    def at_means(self, means: Sequence[float]) -> Reals:
        """Fixed laws, and all shapes where they have each of the means."""
        return np.concatenate([self.fixed, *(self.at_mean(mean) for mean in means)])

    def log_odds(self, n_means: int) -> Reals:
        """Log-odds of each of the laws that :meth:`at_means` gives for so many."""
        fixed = np.full(len(self.fixed), self.favour)
        odds: Reals = np.log(np.concatenate([fixed, np.tile(self.odds, n_means)]))
        return odds


@lru_cache(maxsize=8)
def _build(
    largest: int, n_items: int, tuning: PriorTuning, learned: LearnedLaws
) -> CountLaws:
    grid = CountGrid.up_to(largest)
    lowest = float(-np.log(largest) - tuning.rarest)
    places = np.arange(lowest, _TOP_LOGIT + _LOGIT_STEP, _LOGIT_STEP)
    middles = np.arange(lowest, _TOP_LOGIT, _PLACE_STEP)
    odds = [
        *(_zipf_laws(places, len(middles), n_items, a) for a in tuning.exponents),
        _narrow_laws(places, middles),
        *_bells(places, middles, tuning),
    ]
    shares = learned.weights / learned.weights.sum()
    weights = np.concatenate([np.ones(len(odds)), tuning.learned * shares])
    odds += list(learned.odds(places, middles))
    binomial = binomial_laws(grid, places)
    bank = np.array(odds) @ binomial
    bank /= bank.sum(axis=2, keepdims=True)
    fixed = _paper_laws(places, n_items, tuning) @ binomial + SMALLEST_SHARE
    means = np.maximum.accumulate(bank @ grid.middles, axis=1)
    rest = (tuning.trust, weights, grid.middles, tuning.favour)
    return CountLaws(bank, means, fixed, *rest)


def binomial_laws(grid: CountGrid, places: Reals) -> Reals:
    """Law of the count at each log-odds, shape (len(places) + 2, B): p from 0 to 1."""
    p = np.concatenate([[0.0], expit(places), [1.0]])[:, None]
    left = grid.largest - grid.tops
    # SciPy's own law of counts has no room for 2**31 rows.
    upto = np.where(left > 0, betaincc(grid.tops + 1, np.maximum(left, 0.5), p), 1.0)
    upto[-1] = left <= 0
    masses: Reals = np.maximum(np.diff(upto, axis=1, prepend=0.0), 0.0)
    return masses


def _spread(places: Reals, p: Reals, weights: Reals) -> Reals:
    """Frequencies as weights of the log-odds around them, 0 and 1 at the ends."""
    ends = places[0] - _LOGIT_STEP, places[-1] + _LOGIT_STEP
    found = np.zeros(len(places) + 2)
    with np.errstate(divide="ignore"):
        at = (np.clip(logit(p), *ends) - ends[0]) / _LOGIT_STEP
    left = np.minimum(at.astype(np.int64), len(found) - 2)
    np.add.at(found, left, weights * (left + 1 - at))
    np.add.at(found, left + 1, weights * (at - left))
    spread: Reals = found / found.sum()
    return spread


def _zipf_laws(places: Reals, n_laws: int, n_items: int, exponent: float) -> Reals:
    """Zipf laws from nearly empty to nearly full rows."""
    ranks, weights = _ranks(n_items)
    fullest = exponent * np.log(n_items + 1.0) + 1.0
    tops = np.exp(np.linspace(places[0], fullest, n_laws))
    shape = ranks**-exponent
    return np.array([_spread(places, np.minimum(1, s * shape), weights) for s in tops])


def _paper_laws(places: Reals, n_items: int, tuning: PriorTuning) -> Reals:
    r"""Zipf laws with a first item of frequency :math:`\beta^{\max(1-\alpha, 0)}`."""
    ranks, weights = _ranks(n_items)
    laws = [
        (exponent, beta ** max(1 - exponent, 0.0))
        for exponent in tuning.exponents
        for beta in (tuning.fillings if exponent < 1 else (1.0,))
    ]
    return np.array([_spread(places, top * ranks**-a, weights) for a, top in laws])


def _ranks(n_items: int) -> tuple[Reals, Reals]:
    """Ranks that stand for all, and how many each stands for."""
    ends = np.unique(np.round(np.geomspace(1, n_items + 1, 500)))
    return np.sqrt(ends[:-1] * (ends[1:] - 1)), np.diff(ends)


def _narrow_laws(places: Reals, middles: Reals) -> Reals:
    return np.array([_spread(places, expit(at)[None], np.ones(1)) for at in middles])


def _bells(places: Reals, middles: Reals, tuning: PriorTuning) -> list[Reals]:
    found = []
    for width in tuning.widths:
        bells = np.zeros((len(middles), len(places) + 2))
        energy = 0.5 * ((places - middles[:, None]) / width) ** 2
        bells[:, 1:-1] = np.exp(energy.min(axis=1, keepdims=True) - energy)
        bells /= bells.sum(axis=1, keepdims=True)
        for absent in tuning.absent:
            both = (1 - absent) * bells
            both[:, 0] += absent
            found.append(both)
    return found
