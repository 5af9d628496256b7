"""A network of windows is the same network on each of them."""

import numpy as np
import pytest
import torch

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.meta.networks import Network
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.networks.lipschitz import spectral_bound

SPECS = [
    NetworkSpec(12, 6, windows=3),
    NetworkSpec(12, 6, "resnet", depth=1, width=5, windows=3),
    NetworkSpec(12, 6, "transformer", depth=2, width=5, head="sigmoid", windows=3),
]
ROWS = np.random.default_rng(0).normal(size=(10, 12))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_each_window_goes_through_the_same_network(spec):
    tensors = initial_tensors(spec, seed=1)
    whole, one = FrozenNetwork(spec, tensors), FrozenNetwork(spec.window, tensors)
    parts = [one(ROWS[:, start : start + 4]) for start in (0, 4, 8)]
    expected = np.concatenate(parts, axis=1)
    assert np.allclose(whole(ROWS), expected)
    assert np.allclose(whole(ROWS.reshape(2, 5, 12)), expected.reshape(2, 5, 6))
    phi = NetworkFeatures(spec, tensors)
    assert np.allclose(phi(ROWS), expected, atol=1e-4)
    trained = Network(spec, tensors).eval()
    found = trained(torch.from_numpy(ROWS).float()).detach().numpy()
    assert np.allclose(found, expected, atol=1e-5)
    assert spectral_bound(whole) == spectral_bound(one)


def test_the_description_of_one_window_is_as_it_was():
    assert "windows" not in NetworkSpec(4, 2).to_dict()
    spec = NetworkSpec(4, 2, windows=2)
    assert NetworkSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize("windows", [0, -1, 1.0, True])
def test_windows_are_counted(windows):
    with pytest.raises(FeatureMapError, match="windows"):
        NetworkSpec(4, 2, windows=windows)


def test_windows_divide_inputs_and_outputs():
    with pytest.raises(FeatureMapError, match="3 windows must divide"):
        NetworkSpec(12, 5, windows=3)
