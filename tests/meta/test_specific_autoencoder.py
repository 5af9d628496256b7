"""An autoencoder of one dataset brings its rows back, and is a function of its seed."""

import numpy as np
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.specific_autoencoder import train_specific
from sketchlearn.metrics import balanced_accuracy

RNG = np.random.default_rng(0)
TRUTH = RNG.random((200, 2)) < 0.4
ROWS = TRUTH[:, [0, 0, 0, 1, 1, 1]] ^ np.array([0, 1, 0, 0, 1, 1], bool)
SETTINGS = TrainConfig(steps=100, learning_rate=0.01, validate_every=20, patience=3)


def trained(rows=ROWS, **settings):
    return train_specific(rows, 2, SETTINGS, width=16, batch=64, **settings)


def test_rows_of_few_causes_come_back():
    model = trained()
    assert (model.n_features, model.n_codes) == (6, 2)
    assert balanced_accuracy(ROWS, model.reconstruct(ROWS.astype(float))) == 1.0


def test_the_threshold_is_that_of_the_marginals():
    share = ROWS.mean()
    assert trained().threshold == pytest.approx(np.log(share / (1 - share)))


def test_the_same_seed_gives_the_same_codes_and_another_gives_others():
    rows = ROWS.astype(float)
    one, two, other = (trained(seed=seed).encode(rows) for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("rows", [np.zeros(4), np.full((4, 2), 2), np.zeros((0, 3))])
def test_what_is_no_table_of_zeros_and_ones_is_refused(rows):
    with pytest.raises(RowsError):
        trained(rows)
