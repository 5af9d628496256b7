"""Activation features are σ(Wx), to the bit."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from contracts import check_feature_map
from sketchlearn import Scaling
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.activation import (
    UNBOUNDED,
    ActivationFeatures,
    random_activations,
)
from sketchlearn.meta.differentiable import activate

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
    "gelu": lambda t: t * norm.cdf(t),
    "leaky-relu": lambda t: np.where(t < 0, 0.01 * t, t),
    "identity": lambda t: t,
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


@pytest.mark.parametrize("activation", UNBOUNDED)
def test_rows_beyond_the_range_of_an_unbounded_activation_are_refused(activation):
    phi = ActivationFeatures([[1.0]], activation=activation)
    assert phi.norm_bound is None
    with pytest.raises(RowRangeError, match="row 0"):
        phi(np.array([[2000.0]]))


def test_gelu_and_leaky_relu_are_those_of_torch():
    phases = ROWS @ MATRIX
    for activation in ("gelu", "leaky-relu"):
        phi = ActivationFeatures(np.eye(10), activation=activation)
        expected = activate(torch.from_numpy(phases), activation).numpy()
        assert np.allclose(phi(phases), expected, atol=1e-5)


def test_random_features_have_weights_of_the_variance_and_of_the_seed():
    phi = random_activations(200, 100, activation="gelu", variance=0.25, seed=3)
    assert np.isclose(phi.matrix.var(), 0.25, rtol=0.05)
    again = random_activations(200, 100, activation="gelu", variance=0.25, seed=3)
    assert phi.fingerprint == again.fingerprint
    other = random_activations(200, 100, activation="gelu", variance=0.25, seed=4)
    assert phi.fingerprint != other.fingerprint
    assert random_activations(3, 8, activation="fourier").sketch_size == 8


@pytest.mark.parametrize(
    ("size", "given"),
    [(7, {"activation": "fourier"}), (0, {}), (4, {"variance": 0.0})],
)
def test_random_features_that_cannot_be_are_refused(size, given):
    with pytest.raises(FeatureMapError, match="positive"):
        random_activations(3, size, **given)


def test_wrong_arguments_are_refused():
    with pytest.raises(FeatureMapError, match="shape"):
        ActivationFeatures([1.0, 2.0])
    with pytest.raises(FeatureMapError, match="activation must be one of"):
        ActivationFeatures(MATRIX, activation="softmax")
