"""Rows are weighed between classes by Bayes' rule with independent features."""

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB

from sketchlearn.decoders.autoencoders.classes import ClassChoice
from sketchlearn.decoders.autoencoders.directions import ClassMeans

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], [300, 100, 40])
ROWS = (RNG.random((440, 8)) < RNG.uniform(0.2, 0.8, (3, 8))[LABELS]).astype(float)


def means():
    parts = [ROWS[c == LABELS] for c in range(3)]
    shares = np.array([len(part) for part in parts]) / len(ROWS)
    return ClassMeans(np.stack([part.mean(axis=0) for part in parts]), shares)


def test_weights_of_temperature_one_are_those_of_naive_bayes():
    found = ClassChoice(means(), temperature=1.0).weights(ROWS)
    expected = BernoulliNB(alpha=1e-10).fit(ROWS, LABELS).predict_proba(ROWS)
    assert np.allclose(found, expected, atol=1e-6)


def test_a_higher_temperature_is_less_sure():
    cold, hot = (ClassChoice(means(), t).weights(ROWS).max(axis=1) for t in (1.0, 8.0))
    assert hot.mean() < cold.mean()


def test_one_class_has_no_weights():
    choice = ClassChoice(ClassMeans(ROWS.mean(axis=0)[None], np.ones(1)))
    codes = choice.beside(ROWS[:, :2], choice.weights(ROWS))
    assert codes.shape == (440, 2)
    numbers, weights = choice.split(codes)
    assert np.array_equal(numbers, ROWS[:, :2])
    assert weights.shape == (440, 0)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_entry_that_a_class_never_had_leaves_the_weights_finite(value):
    known = ClassMeans(np.array([[value, 0.5], [0.5, 0.5]]), np.full(2, 0.5))
    found = ClassChoice(known).weights(np.array([[1 - value, 0.0]]))
    assert np.isfinite(found).all()
    assert found[0, 1] > found[0, 0]
