"""Test sets are the paper's: random features, standardised, judged by LRE."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from paper_folder import write_paper_folder
from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.experiments.pca.sets import (
    Estimate,
    EvaluationSet,
    load_sets,
    printed_errors,
)
from sketchlearn.metrics import leading_components

HALF = np.array([[1.0, 0.5], [0.5, 1.0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_paper_folder(tmp_path_factory.mktemp("paper"), splits=("test",))


@pytest.fixture
def half():
    """Four rows of two features with correlation 1/2."""
    along, across = np.sqrt([1.5, 0.5])
    rows = [[along, along], [-along, -along], [across, -across], [-across, across]]
    return EvaluationSet("half", np.array(rows))


def test_sets_are_standardised_and_sorted(folder):
    sets = load_sets(folder)
    assert [data.name for data in sets] == ["diabetes", "hapmap31", "simulated"]
    assert [data.real for data in sets] == [True, True, False]
    for data in sets:
        np.testing.assert_allclose(data.rows.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(np.diag(data.second_moment), 1, atol=1e-5)


def test_features_keep_the_order_of_the_dataset(folder):
    ordered, shuffled = load_sets(folder)[1], load_sets(folder, shuffled=True)[1]
    table = pq.read_table(folder / "data" / "test" / "hapmap31.parquet")
    rows = np.column_stack([table[f"f{i}"].to_numpy() for i in range(24)]).astype(float)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    np.testing.assert_allclose(ordered.rows, rows, atol=1e-5)
    order = np.random.default_rng(0).permutation(24)
    np.testing.assert_allclose(shuffled.rows, rows[:, order], atol=1e-5)


def test_ridge_predicts_the_same_feature_in_either_order(folder):
    ordered, shuffled = load_sets(folder)[1], load_sets(folder, shuffled=True)[1]
    assert shuffled.target == 0
    assert ordered.target > 0
    targets = [data.regression[1] for data in (ordered, shuffled)]
    np.testing.assert_array_equal(*targets)
    for moment in (lambda data: np.eye(24), lambda data: data.second_moment + 0.1):
        found, expected = (
            data.ridge_lre(Estimate(moment(data))) for data in (ordered, shuffled)
        )
        assert found == pytest.approx(expected)
    zeros = Estimate(np.eye(24), np.zeros(23))
    assert ordered.ridge_lre(zeros) == pytest.approx(shuffled.ridge_lre(zeros))


def test_only_the_sets_asked_for_are_read(folder):
    assert [data.name for data in load_sets(folder, ["hapmap31"])] == ["hapmap31"]
    with pytest.raises(RowsError, match="no test set 'hapmap1'"):
        load_sets(folder, ["hapmap1"])
    with pytest.raises(MissingFileError, match=r"MANIFEST\.json"):
        load_sets(folder / "none")


def test_few_rows_have_the_second_moment_of_all(folder):
    for data in load_sets(folder):
        rows = data.few_rows
        assert rows.shape == (data.n_features, data.n_features)
        np.testing.assert_allclose(rows.T @ rows / len(rows), data.second_moment)


def test_the_example_has_correlation_one_half(half):
    np.testing.assert_allclose(half.second_moment, HALF)


def test_components_in_the_wrong_order_cost_the_log_of_three(half):
    # The errors with one component are 1.5 and 0.5, with more they are 0.
    wrong = Estimate(np.array([[1.0, -0.5], [-0.5, 1.0]]))
    assert half.pca_lre(wrong) == pytest.approx(np.log(3))


def test_a_regression_that_predicts_nothing_is_judged_as_by_hand(half):
    # With R22 = 1 and a penalty of 1 the coefficient is 1/4 and the error 0.8125.
    expected = -np.log(0.8125)
    assert half.ridge_lre(Estimate(np.eye(2))) == pytest.approx(expected)
    assert half.ridge_lre(Estimate(HALF, np.zeros(1))) == pytest.approx(expected)


@pytest.mark.parametrize("size", [2, 7])
def test_the_truth_has_no_error_with_or_without_padding(half, size):
    truth = Estimate(half.padded(size))
    assert half.pca_lre(truth) == pytest.approx(0, abs=1e-12)
    assert half.ridge_lre(truth) == pytest.approx(0, abs=1e-12)
    assert half.ridge_lre(Estimate(HALF, np.array([0.25]))) == pytest.approx(0)


def test_components_that_point_into_the_padding_are_wasted(half):
    estimate = half.padded(3)
    estimate[2, 2] = 9.0
    # Errors 2, 0.5, 0 instead of 0.5, 0, 0: areas 1.5 and 0.25 by the trapezoid rule.
    assert half.pca_lre(Estimate(estimate)) == pytest.approx(np.log(1.5 / 0.25))


def test_leading_components_are_those_of_the_largest_eigenvalues():
    found = leading_components(HALF)
    np.testing.assert_allclose(np.abs(found[0]), [0.5**0.5, 0.5**0.5])


def test_printed_errors_are_relative_to_the_largest_sketch():
    printed = printed_errors((20, 64))
    assert printed["diabetes"] == {20: pytest.approx(np.log(0.105 / 0.078))}
    assert len(printed) == 81
