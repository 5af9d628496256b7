"""A network computes its formula, from a seed and nothing else, within its bound."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import nn

from sketchlearn.errors import FeatureMapError
from sketchlearn.networks import (
    NetworkSpec,
    build_network,
    export_tensors,
    import_tensors,
    spectral_bound,
)

RESNET = NetworkSpec(5, 3, kind="resnet", depth=2, width=7)
TRANSFORMER = NetworkSpec(5, 3, kind="transformer", depth=2, width=7, head="sigmoid")
LINEAR = NetworkSpec(5, 3, head="tanh")
SPECS = [LINEAR, RESNET, TRANSFORMER]
ROWS = np.random.default_rng(0).normal(size=(40, 5))


def trained(spec):
    """A network whose norms have seen data, in evaluation mode."""
    network = build_network(spec, seed=1)
    rng = np.random.default_rng(2)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if "norm" in name and tensor.is_floating_point():
                values = rng.uniform(0.5, 1.5, tensor.shape)
                tensor.copy_(torch.from_numpy(values))
    return network.eval()


def by_hand(spec, w, x):
    """The formula of NetworkSpec in NumPy."""

    def affine(name, h):
        return h @ w[f"{name}.weight"].T.astype(float) + w[f"{name}.bias"]

    def norm(name, h):
        gain, shift = w[f"{name}.weight"], w[f"{name}.bias"]
        if spec.kind == "resnet":
            mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        else:
            mean, var = h.mean(axis=1)[:, None], h.var(axis=1)[:, None]
        return (h - mean) / np.sqrt(var + 1e-5) * gain + shift

    def act(h):
        if spec.kind == "resnet":
            return np.maximum(h, 0)
        return h * (1 + erf(h / np.sqrt(2))) / 2

    if spec.kind != "linear":
        x = affine("layers.first", x)
        for t in range(spec.depth):
            block = f"layers.block{t}.body"
            inner = act(affine(f"{block}.inner", norm(f"{block}.norm", x)))
            x = x + affine(f"{block}.outer", inner)
        x = act(norm("layers.norm", x))
    y = affine("layers.last", x)
    heads = {
        None: lambda v: v,
        "tanh": np.tanh,
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    }
    return heads[spec.head](y)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_network_is_its_formula(spec):
    network = trained(spec)
    found = network(torch.from_numpy(ROWS).float()).detach().numpy()
    expected = by_hand(spec, export_tensors(network), ROWS)
    assert np.abs(found - expected).max() < 1e-5


def test_leading_dimensions_are_kept_and_do_not_matter():
    network = trained(RESNET)
    rows = torch.from_numpy(ROWS).float()
    nested = network(rows.reshape(2, 4, 5, 5))
    assert nested.shape == (2, 4, 5, 3)
    assert torch.allclose(nested.reshape(40, 3), network(rows), atol=1e-6)


def test_the_seed_decides_the_weights_and_the_global_state_nothing():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = export_tensors(build_network(RESNET, seed=3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    again = export_tensors(build_network(RESNET, seed=3))
    other = export_tensors(build_network(RESNET, seed=4))
    name = "layers.block1.body.inner.weight"
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first[name], other[name])
    assert np.abs(first[name]).max() <= 7**-0.5


def test_tensors_carry_a_network_over_with_its_running_statistics():
    source, target = trained(RESNET), build_network(RESNET, seed=9).eval()
    import_tensors(target, export_tensors(source))
    rows = torch.from_numpy(ROWS).float()
    assert torch.equal(source(rows), target(rows))


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


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_no_two_inputs_come_further_apart_than_the_bound(spec):
    network = trained(spec).double()
    bound = spectral_bound(network)
    rng = np.random.default_rng(3)
    left = torch.from_numpy(rng.normal(size=(500, 5)))
    # Small steps find the steepest slopes.
    right = left + torch.from_numpy(rng.normal(size=(500, 5)) * 1e-4)
    moved = (network(left) - network(right)).norm(dim=1)
    assert (moved <= bound * (left - right).norm(dim=1)).all()


def test_the_bound_of_affine_layers_is_the_product_of_spectral_norms():
    spec = NetworkSpec(30, 20, head="sigmoid")
    network = build_network(spec)
    weight = export_tensors(network)["layers.last.weight"].astype(float)
    expected = np.linalg.norm(weight, 2) / 4
    assert spectral_bound(network) == pytest.approx(expected, rel=1e-10)


def test_the_bound_of_a_block_is_one_plus_that_of_its_body():
    block = trained(RESNET).layers.block0
    parts = [
        np.linalg.norm(layer.weight.detach().numpy().astype(float), 2)
        for layer in (block.body.inner, block.body.outer)
    ]
    norm = block.body.norm
    slope = (norm.weight / (norm.running_var + 1e-5).sqrt()).abs().max().item()
    expected = 1 + slope * parts[0] * parts[1]
    assert spectral_bound(block) == pytest.approx(expected, rel=1e-6)


def test_the_slope_of_gelu_is_nowhere_above_its_bound_and_somewhere_close():
    x = torch.linspace(-5, 5, 100_001, dtype=torch.float64, requires_grad=True)
    nn.functional.gelu(x).sum().backward()
    steepest = float(x.grad.max())
    assert steepest <= spectral_bound(nn.GELU()) < steepest + 1e-4


def test_layer_norm_reaches_its_bound_near_constant_inputs():
    layer = nn.LayerNorm(4).double()
    left = torch.zeros(4, dtype=torch.float64)
    right = torch.tensor([1e-6, -1e-6, 0, 0], dtype=torch.float64)
    with torch.no_grad():
        slope = float((layer(left) - layer(right)).norm() / right.norm())
    assert slope == pytest.approx(spectral_bound(layer), rel=1e-4)


def test_batch_norm_in_training_mode_has_no_bound():
    with pytest.raises(FeatureMapError, match=r"\.eval\(\)"):
        spectral_bound(build_network(RESNET).train())


def test_layers_nobody_knows_have_no_bound():
    with pytest.raises(FeatureMapError, match="Softmax"):
        spectral_bound(nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=1)))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_spec_comes_back_from_its_fields(spec):
    assert NetworkSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "convnet"}, "kind must be one of linear, resnet"),
        ({"head": "softmax"}, "head must be"),
        ({"n_inputs": 0}, "n_inputs of a resnet network"),
        ({"depth": 1.5}, "depth .* got 1.5"),
        ({"width": True}, "width .* got True"),
        ({"kind": "linear"}, "no hidden layers"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(FeatureMapError, match=message):
        dataclasses.replace(RESNET, **change)


def test_unknown_and_missing_fields_are_refused():
    with pytest.raises(FeatureMapError, match="no field 'dropout'"):
        NetworkSpec.from_dict({**RESNET.to_dict(), "dropout": 0.1})
    with pytest.raises(FeatureMapError, match="n_outputs"):
        NetworkSpec.from_dict({"n_inputs": 3})
