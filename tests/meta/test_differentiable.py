"""Torch can differentiate every map that has a differentiable form."""

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
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.meta.differentiable import differentiable, lower_products

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 10))
ROWS = RNG.uniform(-2, 2, (150, 3))
SCALING = Scaling.from_bounds(-2.0, 3.0, n_features=3)


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


def test_lower_products_of_one_row_by_hand():
    products = lower_products(torch.tensor([[2.0, 3.0, 5.0]]))
    assert products.tolist() == [[4, 6, 9, 10, 15, 25]]
