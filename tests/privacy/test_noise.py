"""Noise has exactly the distribution it claims, and is never the same twice."""

import os
from concurrent.futures import ThreadPoolExecutor
from math import exp, sqrt

import mpmath
import numpy as np
import pytest
from scipy import stats

from privacy.ledgers import in_a_child
from sketchlearn.privacy import noise
from sketchlearn.privacy.noise import discrete_gaussian, discrete_laplace

ALPHA = 1e-6
LARGE = [2**31, 2**46, 2**52]


def gaussian_pmf(sigma, reach):
    numbers = np.arange(-reach, reach + 1)
    weights = np.exp(-(numbers.astype(float) ** 2) / (2 * sigma**2))
    return numbers, weights / weights.sum()


def chi_square(draws, numbers, pmf):
    """p-value of the draws; rare numbers are put together in the two tails."""
    keep = np.flatnonzero(pmf * len(draws) >= 25)
    low, high = numbers[keep[0]], numbers[keep[-1]]
    inside = np.bincount(np.clip(draws, low, high) - low, minlength=len(keep))
    expected = pmf[keep] * len(draws)
    expected[0] += pmf[: keep[0]].sum() * len(draws)
    expected[-1] += pmf[keep[-1] + 1 :].sum() * len(draws)
    return stats.chisquare(inside, expected, sum_check=False).pvalue


def require_gaussian_pmf(sigma, draws):
    draws = np.array(draws)
    assert chi_square(draws, *gaussian_pmf(sigma, 40 * sigma)) > ALPHA
    require_variance(draws.astype(float), float(sigma))


def require_variance(draws, sigma):
    """Mean and variance within five standard errors (the variance is sigma**2)."""
    n = len(draws)
    assert abs(draws.mean()) < 5 * sigma / sqrt(n)
    assert abs(np.mean((draws / sigma) ** 2) - 1) < 5 * sqrt(2 / n) + 1e-6


def require_normal(sigma, n):
    draws = discrete_gaussian(sigma, n)
    scaled = np.array(draws, float) / sigma
    assert stats.kstest(scaled, "norm").pvalue > ALPHA
    assert abs(stats.kurtosis(scaled)) < 5 * sqrt(24 / n)
    require_variance(scaled, 1.0)
    for bit in (0, 1, 7):
        ones = sum(value >> bit & 1 for value in draws)
        assert stats.binomtest(ones, n).pvalue > ALPHA
    series = np.corrcoef(scaled[:-1], scaled[1:])[0, 1]
    assert abs(series) < 6 / sqrt(n)


def test_the_reference_pmf_has_its_published_values():
    numbers, pmf = gaussian_pmf(3, 120)
    values = dict(zip(numbers.tolist(), pmf.tolist(), strict=True))

    assert values[0] == pytest.approx(0.1329807601338, rel=1e-12)
    assert values[1] == pytest.approx(0.1257944092310, rel=1e-12)
    assert values[3] == pytest.approx(0.08065690817305, rel=1e-12)
    assert values[-10] == pytest.approx(5.140929987637e-4, rel=1e-12)


@pytest.mark.parametrize("sigma", [1, 2, 5, 10])
def test_small_noise_has_the_exact_pmf(sigma):
    if sigma == 1:  # the variance of a very discrete Gaussian is not sigma**2
        draws = np.array(discrete_gaussian(sigma, 200_000))
        assert chi_square(draws, *gaussian_pmf(sigma, 40)) > ALPHA
        return
    require_gaussian_pmf(sigma, discrete_gaussian(sigma, 200_000))


@pytest.mark.full
@pytest.mark.parametrize("sigma", [1, 2, 5, 10])
def test_small_noise_has_the_exact_pmf_in_ten_million_draws(sigma):
    draws = np.concatenate(
        [np.array(discrete_gaussian(sigma, 10**6), np.int64) for _ in range(10)]
    )
    assert chi_square(draws, *gaussian_pmf(sigma, 40 * sigma)) > ALPHA


@pytest.mark.parametrize("sigma", LARGE)
def test_large_noise_is_normal_with_fair_low_bits(sigma):
    require_normal(sigma, 100_000)


@pytest.mark.full
@pytest.mark.parametrize("sigma", [*LARGE, 2**56])
def test_large_noise_is_normal_in_a_million_draws(sigma):
    require_normal(sigma, 1_000_000)


def test_coordinates_are_uncorrelated():
    n, m = 5000, 16
    table = np.array(discrete_gaussian(2**46, n * m), float).reshape(n, m)
    correlations = np.corrcoef(table, rowvar=False) - np.eye(m)

    assert np.abs(correlations).max() < 6 / sqrt(n)


def test_coins_decided_exactly_have_the_same_pmf(monkeypatch):
    calls = []
    decide = noise._decide

    def counted(*arguments):
        calls.append(1)
        return decide(*arguments)

    monkeypatch.setattr(noise, "WINDOW", 2.0**-8)
    monkeypatch.setattr(noise, "_decide", counted)
    draws = discrete_gaussian(5, 20_000)

    assert len(calls) > 100
    require_gaussian_pmf(5, draws)


def test_steps_decided_exactly_have_the_same_pmf(monkeypatch):
    words = np.frombuffer(os.urandom(8 * 3000), "<u8")
    fast = noise._geometric(words, os.urandom)
    exact = [noise._exact_geometric(int(word), os.urandom) for word in words]

    assert fast.tolist() == exact
    # Zero is below every stored threshold: only more bits can tell how far.
    zeros = noise._geometric(np.zeros(300, np.uint64), os.urandom)
    assert zeros.min() >= 44
    assert zeros.max() > 44


def test_a_coin_on_its_threshold_is_decided_by_more_bits():
    word = int(exp(-1) * 2**64) & ~0x7FF  # the float nearest to e**-1, as 64 bits
    threshold = int(noise._THRESHOLDS[-1])

    assert abs(word - threshold) < 2**12
    assert noise._decide(threshold - 3, 1, 1, os.urandom)
    assert not noise._decide(threshold + 4, 1, 1, os.urandom)
    more = iter([b"\x00" * 8, b"\xff" * 8])
    assert noise._decide(threshold, 1, 1, lambda n: next(more))
    assert not noise._decide(threshold, 1, 1, lambda n: b"\xff" * n)


def test_noise_beyond_the_vector_limit_is_drawn_one_by_one():
    draws = [noise._gaussian_scalar(3, os.urandom) for _ in range(6000)]
    require_gaussian_pmf(3, draws)

    huge = np.array([float(n) for n in discrete_gaussian(2**60, 3000)]) / 2.0**60
    assert stats.kstest(huge, "norm").pvalue > ALPHA
    require_variance(huge, 1.0)


def test_discrete_laplace_has_its_published_pmf():
    draws = np.array([discrete_laplace(1, 1) for _ in range(30_000)])
    numbers = np.arange(-60, 61)
    pmf = (1 - exp(-1)) / (1 + exp(-1)) * np.exp(-np.abs(numbers.astype(float)))

    assert pmf[60] == pytest.approx(0.46211715726, rel=1e-10)
    assert pmf[61] == pytest.approx(0.1700034015685, rel=1e-12)
    assert pmf[65] == pytest.approx(0.003113720912986, rel=1e-12)
    assert chi_square(draws, numbers, pmf) > ALPHA
    # Kurtosis of a two-sided geometric is below 6.6: five standard errors.
    assert abs(draws.var() / 1.841347188416 - 1) < 5 * sqrt(5.6 / len(draws))


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 10), (3, 2), (5, 1)])
def test_discrete_laplace_takes_any_fraction(numerator, denominator):
    draws = np.array([discrete_laplace(numerator, denominator) for _ in range(10_000)])
    numbers = np.arange(-600, 601)
    epsilon = numerator / denominator
    pmf = np.exp(-epsilon * np.abs(numbers.astype(float))) * np.tanh(epsilon / 2)

    assert chi_square(draws, numbers, pmf) > ALPHA


def test_no_draws_are_an_empty_list():
    assert discrete_gaussian(2**46, 0) == []


def test_draws_are_python_integers():
    for sigma in (1, 2**46, 2**60):
        assert all(type(value) is int for value in discrete_gaussian(sigma, 5))


def test_two_calls_give_different_noise():
    assert discrete_gaussian(2**46, 8) != discrete_gaussian(2**46, 8)


def test_two_threads_give_different_noise():
    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(lambda _: discrete_gaussian(2**46, 8), range(2))
    assert not set(left) & set(right)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_two_forked_children_give_different_noise():
    discrete_gaussian(2**46, 8)  # whatever a call might leave behind is there
    left, right = (in_a_child(lambda: discrete_gaussian(2**46, 8)) for _ in range(2))
    mine = discrete_gaussian(2**46, 8)

    assert len(left) == len(right) == 8
    assert len({*left, *right, *mine}) == 24


def test_only_the_given_source_is_used(monkeypatch):
    def refuse(n):
        raise AssertionError("the operating system was asked")

    monkeypatch.setattr(os, "urandom", refuse)
    source = np.random.default_rng(0).bytes
    again = np.random.default_rng(0).bytes

    drawn = discrete_gaussian(2**46, 50, random_bytes=source)
    assert drawn == discrete_gaussian(2**46, 50, random_bytes=again)
    discrete_laplace(1, 3, random_bytes=source)


def test_the_table_of_geometric_draws_ends_where_64_bits_do():
    with mpmath.workdps(60):
        tail = [mpmath.floor(mpmath.exp(-k) * 2**64) for k in range(1, 50)]

    assert noise._THRESHOLDS.tolist() == [int(value) for value in tail if value][::-1]


def test_the_largest_vectors_of_noise_stay_within_64_bits():
    steps = len(noise._THRESHOLDS) + 1

    assert 2**61 < (noise.VECTOR_LIMIT + 1) * steps < 2**63


def test_floats_decide_coins_only_where_they_are_surely_right():
    rng = np.random.default_rng(0)
    exponents = rng.uniform(0, 44, 2000)
    with mpmath.workdps(60):
        errors = [
            abs(mpmath.exp(-mpmath.mpf(float(x))) - mpmath.mpf(float(p)))
            for x, p in zip(exponents, np.exp(-exponents), strict=True)
        ]

    # The exponent is off by a few units in the last place, as is the draw.
    assert 2**10 * max(*errors, 2.0**-50) < noise.WINDOW < 2.0**-24
