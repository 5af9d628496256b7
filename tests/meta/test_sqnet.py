"""An SQNet in training computes what exact sketches decode to once it is frozen."""

import dataclasses

import numpy as np
import pytest
import torch

from sketchlearn import Scaling, sketch_rows
from sketchlearn.errors import FeatureMapError
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.registry import load_model
from sketchlearn.sqnet import SQNet, SQNetSpec

D = 4
ROWS = np.random.default_rng(0).normal(size=(3, 60, D)).astype(np.float32)
RESIDUAL = {"kind": "resnet", "depth": 1, "width": 6}
PCA = SQNetSpec(D, 7, inputs="outer", output="symmetric", decoder={"head": "tanh"})
SET = SQNetSpec(
    D, 5, feature={**RESIDUAL, "head": "tanh"}, decoder={**RESIDUAL, "head": "sigmoid"}
)
POOLINGS = ["mean", "max", "min", "log-sum-exp", "p-norm:3.0"]


def trained(spec):
    net = TrainableSQNet(spec, seed=1)
    generator = torch.Generator().manual_seed(0)
    net(torch.randn(8, 30, D, generator=generator))  # batch norms see some data
    return net.eval()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_exact_sketches_decode_to_what_the_network_computes(spec, pooling):
    net = trained(dataclasses.replace(spec, pooling=pooling))
    expected = net(torch.from_numpy(ROWS)).detach().numpy()
    bound, frozen = 16.0 if spec is PCA else None, net.freeze()
    phi, psi = frozen.feature_map(value_bound=bound), frozen.decoder()
    for rows, numbers in zip(ROWS, expected, strict=True):
        params = psi.decode(sketch_rows(rows, phi, pooling=pooling)).params
        if spec.output == "symmetric":
            assert params.shape == (D, D)
            params = params[np.tril_indices(D)]
        assert np.abs(params - numbers).max() < 1e-4


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_differentiable(pooling):
    net = trained(dataclasses.replace(SET, pooling=pooling))
    net.sketch(torch.from_numpy(ROWS)).sum().backward()
    gradient = net.feature_network.layers.last.weight.grad
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


def test_sketches_of_moments_are_those_of_the_rows():
    net = trained(PCA)
    rows = torch.from_numpy(ROWS)
    moments = rows.mT @ rows / rows.shape[1]
    assert torch.allclose(net.sketch_moments(moments), net.sketch(rows), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"pooling": "max"}, {"inputs": "rows"}, {"feature": {"head": "tanh"}}],
)
def test_other_networks_are_no_function_of_the_moments(change):
    net = TrainableSQNet(dataclasses.replace(PCA, **change))
    with pytest.raises(FeatureMapError, match=r"Use sketch\(rows\)"):
        net.sketch_moments(torch.eye(D))


def test_the_order_of_rows_does_not_matter():
    net, order = trained(SET), torch.randperm(60, generator=torch.Generator())
    rows = torch.from_numpy(ROWS)
    assert torch.allclose(net(rows[:, order]), net(rows), atol=1e-5)


def test_feature_maps_take_a_scaling():
    net = trained(SET)
    scaling = Scaling.from_bounds(-4.0, 4.0, n_features=D)
    phi = net.freeze().feature_map(scaling=scaling)
    scaled = torch.from_numpy(scaling(ROWS[0]).astype(np.float32))
    assert np.abs(phi(ROWS[0]) - net.features(scaled).detach().numpy()).max() < 1e-5


def test_training_starts_from_the_first_weights_of_the_seed():
    found, expected = TrainableSQNet(SET, seed=3).freeze(), SQNet.initial(SET, seed=3)
    assert found.tensors.keys() == expected.tensors.keys()
    for name, array in expected.tensors.items():
        assert np.array_equal(found.tensors[name], array)


@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_training_goes_on_from_what_was_saved(spec, tmp_path):
    net = trained(spec)
    net.freeze().save(tmp_path / "net.safetensors")
    again = TrainableSQNet.thaw(SQNet.load(tmp_path / "net.safetensors"))
    assert not again.training
    assert torch.equal(again(torch.from_numpy(ROWS)), net(torch.from_numpy(ROWS)))
    assert again.freeze().feature_map() == net.freeze().feature_map()


def test_a_packaged_model_stays_one_until_its_sketch_network_is_tuned():
    net = TrainableSQNet.thaw(load_model("pca-sqnet-100"))
    with torch.no_grad():
        net.decoder_network.layers.last.bias.add_(0.5)
    assert net.freeze().feature_map().model.name == "pca-sqnet"
    with torch.no_grad():
        net.feature_network.layers.last.bias.add_(0.5)
    tuned = net.freeze().feature_map()
    assert tuned.model is None
    assert tuned.stored_weights
