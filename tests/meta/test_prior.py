"""The prior in training decodes what the frozen one does, for many datasets at once."""

import numpy as np
import pytest
import torch

from sketchlearn.decoders.moments import prior_update
from sketchlearn.decoders.moments.prior_network import PriorSpec
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.prior import PriorNetwork, complete_correlation
from sketchlearn.registry import load_model

SHIPPED = load_model("pca-equivariant").network
NETWORK = PriorNetwork.thaw(SHIPPED)
SHAPES = [(1, 1), (2, 1), (6, 2), (13, 12), (40, 7), (60, 30), (196, 10), (300, 2)]


def correlations(d, rng, n_factors=3):
    """Correlations of a factor model."""
    loadings = rng.normal(size=(d, n_factors))
    covariance = loadings @ loadings.T + np.diag(rng.uniform(0.5, 2, d))
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def require_close(found, expected):
    """Within 1e-5 of what is said beside the diagonal."""
    known = np.linalg.norm(expected - np.eye(len(expected)))
    assert np.linalg.norm(found - expected) <= 1e-5 * known


@pytest.mark.parametrize(("d", "columns"), SHAPES)
def test_numpy_and_torch_decode_the_same_correlations(d, columns):
    rng = np.random.default_rng(d)
    truth, omega = (
        correlations(d, rng),
        random_groups(d, columns, seed=d),
    )
    seen = truth @ omega
    with torch.no_grad():
        given = torch.from_numpy(omega)[None], torch.from_numpy(seen)[None]
        expected = NETWORK(*given)[0].numpy()
    require_close(SHIPPED(omega, seen), expected)


def test_the_update_is_the_same_in_numpy_and_torch():
    rng = np.random.default_rng(0)
    omega = np.linalg.qr(rng.normal(size=(9, 3)))[0]
    prior = rng.uniform(0.5, 1, 9), 0.5 * rng.normal(size=(9, 2))
    arrays = (omega, correlations(9, rng) @ omega, *prior)
    found = prior_update.complete_correlation(*arrays)
    tensors = [torch.from_numpy(array)[None] for array in arrays]
    assert np.allclose(found, complete_correlation(*tensors)[0], rtol=0, atol=1e-12)


def test_datasets_of_a_batch_do_not_see_each_other():
    rng = np.random.default_rng(0)
    truth = np.stack([correlations(12, rng) for _ in range(3)])
    omega = np.stack([random_groups(12, 3, int(rng.integers(2**62))) for _ in range(3)])
    both = torch.from_numpy(omega), torch.from_numpy(truth @ omega)
    with torch.no_grad():
        together = NETWORK(*both).numpy()
    for found, P, groups in zip(together, truth, omega, strict=True):
        assert np.abs(found - SHIPPED(groups, P @ groups)).max() < 1e-5


def test_an_untrained_network_is_repeatable_and_leaves_the_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    one, two = (PriorNetwork(PriorSpec(width=8, n_heads=2), seed=4) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    other = PriorNetwork(PriorSpec(width=8, n_heads=2), seed=5)
    assert torch.equal(one.inputs.weight, two.inputs.weight)
    assert not torch.equal(one.inputs.weight, other.inputs.weight)


def test_training_goes_on_from_the_frozen_prior():
    again = PriorNetwork.thaw(NETWORK.freeze())
    for name, tensor in NETWORK.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    rng = np.random.default_rng(0)
    truth, omega = correlations(9, rng), random_groups(9, 2, int(rng.integers(2**62)))
    again(
        torch.from_numpy(omega)[None], torch.from_numpy(truth @ omega)[None]
    ).sum().backward()
    assert again.inputs.weight.grad.abs().max() > 0
