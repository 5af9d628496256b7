"""An SQNet is its two halves, a map and a decoder, and comes back from its file."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from sketchlearn import Scaling, sketch_rows
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, SketchFileError
from sketchlearn.features.activation import Activation, random_activations
from sketchlearn.features.network import NetworkFeatures, lower_products
from sketchlearn.features.table import TableFeatures
from sketchlearn.files.weights import Weights
from sketchlearn.sqnet import SQNet, SQNetSpec

D = 4
ROWS = np.random.default_rng(0).normal(size=(3, 60, D)).astype(np.float32)
RESIDUAL = {"kind": "resnet", "depth": 1, "width": 6}
PCA = SQNetSpec(D, 7, inputs="outer", output="symmetric", decoder={"head": "tanh"})
SET = SQNetSpec(
    D, 5, feature={**RESIDUAL, "head": "tanh"}, decoder={**RESIDUAL, "head": "sigmoid"}
)
POOLS = {
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
    "min": lambda x: x.min(axis=0),
    "log-sum-exp": lambda x: np.log(np.exp(x).sum(axis=0)),
    "p-norm:3.0": lambda x: (np.abs(x) ** 3).sum(axis=0) ** (1 / 3),
}


@pytest.mark.parametrize("pooling", POOLS)
@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_a_sketch_decodes_to_one_network_of_the_pool_of_the_other(spec, pooling):
    net = SQNet.initial(dataclasses.replace(spec, pooling=pooling), seed=1)
    phi = net.feature_map(value_bound=16.0 if spec is PCA else None)
    sketch = sketch_rows(ROWS[0], phi, pooling=pooling)
    inputs = lower_products(ROWS[0].astype(float)) if spec is PCA else ROWS[0]
    pooled = POOLS[pooling](net.feature_network(inputs))
    params = net.decoder().decode(sketch).params
    if spec.output == "symmetric":
        assert params.shape == (D, D)
        params = params[np.tril_indices(D)]
    assert np.abs(params - net.decoder_network(pooled)).max() < 1e-4


def test_feature_maps_take_a_scaling():
    net = SQNet.initial(SET, seed=1)
    scaling = Scaling.from_bounds(-4.0, 4.0, n_features=D)
    phi = net.feature_map(scaling=scaling)
    assert np.abs(phi(ROWS[0]) - net.feature_network(scaling(ROWS[0]))).max() < 1e-5


def test_a_sketch_of_another_network_is_not_decoded():
    mine, other = SQNet.initial(SET, seed=0), SQNet.initial(SET, seed=1)
    sketch = sketch_rows(ROWS[0], other.feature_map())
    with pytest.raises(FeatureMapMismatch, match="same model"):
        mine.decoder().decode(sketch)


def test_the_seed_decides_every_weight():
    def tensors(seed):
        return SQNet.initial(SET, seed=seed).tensors

    first, again, other = tensors(3), tensors(3), tensors(4)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    for half in ("feature", "decoder"):
        name = f"{half}.layers.last.weight"
        assert not np.array_equal(first[name], other[name])


@pytest.mark.parametrize("spec", [PCA, SET], ids=["pca", "set"])
def test_a_network_comes_back_from_its_file(spec, tmp_path):
    net = SQNet.initial(spec, seed=1)
    net.save(tmp_path / "net.safetensors", card={"seed": 1})
    again = SQNet.load(tmp_path / "net.safetensors")
    assert again.spec == spec
    assert again.tensors.keys() == net.tensors.keys()
    assert all(np.array_equal(again.tensors[n], net.tensors[n]) for n in net.tensors)
    assert again.feature_map() == net.feature_map()
    with pytest.raises(SketchFileError, match="SHA-256"):
        SQNet.load(tmp_path / "net.safetensors", checksum="0" * 64)


def test_weights_of_something_else_are_refused():
    weights = SQNet.initial(SET).to_weights()
    with pytest.raises(FeatureMapError, match="SQNet is built from 'sqnet'"):
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
        ({"sketch_size": 0}, "sketch_size must be a whole number from 1"),
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


ITEMS = np.random.default_rng(3).integers(0, 2, (40, 12)).astype(float)
DECODER = {"kind": "transformer", "depth": 1, "width": 9, "head": "sigmoid"}


@pytest.mark.parametrize("kind", ["ternary", "binary"])
@pytest.mark.parametrize("pooling", ["mean", "max", "min"])
def test_whole_weights_are_a_table_whose_sketch_is_decoded_all_the_same(kind, pooling):
    spec = SQNetSpec(
        12, 6, feature={"kind": kind, "windows": 2}, decoder=DECODER, pooling=pooling
    )
    net = SQNet.initial(spec, seed=1)
    phi = net.feature_map()
    assert isinstance(phi, TableFeatures)
    assert set(np.unique(phi.table)) <= {-1, 0, 1}
    sketch = sketch_rows(ITEMS, phi, pooling=pooling)
    whole = POOLS[pooling](ITEMS @ phi.table)
    assert np.array_equal(sketch.pooled, whole)
    expected = net.decoder_network(POOLS[pooling](net.feature_network(ITEMS)))
    assert np.allclose(net.decoder().decode(sketch).params, expected, atol=1e-9)


def test_a_table_takes_rows_of_as_many_items_as_it_is_told():
    net = SQNet.initial(SQNetSpec(12, 6, feature={"kind": "ternary"}, decoder=DECODER))
    phi = net.feature_map(value_bound=3)
    assert (phi.row_items, net.feature_map().row_items) == (3, 12)
    sketch = sketch_rows(np.eye(12)[:5], phi)
    assert net.decoder().decode(sketch).params.shape == (12,)
    with pytest.raises(FeatureMapError, match="leave scaling out"):
        net.feature_map(scaling=Scaling.from_bounds(0, 1, n_features=12))
    other = SQNet.initial(net.spec, seed=9)
    with pytest.raises(FeatureMapMismatch, match="same model"):
        other.decoder().decode(sketch)


def test_powers_of_whole_weights_are_those_of_the_network():
    spec = SQNetSpec(12, 6, feature={"kind": "ternary"}, pooling="p-norm:2")
    assert isinstance(SQNet.initial(spec).feature_map(), NetworkFeatures)


@pytest.mark.parametrize("activation", get_args(Activation))
def test_an_rfqnet_has_random_features_and_a_query_network(activation, tmp_path):
    random = {"activation": activation, "variance": 0.5, "seed": 3}
    net = SQNet.initial(SQNetSpec(12, 6, random=random, decoder=DECODER), seed=1)
    assert all(name.startswith("decoder.") for name in net.tensors)
    net.save(tmp_path / "net.safetensors")
    again = SQNet.load(tmp_path / "net.safetensors")
    assert (
        again.feature_map() == net.feature_map() == random_activations(12, 6, **random)
    )
    sketch = sketch_rows(ITEMS, net.feature_map())
    expected = net.decoder_network(net.feature_map()(ITEMS).mean(axis=0))
    assert np.allclose(again.decoder().decode(sketch).params, expected)
    with pytest.raises(FeatureMapError, match="leave value_bound out"):
        net.feature_map(value_bound=2.0)
    other = random_activations(12, 6, activation=activation, seed=4)
    with pytest.raises(FeatureMapMismatch, match="same model"):
        net.decoder().decode(sketch_rows(ITEMS, other))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"random": {"kernel": "gaussian"}},
            "random of an SQNet .* 'kernel' is not one of them",
        ),
        ({"random": {"variance": -1.0}}, "positive variance"),
        ({"random": {"seed": 1}, "feature": {"kind": "ternary"}}, "leave inputs and"),
        ({"feature": {"windows": 5}}, "5 windows must divide"),
        ({"feature": {"window": 2}}, "feature has no field 'window'"),
    ],
)
def test_specs_of_nets_of_items_that_make_no_sense_are_refused(given, message):
    with pytest.raises(FeatureMapError, match=message):
        SQNetSpec(12, 6, **given)
