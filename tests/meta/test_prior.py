"""The prior in training decodes what the frozen one does, for many datasets at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sketchlearn.decoders.moments import prior_update
from sketchlearn.decoders.moments.cross_moments import Places
from sketchlearn.decoders.moments.prior_network import PriorSpec
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.meta.prior_update import complete_correlation, extend_correlation
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


def wider(seed=3):
    """A network that looks at the order, from one that does not; nothing is zero."""
    network = PriorNetwork.thaw(SHIPPED, replace(SHIPPED.spec, ordered=True))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.05 * torch.randn(weights.shape, generator=generator)
    return network


ORDERED_CASES = [
    (1, 1, 1, 0.0),
    (2, 2, 1, 0.0),
    (3, 2, 1, 0.0),
    (40, 40, 7, 0.0),
    (60, 30, 4, 0.0),
    (196, 100, 1, 0.0),
    (120, 90, 3, 0.3),
    (80, 80, 9, 3.0),
]


@pytest.mark.parametrize(("d", "p", "columns", "noise"), ORDERED_CASES)
def test_places_and_noise_are_the_same_in_numpy_and_torch(d, p, columns, noise):
    rng, network = np.random.default_rng(d), wider()
    truth, omega = correlations(d, rng), random_groups(p, columns, seed=d)
    seen_of = np.sort(rng.permutation(d)[:p])
    seen = truth[np.ix_(seen_of, seen_of)] @ omega
    seen += noise * rng.normal(size=seen.shape)
    with torch.no_grad():
        expected = network(
            torch.from_numpy(omega)[None],
            torch.from_numpy(seen)[None],
            places=torch.from_numpy(seen_of),
            n_features=d,
            noise=torch.tensor([noise], dtype=torch.float64),
        )[0].numpy()
    found = network.freeze()(omega, seen, places=Places(seen_of, d), noise=noise)
    assert np.abs(found - expected).max() < 1e-4


def test_a_wider_network_begins_with_what_the_narrow_one_knows():
    network = PriorNetwork.thaw(SHIPPED, replace(SHIPPED.spec, ordered=True))
    for name, array in SHIPPED.tensors.items():
        kept = network.state_dict()[name].numpy()
        assert np.array_equal(kept[tuple(map(slice, array.shape))], array)
    unread = network.state_dict()["inputs.weight"][:, SHIPPED.spec.n_inputs :]
    assert not unread.any()


def test_the_update_is_the_same_in_numpy_and_torch():
    rng = np.random.default_rng(0)
    omega = np.linalg.qr(rng.normal(size=(9, 3)))[0]
    loadings = 0.5 * rng.normal(size=(9, 2))
    prior = np.diag(rng.uniform(0.5, 1, 9)) + loadings @ loadings.T
    arrays = (omega, correlations(9, rng) @ omega, prior)
    tensors = [torch.from_numpy(array)[None] for array in arrays]
    for noise in (0.0, 0.05, 5.0):
        found = prior_update.complete_correlation(*arrays, noise)
        level = torch.tensor([noise], dtype=torch.float64)
        other = complete_correlation(*tensors, level)[0]
        assert np.allclose(found, other, rtol=0, atol=1e-7)


def test_the_extension_is_the_same_in_numpy_and_torch():
    rng = np.random.default_rng(0)
    places, guess = np.array([0, 3, 4]), correlations(7, rng)
    found = correlations(3, rng)
    expected = prior_update.extend_correlation(found, guess, places)
    tensors = [torch.from_numpy(array)[None] for array in (found, guess)]
    other = extend_correlation(*tensors, torch.from_numpy(places))[0]
    assert np.allclose(expected, other, rtol=0, atol=1e-10)


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
