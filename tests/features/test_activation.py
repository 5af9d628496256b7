"""Activation features are σ(Wx), to the bit, and torch can differentiate every map."""

import numpy as np
import pytest
import torch

from contracts import check_feature_map
from sketchlearn import (
    ConcatenatedFeatures,
    FourierFeatures,
    MomentFeatures,
    NystromFeatures,
    Scaling,
    clipped,
)
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.features.differentiable import differentiable

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
    assert np.allclose(phi(ROWS), expected, atol=1e-5)


@pytest.mark.parametrize(
    "phi",
    [
        FourierFeatures(3, 8, scaling=SCALING),
        NystromFeatures(ROWS[:5], scale=0.7, scaling=SCALING),
        ActivationFeatures(MATRIX, activation="tanh"),
        clipped(ActivationFeatures(MATRIX, activation="relu"), norm_bound=2.0),
        ConcatenatedFeatures([FourierFeatures(3, 8), ActivationFeatures(MATRIX)]),
    ],
    ids=lambda phi: phi.kind,
)
def test_the_differentiable_form_is_the_same_function(phi):
    tensor = torch.from_numpy(ROWS).reshape(3, 50, 3).requires_grad_()
    values = differentiable(phi)(tensor)
    assert values.shape == (3, 50, phi.sketch_size)
    assert np.allclose(values.detach().reshape(150, -1), phi(ROWS), atol=1e-4)
    (slope,) = torch.autograd.grad(values.sum(), tensor)
    step = torch.zeros_like(tensor)
    step[1, 7, 2] = 1e-6
    change = (differentiable(phi)(tensor + step) - values).sum().item() / 1e-6
    assert slope[1, 7, 2].item() == pytest.approx(change, rel=1e-3, abs=1e-4)


def test_a_map_without_a_differentiable_form_is_refused():
    with pytest.raises(FeatureMapError, match="no differentiable form"):
        differentiable(MomentFeatures(3))


def test_rows_beyond_the_range_of_an_unbounded_activation_are_refused():
    with pytest.raises(RowRangeError, match="row 0"):
        ActivationFeatures([[1.0]], activation="relu")(np.array([[2000.0]]))


def test_wrong_arguments_are_refused():
    with pytest.raises(FeatureMapError, match="shape"):
        ActivationFeatures([1.0, 2.0])
    with pytest.raises(FeatureMapError, match="activation must be one of"):
        ActivationFeatures(MATRIX, activation="softmax")
