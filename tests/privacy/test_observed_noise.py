"""Observed noise of another law than stated is found, and that of the law is not."""

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from sketchlearn.privacy.noise import discrete_gaussian, discrete_laplace
from sketchlearn.privacy.observed_noise import count_fault, noise_fault, smallest_found

SIGMA = 2**46
N, M = 4000, 9


def table(sigma=SIGMA, n=N, m=M):
    flat = discrete_gaussian(sigma, n * m)
    return [flat[start : start + m] for start in range(0, n * m, m)]


@pytest.mark.parametrize("n", [200, 4000])
@pytest.mark.parametrize("m", [1, 2, 9])
def test_noise_of_its_law_has_no_fault(n, m):
    assert noise_fault(table(n=n, m=m), SIGMA) is None


def test_wide_noise_has_no_fault():
    assert noise_fault(table(n=200, m=600), SIGMA) is None


def changed(change):
    """The table with each release put through a function."""
    return [change(list(row)) for row in table()]


def reused():
    noise = table()
    noise[7][3] = noise[5][3]
    noise[9][3] = -noise[1][3]
    return noise


def slow():
    noise = np.array(table(), float)
    noise[1:] = 0.8 * noise[1:] + 0.6 * noise[:-1]
    return [[int(value) for value in row] for row in noise]


FAULTS = {
    "3 % less": (lambda: table(int(0.97 * SIGMA)), "spread"),
    "one number without noise": (
        lambda: changed(lambda row: [*row[:-1], 0]),
        "repeats",
    ),
    "one number with half of it": (
        lambda: changed(lambda row: [*row[:-1], row[-1] // 2]),
        "spread of one number",
    ),
    "two numbers share": (lambda: changed(lambda row: [row[1], *row[1:]]), "repeats"),
    "two numbers share, with a sign": (
        lambda: changed(lambda row: [-row[1], *row[1:]]),
        "repeats",
    ),
    "two numbers share half": (
        lambda: changed(lambda row: [int((row[0] + row[1]) / sqrt(2)), *row[1:]]),
        "numbers of one release",
    ),
    "two numbers reused": (reused, "repeats"),
    "releases share": (slow, "releases that share"),
    "never negative": (lambda: changed(lambda row: [abs(v) for v in row]), "shape"),
    "cut at 3 sigma": (
        lambda: changed(lambda row: [v if abs(v) < 3 * SIGMA else v // 9 for v in row]),
        "shape",
    ),
    "floats": (lambda: changed(lambda row: [float(v) for v in row]), "whole steps"),
    "low bits": (lambda: changed(lambda row: [v & ~255 for v in row]), "lowest bits"),
    "uniform": (
        lambda: [
            [int(SIGMA * sqrt(3) * (2 * stats.norm.cdf(v / SIGMA) - 1)) for v in row]
            for row in table()
        ],
        "shape",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_noise_of_another_law_is_found(name):
    make, words = FAULTS[name]
    fault = noise_fault(make(), SIGMA)
    assert fault is not None
    assert words in fault


def test_the_noise_that_is_said_to_be_found_is_found():
    least = smallest_found(N * M)
    assert 0.02 < least < 0.04
    found = [noise_fault(table(int((1 - least) * SIGMA)), SIGMA) for _ in range(5)]
    assert all(fault and "spread" in fault for fault in found)


def counts(n=3000, numerator=1, denominator=10):
    return np.array([discrete_laplace(numerator, denominator) for _ in range(n)])


def test_counts_of_their_law_have_no_fault():
    for numerator, denominator in ((1, 10), (1, 2), (9, 10), (1, 1000)):
        drawn = counts(1000, numerator, denominator)
        assert count_fault(drawn, numerator / denominator) is None


@pytest.mark.parametrize(
    "change",
    [lambda k: 0 * k, np.abs, lambda k: k // 2, lambda k: np.clip(k, -20, 20)],
    ids=["none", "never negative", "half", "cut"],
)
def test_counts_of_another_law_are_found(change):
    assert count_fault(change(counts()), 0.1) is not None
