"""Errors are what the paper's tables compute."""

from math import exp

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.metrics import (
    balanced_accuracy,
    generalization_bound,
    log_relative_error,
    pca_log_relative_error,
    pca_reconstruction_error,
    ridge_log_relative_error,
    ridge_mean_squared_error,
    uniform_stability,
)

CONSTANTS = {
    "feature_bound": 1.5,
    "decoder_lipschitz": 2.0,
    "loss_lipschitz": 0.5,
    "loss_bound": 3.0,
    "n_rows": 200,
    "delta": 0.1,
}


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


def test_the_error_of_components_is_a_log_ratio_of_reconstruction_errors():
    """R = diag(3, 1): exact components err 1 then 0, swapped ones 3 then 0.

    The trapezoid rule over (1, 0) and (3, 0) gives a ratio of 3, however many zeros of
    padding follow.
    """
    moment, exact = np.diag([3.0, 1.0]), np.eye(2)
    for n_dimensions in (2, 196):
        assert pca_log_relative_error(moment, exact, n_dimensions) == 0
        swapped = pca_log_relative_error(moment, exact[::-1], n_dimensions)
        assert np.isclose(swapped, np.log(3))


def test_log_relative_error_of_equals_is_zero():
    assert log_relative_error(3.0, 3.0) == 0
    assert log_relative_error(0.0, 0.0) == 0
    assert log_relative_error(1.0, 0.0) == np.inf


def test_mean_squared_error_takes_several_targets():
    rows, coef = np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert ridge_mean_squared_error(rows, np.eye(2), coef) == 0
    assert ridge_mean_squared_error(rows, np.eye(2), coef, np.array([1.0, 1.0])) == 1


@pytest.mark.parametrize("n_targets", [1, 2])
def test_ridge_from_moments_is_ridge_on_the_rows(n_targets):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6))
    moment, other = rows.T @ rows / 300, np.cov(rng.normal(size=(6, 30)))
    errors = []
    for R in (other, moment):
        among = R[n_targets:, n_targets:]
        penalty = np.sqrt((among**2).sum()) * np.eye(6 - n_targets)
        coef = np.linalg.solve(among + penalty, R[n_targets:, :n_targets]).T
        features, targets = rows[:, n_targets:], rows[:, :n_targets]
        errors.append(ridge_mean_squared_error(features, targets, coef))

    found = ridge_log_relative_error(moment, other, n_targets)

    assert np.isclose(found, log_relative_error(*errors))
    assert ridge_log_relative_error(moment, moment, n_targets) == 0


def test_ridge_of_one_feature_is_solved_by_hand():
    # R22 = 2 and lambda = 2: theta = 1/4, error 1 - 2/4 + 2/16; from the estimate 0.
    moment, blind = np.array([[1.0, 1.0], [1.0, 2.0]]), np.eye(2)
    found = ridge_log_relative_error(moment, blind)
    assert np.isclose(found, np.log(1 / 0.625))


def test_ridge_on_nothing_but_constants_predicts_zero():
    moment = np.diag([4.0, 0.0, 0.0])
    assert ridge_log_relative_error(moment, np.diag([1.0, 0.0, 0.0])) == 0


def test_the_bound_is_solved_by_hand():
    # beta = 2 * 1.5 * 2 * 0.5 / 200 = 0.015; ln(1/delta) = 4, so the root is 0.1.
    bound = generalization_bound(**{**CONSTANTS, "delta": exp(-4)})
    assert np.isclose(bound, 2 * 0.015 + (4 * 3 + 3) * 0.1)


def test_the_stability_is_reached_by_a_mean_and_half_of_it_is_not_enough():
    n_rows = 50
    rows = np.full(n_rows, -1.0)
    rows[0] = 1.0
    moved = abs(np.mean(rows) - np.mean(rows[1:]))
    stability = uniform_stability(
        feature_bound=1.0, decoder_lipschitz=1.0, loss_lipschitz=1.0, n_rows=n_rows
    )
    assert np.isclose(moved, stability)


@pytest.mark.parametrize(
    "name", ["feature_bound", "decoder_lipschitz", "loss_lipschitz", "loss_bound"]
)
def test_the_bound_grows_with_every_constant(name):
    larger = {**CONSTANTS, name: 2 * CONSTANTS[name]}
    assert generalization_bound(**larger) > generalization_bound(**CONSTANTS)


def test_the_bound_falls_with_rows_and_with_the_risk_taken():
    bound = generalization_bound(**CONSTANTS)
    assert generalization_bound(**{**CONSTANTS, "n_rows": 201}) < bound
    assert generalization_bound(**{**CONSTANTS, "delta": 0.2}) < bound
    many = generalization_bound(**{**CONSTANTS, "n_rows": 10**12})
    assert many < 1e-4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta", 0.0),
        ("delta", 1.0),
        ("n_rows", 0),
        ("feature_bound", -1.0),
        ("decoder_lipschitz", float("nan")),
        ("loss_bound", -0.1),
    ],
)
def test_constants_that_cannot_be_are_refused_by_name(name, value):
    with pytest.raises(FeatureMapError, match=name):
        generalization_bound(**{**CONSTANTS, name: value})


def test_balanced_accuracy_is_that_of_scikit_learn_over_all_entries():
    rng = np.random.default_rng(0)
    rows, found = rng.random((2, 40, 7)) < 0.3

    expected = balanced_accuracy_score(rows.ravel(), found.ravel())
    assert balanced_accuracy(rows, found) == pytest.approx(expected, rel=1e-12)


def test_balanced_accuracy_is_of_zeros_and_ones_of_one_shape():
    for rows, found in (
        (np.ones((3, 1)), np.ones((3, 4))),
        (np.ones((3, 4)), np.full((3, 4), 0.2)),
    ):
        with pytest.raises(RowsError, match="two tables of zeros and ones"):
            balanced_accuracy(rows, found)


def test_rows_of_one_kind_have_the_share_of_that_kind():
    assert balanced_accuracy(np.zeros((1, 4)), np.array([[0, 0, 0, 1]])) == 0.75
    assert balanced_accuracy(np.ones((1, 4)), np.array([[0, 0, 0, 1]])) == 0.25
