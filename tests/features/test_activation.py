"""Activation features are σ(Wx), to the bit."""

import numpy as np
import pytest

from contracts import check_feature_map
from sketchlearn import Scaling
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.activation import ActivationFeatures

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 10))
ROWS = RNG.uniform(-2, 2, (150, 3))
SCALING = Scaling.from_bounds(-2.0, 3.0, n_features=3)
HAND = {
    "fourier": lambda t: np.concatenate([np.cos(t), np.sin(t)], axis=1),
    "cos": np.cos,
    "sin": np.sin,
    "tanh": np.tanh,
    "sigmoid": lambda t: 1 / (1 + np.exp(-t)),
    "relu": lambda t: np.maximum(t, 0),
}


@pytest.mark.parametrize("activation", HAND)
def test_activation_features_are_a_feature_map(activation):
    phi = ActivationFeatures(MATRIX, activation=activation, scaling=SCALING)
    check_feature_map(phi, ROWS)


@pytest.mark.parametrize("activation", HAND)
def test_values_are_those_of_the_formula(activation):
    phi = ActivationFeatures(MATRIX, activation=activation, scaling=SCALING)
    expected = HAND[activation](SCALING(ROWS) @ MATRIX)
    # half a grid point of a phase, where there are phases
    grid = 2 * np.pi * 2.0**-17 if activation in ("fourier", "cos", "sin") else 0.0
    assert np.allclose(phi(ROWS), expected, atol=1e-5 + grid)


def test_rows_beyond_the_range_of_an_unbounded_activation_are_refused():
    with pytest.raises(RowRangeError, match="row 0"):
        ActivationFeatures([[1.0]], activation="relu")(np.array([[2000.0]]))


def test_wrong_arguments_are_refused():
    with pytest.raises(FeatureMapError, match="shape"):
        ActivationFeatures([1.0, 2.0])
    with pytest.raises(FeatureMapError, match="activation must be one of"):
        ActivationFeatures(MATRIX, activation="softmax")
