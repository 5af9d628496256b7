"""A learned map is a map: frozen, exact, bounded, storable, and never in training."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch

from contracts import check_feature_map
from sketchlearn import (
    ConcatenatedFeatures,
    Ledger,
    QuadraticFeatures,
    Scaling,
    clipped,
    dumps,
    load,
    loads,
    release,
    save,
    sketch_rows,
)
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    PrivacyError,
    RowRangeError,
)
from sketchlearn.features.build import build_map
from sketchlearn.features.network import NetworkFeatures, lower_products
from sketchlearn.meta.networks import build_network, export_tensors
from sketchlearn.networks.forward import NetworkSpec

D = 6
ROWS = np.random.default_rng(0).normal(size=(300, D)).astype(np.float32)
PAIRS = D * (D + 1) // 2
SPECS = {
    "linear": NetworkSpec(D, 5),
    "linear-tanh": NetworkSpec(D, 33, head="tanh"),
    "resnet": NetworkSpec(D, 9, kind="resnet", depth=2, width=3),
    "resnet-sigmoid": NetworkSpec(D, 3, "resnet", depth=1, width=40, head="sigmoid"),
    "transformer": NetworkSpec(D, 20, kind="transformer", depth=2, width=5),
    "transformer-tanh": NetworkSpec(D, 2, "transformer", 1, 17, head="tanh"),
}
OUTER = NetworkSpec(PAIRS, 7)


def trained(spec, seed=0):
    """A network whose batch norms have seen other data than ours."""
    network = build_network(spec, seed=seed)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        network(torch.randn(50, spec.n_inputs, generator=generator) * 2 + 1)
    return network


def features(spec, **options):
    return NetworkFeatures(spec, export_tensors(trained(spec)), **options)


MAPS = {name: features(spec) for name, spec in SPECS.items()}
MAPS["outer"] = features(OUTER, inputs="outer")
MAPS["scaled"] = features(
    SPECS["resnet"], scaling=Scaling.from_bounds(-9.0, 9.0, n_features=D)
)
MAPS["clipped"] = clipped(MAPS["resnet"], norm_bound=0.5)
MAPS["beside"] = ConcatenatedFeatures([MAPS["transformer"], MAPS["linear-tanh"]])


@pytest.mark.parametrize("name", MAPS)
def test_a_learned_map_keeps_the_contract(name):
    check_feature_map(MAPS[name], ROWS)


@pytest.mark.parametrize("width", [1, 2, 15, 16, 31, 100])
@pytest.mark.parametrize("kind", ["resnet", "transformer"])
def test_rows_have_the_same_bits_in_every_batch_whatever_the_width(kind, width):
    phi = features(NetworkSpec(D, width, kind, depth=1, width=width))
    single = np.concatenate([phi(row[None]) for row in ROWS])
    assert np.array_equal(phi(ROWS), single)


@pytest.mark.parametrize("name", SPECS)
def test_features_are_those_of_the_network_in_evaluation_mode(name):
    network = trained(SPECS[name]).eval()
    expected = network(torch.from_numpy(ROWS)).detach().numpy()
    assert np.abs(MAPS[name](ROWS) - expected).max() < 1e-5


def test_no_map_is_ever_in_training_mode():
    spec = SPECS["resnet"]
    network = trained(spec).train()
    phi = NetworkFeatures(spec, export_tensors(network))
    in_training = network(torch.from_numpy(ROWS[:10])).detach().numpy()
    assert np.abs(phi(ROWS[:10]) - in_training).max() > 0.01
    alone = np.concatenate([phi(row[None]) for row in ROWS[:10]])
    assert np.array_equal(phi(ROWS[:10]), alone)


def test_training_on_does_not_change_a_map():
    network = trained(SPECS["resnet"])
    phi = NetworkFeatures(SPECS["resnet"], export_tensors(network))
    before, fingerprint = phi(ROWS), phi.fingerprint
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(1.0)
    network(torch.randn(50, D))
    assert np.array_equal(phi(ROWS), before)
    assert phi.fingerprint == fingerprint


def test_outer_products_are_ordered_as_in_quadratic_features():
    quadratic = QuadraticFeatures(D, 7, law="gaussian", seed=3)
    tensors = {
        "layers.last.weight": quadratic.matrix.astype(np.float32),
        "layers.last.bias": np.zeros(7, np.float32),
    }
    phi = NetworkFeatures(OUTER, tensors, inputs="outer")
    assert np.abs(phi(ROWS) - quadratic(ROWS)).max() < 1e-5


def test_lower_products_of_one_row_by_hand():
    products = lower_products(np.array([[2.0, 3.0, 5.0]]))
    assert products.tolist() == [[4, 6, 9, 10, 15, 25]]


@pytest.mark.parametrize("name", SPECS)
def test_only_a_head_bounds_the_norm(name):
    phi, head = MAPS[name], SPECS[name].head
    assert (phi.norm_bound is not None) == (head is not None)
    if head:
        assert phi.norm_bound == pytest.approx(phi.sketch_size**0.5, rel=1e-14)
        assert Fraction(phi.norm_bound) ** 2 >= phi.sketch_size
        far = np.abs(phi(ROWS * 1e5))
        assert far.max() <= phi.value_bound == 1.0


def test_a_feature_beyond_its_bound_is_an_error():
    phi = features(SPECS["linear"], value_bound=2.0)
    rows = np.zeros((3, D))
    rows[1] = 100.0
    with pytest.raises(RowRangeError, match="row 1 "):
        sketch_rows(rows, phi)


# Sketches of learned maps.


@pytest.mark.parametrize("name", MAPS)
def test_merging_and_forgetting_are_exact(name):
    phi = MAPS[name]
    whole = sketch_rows(ROWS, phi)
    left, right = sketch_rows(ROWS[:70], phi), sketch_rows(ROWS[70:], phi)
    assert left + right == whole
    assert whole - right == left
    assert np.abs(whole.mean - phi(ROWS).mean(axis=0)).max() < 1e-5


def test_maps_of_other_weights_do_not_merge():
    spec = SPECS["resnet"]
    other = NetworkFeatures(spec, export_tensors(trained(spec, seed=5)))
    with pytest.raises(FeatureMapMismatch, match="first difference: digest"):
        _ = sketch_rows(ROWS, MAPS["resnet"]) + sketch_rows(ROWS, other)


@pytest.mark.parametrize("name", ["clipped", "linear-tanh"])
def test_a_bounded_learned_map_can_be_released(name, tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=2.0, delta=1e-6)
    rows = np.tile(ROWS, (20, 1))
    private = release(
        sketch_rows(rows, MAPS[name]), epsilon=2.0, delta=1e-6, ledger=ledger
    )
    assert np.abs(private.mean - MAPS[name](ROWS).mean(axis=0)).max() < 0.2


def test_weights_trained_on_private_rows_are_not_released(tmp_path):
    phi = features(SPECS["linear-tanh"], origin="data")
    assert phi.origin == phi.spec.origin == "data"
    ledger = Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError):
        release(sketch_rows(ROWS, phi), epsilon=1.0, delta=1e-6, ledger=ledger)


def test_a_scaling_read_from_data_makes_the_map_one_of_data():
    scaling = dataclasses.replace(Scaling.identity(D), origin="data")
    assert features(SPECS["linear-tanh"], scaling=scaling).origin == "data"
    assert features(SPECS["linear-tanh"]).origin == "declared"


# Files.


@pytest.mark.parametrize("name", MAPS)
def test_a_map_comes_back_from_its_file(name, tmp_path):
    save(MAPS[name], tmp_path / "phi.map")
    again = load(tmp_path / "phi.map")
    assert again == MAPS[name]
    assert np.array_equal(again(ROWS), MAPS[name](ROWS))


def test_a_sketch_meets_its_map_again(tmp_path):
    sketch = sketch_rows(ROWS, MAPS["resnet"])
    alone = loads(dumps(sketch))
    assert alone == sketch
    with pytest.raises(FeatureMapError, match="needs its weights"):
        _ = alone.feature_map
    assert loads(dumps(sketch), feature_map=MAPS["resnet"]).feature_map


def test_negative_zeros_are_zeros():
    spec = SPECS["linear"]
    tensors = export_tensors(trained(spec))
    tensors["layers.last.bias"][:] = 0.0
    positive = NetworkFeatures(spec, tensors)
    tensors["layers.last.bias"][:] = -0.0
    negative = NetworkFeatures(spec, tensors)
    assert positive == negative
    assert loads(dumps(negative)) == positive


def test_tensors_of_another_map_are_refused():
    phi = MAPS["resnet"]
    other = export_tensors(trained(SPECS["resnet"], seed=5))
    with pytest.raises(FeatureMapError, match="Load the map from its own file"):
        build_map(phi.description, other)


@pytest.mark.parametrize(
    "network",
    [
        {"n_inputs": 10**6, "n_outputs": 10**6},
        {"n_inputs": 2, "n_outputs": 2, "kind": "resnet", "depth": 9, "width": 10**5},
    ],
)
def test_a_description_of_a_monstrous_network_is_refused_before_it_is_built(network):
    description = {**MAPS["resnet"].description, "network": network}
    weights = export_tensors(trained(SPECS["resnet"]))
    with pytest.raises(FeatureMapError, match="max_bytes"):
        build_map(description, weights)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (NetworkSpec(7, 2), {"inputs": "outer"}, "6 would fit rows of 3"),
        (NetworkSpec(7, 2), {"inputs": "columns"}, "inputs must be"),
        (NetworkSpec(7, 2), {"origin": "guess"}, "origin must be"),
        (NetworkSpec(7, 2), {"value_bound": 0.0}, "value_bound must be"),
        (NetworkSpec(7, 2, head="tanh"), {"value_bound": 2.0}, "leave value_bound"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(spec, options, message):
    with pytest.raises(FeatureMapError, match=message):
        features(spec, **options)


def test_a_map_without_weights_is_refused():
    with pytest.raises(FeatureMapError, match="needs its tensors"):
        NetworkFeatures(SPECS["linear"])
