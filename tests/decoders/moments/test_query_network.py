"""A Query Network applies its formula to sketches it was trained for, and no others."""

import numpy as np
import pytest
import torch

from sketchlearn import FourierFeatures, clipped, sketch_rows
from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.decoders.moments.query_network import QueryNetwork
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, PoolingError
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.meta.networks import build_network
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.testing import release_seeded

ROWS = np.random.default_rng(0).normal(size=(200, 3))
PHI = FourierFeatures(3, 8, seed=0)
SKETCH = sketch_rows(ROWS, PHI)
SPEC = NetworkSpec(8, 6, head="tanh")
TANH = FrozenNetwork(SPEC, initial_tensors(SPEC, seed=1))


def outputs_by_hand(mean):
    weight = TANH.tensors["layers.last.weight"].astype(float)
    return np.tanh(weight @ mean + TANH.tensors["layers.last.bias"])


def test_parameters_are_the_network_of_the_mean():
    decoding = QueryNetwork(TANH).decode(SKETCH)
    assert decoding.params.dtype == np.float64
    assert np.abs(decoding.params - outputs_by_hand(SKETCH.mean)).max() < 1e-6
    assert decoding.converged


def test_parameters_take_their_shape():
    flat = QueryNetwork(TANH).decode(SKETCH).params
    shaped = QueryNetwork(TANH, shape=(2, 3)).decode(SKETCH).params
    assert np.array_equal(shaped, flat.reshape(2, 3))


def test_a_symmetric_matrix_is_filled_from_its_lower_triangle():
    flat = QueryNetwork(TANH).decode(SKETCH).params
    decoder = QueryNetwork(TANH, shape=(3, 3), symmetric=True)
    matrix = decoder.decode(SKETCH).params
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix[np.tril_indices(3)], flat)


@pytest.mark.parametrize("size", [1, 2, 3, 196])
def test_symmetric_matrices_come_back_from_their_triangles(size):
    square = np.random.default_rng(1).normal(size=(4, size, size))
    square += square.transpose(0, 2, 1)
    i, j = np.tril_indices(size)
    assert np.array_equal(symmetric_matrix(square[:, i, j]), square)


@pytest.mark.parametrize(
    ("shape", "symmetric"), [((7,), False), ((2, 2), True), ((2, 3), True)]
)
def test_shapes_the_network_does_not_fill_are_refused(shape, symmetric):
    with pytest.raises(FeatureMapError, match="6 outputs does not fill"):
        QueryNetwork(TANH, shape=shape, symmetric=symmetric)


def test_decoding_is_in_evaluation_mode_and_training_on_does_not_change_it():
    network = build_network(NetworkSpec(8, 2, "resnet", depth=1, width=4))
    network(torch.randn(30, 8, generator=torch.Generator().manual_seed(0)))
    expected = network.eval()(torch.tensor(SKETCH.mean).float()).detach().numpy()
    decoder = QueryNetwork(network.train().freeze())
    assert np.allclose(decoder.decode(SKETCH).params, expected, atol=1e-6)
    assert network.training
    with torch.no_grad():
        network.layers.last.bias.add_(5.0)
    assert np.allclose(decoder.decode(SKETCH).params, expected, atol=1e-6)


def test_a_sketch_of_another_size_is_refused():
    other = sketch_rows(ROWS, FourierFeatures(3, 10))
    with pytest.raises(FeatureMapMismatch, match="reads 8 numbers .* has 10"):
        QueryNetwork(TANH).decode(other)


def test_a_sketch_of_another_pooling_is_refused():
    other = sketch_rows(ROWS, PHI, pooling="max")
    with pytest.raises(PoolingError, match="'mean', and this one is pooled by 'max'"):
        QueryNetwork(TANH).decode(other)
    assert QueryNetwork(TANH, pooling="max").decode(other).params.shape == (6,)


def test_only_sketches_of_the_map_it_was_trained_with_are_decoded():
    spec = NetworkSpec(3, 8, head="tanh")
    phi = NetworkFeatures(spec, initial_tensors(spec, seed=0))
    other = NetworkFeatures(spec, initial_tensors(spec, seed=1))
    decoder = QueryNetwork(TANH, digest=phi.digest)
    for mine in (phi, clipped(phi, norm_bound=1.0)):
        assert decoder.decode(sketch_rows(ROWS, mine)).params.shape == (6,)
    for foreign in (other, PHI):
        with pytest.raises(FeatureMapMismatch, match="trained with Sketch Network"):
            decoder.decode(sketch_rows(ROWS, foreign))


def test_a_private_sketch_is_clamped_to_what_a_mean_can_be():
    # Cosines of zeros: without noise the mean is (0.05, 0), on the bound.
    phi = clipped(FourierFeatures(3, 2), norm_bound=0.05)
    sketch = sketch_rows(np.zeros((500, 3)), phi)
    private = release_seeded(sketch, 5, epsilon=0.5, delta=1e-5)
    assert private.mean[0] > 0.051
    tensors = {"layers.last.weight": np.eye(2), "layers.last.bias": np.zeros(2)}
    identity = FrozenNetwork(NetworkSpec(2, 2), tensors)
    found = QueryNetwork(identity).decode(private).params
    assert found == pytest.approx([0.05, private.mean[1]], rel=1e-6)
