"""Models of the package are found by name, checked, and enough to decode a sketch."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.decoders.moments.equivariant import EquivariantDecoder
from sketchlearn.errors import FeatureMapError, MissingFileError, SketchFileError
from sketchlearn.files import models
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import Weights, save_weights
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.registry import (
    add_model,
    find_builders,
    list_models,
    load_card,
    load_model,
    load_own_model,
)
from sketchlearn.sqnet import SQNet, SQNetSpec

ROWS = np.random.default_rng(0).normal(size=(50, 3))
SPEC = SQNetSpec(3, 8, feature={"head": "tanh"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of models with one SQNet in it, in the place of the package's."""
    net = SQNet.initial(SPEC, seed=5)
    add_model(
        "tiny",
        net.to_weights({"seed": 5, "data": ["a", "b"]}),
        task="frequency",
        summary="Three features, eight numbers.",
        folder=tmp_path,
    )
    monkeypatch.setattr(models, "MODELS", tmp_path)
    models._read_packaged.cache_clear()
    yield tmp_path
    models._read_packaged.cache_clear()


def test_models_are_listed_with_what_they_are(folder):
    (model,) = list_models()
    file = folder / "tiny.safetensors"
    assert (model.name, model.task, model.kind) == ("tiny", "frequency", "sqnet")
    assert model.size_bytes == len(file.read_bytes())
    assert model.summary.startswith("Three")


def test_a_model_is_loaded_by_name(folder):
    net, expected = load_model("tiny"), SQNet.initial(SPEC, seed=5)
    assert isinstance(net, SQNet)
    assert net.spec == SPEC
    assert all(np.array_equal(net.tensors[n], a) for n, a in expected.tensors.items())


def test_no_caller_can_change_the_model_of_another(folder):
    net = load_model("tiny")
    with pytest.raises(ValueError, match="read-only"):
        net.tensors["decoder.layers.last.bias"][:] += 1.0
    with pytest.raises(AttributeError):
        net.tensors = {}


def test_the_card_is_in_the_file_and_nobody_can_change_it(folder):
    load_card("tiny")["data"].append("c")
    assert load_card("tiny") == {"seed": 5, "data": ["a", "b"]}


def test_the_file_is_read_once(folder):
    first = packaged_weights("tiny")
    (folder / "tiny.safetensors").unlink()
    assert packaged_weights("tiny") is first
    assert first.model == "tiny"


def test_an_unknown_name_lists_the_known_ones(folder):
    with pytest.raises(MissingFileError, match=r"no model 'huge' .* It has: tiny"):
        load_model("huge")


def test_a_changed_file_is_refused(folder):
    other = SQNet.initial(SPEC, seed=6)
    other.save(folder / "tiny.safetensors")
    with pytest.raises(SketchFileError, match=r"model 'tiny' .* damaged or changed"):
        load_model("tiny")


def test_a_missing_file_says_so(folder):
    (folder / "tiny.safetensors").unlink()
    with pytest.raises(MissingFileError, match="installation is incomplete"):
        load_model("tiny")


def test_weights_of_a_kind_nobody_builds_are_refused(folder):
    odd = Weights("abacus", {}, {})
    add_model("odd", odd, task="pca", summary="Beads.", folder=folder)
    assert [model.name for model in list_models()] == ["odd", "tiny"]
    with pytest.raises(SketchFileError, match="of kind 'abacus'"):
        load_model("odd")


def test_a_sketch_file_is_enough_to_decode(folder, tmp_path):
    net = load_model("tiny")
    sl.save(sl.sketch_rows(ROWS, net.feature_map()), tmp_path / "a.sketch")
    sketch = sl.load(tmp_path / "a.sketch")
    assert sketch.feature_map == net.feature_map()
    description = sketch.features.description
    assert description["model"]["name"] == "tiny"
    assert description["stored"] == []
    params = load_model("tiny").decoder().decode(sketch).params
    expected = net.decoder_network(net.feature_network(ROWS).mean(axis=0))
    assert np.abs(params - expected).max() < 1e-5


def test_clipped_maps_of_models_need_no_other_file_either(folder):
    phi = sl.clipped(load_model("tiny").feature_map(), norm_bound=1.0)
    sketch = sl.loads(sl.dumps(sl.sketch_rows(ROWS, phi)))
    assert sketch.feature_map == phi
    assert sl.loads(sl.dumps(phi)) == phi


def test_a_fine_tuned_model_is_no_longer_the_one_of_the_package(folder):
    net = load_model("tiny")
    packaged = net.feature_map()
    bias = "feature.layers.last.bias"
    changed = {**net.tensors, bias: net.tensors[bias] + np.float32(0.5)}
    tuned = replace(net, tensors=changed).feature_map()
    assert tuned.model is None
    assert tuned.stored_weights
    assert packaged.model.name == "tiny"
    with pytest.raises(sl.errors.FeatureMapMismatch):
        _ = sl.sketch_rows(ROWS, tuned) + sl.sketch_rows(ROWS, packaged)


def test_a_sketch_of_another_version_of_a_model_is_not_guessed(folder):
    data = sl.dumps(sl.sketch_rows(ROWS, load_model("tiny").feature_map()))
    newer = SQNet.initial(SPEC, seed=7).to_weights()
    add_model("tiny", newer, task="frequency", summary="Newer.", folder=folder)
    sketch = sl.loads(data)  # merging and subtracting need no weights
    assert (sketch + sketch.with_new_lineage()).count == 100
    with pytest.raises(SketchFileError, match="Install the release"):
        _ = sketch.feature_map


def test_weights_without_a_sketch_network_make_no_map(folder):
    add_model("bare", Weights("abacus", {}, {}), task="x", summary="x", folder=folder)
    description = load_model("tiny").feature_map().description
    model = {"name": "bare", "checksum": packaged_weights("bare").digest}
    with pytest.raises(FeatureMapError):
        sl.features.build.build_map({**description, "model": model})


def test_the_models_of_this_release_are_what_their_index_says():
    for model in list_models():
        weights = packaged_weights(model.name)
        assert weights.digest == model.checksum
        assert weights.kind == model.kind
        assert load_model(model.name) is not None
        assert load_card(model.name)


def test_every_class_that_declares_a_kind_of_weights_is_built_from_shipped_ones():
    built = {model.kind: type(load_model(model.name)) for model in list_models()}
    learned_by_users = {"item-prior": ItemPrior, "packed-counters": PackedCounters}
    assert built | learned_by_users == find_builders()


def test_the_shipped_prior_says_how_it_was_made_and_where_it_ends():
    card = load_card("pca-ordered")
    assert card["task"] == "correlations"
    assert re.match("sketchlearn train pca-ordered", card["command"])
    assert card["seed"] == card["settings"]["train"]["seed"]
    assert card["results"]
    assert card["limits"]
    training, held_out = card["train_datasets"], card["held_out_datasets"]
    assert len(training) > len(held_out) > 0
    assert not set(training) & set(held_out)
    assert sorted(card["settings"]["data"]["held_out"]) == sorted(held_out)


SEEN = [
    [2.35, -0.09],
    [2.31, 0.15],
    [2.22, 0.62],
    [0.80, 2.14],
    [0.36, 2.26],
    [-0.48, 1.96],
]
GROUPS = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
DECODED = [
    [0.79069],
    [0.65558, 0.67664],
    [0.16300, 0.23389, 0.40311],
    [0.00697, 0.09472, 0.25831, 0.76876],
    [-0.25998, -0.17861, -0.04142, 0.42704, 0.55585],
]
"""Output of the shipped weights, below the diagonal: a change of these numbers is a
decision, to be made with new results on the card."""


def test_the_shipped_prior_decodes_as_it_did_when_it_was_released():
    decoder = load_model("pca-equivariant")
    assert isinstance(decoder, EquivariantDecoder)
    found = decoder.correlate(np.array(SEEN), np.array(GROUPS), 0.0)
    below = found[np.tril_indices(6, -1)]
    assert np.abs(below - np.concatenate(DECODED)).max() < 1e-4


NEIGHBOURS = 0.9 ** np.abs(np.subtract.outer(np.arange(196), np.arange(196)))
PLACES = (0, 1, 60, 101, 195), (0, 0, 50, 100, 0)
RECONSTRUCTED = {
    2: [1.00000, 0.43777, 0.22054, 0.37209, 0.10054],
    20: [1.00000, 0.95436, 0.21125, 0.35764, 0.09692],
    100: [1.00000, 0.89924, 0.32800, 0.76434, 0.11401],
    500: [1.00000, 0.89997, 0.21589, 1.16536, 0.18648],
}
"""Of correlations that fall with the distance of features, by sketch size."""


def reconstructed(size, moment):
    net = load_model("pca-sqnet").sized(size)
    lower = net.feature_network(moment[np.tril_indices(196)])
    return symmetric_matrix(net.decoder_network(lower))


@pytest.mark.parametrize("size", RECONSTRUCTED)
def test_the_papers_networks_decode_as_they_did_when_they_were_released(size):
    found = reconstructed(size, NEIGHBOURS)
    assert np.abs(found[PLACES] - RECONSTRUCTED[size]).max() < 1e-4


def test_the_papers_networks_know_neighbours_by_their_order():
    order = np.random.default_rng(0).permutation(196)
    moments = NEIGHBOURS, NEIGHBOURS[np.ix_(order, order)]
    kept, shuffled = (
        pca_log_relative_error(m, leading_components(reconstructed(100, m)))
        for m in moments
    )
    assert kept + 0.5 < shuffled


def test_the_papers_networks_are_small_and_say_how_they_were_made():
    (info,) = [model for model in list_models() if model.name == "pca-sqnet"]
    assert info.size_bytes < 20e6
    assert sum(model.size_bytes for model in list_models()) < 60e6
    card = load_card("pca-sqnet")
    assert card["command"].startswith("sketchlearn train configs/pca-sqnet.toml")
    assert card["seed"] == card["settings"]["train"]["seed"]
    assert set(card["held_out_datasets"]) == set(card["settings"]["data"]["held_out"])
    assert not set(card["held_out_datasets"]) & set(card["train_datasets"])
    assert card["results"]
    assert card["limits"]


def test_the_index_is_written_in_one_way(folder):
    text = (folder / "models.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_listing_never_loads_torch():
    code = (
        "import sys, sketchlearn as sl; sl.list_models(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_index_comes_with_the_package():
    assert Path(str(models.MODELS), "models.json").is_file()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Weights of some kinds as files of one's own."""
    for name in ("pca-ordered", "kmeans-ckm", "autoencoder-codes", "autoencoder-m"):
        save_weights(packaged_weights(name), tmp_path / f"{name}.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_of_ones_own_is_a_model_like_those_of_the_package(own):
    path = "pca-ordered.safetensors"
    found, shipped = load_model(path), load_model("pca-ordered")
    seen, groups = np.array(SEEN), np.array(GROUPS)
    same = shipped.correlate(seen, groups, 0.0)
    assert np.array_equal(found.correlate(seen, groups, 0.0), same)
    assert np.array_equal(load_model(own / path).correlate(seen, groups, 0.0), same)
    assert load_card(path) == load_card("pca-ordered")
    digest = packaged_weights("pca-ordered").digest
    assert load_model(path, checksum=digest) is not None
    with pytest.raises(SketchFileError, match="not the file that was asked for"):
        load_model(path, checksum="0" * 64)


def test_what_is_no_file_of_weights_is_refused(own):
    with pytest.raises(MissingFileError, match="there is no file"):
        load_model("none.safetensors")
    with pytest.raises(MissingFileError, match=r"named by the path .* \.safetensors"):
        load_model("none")
    (own / "p.safetensors").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(SketchFileError, match="a pickle, which could run any code"):
        load_model("p.safetensors")
    whole = (own / "kmeans-ckm.safetensors").read_bytes()
    (own / "cut.safetensors").write_bytes(whole[:-1])
    with pytest.raises(SketchFileError, match="truncated"):
        load_model("cut.safetensors")


RNG = np.random.default_rng(3)
TABLE = RNG.normal(size=(200, 2)) @ RNG.normal(size=(2, 30)) + RNG.normal(size=30)
NAMED = "pca-ordered.safetensors"


@pytest.mark.filterwarnings("ignore::sketchlearn.errors.ConvergenceWarning")
def test_own_weights_decode_for_pca_and_ridge_and_sketches_still_merge(own):
    settings = {"sketch_size": 100, "bounds": (-20, 20)}
    shipped = sl.CompressivePCA(3, **settings).fit(TABLE)
    for path in (NAMED, own / NAMED):
        pca = sl.CompressivePCA(3, decoder=path, **settings).fit(TABLE[:150])
        assert np.array_equal(
            pca.partial_fit(TABLE[150:]).components_, shipped.components_
        )
        assert pca.sketch_.digest == shipped.sketch_.digest
    settings |= {"target_bounds": (-20, 20)}
    ridges = [
        sl.CompressiveRidge(decoder=name, **settings).fit(TABLE[:, 1:], TABLE[:, 0])
        for name in ("learned", NAMED)
    ]
    assert np.array_equal(ridges[0].coef_, ridges[1].coef_)


@pytest.mark.parametrize(
    ("file", "name", "codes"),
    [("autoencoder-codes", "learned", 4), ("autoencoder-m", None, 30)],
)
def test_own_weights_make_autoencoders(own, file, name, codes):
    rows = (TABLE > 0) * 1.0
    coder = sl.CompressiveAutoencoder(codes, decoder=f"{file}.safetensors").fit(rows)
    assert coder.score(rows) > 0.8
    sl.save(coder.sketch_, "a.sketch")
    again = sl.CompressiveAutoencoder(codes, decoder=f"{file}.safetensors")
    again.fit_sketch(sl.load("a.sketch"))
    assert np.array_equal(again.reconstruct(rows), coder.reconstruct(rows))
    if name is not None:
        shipped = sl.CompressiveAutoencoder(codes, decoder=name).fit(rows)
        assert np.array_equal(shipped.transform(rows), coder.transform(rows))


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (sl.CompressivePCA, "'equivariant'"),
        (sl.CompressiveRidge, "'equivariant'"),
        (sl.CompressiveAutoencoder, "'code-network' or 'conditional-autoencoder'"),
    ],
)
def test_a_decoder_of_the_wrong_kind_is_refused_before_a_row_is_read(
    own, estimator, kind
):
    with pytest.raises(SketchFileError, match=f"what is needed here is {kind}"):
        estimator(decoder="kmeans-ckm.safetensors").fit("no-such-rows.parquet", y="a")
    with pytest.raises(MissingFileError, match="no file 'none.safetensors'"):
        estimator(decoder="none.safetensors").fit("no-such-rows.parquet", y="a")
    with pytest.raises(FeatureMapError, match=r"or the path of a \.safetensors file"):
        estimator(decoder="nystrm").fit("no-such-rows.parquet", y="a")


def test_a_file_that_was_replaced_is_read_again(own):
    assert load_own_model(NAMED, ["equivariant"]) is load_own_model(
        NAMED, ["equivariant"]
    )
    (own / "kmeans-ckm.safetensors").replace(own / NAMED)
    with pytest.raises(SketchFileError, match="'iterative-ckm'"):
        load_own_model(NAMED, ["equivariant"])
