"""Attacks on the noise: ten million draws, and far values that no one would draw.

Small noise by a chi-square test of every integer, large noise by a Kolmogorov-Smirnov
test and by its lowest bit: a break is a p-value below 1e-6. Far values, up to 40 sigma,
are forced by the bytes that lead to them: a break is one that does not come out, or
that comes out with a coin above its probability by a part of 2**-39.

usage: python3 dev.py run benchmarks/attacks/sampler.py
"""

from functools import partial

import numpy as np
from scipy import stats
from tally import run

from sketchlearn.privacy.forced_draws import forced_fault
from sketchlearn.privacy.noise import VECTOR_LIMIT, discrete_gaussian

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


def fed(sigma, source):
    return discrete_gaussian(sigma, 1, random_bytes=source)


def a_far_value_is_drawn_too_seldom_or_too_often():
    rng, trials, breaks = np.random.default_rng(), 0, 0
    for sigma in [
        *SMALL,
        *LARGE,
        2**52 + 1,
        VECTOR_LIMIT,
        VECTOR_LIMIT + 1,
        2**60,
        2**67,
    ]:
        for multiple in [*range(1, 25), 30, 40]:
            value = multiple * sigma + int(rng.integers(1, min(sigma, 2**62) + 1))
            for signed in (value, -value):
                trials += 1
                breaks += forced_fault(sigma, partial(fed, sigma), signed) is not None
    return trials, breaks


if __name__ == "__main__":
    run(
        a_far_value_is_drawn_too_seldom_or_too_often,
        small_noise_has_another_distribution,
        large_noise_has_another_distribution,
    )
