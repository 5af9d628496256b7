"""A few rows stand for many: S X with E[SᵀS] = I, and uniform samples.

The second moment of the few is unbiased for that of the many, and projections of
parts add up to the projection of the whole.
"""

from functools import partial

import numpy as np
import pytest

from sketchlearn.decoders.baselines.reduced_rows import (
    ReducedRows,
    project_rows,
    sample_rows,
)
from sketchlearn.errors import FeatureMapError

LAWS = ["gaussian", "sparse"]
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(3000, 4)) @ RNG.normal(size=(4, 4)) + 1
MOMENT = ROWS.T @ ROWS / len(ROWS)


def projected(rows, n_rows, law):
    return lambda seed: project_rows(rows, n_rows, law=law, seed=seed)


def mean_and_error(draw, n_draws):
    """Mean of the second moment over seeds, and the standard error of that mean."""
    moments = np.array([draw(seed).second_moment for seed in range(n_draws)])
    return moments.mean(axis=0), moments.std(axis=0) / np.sqrt(n_draws)


@pytest.mark.parametrize("law", LAWS)
def test_the_projection_has_the_identity_for_its_mean_square(law):
    # Projecting the identity shows S; three columns at a time are independent draws.
    n_draws = 1000
    S = project_rows(np.eye(3 * n_draws), 2, law=law).rows.reshape(2, n_draws, 3)
    squares = np.einsum("nsi,nsj->sij", S, S)
    error = squares.std(axis=0) / np.sqrt(n_draws)
    assert error.max() < 0.06
    assert (np.abs(squares.mean(axis=0) - np.eye(3)) < 4 * error).all()


def test_sparse_entries_are_three_values_two_thirds_of_them_zero():
    entries = project_rows(np.eye(2000), 12, law="sparse").rows
    assert np.allclose(np.unique(entries), [-0.5, 0.0, 0.5])
    share = np.mean(entries == 0)
    assert abs(share - 2 / 3) < 5 * np.sqrt(2 / 9 / entries.size)


def test_gaussian_entries_have_the_quantiles_of_a_gaussian():
    entries = project_rows(np.eye(2000), 4).rows * 2
    within = [np.mean(np.abs(entries) < size) for size in (1, 2)]
    assert np.allclose(within, [0.6827, 0.9545], atol=0.02)


@pytest.mark.parametrize("law", LAWS)
def test_projections_estimate_the_second_moment_without_bias(law):
    mean, error = mean_and_error(projected(ROWS, 5, law), 300)
    assert error.max() < 0.1 * np.abs(MOMENT).max()
    assert (np.abs(mean - MOMENT) < 4.5 * error).all()


def test_samples_estimate_the_second_moment_without_bias():
    mean, error = mean_and_error(lambda seed: sample_rows(ROWS, 5, seed=seed), 300)
    assert error.max() < 0.1 * np.abs(MOMENT).max()
    assert (np.abs(mean - MOMENT) < 4.5 * error).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("cut", [1, 1000, 1024, 2500])
def test_projections_of_parts_add_up_to_the_projection_of_the_whole(law, cut):
    whole = project_rows(ROWS, 6, law=law, seed=3)
    first = project_rows(ROWS[:cut], 6, law=law, seed=3)
    second = project_rows(ROWS[cut:], 6, law=law, seed=3, first_row=cut)

    assert first.count + second.count == whole.count
    assert np.allclose(first.rows + second.rows, whole.rows)
    misplaced = project_rows(ROWS[cut:], 6, law=law, seed=3)
    assert not np.allclose(first.rows + misplaced.rows, whole.rows)


def test_a_stream_of_batches_is_projected_like_the_whole_array():
    batches = (ROWS[start : start + 700] for start in range(0, 3000, 700))
    assert np.allclose(project_rows(batches, 3).rows, project_rows(ROWS, 3).rows)


def test_a_sample_is_distinct_rows_of_the_data():
    sample = sample_rows(np.arange(10_000.0)[:, None], 50)
    rows = sample.rows[:, 0] / np.sqrt(10_000 / 50)
    assert len(np.unique(rows.round(6))) == 50
    assert np.allclose(rows, rows.round(), atol=1e-6)
    assert rows.max() < 9999.5


def test_every_row_is_as_likely_to_be_sampled():
    rows, draws = np.eye(20), 2000
    times = sum(sample_rows(rows, 5, seed=s).rows.sum(axis=0) for s in range(draws)) / 2
    # Binomial counts with p = 1/4.
    assert np.abs(times - draws / 4).max() < 4.5 * np.sqrt(draws * 3 / 16)


def test_a_sample_of_all_rows_has_their_second_moment():
    sample = sample_rows(ROWS, 5000)
    assert sample.rows.shape == ROWS.shape
    assert np.allclose(sample.second_moment, MOMENT)


@pytest.mark.parametrize(
    "reduce",
    [
        sample_rows,
        partial(project_rows, law="gaussian"),
        partial(project_rows, law="sparse"),
    ],
)
def test_more_rows_are_better_and_the_seed_decides(reduce):
    errors = [
        np.mean(
            [
                np.linalg.norm(reduce(ROWS, n, seed=seed).second_moment - MOMENT)
                for seed in range(10)
            ]
        )
        for n in (2, 20, 200)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    same, again, other = (reduce(ROWS, 3, seed=seed).rows for seed in (7, 7, 8))
    assert np.array_equal(same, again)
    assert not np.allclose(same, other)


def test_the_size_counts_the_numbers_kept():
    assert ReducedRows(np.ones((3, 5)), 100).size == 15


def test_the_second_moment_of_two_rows_is_solved_by_hand():
    moment = ReducedRows(np.array([[1.0, 2.0], [3.0, 0.0]]), 4).second_moment
    assert np.array_equal(moment, [[2.5, 0.5], [0.5, 1.0]])


def test_what_makes_no_sense_is_refused():
    with pytest.raises(FeatureMapError, match="n_rows must be"):
        sample_rows(ROWS, 0)
    with pytest.raises(FeatureMapError, match="n_rows must be"):
        project_rows(ROWS, 1.5)
    with pytest.raises(FeatureMapError, match="law must be one of gaussian, sparse"):
        project_rows(ROWS, 2, law="dense")
