"""Any moments, however noisy, have finite coefficients that promise what can be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.noise_floor import MomentNoise
from sketchlearn.decoders.moments.regression import fit_regression

SIZES = [0.0, 1e-150, 1e-12, 1.0, 1e12, 1e140]


@given(
    d=st.integers(2, 8),
    size=st.sampled_from(SIZES),
    noise=st.sampled_from([1e-9, 1.0, 1e9]),
    is_partial=st.booleans(),
    alpha=st.sampled_from([0.0, 1.0, 1e6]),
    intercept=st.booleans(),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_noise_of_any_size_gives_finite_coefficients(
    d, size, noise, is_partial, alpha, intercept, seed
):
    rng = np.random.default_rng(seed)
    matrix = size * rng.normal(size=(d, d))
    matrix = matrix + matrix.T  # of any sign, with negative variances
    matrix[rng.random((d, d)) < 0.2] = 0.0
    covariance = DenseCovariance(np.tril(matrix) + np.tril(matrix, -1).T)
    unseen = np.abs(rng.normal(size=d)) * size if is_partial else np.zeros(d)
    known = MomentNoise(noise, np.ones(d), np.zeros(d))
    moments = Moments(9.0, rng.normal(size=d), covariance, unseen, 1, known)
    found = fit_regression(
        moments,
        np.arange(d - 1),
        np.array([d - 1]),
        alpha=alpha,
        fit_intercept=intercept,
    )
    assert np.isfinite(found.coef).all()
    assert np.isfinite(found.intercept).all()


def test_no_coefficients_promise_more_than_there_is():
    # Covariances that no rows can have: the sketch saw too little of the features.
    own = np.ones(3)
    low = LowRankCovariance(
        np.zeros((3, 1)), own, np.array([2]), np.array([[0.9], [0.9], [0.0]])
    )
    moments = Moments(100.0, np.zeros(3), low, np.array([1e-6, 1e-6, 0.0]), 1)
    found = fit_regression(moments, np.array([0, 1]), np.array([2]), alpha=0.0)
    assert 0 < found.explained[0] <= 1.0
    nothing = Moments(
        100.0,
        np.zeros(3),
        LowRankCovariance(
            low.loadings, np.array([1.0, 1.0, 0.0]), low.targets, low.cross
        ),
        moments.unseen_variance,
        1,
    )
    found = fit_regression(nothing, np.array([0, 1]), np.array([2]), alpha=0.0)
    assert not found.coef.any()


@pytest.mark.parametrize("std", [0.001, 0.01])
def test_what_noise_explains_is_what_it_explains_on_average(std):
    rng = np.random.default_rng(0)
    d, mean = 6, np.array([0.5, -1.0, 0.0, 2.0, 0.3, 0.1, 1.0])
    mixing = rng.normal(size=(d + 1, d + 1))
    truth = mixing @ mixing.T + 3 * np.eye(d + 1)
    noise = MomentNoise(std, np.ones(d), np.zeros(d))
    target = MomentNoise(std, np.ones(1), np.zeros(1))
    left, right = truth[:d, :d], truth[:d, d]
    coef = np.linalg.solve(left, right)
    expected = noise.of_regression(
        target, mean, coef, lambda tests: np.linalg.solve(left, tests), n_probes=32
    )
    found = []
    for _ in range(2000):
        e = std * rng.normal(size=(d + 1, d + 1))
        e = np.tril(e) + np.tril(e, -1).T
        m = std * rng.normal(size=d + 1)
        error = e - np.outer(m, mean) - np.outer(mean, m)
        n = error[:d, d] - error[:d, :d] @ coef
        found.append(n @ np.linalg.solve(left, n))
    assert np.mean(found) == pytest.approx(expected, rel=0.4)
