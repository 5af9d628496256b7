r"""Counts of which a mean and a variance are known, after a sketch was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

__all__ = ["GaussianCounts", "probability_of_presence"]

Reals = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class GaussianCounts:
    """What a sketch and a prior of items say of the count of each item.

    All numbers are in counts, not frequencies: divide by the number of rows.

    Parameters
    ----------
    mean : array of shape (d,)
        Expected count.
    variance : array of shape (d,)
        Variance of the count; 0 where it is known exactly.
    largest : float
        No count is larger: the number of rows, where none holds an item twice.
    """

    mean: Reals
    variance: Reals
    largest: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", np.clip(self.mean, 0.0, self.largest))
        object.__setattr__(self, "variance", np.maximum(self.variance, 0.0))

    @property
    def presence(self) -> Reals:
        """Probability that the count of each item is not zero."""
        return probability_of_presence(self.mean, self.variance)

    def take(self, items: ArrayLike) -> GaussianCounts:
        """What is said of some of the items, by their place."""
        places = np.asarray(items, dtype=np.int64)
        return GaussianCounts(self.mean[places], self.variance[places], self.largest)

    def interval(self, confidence: float) -> tuple[Reals, Reals]:
        """Whole numbers between which each count is, both ends included.

        Parameters
        ----------
        confidence : float
            Probability to hold, between 0 and 1.

        Examples
        --------
        >>> known = GaussianCounts(np.array([5.0, 5.0]), np.array([4.0, 0.0]), 20)
        >>> known.interval(0.9)
        (array([2., 5.]), array([8., 5.]))
        """
        half = np.sqrt(self.variance) * float(ndtri((1 + confidence) / 2))
        low = np.clip(np.ceil(self.mean - half - 0.5), 0.0, self.largest)
        return low, np.clip(np.ceil(self.mean + half - 0.5), low, self.largest)

    def below(self, counts: ArrayLike) -> Reals:
        """Probability that each count is at most the given one."""
        given = np.broadcast_to(np.asarray(counts, np.float64), self.mean.shape)
        beyond = np.floor(given) + 0.5 - self.mean
        result: Reals = ndtr(beyond / np.sqrt(np.maximum(self.variance, 1e-12)))
        return result


def probability_of_presence(mean: Reals, variance: Reals) -> Reals:
    r"""Probability that a count of known mean and variance is not 0.

    Of the binomial, Poisson or negative binomial law that has mean :math:`\mu` and
    variance :math:`v`, which one formula covers:

    .. math:: P(0) = (v/\mu)^{\mu / (1 - v/\mu)}, \qquad e^{-\mu}
        \text{ where } v = \mu.

    No whole number varies less than one of two neighbours does, so variances are at
    least :math:`f(1-f)` with :math:`f` the fractional part of the mean.

    Examples
    --------
    >>> mean, variance = np.array([0.0, 0.2, 0.5, 7.0]), np.array([0.0, 0.0, 0.5, 0.0])
    >>> probability_of_presence(mean, variance).round(3)
    array([0.   , 0.2  , 0.393, 1.   ])
    """
    fraction = mean - np.floor(mean)
    spread = np.maximum(variance, fraction * (1 - fraction))
    safe = np.maximum(mean, 1e-300)
    ratio = np.clip(spread / safe, 1e-300, 1e300)
    near = np.abs(ratio - 1) < 1e-6
    power = np.where(near, -1.0, np.log(ratio) / np.where(near, 1.0, 1 - ratio))
    absent = np.exp(np.maximum(safe * power, -700.0))
    result: Reals = np.where(mean > 0, np.where(spread > 0, 1 - absent, 1.0), 0.0)
    return np.clip(result, 0.0, 1.0)
