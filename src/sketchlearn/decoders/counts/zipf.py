r"""The law of item frequencies that the paper draws its streams from.

.. math:: p_j = \min\big(1,\; \beta^{\max(1-\alpha, 0)}\, j^{-\alpha}\big)

is the probability that a row holds item :math:`j`, independently of the other items.
:math:`\alpha` says how unequal items are, and :math:`\beta` how full a row is where
they are nearly equal (paper, eq. Zipf-appendix).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_zipf_counts", "zipf_probabilities"]


def zipf_probabilities(
    n_items: int, alpha: float, beta: float = 1.0
) -> NDArray[np.float64]:
    """Probability of each item in a row, the most frequent item first.

    Examples
    --------
    >>> zipf_probabilities(3, 1.0).round(3)
    array([1.   , 0.5  , 0.333])
    >>> zipf_probabilities(3, 0.0, 0.25)
    array([0.25, 0.25, 0.25])
    """
    ranks = np.arange(1, n_items + 1, dtype=np.float64)
    weights: NDArray[np.float64] = beta ** max(1.0 - alpha, 0.0) * ranks**-alpha
    return np.minimum(1.0, weights)


def draw_zipf_counts(
    rng: np.random.Generator,
    n_items: int,
    n_rows: int,
    alpha: float,
    beta: float = 1.0,
    *,
    n_sets: int = 1,
) -> NDArray[np.int64]:
    """In how many of ``n_rows`` rows each item is, items in random order.

    Returns
    -------
    counts : int64 array of shape (n_sets, n_items)
        Each set has an order of its own.
    """
    probabilities = zipf_probabilities(n_items, alpha, beta)
    counts = rng.binomial(n_rows, probabilities, size=(n_sets, n_items))
    return rng.permuted(counts, axis=1)
