"""A pullback is the transpose of the Jacobian: torch and differences agree with it."""

from typing import get_args

import numpy as np
import pytest
import torch

from sketchlearn import (
    ConcatenatedFeatures,
    FourierFeatures,
    MomentFeatures,
    NystromFeatures,
    Scaling,
    clipped,
)
from sketchlearn.decoders.clusters.pullback import activate, linearised
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation, ActivationFeatures
from sketchlearn.meta.differentiable import activate as activate_tensor
from sketchlearn.meta.differentiable import differentiable

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 10))
ROWS = RNG.uniform(-2, 2, (40, 3))
SCALING = Scaling.from_bounds(-2.0, 3.0, n_features=3)
ACTIVATIONS = get_args(Activation)
MAPS = {
    "fourier": FourierFeatures(3, 8, scaling=SCALING),
    "unscaled": FourierFeatures(3, 8),
    "nystrom": NystromFeatures(ROWS[:5], scale=0.7, scaling=SCALING),
    "activation": ActivationFeatures(MATRIX, activation="tanh", scaling=SCALING),
    "clipped": clipped(ActivationFeatures(MATRIX, activation="relu"), norm_bound=2.0),
    "clipped fourier": clipped(FourierFeatures(3, 8), norm_bound=0.5),
    "beside": ConcatenatedFeatures(
        [FourierFeatures(3, 8), clipped(NystromFeatures(ROWS[:4]), norm_bound=0.7)]
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_values_are_those_of_the_map(name):
    values, _ = linearised(MAPS[name])(ROWS)
    assert values.dtype == np.float64
    assert np.allclose(values, MAPS[name](ROWS), atol=1e-4)


@pytest.mark.parametrize("name", MAPS)
def test_gradients_are_those_of_torch(name):
    values, pull = linearised(MAPS[name])(ROWS)
    by = np.random.default_rng(1).normal(size=values.shape)
    tensor = torch.from_numpy(ROWS).requires_grad_()
    expected = differentiable(MAPS[name])(tensor)
    assert np.allclose(values, expected.detach(), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad((expected * torch.from_numpy(by)).sum(), tensor)
    assert np.allclose(pull(by), slope, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_gradients_are_those_of_differences(name):
    phi, step = linearised(MAPS[name]), 1e-6 * np.eye(3)[1]
    values, pull = phi(ROWS)
    change = (phi(ROWS + step)[0] - phi(ROWS - step)[0]).sum(axis=1) / 2e-6
    assert np.allclose(pull(np.ones_like(values))[:, 1], change, rtol=1e-3, atol=1e-5)


def test_only_rows_beyond_the_bound_are_clipped():
    inner = ActivationFeatures(MATRIX, activation="relu")
    norms = np.linalg.norm(linearised(inner)(ROWS)[0], axis=1)
    assert (norms < 2).any()
    assert (norms > 2).any()
    clipped_norms = np.linalg.norm(linearised(MAPS["clipped"])(ROWS)[0], axis=1)
    assert np.allclose(clipped_norms, np.minimum(norms, 2.0))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_their_slopes_are_those_of_torch(activation):
    phases = 3 * np.random.default_rng(2).normal(size=(2, 4, 5))
    values, pull = activate(phases, activation)
    by = np.random.default_rng(3).normal(size=values.shape)
    tensor = torch.from_numpy(phases).requires_grad_()
    expected = activate_tensor(tensor, activation)
    assert np.allclose(values, expected.detach(), rtol=1e-13, atol=1e-15)
    (slope,) = torch.autograd.grad((expected * torch.from_numpy(by)).sum(), tensor)
    assert np.allclose(pull(by), slope, rtol=1e-12, atol=1e-14)


def test_a_map_without_a_differentiable_form_is_refused():
    with pytest.raises(FeatureMapError, match="no differentiable form"):
        linearised(MomentFeatures(3))
