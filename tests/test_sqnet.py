"""An SQNet is its two halves: exact sketches decode to what training computes."""

import dataclasses

import numpy as np
import pytest
import torch

from sketchlearn import Scaling, sketch_rows
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, SketchFileError
from sketchlearn.sqnet import SQNet, SQNetSpec
from sketchlearn.weights import Weights

D = 4
ROWS = np.random.default_rng(0).normal(size=(3, 60, D)).astype(np.float32)
RESIDUAL = {"kind": "resnet", "depth": 1, "width": 6}
PCA = SQNetSpec(D, 7, inputs="outer", output="symmetric", decoder={"head": "tanh"})
SET = SQNetSpec(
    D, 5, feature={**RESIDUAL, "head": "tanh"}, decoder={**RESIDUAL, "head": "sigmoid"}
)
POOLINGS = ["mean", "max", "min", "log-sum-exp", "p-norm:3.0"]


def trained(spec):
    net = SQNet(spec, seed=1)
    generator = torch.Generator().manual_seed(0)
    net(torch.randn(8, 30, D, generator=generator))  # batch norms see some data
    return net.eval()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_exact_sketches_decode_to_what_the_network_computes(spec, pooling):
    net = trained(dataclasses.replace(spec, pooling=pooling))
    expected = net(torch.from_numpy(ROWS)).detach().numpy()
    bound = 16.0 if spec is PCA else None
    phi, psi = net.feature_map(value_bound=bound), net.decoder()
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
    net = SQNet(dataclasses.replace(PCA, **change))
    with pytest.raises(FeatureMapError, match=r"Use sketch\(rows\)"):
        net.sketch_moments(torch.eye(D))


def test_the_order_of_rows_does_not_matter():
    net, order = trained(SET), torch.randperm(60, generator=torch.Generator())
    rows = torch.from_numpy(ROWS)
    assert torch.allclose(net(rows[:, order]), net(rows), atol=1e-5)


def test_feature_maps_take_a_scaling():
    net = trained(SET)
    scaling = Scaling.from_bounds(-4.0, 4.0, n_features=D)
    phi = net.feature_map(scaling=scaling)
    scaled = torch.from_numpy(scaling(ROWS[0]).astype(np.float32))
    assert np.abs(phi(ROWS[0]) - net.features(scaled).detach().numpy()).max() < 1e-5


def test_a_sketch_of_another_network_is_not_decoded():
    mine, other = SQNet(SET, seed=0), SQNet(SET, seed=1)
    sketch = sketch_rows(ROWS[0], other.feature_map())
    with pytest.raises(FeatureMapMismatch, match="same model"):
        mine.decoder().decode(sketch)


def test_the_seed_decides_every_weight():
    def tensors(seed):
        return SQNet(SET, seed=seed).to_weights().tensors

    first, again, other = tensors(3), tensors(3), tensors(4)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    for half in ("feature", "decoder"):
        name = f"{half}.layers.last.weight"
        assert not np.array_equal(first[name], other[name])


@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_a_network_comes_back_from_its_file(spec, tmp_path):
    net = trained(spec)
    net.save(tmp_path / "net.safetensors", card={"seed": 1})
    again = SQNet.load(tmp_path / "net.safetensors")
    assert again.spec == spec
    assert not again.training
    assert torch.equal(again(torch.from_numpy(ROWS)), net(torch.from_numpy(ROWS)))
    assert again.feature_map() == net.feature_map()
    with pytest.raises(SketchFileError, match="SHA-256"):
        SQNet.load(tmp_path / "net.safetensors", checksum="0" * 64)


def test_weights_of_something_else_are_refused():
    weights = SQNet(SET).to_weights()
    with pytest.raises(FeatureMapError, match="not of an SQNet"):
        SQNet.from_weights(dataclasses.replace(weights, kind="equivariant"))
    more = {**weights.tensors, "extra.w": np.float32([1.0])}
    with pytest.raises(FeatureMapError, match="belong to no part"):
        SQNet.from_weights(Weights("sqnet", weights.spec, more))
    less = {n: a for n, a in weights.tensors.items() if n != "decoder.layers.last.bias"}
    with pytest.raises(FeatureMapError, match=r"'layers.last.bias' .* missing"):
        SQNet.from_weights(Weights("sqnet", weights.spec, less))


@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_a_spec_comes_back_from_its_fields(spec):
    assert SQNetSpec.from_dict(spec.to_dict()) == spec


def test_sizes_follow_from_what_goes_in_and_comes_out():
    assert (PCA.feature_network.n_inputs, PCA.feature_network.n_outputs) == (10, 7)
    assert (PCA.decoder_network.n_inputs, PCA.decoder_network.n_outputs) == (7, 10)
    assert SQNetSpec(D, 7, n_outputs=2).decoder_network.n_outputs == 2
    assert SQNetSpec(D, 7).n_outputs == D


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "columns"}, "inputs must be one of rows, outer"),
        ({"output": "matrix"}, "output must be one of vector, symmetric"),
        ({"feature": {"dropout": 0.5}}, "feature has no field 'dropout'"),
        ({"decoder": {"kind": "resnet"}}, "depth of a resnet network"),
        ({"sketch_size": 0}, "n_outputs of a linear network"),
        ({"n_features": "4"}, "n_features must be a whole number"),
        ({"pooling": "median"}, "unknown pooling 'median'"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SQNetSpec(**{"n_features": D, "sketch_size": 7, **change})


def test_unknown_fields_are_refused():
    with pytest.raises(FeatureMapError, match="no field 'optimizer'"):
        SQNetSpec.from_dict({**PCA.to_dict(), "optimizer": "adam"})
