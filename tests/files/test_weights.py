"""A weights file gives back what was saved, or is refused with a reason."""

import hashlib
import json
import pickle
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy

from sketchlearn import FourierFeatures, save
from sketchlearn.errors import (
    FeatureMapError,
    MissingFileError,
    SketchFileError,
    SketchlearnError,
    UnsavableError,
)
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import (
    Weights,
    load_weights,
    save_weights,
    tensors_digest,
)
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.registry import find_builders, list_models, load_model
from sketchlearn.sqnet import SQNet
from sketchlearn.sqnet_spec import SQNetSpec

TENSORS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.float32([0.5]),
}
SPEC = {"depth": 2, "head": None, "sizes": [1, 2]}
CARD = {"trained on": "käse", "seed": 3, "loss": 0.25}
WEIGHTS = Weights("sqnet", SPEC, TENSORS, CARD)


@pytest.fixture
def path(tmp_path):
    save_weights(WEIGHTS, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def resign(data):
    start = data.index(b'"digest":"sha256:') + 17
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[:start] + digest + data[start + 64 :]


def test_everything_comes_back(path):
    again = load_weights(path)
    assert (again.kind, again.spec, again.card) == ("sqnet", SPEC, CARD)
    assert again.model == ""
    assert sorted(again.tensors) == sorted(TENSORS)
    for name, array in TENSORS.items():
        assert again.tensors[name].dtype == np.float32
        assert np.array_equal(again.tensors[name], array)


def test_the_digest_is_that_of_the_file(path):
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert WEIGHTS.digest == found == load_weights(path, checksum=found).digest


def test_any_safetensors_reader_sees_the_tensors(path):
    tensors = safetensors.numpy.load_file(path)
    assert np.array_equal(tensors["b.weight"], TENSORS["b.weight"])
    assert b"sizes" in tensors["spec.json"].tobytes()


def test_a_card_longer_than_any_header_is_kept(tmp_path):
    card = {"log": ["step"] * 30_000}
    save_weights(Weights("sqnet", {}, TENSORS, card), tmp_path / "w")
    assert load_weights(tmp_path / "w").card == card


def test_weights_are_values():
    mine = {"a": np.float32([1.0])}
    weights = Weights("sqnet", {}, mine)
    mine["a"][0] = 2.0
    assert weights.tensors["a"][0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        weights.tensors["a"][0] = 3.0


def test_tuples_become_lists_before_saving_as_they_would_after():
    assert Weights("sqnet", {"shape": (1, 2)}, {}).spec == {"shape": [1, 2]}


def test_a_file_with_another_checksum_is_refused(path):
    with pytest.raises(SketchFileError, match=r"its SHA-256 is .* expected abab"):
        load_weights(path, checksum="ab" * 32)


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_cut_file_is_refused(path, cut):
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SketchFileError, match=r"w\.safetensors"):
        load_weights(path)


def test_every_flipped_byte_is_found(path):
    data = path.read_bytes()
    for place in range(0, len(data), 13):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(SketchFileError):
            load_weights(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"kind":"sqnet"', b'"kind":"SQNET"', "header field 'kind'"),
        (b'{"depth":2', b'{"depth": ', "spec.json"),
        (b'"seed":3', b'"seed" 3', "card.json"),
    ],
)
def test_a_forged_file_with_a_right_digest_is_read_with_suspicion(
    path, old, new, message
):
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(resign(data.replace(old, new)))
    with pytest.raises(SketchFileError, match=message):
        load_weights(path)


def test_numbers_that_are_not_finite_are_refused_on_both_sides(path):
    with pytest.raises(UnsavableError, match="'a' must hold finite"):
        Weights("sqnet", {}, {"a": np.float32([np.nan])})
    data = path.read_bytes()
    half = np.float32([0.5]).tobytes()
    assert data.count(half) == 1
    path.write_bytes(resign(data.replace(half, np.float32([np.inf]).tobytes())))
    with pytest.raises(SketchFileError, match="'a' must hold finite"):
        load_weights(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("SQ net", {}, {}), "kind must be"),
        (("sqnet", {}, {"a": np.zeros(2)}), "got float64"),
        (("sqnet", {}, {"a b": np.float32([1])}), "named by"),
        (("sqnet", {}, {"card.json": np.float32([1])}), "named by"),
        (("sqnet", {"x": object()}, {}), "spec must hold JSON"),
        (("sqnet", {}, {}, {"loss": float("nan")}), "card must hold JSON"),
    ],
)
def test_what_no_file_can_hold_is_refused_at_once(arguments, message):
    with pytest.raises(UnsavableError, match=message):
        Weights(*arguments)


def test_files_of_other_kinds_are_refused(tmp_path):
    save(FourierFeatures(2, 4), tmp_path / "a.map")
    with pytest.raises(SketchFileError, match="not weights"):
        load_weights(tmp_path / "a.map")
    (tmp_path / "b").write_bytes(pickle.dumps(WEIGHTS.spec))
    with pytest.raises(SketchFileError, match="pickle"):
        load_weights(tmp_path / "b")
    with pytest.raises(MissingFileError, match="no file"):
        load_weights(tmp_path / "c")


def test_files_larger_than_allowed_are_not_read(path):
    with pytest.raises(SketchFileError, match="100 allowed"):
        load_weights(path, max_bytes=100)


def test_tensors_have_the_same_digest_only_if_equal():
    same = tensors_digest({name: TENSORS[name] for name in reversed(TENSORS)})
    assert same == tensors_digest(TENSORS)
    moved = {**TENSORS, "a": np.float32([0.5000001])}
    renamed = {"b.weight": TENSORS["b.weight"], "c": TENSORS["a"]}
    turned = {**TENSORS, "b.weight": TENSORS["b.weight"].reshape(3, 2)}
    for other in (moved, renamed, turned):
        assert tensors_digest(other) != same


def with_spec(text):
    """A weights file whose architecture is any text."""
    card = b"{}"
    words = {"card.json": card, "spec.json": text, "w": np.ones(2, "<f4").tobytes()}
    header, payload = {}, b""
    for name, raw in words.items():
        start, payload = len(payload), payload + raw
        shape, dtype = ([2], "F32") if name == "w" else ([len(raw)], "U8")
        offsets = [start, len(payload)]
        header[name] = {"data_offsets": offsets, "dtype": dtype, "shape": shape}
    header["__metadata__"] = {
        "digest": "sha256:" + "0" * 64,
        "format": "sketchlearn-weights",
        "kind": "sqnet",
        "version": "1",
    }
    head = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return resign(len(head).to_bytes(8, "little") + head + payload)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1e999}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1,"a":2}',
        b'{"a": 1}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"a":' + b"[" * 990 + b"]" * 990 + b"}",
        b"[" * 60_000,
        b"[]",
        b"1",
        b"",
        b"\xff",
    ],
    ids=range(13),
)
def test_an_architecture_that_is_not_plain_json_is_refused(tmp_path, text):
    (tmp_path / "w").write_bytes(with_spec(b'{"a":1}'))
    assert load_weights(tmp_path / "w").spec == {"a": 1}

    (tmp_path / "w").write_bytes(with_spec(text))
    with pytest.raises(SketchFileError, match=r"spec.json") as caught:
        load_weights(tmp_path / "w")
    assert len(str(caught.value)) < 400


def test_what_is_too_deep_to_read_is_not_written():
    nest = []
    for _ in range(40):
        nest = [nest]
    with pytest.raises(UnsavableError, match="inside one another"):
        Weights("sqnet", {"a": nest}, {})


def test_negative_zeros_of_weights_are_written_in_one_way(path):
    data = path.read_bytes()
    half = np.float32([0.5]).tobytes()
    assert data.count(half) == 1
    path.write_bytes(resign(data.replace(half, np.float32([-0.0]).tobytes())))
    with pytest.raises(SketchFileError, match="the way save_weights writes"):
        load_weights(path)


@pytest.mark.parametrize("depth", [2, 10**9, 2**40])
def test_a_network_deeper_than_its_tensors_is_refused_at_once(depth):
    sizes = {"kind": "resnet", "width": 1}
    tensors = initial_tensors(NetworkSpec(1, 1, depth=1, **sizes))
    with pytest.raises(FeatureMapError, match=r"block1.body.norm.weight.* missing"):
        FrozenNetwork(NetworkSpec(1, 1, depth=depth, **sizes), tensors)


HUGE = [-1, 0, 2**40, 2**63, 10**30, True, 1.5, "x", None, [], {}]


@pytest.mark.parametrize("name", [model.name for model in list_models()])
def test_sizes_that_no_file_of_that_size_has_are_refused_at_once(name):
    weights = packaged_weights(name)
    tensors = {key: array[:0] for key, array in weights.tensors.items() if array.ndim}
    forged = [
        Weights(weights.kind, {**weights.spec, field: value}, tensors)
        for field in [*weights.spec, "more"]
        for value in HUGE
    ]
    build = find_builders()[weights.kind].from_weights
    for one in forged:
        tracemalloc.start()
        with pytest.raises(SketchlearnError):
            build(one)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * 2**20


def test_a_model_of_a_file_is_the_model_of_the_package(tmp_path):
    for model in list_models():
        weights = packaged_weights(model.name)
        path = tmp_path / f"{model.name}.safetensors"
        save_weights(weights, path)
        written = load_model(path).to_weights(weights.card)
        assert tensors_digest(written.tensors) == tensors_digest(weights.tensors)
        assert {name: written.spec[name] for name in weights.spec} == weights.spec


def test_weights_that_a_model_would_not_write_are_refused():
    net = SQNet.initial(SQNetSpec(4, 2, feature={"kind": "ternary"}))
    weights = net.to_weights()
    name = "feature.layers.last.weight"
    loose = {**weights.tensors, name: np.float32([[1, 2, 3, 4], [-1, 1, 1, 2]])}
    with pytest.raises(SketchFileError, match="not written the way"):
        SQNet.from_weights(Weights("sqnet", weights.spec, loose))
    assert SQNet.from_weights(weights).to_weights().digest == weights.digest
