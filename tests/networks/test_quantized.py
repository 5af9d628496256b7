"""Ternary and binary layers have whole weights; quantizing them again is nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.meta.networks import Network
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.networks.quantized import integer_table, quantized
from sketchlearn.networks.tables import network_table

KINDS = pytest.mark.parametrize("kind", ["ternary", "binary"])
WEIGHTS = arrays(np.float32, (3, 8), elements=st.floats(-4, 4, width=32))
X = np.random.default_rng(0).integers(0, 2, (20, 12)).astype(float)


def by_hand(row, kind):
    """The formula of Li, Zhang and Liu for one output."""
    sizes = [abs(float(w)) for w in row]
    cut = 0.7 * sum(sizes) / len(sizes)
    kept = [w for w in row if (w > cut if kind == "binary" else abs(w) > cut)]
    scale = sum(abs(float(w)) for w in kept) / max(len(kept), 1)
    return [np.sign(w) * scale if w in kept else 0.0 for w in row]


@KINDS
@given(weight=WEIGHTS)
@settings(max_examples=50, deadline=None)
def test_weights_are_those_of_the_formula_and_stay_as_they_are(kind, weight):
    found = quantized(weight, kind)
    assert np.allclose(found, [by_hand(row, kind) for row in weight], rtol=1e-6)
    assert np.array_equal(quantized(found, kind), found)
    table, scales = integer_table(found)
    assert set(np.unique(table)) <= ({-1, 0, 1} if kind == "ternary" else {0, 1})
    assert np.array_equal((table * scales).T.astype(np.float32), found)


@KINDS
@pytest.mark.parametrize("windows", [1, 3])
def test_a_network_is_its_table(kind, windows):
    spec = NetworkSpec(12, 6, kind=kind, windows=windows)
    network = FrozenNetwork(spec, initial_tensors(spec, seed=2))
    found = network_table(network)
    expected = found.scales * (X @ found.table) + found.bias
    assert np.allclose(network(X), expected, rtol=1e-12)
    phi = NetworkFeatures(spec, network.tensors)
    assert np.allclose(phi(X), expected, atol=1e-4)


@KINDS
def test_a_network_in_training_is_the_frozen_one_and_has_gradients(kind):
    spec = NetworkSpec(12, 6, kind=kind, windows=2)
    network = Network(spec, initial_tensors(spec, seed=2))
    rows = torch.from_numpy(X).float()
    assert np.allclose(network(rows).detach(), network.freeze()(X), atol=1e-5)
    network(rows).sum().backward()
    # straight through: as if the weights were not quantized
    expected = rows.reshape(-1, 6).sum(dim=0).expand(3, -1)
    assert torch.allclose(network.layers.last.weight.grad, expected)
    again = Network.thaw(network.freeze())
    assert torch.allclose(again(rows), network(rows), atol=1e-6)


def test_other_networks_are_no_tables():
    for spec in (NetworkSpec(12, 6), NetworkSpec(12, 6, "ternary", head="tanh")):
        network = FrozenNetwork(spec, initial_tensors(spec))
        with pytest.raises(FeatureMapError, match="no table of whole numbers"):
            network_table(network)
