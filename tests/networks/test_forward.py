"""A network computes its formula, from a seed and nothing else, within its bound."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import erf

from sketchlearn.errors import FeatureMapError
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.networks.layers import (
    Affine,
    Gelu,
    LayerNorm,
    Relu,
    Residual,
    Scale,
    Sigmoid,
    Tanh,
)
from sketchlearn.networks.lipschitz import spectral_bound

RESNET = NetworkSpec(5, 3, kind="resnet", depth=2, width=7)
TRANSFORMER = NetworkSpec(5, 3, kind="transformer", depth=2, width=7, head="sigmoid")
LINEAR = NetworkSpec(5, 3, head="tanh")
SPECS = [LINEAR, RESNET, TRANSFORMER]
ROWS = np.random.default_rng(0).normal(size=(40, 5))


def trained(spec):
    """A network whose norms have seen data."""
    tensors, rng = initial_tensors(spec, seed=1), np.random.default_rng(2)
    for name, array in tensors.items():
        if "norm" in name:
            tensors[name] = rng.uniform(0.5, 1.5, array.shape).astype(np.float32)
    return FrozenNetwork(spec, tensors)


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
    found = network(ROWS)
    assert found.dtype == np.float64
    exact = {name: array.astype(float) for name, array in network.tensors.items()}
    assert np.abs(found - by_hand(spec, exact, ROWS)).max() < 1e-12


def test_leading_dimensions_are_kept_and_do_not_matter():
    network = trained(RESNET)
    nested = network(ROWS.reshape(2, 4, 5, 5))
    assert nested.shape == (2, 4, 5, 3)
    assert np.allclose(nested.reshape(40, 3), network(ROWS))


def test_layers_say_what_is_computed_in_order():
    kinds = {
        RESNET: [Affine, Residual, Residual, Scale, Relu, Affine],
        TRANSFORMER: [Affine, Residual, Residual, LayerNorm, Gelu, Affine, Sigmoid],
        LINEAR: [Affine, Tanh],
    }
    for spec, expected in kinds.items():
        layers = trained(spec).layers
        assert [type(layer) for layer in layers] == expected
        hidden = ROWS
        for layer in layers:
            hidden = layer(hidden)
        assert np.array_equal(hidden, trained(spec)(ROWS))
    body = trained(RESNET).layers[1].body
    assert [type(layer) for layer in body] == [Scale, Affine, Relu, Affine]


def test_a_batch_norm_is_the_affine_function_of_its_running_statistics():
    network = trained(RESNET)
    weight, bias, mean, variance = (
        network.tensors[f"layers.norm.{name}"].astype(float)
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale, hidden = network.layers[3], np.linspace(-2, 2, 7)
    expected = weight * (hidden - mean) / np.sqrt(variance + 1e-5) + bias
    assert np.allclose(scale(hidden), expected)
    assert scale.gain.dtype == scale.shift.dtype == np.float64


def test_the_seed_decides_the_weights():
    first, again, other = (initial_tensors(RESNET, seed) for seed in (3, 3, 4))
    name = "layers.block1.body.inner.weight"
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first[name], other[name])
    assert 0.9 * 7**-0.5 < np.abs(first[name]).max() <= 7**-0.5
    assert np.array_equal(first["layers.norm.running_var"], np.ones(7))
    assert not first["layers.norm.bias"].any()


def test_nobody_can_change_the_weights_of_a_network():
    tensors = initial_tensors(RESNET)
    network = FrozenNetwork(RESNET, tensors)
    before = network(ROWS)
    tensors["layers.last.bias"] += 1
    assert np.array_equal(FrozenNetwork(RESNET, network.tensors)(ROWS), before)
    with pytest.raises(ValueError, match="read-only"):
        network.tensors["layers.last.bias"][0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        network.layers[0].weight[0] = 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("layers.last.bias"), "missing"),
        (lambda t: t.update(extra=np.zeros(1)), "no such tensor"),
        (lambda t: t.update({"layers.last.bias": np.zeros(4)}), r"\(4,\), expected"),
    ],
)
def test_tensors_of_another_network_are_refused(change, message):
    tensors = initial_tensors(RESNET)
    change(tensors)
    with pytest.raises(FeatureMapError, match=message):
        FrozenNetwork(RESNET, tensors)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_no_two_inputs_come_further_apart_than_the_bound(spec):
    network = trained(spec)
    bound = spectral_bound(network)
    rng = np.random.default_rng(3)
    left = rng.normal(size=(500, 5))
    # Small steps find the steepest slopes.
    right = left + rng.normal(size=(500, 5)) * 1e-4
    moved = np.linalg.norm(network(left) - network(right), axis=1)
    assert (moved <= bound * np.linalg.norm(left - right, axis=1)).all()


def test_the_bound_of_affine_layers_is_the_product_of_spectral_norms():
    spec = NetworkSpec(30, 20, head="sigmoid")
    network = FrozenNetwork(spec, initial_tensors(spec))
    weight = network.tensors["layers.last.weight"].astype(float)
    expected = np.linalg.norm(weight, 2) / 4
    assert spectral_bound(network) == pytest.approx(expected, rel=1e-10)


def test_the_bound_of_a_block_is_one_plus_that_of_its_body():
    block = trained(RESNET).layers[1]
    norm, inner, _, outer = block.body
    parts = [np.linalg.norm(layer.weight, 2) for layer in (inner, outer)]
    expected = 1 + np.abs(norm.gain).max() * parts[0] * parts[1]
    assert spectral_bound(block) == pytest.approx(expected, rel=1e-6)


def test_the_slope_of_gelu_is_nowhere_above_its_bound_and_somewhere_close():
    x = np.linspace(-5, 5, 100_001)
    steepest = (np.diff(Gelu()(x)) / np.diff(x)).max()
    assert steepest <= spectral_bound(Gelu()) < steepest + 1e-4


def test_layer_norm_reaches_its_bound_near_constant_inputs():
    layer = LayerNorm(np.ones(4), np.zeros(4))
    left, right = np.zeros(4), np.array([1e-6, -1e-6, 0, 0])
    slope = np.linalg.norm(layer(left) - layer(right)) / np.linalg.norm(right)
    assert slope == pytest.approx(spectral_bound(layer), rel=1e-4)


def test_layers_nobody_knows_have_no_bound():
    with pytest.raises(FeatureMapError, match="SimpleNamespace"):
        spectral_bound(SimpleNamespace())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_spec_comes_back_from_its_fields(spec):
    assert NetworkSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "convnet"}, "kind must be one of linear, ternary, binary, resnet"),
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
