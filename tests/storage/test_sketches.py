"""A file gives back what was saved, to the bit, or is refused with a reason."""

import dataclasses
import gzip
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from sketchlearn.arithmetic.exact import Int128Array, frac_bits_for
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    FeatureMapMismatch,
    MissingFileError,
    SketchFileError,
    SketchlearnError,
)
from sketchlearn.features.clipping import clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.sketching.lineage import Lineage
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage import headers
from sketchlearn.storage import sketches as storage
from sketchlearn.storage.sketches import dumps, load, loads, save

GOLDEN = Path(__file__).parents[1] / "golden"
FACTS = {
    **json.loads((GOLDEN / "golden.json").read_text()),
    **json.loads((GOLDEN / "golden_v2.json").read_text()),
    **json.loads((GOLDEN / "golden_v3.json").read_text()),
    **json.loads((GOLDEN / "golden_texts.json").read_text()),
    **json.loads((GOLDEN / "golden_v6.json").read_text()),
}
KEY = bytes(range(100, 132))
PHI = FourierFeatures(n_features=2, sketch_size=32, seed=0)
MARKS = NystromFeatures([[0.0, 1.0], [2.0, -0.0], [1.0, 1.0]], scale=2.0)
RUN = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def sketch():
    rows = np.random.default_rng(0).standard_normal((50, 2))
    return sketch_rows(rows, PHI)


@pytest.fixture(scope="module")
def data(sketch):
    return dumps(sketch)


def spec(size, bound=1.0, norm_bound=None, text=""):
    bits = frac_bits_for(bound)
    return FeatureSpec(text, "ab" * 32, 3, size, bits, bound, norm_bound, bits)


def forge(data, old, new):
    """Replace text of the same length in the header, and repair the digest."""
    assert data.count(old) == 1
    assert len(old) == len(new)
    return resign(data.replace(old, new))


def resign(data):
    start = data.index(b'"digest":"sha256:') + 17
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[:start] + digest + data[start + 64 :]


# Round trips.


def test_a_sketch_comes_back_equal_with_its_lineage_and_map(tmp_path, sketch):
    save(sketch, tmp_path / "a.sketch")
    back = load(tmp_path / "a.sketch")

    assert back == sketch
    assert back.lineage == sketch.lineage
    assert back.features == sketch.features
    assert back.feature_map == PHI
    np.testing.assert_array_equal(back.mean, sketch.mean)


@pytest.mark.parametrize(
    "phi",
    [
        PHI,
        FourierFeatures(
            3, 8, law="folded", scaling=Scaling.from_bounds([0] * 3, [9] * 3)
        ),
        MARKS,
        clipped(ConcatenatedFeatures([MARKS, PHI]), norm_bound=0.5),
    ],
    ids=["fourier", "scaled", "nystrom", "nested"],
)
def test_a_map_comes_back_with_the_same_bits(phi):
    rows = np.linspace(0, 1, 5 * phi.n_features).reshape(5, -1)
    back = loads(dumps(phi))

    assert back.fingerprint == phi.fingerprint
    np.testing.assert_array_equal(back(rows), phi(rows))
    assert dumps(back) == dumps(phi)


def test_a_map_with_a_description_too_long_for_a_header_comes_back():
    width = 5000
    wide = Scaling.from_bounds(np.zeros(width), np.arange(1.0, width + 1))
    phi = FourierFeatures(width, 4, scaling=wide)
    made = sketch_rows(np.ones((1, width)), phi)
    back = loads(dumps(made))

    assert loads(dumps(phi)) == phi
    assert back.feature_map == phi
    assert loads(dumps(made), feature_map=loads(dumps(phi))).feature_map == phi


@given(st.data())
def test_every_possible_total_and_count_comes_back(draw):
    count = draw.draw(st.integers(0, 2**63 - 1))
    bound = draw.draw(st.sampled_from([1e-300, 2.0**-20, 0.3, 1.0, 1e300]))
    limit = count * int(np.ceil(np.ldexp(bound, frac_bits_for(bound))))
    values = draw.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=5))
    runs = draw.draw(st.none() | st.frozensets(st.integers(0, 2**128 - 1), max_size=3))
    lineage = None if runs is None else frozenset(f"{run:032x}" for run in runs)
    total = Int128Array.from_ints(values)
    made = Sketch(total, count, spec(len(values), bound), "mean", lineage)
    back = loads(dumps(made))

    assert back.total.to_ints() == values
    assert (back.count, back.features) == (count, made.features)
    assert back.lineage == (None if lineage is None else Lineage.of(lineage))
    assert dumps(back) == dumps(made)


@pytest.mark.parametrize("pooling", ["mean", "max", "min", "p-norm:3.0", "log-sum-exp"])
def test_every_pooling_comes_back(pooling):
    made = sketch_rows([[0.0, 1.0], [2.0, 3.0]], PHI, pooling=pooling)

    assert loads(dumps(made)) == made


@pytest.mark.parametrize("n_runs", [256, 257, 4096, 4097, 20_000])
def test_the_longest_lineage_and_description_fit_in_a_file(n_runs):
    runs = frozenset(f"{run:032x}" for run in range(n_runs))
    fields = {"quotes": '"' * 12_000, "version": 2}
    text = json.dumps(fields, separators=(",", ":"))
    made = Sketch(Int128Array.zeros(2), 0, spec(2, text=text), "mean", runs)

    back = loads(dumps(made))
    assert (set(back.lineage), back.features.text) == (runs, text)


def test_a_path_may_be_text_or_a_path_and_a_link_is_followed(tmp_path, sketch):
    target, link = tmp_path / "a.sketch", tmp_path / "link"
    link.symlink_to(target)
    save(sketch, str(link))

    assert link.is_symlink()
    assert load(target) == load(str(link)) == sketch


def test_a_saved_file_is_private_to_its_owner_and_alone(tmp_path, sketch):
    save(sketch, tmp_path / "a.sketch")

    assert (tmp_path / "a.sketch").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a.sketch"]


# One object, one string of bytes.


def test_equal_sketches_with_equal_lineage_have_equal_bytes(sketch):
    rows = np.random.default_rng(0).standard_normal((50, 2))
    again = sketch_rows(rows[::-1], PHI)
    same = dataclasses.replace(again, lineage=sketch.lineage)

    assert dumps(again) != dumps(sketch)
    assert dumps(same) == dumps(sketch) == dumps(loads(dumps(sketch)))


def test_the_header_is_canonical_and_padded(data):
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))

    assert length % 8 == 0
    assert data[8 : 8 + length].rstrip(b" ") == text.encode()
    assert list(header)[1:] == ["count", "sum_hi", "sum_lo"]
    assert sorted(header["__metadata__"]) == sorted(
        [
            "format",
            "version",
            "kind",
            "feature_map",
            "description",
            "n_features",
            "dim",
            "frac_bits",
            "value_bound",
            "clip",
            "pooling",
            "lineage",
            "privacy",
            "columns",
            "rounding_bits",
            "digest",
        ]
    )


def test_the_digest_is_the_sha256_of_the_file_with_its_digits_zeroed(data):
    assert resign(data) == data


def test_any_safetensors_reader_opens_a_sketch(sketch, data, tmp_path):
    tensors = safetensors.numpy.load(data)

    assert tensors["count"].tolist() == [50]
    np.testing.assert_array_equal(tensors["sum_hi"], sketch.total.hi)
    np.testing.assert_array_equal(tensors["sum_lo"], sketch.total.lo)
    save(sketch, tmp_path / "a.sketch")
    with safetensors.safe_open(tmp_path / "a.sketch", "np") as file:
        assert file.metadata()["format"] == "sketchlearn-sketch"


def test_any_safetensors_reader_opens_a_map():
    marks = [[0.0, 1.0], [2.0, 3.0]]
    stored = safetensors.numpy.load(dumps(NystromFeatures(marks)))

    assert stored["landmarks"].tolist() == marks
    assert safetensors.numpy.load(dumps(PHI)) == {}


# Damage.


def test_every_flipped_bit_is_refused(data):
    assert 1300 < len(data) < 1700
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(SketchFileError):
                loads(bytes(flipped))


def test_every_truncation_and_every_appended_byte_is_refused(data):
    for length in range(len(data)):
        with pytest.raises(SketchFileError):
            loads(data[:length])
    for byte in range(256):
        with pytest.raises(SketchFileError, match="too long"):
            loads(data + bytes([byte]))


def test_a_truncated_file_is_named_with_both_sizes(tmp_path, data):
    (tmp_path / "cut.sketch").write_bytes(data[:-3])
    expected = (
        rf"cut.sketch' is truncated: {len(data) - 3} bytes, header says {len(data)}"
    )
    with pytest.raises(SketchFileError, match=f"{expected}; copy it again"):
        load(tmp_path / "cut.sketch")


def test_a_newer_file_is_refused_by_its_version(data):
    newer = forge(data, b'"version":"2"}', b'"version":"7"}')
    expected = "file version 7 was written by a newer library; this one reads 1-6"
    with pytest.raises(SketchFileError, match=expected):
        loads(newer)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"pooling":"mean"', b'"pooling":"mode"'),
        (b'"pooling":"mean"', b'"pooling":"sum" '),
        (b'"kind":"exact"', b'"kind":"fuzzy"'),
        (b'"frac_bits":"22"', b'"frac_bits":"+2"'),
        (b'"version":"2"}', b'"version":"1"}'),
        (b'"version":"2"}', b'"version":"3"}'),
        (b'"version":"2"}', b'"version":"5"}'),
        (
            b'"value_bound":"0x1.0000000000000p+0"',
            b'"value_bound":"0x0.0000000000000p+0"',
        ),
        (
            b'"value_bound":"0x1.0000000000000p+0"',
            b'"value_bound":"0x1.000000000000p+00"',
        ),
        (b'"n_features":"2"', b'"n_features":"0"'),
        (b'"dim":"32"', b'"dim":"31"'),
        (b'"dim":"32"', b'"dim":"+2"'),
        (b'"dtype":"U64"', b'"dtype":"I64"'),
        (b'"shape":[1]', b'"shape":[ ]'),
        (b'"privacy":""', b'"privacY":""'),
        (b'\\"seed\\":0,', b'\\"seed\\":0 '),
    ],
)
def test_a_forged_header_with_a_good_digest_is_refused(data, old, new):
    with pytest.raises(SketchFileError):
        loads(forge(data, old, new))


@pytest.mark.parametrize(
    ("values", "count"),
    [([1, 0], 0), ([2**44 + 2, 0], 1), ([-(2**46), 0], 3), ([0, 0], -1)],
)
def test_an_impossible_sketch_is_neither_written_nor_read(values, count):
    bad = Sketch(Int128Array.from_ints(values), count, spec(2), "mean", frozenset())
    good = Sketch(Int128Array.zeros(2), 1, spec(2), "mean", frozenset())
    words = np.array([count], "<i8").tobytes() + bad.total.tobytes()

    with pytest.raises(SketchFileError, match="cannot be saved"):
        dumps(bad)
    with pytest.raises(SketchFileError, match="not a possible sketch"):
        loads(resign(dumps(good)[: -len(words)] + words))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_negative_count_is_refused_even_with_a_zero_total(pooling):
    good = dumps(Sketch(Int128Array.zeros(2), 0, spec(2), pooling, frozenset()))
    words = np.array([-1], "<i8").tobytes() + bytes(32)
    with pytest.raises(SketchFileError, match="-1 rows"):
        loads(resign(good[: -len(words)] + words))


def test_negative_zeros_of_a_map_are_not_told_apart():
    signed, plain = NystromFeatures([[0.0, -0.0]]), NystromFeatures([[0.0, 0.0]])
    data, root = dumps(plain), plain.weights()["root"].tobytes()

    assert dumps(signed) == data
    minus = data[: -len(root) - 1] + b"\x80" + root
    with pytest.raises(SketchFileError, match="the way save writes"):
        loads(resign(minus))


def test_a_sketch_has_at_most_two_to_the_24_numbers(monkeypatch, data):
    monkeypatch.setattr(headers, "SIZE_LIMIT", 31)
    with pytest.raises(SketchFileError, match="holds 32 numbers"):
        loads(data)


def test_a_norm_beyond_the_bound_is_refused():
    values = Int128Array.from_ints([2**44] * 4)
    with pytest.raises(SketchFileError, match="not a possible sketch"):
        dumps(Sketch(values, 1, spec(4, norm_bound=1.5), "mean", frozenset()))


@pytest.mark.parametrize("lineage", ["x" * 32, RUN[:-1], RUN.upper()])
def test_a_malformed_lineage_is_refused(data, sketch, lineage):
    with pytest.raises(SketchFileError, match="lineage"):
        dataclasses.replace(sketch, lineage=frozenset({lineage}))
    run = dataclasses.replace(sketch, lineage=frozenset({RUN}))
    with pytest.raises(SketchFileError, match="lineage"):
        loads(resize(dumps(run), RUN.encode(), lineage.encode()))


def test_unsorted_lineages_are_refused(sketch):
    low, high = b"1" * 32, b"2" * 32
    two = dumps(
        dataclasses.replace(sketch, lineage=frozenset({low.decode(), high.decode()}))
    )
    with pytest.raises(SketchFileError, match="the way save writes"):
        loads(forge(two, low + b"," + high, high + b"," + low))


def test_a_map_that_comes_out_different_here_is_refused():
    data = dumps(PHI)
    other = forge(data, b'\\"seed\\":0', b'\\"seed\\":1')
    with pytest.raises(SketchFileError, match="forged or damaged"):
        loads(other)


def test_a_map_that_would_fill_the_memory_is_refused_before_it_is_built():
    data = dumps(PHI)
    text = data.replace(b'\\"n_features\\":2', b'\\"n_features\\":2222222222')
    text = text[:8] + text[8:].rstrip(b" ")
    text += b" " * (-len(text) % 8)
    huge = resign((len(text) - 8).to_bytes(8, "little") + text[8:])
    tracemalloc.start()
    with pytest.raises(SketchFileError, match="max_bytes= larger than"):
        loads(huge)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2**20


def test_a_sketch_with_a_forged_description_never_gives_a_map(data):
    with pytest.raises(SketchFileError, match="'seeD' is not one of them"):
        loads(forge(data, b'\\"seed\\":0', b'\\"seeD\\":0'))
    forged = loads(forge(data, b'\\"seed\\":0', b'\\"seed\\":1'))
    with pytest.raises(SketchlearnError):
        _ = forged.feature_map


def rebuilt(data, change):
    """The same file with a changed header and a digest that fits."""
    length = int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8 : 8 + length]), data[8 + length :]
    header["__metadata__"]["digest"] = "sha256:" + "0" * 64
    payload = change(header, payload) or payload
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return resign(len(text).to_bytes(8, "little") + text + payload)


def described(**changes):
    """A change of the description in a header; None takes a field out."""

    def change(header, payload):
        fields = header["__metadata__"]
        description = {**json.loads(fields["description"]), **changes}
        fields["description"] = json.dumps(
            description, sort_keys=True, separators=(",", ":")
        )

    return change


@pytest.mark.parametrize(
    "changes",
    [{"n_features": 3}, {"sketch_size": 2**24}, {"sketch_size": 34}, {"law": ["x"]}],
)
def test_a_sketch_agrees_with_the_sizes_of_its_map(data, changes):
    with pytest.raises(SketchFileError, match=r"in its sizes|wrong fields"):
        loads(rebuilt(data, described(**changes)))


@pytest.mark.parametrize("kind", ["dream", "my own map"])
def test_a_sketch_of_an_unknown_map_is_loaded_without_it(data, kind):
    back = loads(rebuilt(data, described(kind=kind, size=[2**70])))

    assert back.features.kind == kind
    with pytest.raises(SketchlearnError, match=f"unknown feature map '{kind}'"):
        _ = back.feature_map


@pytest.mark.parametrize("kind", ["", "a\x1b[31m", "x" * 81, 7, ["fourier"], None])
def test_a_kind_is_a_few_plain_letters(data, kind):
    with pytest.raises(SketchFileError, match="kind of the map"):
        loads(rebuilt(data, described(kind=kind)))


@pytest.mark.parametrize("shape", [[0, 2**62], [2**31, 2**31, 0], [2**59], [0] * 9])
def test_sides_that_no_array_has_are_refused(data, shape):
    def change(header, payload):
        header["x"] = {"data_offsets": [0, 0], "dtype": "F64", "shape": shape}

    for whole in (data, dumps(PHI)):
        with pytest.raises(SketchFileError):
            loads(rebuilt(whole, change))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_infinities_in_a_description_are_refused(value):
    with pytest.raises(SketchFileError, match="description of the map"):
        loads(rebuilt(dumps(PHI), described(scale=value)))
    huge = rebuilt(dumps(PHI), described(scale=123.5))
    with pytest.raises(SketchFileError, match="description of the map"):
        loads(resign(huge.replace(b"123.5", b"1e999")))


@pytest.mark.parametrize("depth", [32, 100, 900])
def test_values_deep_inside_one_another_are_refused(data, depth):
    nest = []
    for _ in range(depth):
        nest = [nest]
    for whole in (data, dumps(PHI)):
        with pytest.raises(SketchFileError, match="description of the map"):
            loads(rebuilt(whole, described(kind="dream", inner=nest)))


def test_bounds_that_no_map_has_are_refused(data):
    for name, value in (
        ("value_bound", "0x0.0000000000000p+0"),
        ("value_bound", "0x1.fffffffffffffp+1023"),
        ("value_bound", "0x1.0000000000000p-30"),
        ("clip", "0x0.0000000000000p+0"),
    ):

        def change(header, payload, name=name, value=value):
            header["__metadata__"][name] = value

        with pytest.raises(SketchFileError, match="forged"):
            loads(rebuilt(data, change))


@pytest.mark.parametrize(
    "changes",
    [
        {"law": "A" * 20_000},
        {"seed": {"data": "QUFB" * 5000, "dtype": "<f8", "shape": [1875]}},
        {"kind": "B" * 20_000},
        {"version": "C" * 20_000},
        {"D" * 20_000: 1},
        {"scaling": {"shift": "E" * 20_000}},
        {"stored": ["F" * 100] * 100},
        {"n_features": 10**4000},
        {"law": "\x1b[2J\x07"},
    ],
)
def test_an_error_quotes_little_of_a_file_and_nothing_unprintable(changes):
    with pytest.raises(SketchFileError) as caught:
        loads(rebuilt(dumps(PHI), described(**changes)))
    assert len(str(caught.value)) < 800
    assert str(caught.value).isprintable()


def test_different_maps_are_told_apart_in_few_words():
    low, high = np.zeros(300), np.arange(1.0, 301)
    wide = [
        ConcatenatedFeatures([FourierFeatures(300, 4, scaling=scaling)])
        for scaling in (
            Scaling.from_bounds(low, high),
            Scaling.from_bounds(low, 2 * high),
        )
    ]
    first, second = (sketch_rows(np.ones((1, 300)), phi) for phi in wide)
    with pytest.raises(FeatureMapMismatch, match="first difference: parts") as caught:
        _ = first + second
    assert len(str(caught.value)) < 600


def test_an_attached_map_is_checked(data, sketch):
    other = FourierFeatures(n_features=2, sketch_size=32, seed=1)
    lies = [
        forge(data, b'"clip":"0x1.000004', b'"clip":"0x1.000005'),
        forge(data, b'"frac_bits":"22"', b'"frac_bits":"23"'),
    ]

    assert loads(data, feature_map=PHI).source_map is PHI
    with pytest.raises(FeatureMapMismatch):
        loads(data, feature_map=other)
    for lying in lies:
        with pytest.raises(FeatureMapMismatch, match="contradicts it in its desc"):
            loads(lying, feature_map=PHI)
    with pytest.raises(SketchFileError, match="holds a feature map"):
        loads(dumps(PHI), feature_map=PHI)


def test_what_has_no_file_format_is_refused(tmp_path):
    with pytest.raises(SketchlearnError, match="cannot save a dict.*Sketch") as caught:
        save({}, tmp_path / "a.sketch")

    assert isinstance(caught.value, TypeError)
    assert os.listdir(tmp_path) == []


# Keys.


def test_a_keyed_file_opens_with_its_key_only(sketch):
    data = dumps(sketch, key=KEY, key_id="team-1")

    assert loads(data, key=KEY) == sketch
    assert b'"digest":"hmac:team-1:' in data
    with pytest.raises(SketchFileError, match="pass key="):
        loads(data)
    with pytest.raises(SketchFileError, match="another key than 'team-1'"):
        loads(data, key=KEY[::-1])


def test_a_key_refuses_files_without_one_even_if_they_are_intact(data):
    with pytest.raises(SketchFileError, match="without a key"):
        loads(data, key=KEY)


def test_who_has_no_key_cannot_change_or_relabel_a_keyed_file(sketch):
    data = dumps(sketch, key=KEY, key_id="a")
    start = data.index(b'"digest":"hmac:a:') + 17
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    plain = hashlib.sha256(blank).hexdigest().encode()

    for forged in (
        data[:start] + plain + data[start + 64 :],
        data.replace(b"hmac:a:", b"hmac:b:"),
        data[:-1] + bytes([data[-1] ^ 1]),
    ):
        with pytest.raises(SketchFileError, match="digest does not match"):
            loads(forged, key=KEY)


@pytest.mark.parametrize("key", [b"", b"short", "text of sixteen bytes", 7])
def test_a_weak_key_is_refused(sketch, key):
    with pytest.raises(SketchFileError, match="at least 16"):
        dumps(sketch, key=key)
    with pytest.raises(SketchFileError, match="at least 16"):
        loads(b"", key=key)


@pytest.mark.parametrize("key_id", ["a:b", "x" * 33, "é", "a b", "a\n"])
def test_a_key_id_is_short_and_plain_and_needs_a_key(sketch, key_id):
    with pytest.raises(SketchFileError, match="key_id"):
        dumps(sketch, key=KEY, key_id=key_id)
    with pytest.raises(SketchFileError, match="needs key="):
        dumps(sketch, key_id="a")


# What is not a file of ours.


def write_marker():
    Path("marker").write_text("unpickled")


class _Bomb:
    def __reduce__(self):
        return write_marker, ()


def write_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(50_000_000))


def write_array(path, write):
    with path.open("wb") as file:
        write(file, np.ones(3))


FOREIGN = {
    "pickle": (lambda path: path.write_bytes(pickle.dumps(_Bomb())), "pickle"),
    "old pickle": (
        lambda path: path.write_bytes(pickle.dumps(_Bomb(), 0)),
        "looks like",
    ),
    "npz": (lambda path: write_array(path, np.savez), "archive"),
    "npy": (lambda path: write_array(path, np.save), "NumPy"),
    "zip bomb": (write_zip, "archive"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(bytes(10**7))), "gzip"),
    "csv": (lambda path: path.write_text("a,b\n1,2\n3,4\n"), "CSV.*sketch_rows"),
    "parquet": (
        lambda path: path.write_bytes(b"PAR1" + bytes(99)),
        "Parquet.*sketch_rows",
    ),
    "empty": (lambda path: path.touch(), "empty"),
    "short": (lambda path: path.write_bytes(b"\x01\x00"), "not a sketch"),
    "zeros": (lambda path: path.write_bytes(bytes(1000)), "not a sketch"),
    "other safetensors": (
        lambda path: safetensors.numpy.save_file(
            {"a": np.ones(3)}, path, {"format": "pt"}
        ),
        "another program",
    ),
    "directory": (lambda path: path.mkdir(), "a directory"),
    "link to a directory": (lambda path: path.symlink_to(path.parent), "a directory"),
    "fifo": (os.mkfifo, "a pipe"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "device"),
    "loop": (lambda path: path.symlink_to(path), "not a file"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_ours_is_refused_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, message = FOREIGN[name]
    make(tmp_path / "thing")
    with pytest.raises(SketchFileError, match=message):
        load(tmp_path / "thing")

    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("bits", [b"1201", b"-1101", b"9999"])
def test_a_lattice_beyond_floats_is_refused(data, bits):
    with pytest.raises(SketchFileError, match="frac_bits|possible"):
        loads(resize(data, b'"frac_bits":"22"', b'"frac_bits":"' + bits + b'"'))


def test_a_huge_sparse_file_is_refused_without_reading_it(tmp_path, data):
    with open(tmp_path / "huge", "wb") as file:
        file.write(data)
        file.truncate(2**40)
    with pytest.raises(SketchFileError, match="too long"):
        load(tmp_path / "huge")


def test_a_file_larger_than_max_bytes_is_refused(tmp_path, sketch, data):
    save(sketch, tmp_path / "a.sketch")

    assert load(tmp_path / "a.sketch", max_bytes=len(data)) == sketch
    with pytest.raises(SketchFileError, match="max_bytes"):
        load(tmp_path / "a.sketch", max_bytes=len(data) - 1)


@pytest.mark.parametrize("path", ["no.sketch", "no/such/folder", "file/inside"])
def test_a_missing_file_is_missing(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingFileError, match="check the path"):
        load(tmp_path / path)


def test_a_header_that_claims_huge_sizes_costs_no_memory(data):
    shapes = [
        data[:8].replace(data[:8], (2**62).to_bytes(8, "little")) + data[8:],
        forge(data, b'"shape":[1]', b'"shape":[9]'),
        resize(data, b'"shape":[1]', b'"shape":[4611686018427387904]'),
    ]
    for claim in shapes:
        tracemalloc.start()
        with pytest.raises(SketchFileError):
            loads(claim)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * 1024


def resize(data, old, new):
    """Replace text in the header by text of another length; length and digest fit."""
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].rstrip(b" ")
    assert text.count(old) == 1
    text = text.replace(old, new)
    text += b" " * (-len(text) % 8)
    return resign(len(text).to_bytes(8, "little") + text + data[8 + length :])


# Files of earlier releases.


@pytest.mark.parametrize("name", FACTS)
def test_golden_files_hold_what_they_held(name):
    facts = FACTS[name]
    raw = (GOLDEN / name).read_bytes()
    key = bytes.fromhex(facts["key"]) if facts["key"] else None
    obj = load(GOLDEN / name, key=key)

    assert hashlib.sha256(raw).hexdigest() == facts["sha256"]
    if name.endswith(".map"):
        assert obj.fingerprint == facts["fingerprint"]
        if obj.version > 1:  # version 1 computes no more features
            found = obj(np.array(facts["rows"])).tolist()
            assert found == facts["values"]
        return
    assert obj.digest == facts["digest"]
    assert obj.count == facts["count"]
    assert obj.total.to_ints() == facts["total"]
    assert obj.pooling == facts["pooling"]
    assert sorted(obj.lineage) == facts["lineage"]
    assert obj.features.fingerprint == facts["fingerprint"]
    np.testing.assert_array_equal(obj.pooled, facts["pooled"])


@pytest.mark.parametrize("name", FACTS)
def test_golden_files_are_written_as_they_were(name):
    facts = FACTS[name]
    key = bytes.fromhex(facts["key"]) if facts["key"] else None
    obj = load(GOLDEN / name, key=key)

    written = dumps(obj, key=key, key_id="golden" if key else "")
    assert written == (GOLDEN / name).read_bytes()


def test_a_golden_map_belongs_to_its_golden_sketch():
    phi = load(GOLDEN / "nystrom_v1.map")
    made = load(GOLDEN / "nystrom_v1.sketch", feature_map=phi)

    assert made.feature_map is phi
    with pytest.raises(SketchlearnError, match="Load the map from its own file"):
        _ = load(GOLDEN / "nystrom_v1.sketch").feature_map


def test_reading_merging_and_subtracting_never_load_torch():
    program = f"""
import sys
from sketchlearn.storage.sketches import dumps, load, loads
whole = load({str(GOLDEN / "fourier_v1.sketch")!r})
part = load({str(GOLDEN / "part_v1.sketch")!r})
assert (whole + part) - part == whole
assert (whole - part).count == whole.count - part.count
assert loads(dumps(whole)).mean.shape == (16,)
repr(whole), whole._repr_html_(), whole.features.kind
assert 'torch' not in sys.modules
"""
    source = str(Path(storage.__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
