"""Errors are what the paper's tables compute."""

import numpy as np

from sketchlearn.metrics import (
    log_relative_error,
    pca_reconstruction_error,
    ridge_mean_squared_error,
)


def test_reconstruction_error_agrees_with_projecting_the_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0].T
    errors = []
    for r in range(1, 11):  # four dimensions of padding
        kept = basis[: min(r, 6)]
        errors.append(np.mean(((rows - rows @ kept.T @ kept) ** 2).sum(axis=1)))

    error = pca_reconstruction_error(rows.T @ rows / 500, basis, n_dimensions=10)

    assert np.isclose(error, np.trapezoid(errors) / 10)


def test_exact_components_have_the_smallest_error():
    rng = np.random.default_rng(1)
    moment = np.cov(rng.normal(size=(5, 100)) * [[5], [4], [3], [2], [1]])
    exact = np.linalg.eigh(moment)[1][:, ::-1].T
    best = pca_reconstruction_error(moment, exact, 5)
    for _ in range(20):
        other = np.linalg.qr(rng.normal(size=(5, 5)))[0].T
        assert pca_reconstruction_error(moment, other, 5) >= best


def test_log_relative_error_of_equals_is_zero():
    assert log_relative_error(3.0, 3.0) == 0
    assert log_relative_error(0.0, 0.0) == 0
    assert log_relative_error(1.0, 0.0) == np.inf


def test_mean_squared_error_takes_several_targets():
    rows, coef = np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert ridge_mean_squared_error(rows, np.eye(2), coef) == 0
    assert ridge_mean_squared_error(rows, np.eye(2), coef, np.array([1.0, 1.0])) == 1
