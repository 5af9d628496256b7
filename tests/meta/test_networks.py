"""A network in training computes what the frozen one does, and has gradients."""

import numpy as np
import pytest
import torch

from sketchlearn.errors import FeatureMapError
from sketchlearn.meta.networks import (
    Network,
    build_network,
    export_tensors,
    import_tensors,
)
from sketchlearn.networks.forward import NetworkSpec, initial_tensors

RESNET = NetworkSpec(5, 3, kind="resnet", depth=2, width=7)
TRANSFORMER = NetworkSpec(5, 3, kind="transformer", depth=2, width=7, head="sigmoid")
LINEAR = NetworkSpec(5, 3, head="tanh")
SPECS = pytest.mark.parametrize(
    "spec", [LINEAR, RESNET, TRANSFORMER], ids=lambda spec: spec.kind
)
ROWS = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 5))).float()


def trained(spec):
    """A network whose weights have moved and whose norms have seen data."""
    network = build_network(spec, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
        network(2 * torch.randn(50, 5, generator=generator) + 1)
    return network


@SPECS
def test_a_frozen_network_is_the_network_in_evaluation_mode(spec):
    network = trained(spec)
    frozen = network.train().freeze()
    assert network.training
    with torch.no_grad():
        expected = network.eval().double()(ROWS.double()).numpy()
    found = frozen(ROWS.numpy())
    assert np.linalg.norm(found - expected) < 1e-12 * np.linalg.norm(expected)


@SPECS
def test_training_goes_on_from_a_frozen_network(spec):
    network = trained(spec).eval()
    again = Network.thaw(network.freeze()).eval()
    assert torch.equal(network(ROWS), again(ROWS))
    again(ROWS).sum().backward()
    assert again.layers.last.weight.grad.abs().max() > 0


def test_training_on_does_not_change_what_is_frozen():
    network = trained(RESNET)
    frozen = network.freeze()
    before = frozen(ROWS.numpy())
    with torch.no_grad():
        network.layers.last.bias.add_(5.0)
        network(ROWS)
    assert np.array_equal(network.freeze()(ROWS.numpy()) == before, np.zeros((40, 3)))
    assert np.array_equal(frozen(ROWS.numpy()), before)


@SPECS
def test_first_weights_and_names_are_those_of_the_frozen_network(spec):
    found, expected = (
        export_tensors(build_network(spec, seed=3)),
        initial_tensors(spec, 3),
    )
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_the_global_state_is_neither_read_nor_changed():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = export_tensors(build_network(RESNET, seed=3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    again = export_tensors(build_network(RESNET, seed=3))
    assert all(np.array_equal(first[key], again[key]) for key in first)


def test_leading_dimensions_are_kept_and_do_not_matter():
    network = trained(RESNET).eval()
    nested = network(ROWS.reshape(2, 4, 5, 5))
    assert nested.shape == (2, 4, 5, 3)
    assert torch.allclose(nested.reshape(40, 3), network(ROWS), atol=1e-6)


def test_tensors_carry_a_network_over_with_its_running_statistics():
    source, target = trained(RESNET).eval(), build_network(RESNET, seed=9).eval()
    import_tensors(target, export_tensors(source))
    assert torch.equal(source(ROWS), target(ROWS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("layers.last.bias"), "missing"),
        (lambda t: t.update(extra=np.zeros(1)), "no such tensor"),
        (lambda t: t.update({"layers.last.bias": np.zeros(4)}), r"\(4,\), expected"),
    ],
)
def test_tensors_of_another_network_are_refused(change, message):
    tensors = export_tensors(trained(RESNET))
    change(tensors)
    with pytest.raises(FeatureMapError, match=message):
        import_tensors(build_network(RESNET), tensors)
