"""Attacks on the noise: ten million draws against the distribution they claim.

Small noise by a chi-square test of every integer, large noise by a Kolmogorov-Smirnov
test and by its lowest bit. A break is a p-value below 1e-6.

usage: python3 dev.py run benchmarks/attacks/sampler.py
"""

import numpy as np
from scipy import stats
from tally import run

from sketchlearn.privacy.noise import discrete_gaussian

ALPHA = 1e-6
SMALL, LARGE = [1, 2, 5, 10], [2**31, 2**46]
BATCH = 500_000


def draw(sigma, n):
    parts = [discrete_gaussian(sigma, BATCH) for _ in range(n // BATCH)]
    return np.concatenate([np.array(part, np.int64) for part in parts])


def small_noise_has_another_distribution():
    n, breaks = 2_000_000, 0
    for sigma in SMALL:
        numbers = np.arange(-40 * sigma, 40 * sigma + 1)
        weights = np.exp(-(numbers.astype(float) ** 2) / (2 * sigma**2))
        expected = n * weights / weights.sum()
        counts = np.bincount(draw(sigma, n) + 40 * sigma, minlength=len(numbers))
        # Rare numbers are put together in the two tails.
        low, high = np.flatnonzero(expected >= 25)[[0, -1]]
        found, wanted = (with_tails(table, low, high) for table in (counts, expected))
        breaks += stats.chisquare(found, wanted, sum_check=False).pvalue < ALPHA
    return n * len(SMALL), breaks


def with_tails(table, low, high):
    """Entries low..high, with what lies outside added to the first and the last."""
    inside = table[low : high + 1].astype(float)
    inside[0] += table[:low].sum()
    inside[-1] += table[high + 1 :].sum()
    return inside


def large_noise_has_another_distribution():
    n, breaks = 1_000_000, 0
    for sigma in LARGE:
        draws = draw(sigma, n)
        shape = stats.kstest(draws / sigma, "norm").pvalue
        bit = stats.binomtest(int((draws & 1).sum()), n).pvalue
        breaks += min(shape, bit) < ALPHA
    return n * len(LARGE), breaks


if __name__ == "__main__":
    run(small_noise_has_another_distribution, large_noise_has_another_distribution)
