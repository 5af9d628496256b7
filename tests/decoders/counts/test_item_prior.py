"""A prior of items is the mean and the shrunk covariance of training rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from sketchlearn.decoders.counts.item_prior import ItemPrior, ItemPriorTuning
from sketchlearn.errors import RowsError
from sketchlearn.files.weights import load_weights, save_weights


def binary_rows(n_rows, n_items=12, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, n_items))
    return (score + rng.normal(size=score.shape) > 0.5).astype(np.uint8)


def test_many_rows_give_nearly_their_own_mean_and_covariance():
    rows = binary_rows(20_000)
    prior = ItemPrior.from_rows(rows)

    assert np.allclose(prior.mean, rows.mean(axis=0), atol=1e-4)
    kept = (1 - prior.shrinkage) * np.cov(rows.T, bias=True)
    np.fill_diagonal(kept, rows.var(axis=0))
    assert np.allclose(prior.covariance, kept, atol=1e-6)
    assert prior.shrinkage <= 0.02


def test_correlations_of_independent_items_are_taken_away():
    rows = np.random.default_rng(0).random((60, 50)) < 0.4

    assert ItemPrior.from_rows(rows).shrinkage >= 0.9


def test_shrinkage_makes_rows_left_out_most_likely():
    # The textbook way: a Cholesky factorisation for each shrinkage and fold.
    rows, tuning = binary_rows(80).astype(float), ItemPriorTuning()
    likelihood = []
    for shrinkage in tuning.shrinkages:
        found = 0.0
        for k in range(tuning.n_folds):
            out = np.arange(len(rows)) % tuning.n_folds == k
            rest, left = rows[~out], rows[out]
            covariance = (1 - shrinkage) * np.cov(rest.T, bias=True)
            floor = tuning.unseen / len(rest)
            np.fill_diagonal(covariance, np.maximum(rest.var(axis=0), floor))
            miss = left - (rest.sum(axis=0) + tuning.unseen) / (len(rest) + 1)
            powers = np.einsum("ij,jk,ik->", miss, np.linalg.inv(covariance), miss)
            found -= len(left) * np.linalg.slogdet(covariance)[1] + powers
        likelihood.append(found)

    expected = tuning.shrinkages[int(np.argmax(likelihood))]
    assert ItemPrior.from_rows(rows).shrinkage == expected


def test_items_that_never_vary_are_rare_but_not_impossible():
    rows = binary_rows(100)
    rows[:, 0], rows[:, 1] = 0, 1
    prior = ItemPrior.from_rows(rows)

    assert 0 < prior.mean[0] < 0.01
    assert 0.99 < prior.mean[1] < 1
    assert (np.linalg.eigvalsh(prior.covariance) > 0).all()


def test_sparse_rows_give_the_same_prior():
    rows = binary_rows(500)
    dense, sparse = ItemPrior.from_rows(rows), ItemPrior.from_rows(sp.coo_array(rows))

    assert np.array_equal(dense.covariance, sparse.covariance)


def test_a_saved_prior_is_the_same_prior(tmp_path):
    prior = ItemPrior.from_rows(binary_rows(100))
    save_weights(prior.to_weights(), tmp_path / "prior.safetensors")
    again = ItemPrior.from_weights(load_weights(tmp_path / "prior.safetensors"))

    assert np.array_equal(again.mean, prior.mean)
    assert np.array_equal(again.covariance, prior.covariance)
    assert (again.n_rows, again.shrinkage) == (prior.n_rows, prior.shrinkage)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((9, 3)), "at least 10 training rows"),
        (np.ones(9), "one column for each item"),
        (np.array([["a"]] * 20), "table of numbers"),
        (-np.ones((20, 3)), "from 0 up"),
        (np.full((20, 3), np.nan), "from 0 up"),
        (sp.csr_array((20, 10_000)), "at most 8192 items"),
    ],
)
def test_what_are_no_training_rows_is_refused(rows, message):
    with pytest.raises(RowsError, match=message):
        ItemPrior.from_rows(rows)
