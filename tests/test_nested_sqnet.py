"""Networks of all sizes are the first rows of one basis, and come back from a file."""

from pathlib import Path

import numpy as np
import pytest

from sketchlearn import sketch_rows
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    MissingFileError,
    SketchFileError,
    UnsavableError,
)
from sketchlearn.files import models
from sketchlearn.files.weights import Weights, load_weights
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.registry import add_model, load_card, load_model
from sketchlearn.sqnet import SQNet
from sketchlearn.storage.sketches import dumps, loads

D = 4
N = D * (D + 1) // 2
RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.normal(size=(N, N)))[0].T
MEAN = RNG.normal(size=N)
NESTED = NestedSQNet.from_basis(BASIS, MEAN)
ROWS = RNG.normal(size=(50, D))


def decoded(net, rows=ROWS):
    sketch = sketch_rows(rows, net.feature_map())
    return net.decoder().decode(sketch).params


def triangle(rows=ROWS):
    return (rows.T @ rows / len(rows))[np.tril_indices(D)]


@pytest.mark.parametrize("size", [1, 3, N])
def test_a_network_projects_the_second_moment_on_its_first_rows(size):
    rows = BASIS[:size]
    expected = MEAN + rows.T @ (rows @ (triangle() - MEAN))
    found = decoded(NESTED.sized(size))[np.tril_indices(D)]
    np.testing.assert_allclose(found, expected, atol=5e-3)  # half precision


def test_a_sketch_of_all_sizes_loses_nothing():
    found = decoded(NESTED.sized(N))
    np.testing.assert_allclose(found, ROWS.T @ ROWS / 50, atol=5e-3)


def test_a_smaller_network_is_the_beginning_of_a_larger_one():
    small, large = NESTED.sized(3), NESTED.sized(7)
    for name, array in small.feature_network.tensors.items():
        assert np.array_equal(array, large.feature_network.tensors[name][:3])
    weight = "layers.last.weight"
    of_large = large.decoder_network.tensors[weight][:, :3]
    assert np.array_equal(small.decoder_network.tensors[weight], of_large)
    sketches = [sketch_rows(ROWS, net.feature_map()).mean for net in (small, large)]
    np.testing.assert_allclose(sketches[0], sketches[1][:3], atol=1e-4)


def test_the_basis_takes_two_bytes_a_number_and_comes_back(tmp_path):
    NESTED.save(tmp_path / "n.safetensors", card={"seed": 1})
    weights = load_weights(tmp_path / "n.safetensors")
    assert weights.half == {"feature.layers.last.weight"}
    assert weights.card == {"seed": 1}
    again = NestedSQNet.load(tmp_path / "n.safetensors", checksum=weights.digest)
    assert again.n_features == D
    for name, array in NESTED.tensors.items():
        assert np.array_equal(again.tensors[name], array)
    single = NESTED.sized(N).to_weights()
    single_bytes, bytes_ = (
        len((tmp_path / "n.safetensors").read_bytes()),
        sum(array.nbytes for array in single.tensors.values()),
    )
    assert single_bytes < 2 * N * N + 4 * 2 * N + 2000 < bytes_ + 2000


def test_numbers_that_half_precision_would_round_are_not_stored_in_it():
    rounded = np.float32([0.1]).astype(np.float16).astype(np.float32)
    assert Weights("a", {}, {"x": rounded}, half=["x"]).half == {"x"}
    for array in (np.float32([0.1]), np.float32([1e6])):
        with pytest.raises(UnsavableError, match="half precision"):
            Weights("a", {}, {"x": array}, half=["x"])
    with pytest.raises(UnsavableError, match="half precision"):
        Weights("a", {}, {}, half=["x"])


@pytest.mark.parametrize("size", [0, N + 1, 2.0, True])
def test_sizes_that_the_basis_does_not_have_are_refused(size):
    with pytest.raises(FeatureMapError, match=f"sizes 1 to {N}"):
        NESTED.sized(size)


def test_tensors_that_are_no_basis_are_refused():
    with pytest.raises(FeatureMapError, match="do not fit"):
        NestedSQNet(D + 1, NESTED.tensors)
    with pytest.raises(FeatureMapError, match="1 to 10 rows; got 0"):
        NestedSQNet(D, {})
    with pytest.raises(FeatureMapError, match="of kind 'sqnet'"):
        NestedSQNet.from_weights(NESTED.sized(2).to_weights())


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package whose only model is the basis."""
    add_model(
        "basis", NESTED.to_weights({"seed": 1}), task="pca", summary="", folder=tmp_path
    )
    monkeypatch.setattr(models, "MODELS", tmp_path)
    models._read_packaged.cache_clear()
    yield tmp_path
    models._read_packaged.cache_clear()


def test_a_model_of_all_sizes_is_loaded_by_size(packaged):
    assert isinstance(load_model("basis"), NestedSQNet)
    net = load_model("basis-3")
    assert isinstance(net, SQNet)
    assert net.spec.sketch_size == 3
    with pytest.raises(FeatureMapError, match="sizes 1 to 10"):
        load_model("basis-11")
    assert load_card("basis") == load_card("basis-3") == {"seed": 1}


def test_a_size_is_of_the_version_that_is_asked_for(packaged):
    digest = models.packaged_weights("basis").digest
    assert load_model("basis-3", checksum=digest).spec.sketch_size == 3
    with pytest.raises(SketchFileError, match="'basis' of this release has checksum"):
        load_model("basis-3", checksum="0" * 64)


def test_a_path_with_the_name_of_a_size_is_a_file(packaged):
    for load in (load_model, load_card):
        with pytest.raises(MissingFileError, match="there is no file 'basis-3'"):
            load(Path("basis-3"))


def test_sketches_of_every_size_name_the_one_model(packaged):
    for size in (2, 5):
        sketch = sketch_rows(ROWS, load_model(f"basis-{size}").feature_map())
        again = loads(dumps(sketch))
        assert again.features.description["model"]["name"] == "basis"
        assert again.features.description["stored"] == []
        assert again.feature_map == load_model("basis").sized(size).feature_map()
        expected = decoded(NESTED.sized(size))
        found = load_model(f"basis-{size}").decoder().decode(again).params
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_sketches_of_one_size_are_not_decoded_by_another(packaged):
    sketch = sketch_rows(ROWS, load_model("basis-2").feature_map())
    with pytest.raises(FeatureMapMismatch, match="reads 3 numbers and"):
        load_model("basis-3").decoder().decode(sketch)


def test_sketches_of_a_model_that_is_gone_are_not_guessed(packaged):
    data = dumps(sketch_rows(ROWS, load_model("basis-2").feature_map()))
    other = NestedSQNet.from_basis(BASIS[::-1], MEAN).to_weights()
    add_model("basis", other, task="pca", summary="", folder=packaged)
    sketch = loads(data)
    assert (sketch + sketch.with_new_lineage()).count == 100  # needs no weights
    with pytest.raises(SketchFileError, match="Install the release"):
        _ = sketch.feature_map
    (packaged / "models.json").write_text("{}")
    with pytest.raises(SketchFileError, match="'basis' is not in this release any"):
        _ = loads(data).feature_map


def test_networks_of_all_sizes_are_shown_in_a_line():
    nested = load_model("pca-sqnet")
    assert repr(nested) == "NestedSQNet(n_features=196, sketch_size=500)"
    assert repr(nested.prior).startswith("SketchPrior(sketch_size=500, norm_bound=")
    assert nested.sized(np.int64(20)).spec.sketch_size == 20
