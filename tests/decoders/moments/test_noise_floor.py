"""Noise alone is told from rows that vary, before anybody believes it."""

import numpy as np
import pytest

from sketchlearn.decoders.moments.noise_floor import (
    denoised_covariance,
    directions_above,
    spectral_edge,
)


def symmetric_noise(rng, d):
    noise = rng.normal(size=(d, d))
    return np.tril(noise) + np.tril(noise, -1).T


@pytest.mark.parametrize("d", [4, 30, 200])
def test_a_matrix_of_noise_has_no_direction(d):
    rng = np.random.default_rng(d)
    found = [
        denoised_covariance(symmetric_noise(rng, d), 1.0, np.zeros(d))[1]
        for _ in range(20)
    ]
    assert np.mean(found) < 0.2


@pytest.mark.parametrize("strength", [3.0, 10.0])
def test_a_direction_that_counts_is_mostly_signal(strength):
    rng, d = np.random.default_rng(0), 60
    signal = rng.normal(size=d)
    signal /= np.linalg.norm(signal)
    level = strength * d**0.5
    for _ in range(10):
        noisy = level * np.outer(signal, signal) + symmetric_noise(rng, d)
        directions = denoised_covariance(noisy, 1.0, np.zeros(d))[1]
        assert directions == 1
        assert (np.linalg.eigh(noisy)[1][:, -1] @ signal) ** 2 > 0.7


def test_the_noise_on_a_far_mean_counts_too():
    noisy = 4 * spectral_edge(1.0, 16) * np.diag(np.arange(16) == 0).astype(float)
    assert denoised_covariance(noisy, 1.0, np.zeros(16))[1] == 1
    assert denoised_covariance(noisy, 1.0, np.full(16, 2.0))[1] == 0


def test_directions_seen_through_test_vectors_count_above_their_noise():
    rng, d, columns = np.random.default_rng(0), 100, 5
    omega = np.linalg.qr(rng.normal(size=(d, columns)))[0]
    noise = rng.normal(size=(d, columns))
    assert directions_above(noise, omega, 1.0, np.zeros(d)) == 0
    seen = 100 * omega[:, :2] @ np.eye(2, columns) + noise
    assert directions_above(seen, omega, 1.0, np.zeros(d)) == 2
    assert directions_above(seen, omega, 1.0, np.full(d, 20.0)) == 0


def test_variances_that_drown_in_noise_keep_their_order_and_little_else():
    noisy = np.diag(np.arange(1.0, 9.0))
    found = denoised_covariance(noisy, 100.0, np.zeros(8))[0].variances
    assert (np.diff(found) > 0).all()
    assert np.allclose(found, 4.5, rtol=0.01)
