"""Steps of descent are those of the paper, with arrays and with tensors alike."""

import numpy as np
import pytest
import torch

from sketchlearn.decoders.clusters.descent import descend
from sketchlearn.errors import FeatureMapError
from sketchlearn.meta.descent import descend as descend_tensor

MATRIX = np.random.default_rng(0).normal(size=(3, 12))
TARGET = 0.3 * np.random.default_rng(1).normal(size=12)
INITIAL = np.random.default_rng(2).normal(size=(4, 3))


def slope(centroids):
    phases = centroids @ MATRIX
    error = np.cos(phases).mean(axis=0) - TARGET
    return 2 * (-np.sin(phases) * error / 4) @ MATRIX.T


def objective(centroids):
    features = torch.cos(centroids @ torch.from_numpy(MATRIX)).mean(dim=0)
    return (features - torch.from_numpy(TARGET)).square().sum()


def test_plain_steps_follow_the_slope():
    expected = INITIAL
    for _ in range(30):
        expected = expected - 0.1 * slope(expected)
    found = descend(slope, INITIAL, rate=0.1, n_steps=30, optimiser="sgd")
    assert np.allclose(found, expected, rtol=1e-13)


def test_adam_steps_are_those_of_the_paper():
    expected, first, second = INITIAL, 0.0, 0.0
    for i in range(1, 31):
        gradient = slope(expected)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = np.sqrt(second / (1 - 0.999**i))
        expected = expected - 0.1 / (1 - 0.9**i) * first / size
    found = descend(slope, INITIAL, rate=0.1, n_steps=30)
    assert np.allclose(found, expected, atol=1e-8)


def test_a_cosine_schedule_slows_down_from_the_whole_rate_to_nothing():
    """The slope is one everywhere: the way is the sum of the rates."""
    found = descend(
        np.ones_like,
        np.zeros(3),
        rate=0.5,
        n_steps=4,
        optimiser="sgd",
        schedule="cosine",
    )
    rates = [0.5 * (1 + np.cos(np.pi * i / 4)) / 2 for i in range(4)]
    assert np.allclose(found, -sum(rates))


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_arrays_and_tensors_take_the_same_steps(optimiser, schedule):
    settings = {"rate": 0.1, "n_steps": 20}
    settings |= {"optimiser": optimiser, "schedule": schedule}
    found = descend(slope, INITIAL, **settings)
    start = torch.from_numpy(INITIAL)
    expected = descend_tensor(objective, start, backward_steps=0, **settings)
    assert np.allclose(found, expected, rtol=1e-10)


def test_no_step_leaves_the_point_and_a_descent_that_blows_up_ends_at_no_number():
    assert np.array_equal(descend(slope, INITIAL, rate=0.1, n_steps=0), INITIAL)
    found = descend(lambda x: x**3, np.ones(2), rate=1e9, n_steps=99, optimiser="sgd")
    assert not np.isfinite(found).any()


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(FeatureMapError, match="one of adam, sgd; got 'lion'"):
        descend(slope, INITIAL, rate=0.1, n_steps=1, optimiser="lion")
