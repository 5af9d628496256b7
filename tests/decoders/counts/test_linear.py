"""Linear decoding is the textbook's best linear estimate, with its variance."""

import numpy as np
import pytest
import scipy.sparse as sp

from sketchlearn.decoders.counts.gaussian import (
    GaussianCounts,
    probability_of_presence,
)
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.linear import decode_linear, principal_table
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.hashing import CountSketchFeatures
from sketchlearn.features.table import TableFeatures

N_ITEMS, N_TRAIN = 40, 4000


def binary_rows(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).normal(size=(3, N_ITEMS))
    score = rng.normal(size=(n_rows, 3)) @ mixing
    return (score + rng.normal(size=score.shape) > 0.3).astype(np.int64)


@pytest.fixture(scope="module")
def prior():
    return ItemPrior.from_rows(binary_rows(N_TRAIN))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_estimate_is_that_of_the_textbook(prior, noise):
    rng = np.random.default_rng(1)
    A, count = rng.integers(-2, 3, size=(N_ITEMS, 9)), 20
    y = binary_rows(count, seed=3).mean(axis=0)
    z = A.T @ y + np.sqrt(noise) * rng.normal(size=9)
    found = decode_linear(prior, sp.csr_array(A), z, count, noise_variance=noise).params

    covariance = prior.covariance * (1 + count / N_TRAIN) / count
    gain = covariance @ A @ np.linalg.inv(A.T @ covariance @ A + noise * np.eye(9))
    mean = prior.mean + gain @ (z - A.T @ prior.mean)
    variance = np.diag(covariance - gain @ A.T @ covariance)
    assert np.allclose(found.mean, np.clip(mean * count, 0, count), atol=1e-8)
    assert np.allclose(found.variance, variance * count**2, atol=1e-8)


def test_principal_directions_are_the_best_table(prior):
    # The error they leave is the sum of the eigenvalues that are left out.
    table, count = principal_table(prior, 8), 20
    left = np.linalg.eigvalsh(prior.covariance)[:-8].sum()
    found = decode_linear(prior, table, table.T @ prior.mean, count).params
    expected = left * prior.spread_of(count)
    assert found.variance.sum() == pytest.approx(expected, rel=1e-3)

    others = np.random.default_rng(0).integers(-9, 10, size=(N_ITEMS, 8))
    worse = decode_linear(prior, others, others.T @ prior.mean, count).params
    assert worse.variance.sum() > found.variance.sum()


def test_vocabularies_no_larger_than_the_sketch_are_exact(prior):
    counts = binary_rows(20, seed=4).sum(axis=0)
    table = principal_table(prior, 100)
    found = decode_linear(prior, table, counts @ table / 20, 20).params

    assert np.allclose(found.mean, counts, atol=1e-6)
    assert np.allclose(found.variance, 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["principal", "count-sketch"])
def test_variances_are_the_errors_and_intervals_hold_the_counts(prior, kind):
    count, phi = 50, CountSketchFeatures(N_ITEMS, width=5, depth=2, seed=1)
    if kind == "principal":
        phi = TableFeatures(principal_table(prior, 10), origin="data")
    columns = phi.columns_of(np.arange(N_ITEMS, dtype=np.uint64))
    errors, variances, held = [], [], []
    for seed in range(100, 150):
        rows = binary_rows(count, seed)
        sketch = sketch_rows(rows.astype(float), phi)
        found = decode_linear(prior, columns, sketch.mean, count).params
        errors.append((found.mean - rows.sum(axis=0)) ** 2)
        variances.append(found.variance)
        low, high = found.interval(0.9)
        held.append((low <= rows.sum(axis=0)) & (rows.sum(axis=0) <= high))

    assert np.mean(errors) == pytest.approx(np.mean(variances), rel=0.1)
    assert 0.88 <= np.mean(held) <= 0.96


def test_equal_and_empty_numbers_of_a_sketch_do_no_harm(prior):
    one = np.zeros((N_ITEMS, 1), np.int64)
    one[0] = 1
    twice = np.concatenate([one, one, 0 * one], axis=1)
    single = decode_linear(prior, one, [0.5], 20).params
    double = decode_linear(prior, twice, [0.5, 0.5, 0.0], 20).params

    assert np.allclose(single.mean, double.mean)
    assert np.allclose(single.variance, double.variance)


def test_presence_is_that_of_the_law_with_this_mean_and_variance():
    # Binomial(7, 0.2), Poisson(1.5), and negative binomial (r = 2, p = 0.4).
    mean = np.array([1.4, 1.5, 3.0])
    variance = np.array([1.12, 1.5, 7.5])
    absent = np.array([0.8**7, np.exp(-1.5), 0.4**2])

    assert np.allclose(probability_of_presence(mean, variance), 1 - absent)


def test_known_counts_are_present_or_absent_for_sure():
    known = GaussianCounts(np.array([0.0, 1.0, 20.0]), np.zeros(3), 20)

    assert known.presence.tolist() == [0.0, 1.0, 1.0]
    assert known.interval(0.99)[0].tolist() == [0.0, 1.0, 20.0]
    assert known.interval(0.99)[1].tolist() == [0.0, 1.0, 20.0]
    assert known.take([2]).mean.tolist() == [20.0]
    assert known.below(1).round().tolist() == [1.0, 1.0, 0.0]
