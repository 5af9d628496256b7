"""Counts of items are packed in files, in one way; every other file is as it was."""

import dataclasses
import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import SketchFileError
from sketchlearn.features import registry
from sketchlearn.features.base import AbstractFeatureMap, sum_features
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.registry import described_counting
from sketchlearn.features.table import TableFeatures
from sketchlearn.files import container
from sketchlearn.files.container import decode, encode
from sketchlearn.rows.items import ItemRows
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.formats.exact import ExactSketchFormat
from sketchlearn.storage.sketches import dumps, load, loads
from sketchlearn.testing import release_seeded

GOLDEN = Path(__file__).parents[1] / "golden"
FACTS = json.loads((GOLDEN / "golden_v3.json").read_text())

SIZES = {"width": 20, "depth": 5, "seed": 0}
PHI = CountSketchFeatures(1000, **SIZES)
STREAM = np.eye(1000)[np.random.default_rng(0).zipf(1.5, 100) % 1000]


def parts(data):
    """Header and payload of a file, by the words of its documentation alone."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def read_by_hand(data):
    """Total and number of rows of a packed sketch, with Python integers alone."""
    header, payload = parts(data)
    fields = header["__metadata__"]
    start, stop = header["counts"]["data_offsets"]
    packed = int.from_bytes(payload[start:stop], "little")
    size, bits = int(fields["dim"]), int(fields["bits"])
    least, shift = int(fields["least"]), int(fields["shift"])
    assert packed >> size * bits == 0
    assert header["counts"]["shape"] == [-(-size * bits // 8)]
    total = []
    for _ in range(size):
        total.append((least + packed % 2**bits) * 2**shift)
        packed //= 2**bits
    start, stop = header["count"]["data_offsets"]
    return total, int.from_bytes(payload[start:stop], "little", signed=True)


def with_counts(sketch, counts, rows=2**62):
    total = Int128Array.from_ints([count << 34 for count in counts])
    return dataclasses.replace(sketch, total=total, count=rows)


def sketch_of(rows, phi, pooling="mean"):
    """A sketch of rows, of which there may be none."""
    if len(rows):
        return sketch_rows(rows, phi, pooling=pooling)
    none = Int128Array.zeros(phi.sketch_size)
    return Sketch(none, 0, phi.spec, pooling)


def forged(sketch, fields=None, tensors=None):
    """A file with other fields and tensors, and a digest that fits."""
    data = dumps(sketch)
    header, arrays = read(data)
    return encode((header | (fields or {}), arrays | (tensors or {})), None, "")


def read(data):
    return decode(io.BytesIO(data), len(data), None, len(data))


# What is packed, and how.


@pytest.mark.parametrize("name", FACTS)
def test_golden_files_are_read_by_the_words_of_the_documentation(name):
    data = (GOLDEN / name).read_bytes()

    assert hashlib.sha256(data).hexdigest() == FACTS[name]["sha256"]
    assert read_by_hand(data) == (FACTS[name]["total"], FACTS[name]["count"])


@given(st.lists(st.integers(-(2**62), 2**62), min_size=6, max_size=6), st.booleans())
@settings(max_examples=200)
def test_any_counts_come_back_and_can_be_read_by_hand(counts, few):
    phi = CountSketchFeatures(4, width=3, depth=2)
    counts = [count % 200 - 100 for count in counts] if few else counts
    made = with_counts(sketch_rows(np.eye(4), phi), counts)
    data = dumps(made)

    assert loads(data) == made
    assert dumps(loads(data)) == data
    assert read_by_hand(data) == (made.total.to_ints(), made.count)
    header, payload = parts(data)
    assert header["counts"]["dtype"] == "U8"
    assert len(payload) == 8 + made.packed_bytes


@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize("pooling", ["mean", "sum", "max", "min"])
@pytest.mark.parametrize(
    "phi",
    [
        CountMinFeatures(1000, **SIZES),
        CountSketchFeatures(1000, **SIZES, row_items=1),
        BloomFeatures(1000, **SIZES),
        CounterFeatures(1000),
        TableFeatures(np.arange(3000).reshape(1000, 3) % 7 - 3),
    ],
    ids=lambda phi: phi.kind,
)
def test_every_map_that_counts_is_packed(phi, pooling, rows):
    made = sketch_of(STREAM[:rows], phi, pooling)
    data = dumps(made)
    fields = parts(data)[0]["__metadata__"]

    assert (fields["kind"], fields["version"]) == ("counts", "3")
    assert loads(data) == made
    assert loads(data).lineage == made.lineage
    assert loads(data).features == made.features


def test_one_counter_is_packed():
    made = sketch_rows(np.ones((9, 2)), CountMinFeatures(2, width=1, depth=1))

    assert made.packed_bytes == 1
    assert read_by_hand(dumps(made)) == ([18 << 34], 9)


@pytest.mark.parametrize(
    ("phi", "pooling", "bits"),
    [
        (CountMinFeatures(1000, **SIZES), "mean", 7),
        (CountSketchFeatures(1000, **SIZES), "mean", 8),
        (BloomFeatures(1000, **SIZES), "mean", 7),
        (BloomFeatures(1000, **SIZES), "max", 1),
    ],
)
def test_a_hundred_counters_of_a_hundred_rows_take_a_byte_each_or_less(
    phi, pooling, bits
):
    made = sketch_rows(STREAM, phi, pooling=pooling)
    header, payload = parts(dumps(made))

    assert int(header["__metadata__"]["bits"]) <= bits
    assert made.packed_bytes == len(payload) - 8 <= (100 * bits + 7) // 8
    assert made.size == 100


def test_merging_and_forgetting_do_not_see_the_packing():
    first, second = sketch_rows(STREAM[:30], PHI), sketch_rows(STREAM[30:], PHI)
    whole = loads(dumps(first)) + loads(dumps(second))

    assert whole == sketch_rows(STREAM, PHI)
    assert loads(dumps(whole)) - loads(dumps(second)) == first


# What is not packed.


class OwnFeatures(AbstractFeatureMap):
    """Counts as well, by a user's own map."""

    kind = "own-counts"
    counts_items = True

    def __init__(self):
        super().__init__(
            n_features=2, sketch_size=2, scaling=None, value_bound=1.0, norm_bound=None
        )

    def describe(self):
        return {}

    def weights(self):
        return {}

    def evaluate(self, rows, first_row=0):
        return np.asarray(rows, np.float64)

    def batch_sum(self, rows, first_row=0):
        return sum_features(self, rows, first_row)


@pytest.mark.parametrize(
    ("phi", "pooling"),
    [
        (FourierFeatures(2, 8), "mean"),
        (MomentFeatures(2), "mean"),
        (CountMinFeatures(2, width=2, depth=2), "p-norm:2.0"),
        (ConcatenatedFeatures([CountMinFeatures(2, width=2, depth=2)] * 2), "mean"),
        (OwnFeatures(), "mean"),
    ],
)
@pytest.mark.parametrize("rows", [0, 3])
def test_other_files_are_as_they_were_even_where_all_is_whole(phi, pooling, rows):
    made = sketch_of(np.ones((rows, 2)), phi, pooling)
    header = parts(dumps(made))[0]

    assert header["__metadata__"]["version"] == "2"
    assert header["__metadata__"]["kind"] == "exact"
    assert "sum_hi" in header
    assert made.packed_bytes == 16 * made.size


def test_what_is_packed_does_not_depend_on_what_is_imported(monkeypatch):
    monkeypatch.setitem(registry._CLASSES, OwnFeatures.kind, OwnFeatures)

    assert registry.is_known(OwnFeatures.kind)
    assert not described_counting({"kind": OwnFeatures.kind})
    assert described_counting({"kind": "count-min"})


@pytest.mark.parametrize("part", [0.5, 2.0**-34])
def test_counts_that_are_not_whole_are_not_packed(part):
    phi = CountMinFeatures(2, width=2, depth=2)
    made = sketch_rows([[1.0, part]], phi)

    assert parts(dumps(made))[0]["__metadata__"]["version"] == "2"
    assert loads(dumps(made)) == made


def test_counts_beyond_64_bits_are_not_packed():
    phi = CountSketchFeatures(2, width=1, depth=1)
    made = sketch_rows([[1.0, 1.0]], phi)
    edges = {2**63 - 1: "3", -(2**63): "3", 2**63: "2", -(2**63) - 1: "2"}

    for count, version in edges.items():
        data = dumps(with_counts(made, [count], rows=2**63 - 1))
        assert parts(data)[0]["__metadata__"]["version"] == version
        assert loads(data).total.to_ints() == [count << 34]


def test_a_release_keeps_its_noise_as_it_is():
    phi = CountMinFeatures(2, width=2, depth=2, row_items=1)
    made = sketch_rows(np.eye(2)[[0, 1] * 25], phi)
    released = release_seeded(made, 0, epsilon=1.0, delta=1e-6)

    assert parts(dumps(released))[0]["__metadata__"]["version"] == "2"


# Files of other versions.


def test_an_older_file_of_counts_is_read_and_written_anew():
    old = load(GOLDEN / "count_sketch_v2.sketch")
    facts = FACTS["count_sketch_v3.sketch"]

    assert old.total.to_ints() == facts["total"]
    assert old.digest == facts["digest"]
    assert dumps(old) == (GOLDEN / "count_sketch_v3.sketch").read_bytes()


def test_an_older_library_names_the_version_of_a_packed_file(monkeypatch):
    monkeypatch.setattr(container, "NEWEST", 2)
    with pytest.raises(
        SketchFileError,
        match="file version 3 was written by a newer library; this one reads 1-2. "
        "Install a newer sketchlearn",
    ):
        load(GOLDEN / "count_sketch_v3.sketch")


# What is refused.


@pytest.fixture(scope="module")
def made():
    rows = np.eye(4)[[0, 0, 1, 3, 3, 3]]
    return sketch_rows(rows, CountSketchFeatures(4, width=3, depth=2, seed=1))


def repacked(counts, bits, least):
    whole = sum((count - least) << bits * i for i, count in enumerate(counts))
    data = whole.to_bytes(-(-len(counts) * bits // 8), "little")
    fields = {"bits": str(bits), "least": str(least)}
    return fields, {"counts": np.frombuffer(data, np.uint8)}


def counts_in(made):
    return made.total.in_units(34).tolist()


def test_the_same_counts_in_other_bits_are_refused(made):
    counts = counts_in(made)
    least, bits = min(counts), (max(counts) - min(counts)).bit_length()
    assert forged(made, *repacked(counts, bits, least)) == dumps(made)

    for wrong in ((bits + 1, least), (bits + 1, least - 1), (64, least), (64, -9)):
        with pytest.raises(SketchFileError, match="not written the way save writes"):
            loads(forged(made, *repacked(counts, *wrong)))


def test_bits_after_the_last_number_are_zero(made):
    data = dumps(made)
    header, payload = parts(data)
    bits = int(header["__metadata__"]["bits"])
    assert made.size * bits % 8, "no bits to spare"
    counts = np.frombuffer(payload[8:], np.uint8).copy()
    counts[-1] |= 0x80
    with pytest.raises(SketchFileError, match="not written the way save writes"):
        loads(forged(made, {}, {"counts": counts}))


def test_a_total_that_could_be_packed_is_not_written_wide_in_version_3(made):
    header, tensors = ExactSketchFormat().pack(made)
    with pytest.raises(SketchFileError):
        loads(encode(({**header, "version": "3"}, tensors), None, ""))
    with pytest.raises(SketchFileError):
        loads(encode(({**header, "kind": "counts"}, tensors), None, ""))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits", "0"),
        ("bits", "65"),
        ("bits", "03"),
        ("bits", "-1"),
        ("least", "-0"),
        ("least", "+1"),
        ("least", "9" * 19),
        ("least", "1" * 5000),
        ("shift", "33"),
        ("shift", "35"),
        ("shift", "9999"),
        ("frac_bits", "33"),
        ("pooling", "p-norm:2.0"),
        ("dim", "5"),
        ("dim", "7"),
        ("version", "2"),
        ("version", "1"),
        ("kind", "exact"),
    ],
)
def test_a_forged_field_is_refused(made, field, value):
    with pytest.raises(SketchFileError):
        loads(forged(made, {field: value}))


@pytest.mark.parametrize(
    "counts",
    [np.zeros(0, np.uint8), np.zeros(2, np.uint8), np.zeros(1000, np.uint8)],
)
def test_counts_of_another_length_are_refused(made, counts):
    with pytest.raises(SketchFileError, match="wrong tensors"):
        loads(forged(made, {}, {"counts": counts}))


def test_counts_that_no_rows_have_are_refused(made):
    with pytest.raises(SketchFileError, match="not a possible sketch"):
        loads(forged(made, *repacked([10**6] * 6, 1, 10**6)))
    with pytest.raises(SketchFileError, match="not a possible sketch"):
        loads(forged(made, {}, {"count": np.array([-1])}))


def test_a_map_that_counts_nothing_has_no_packed_file():
    zeros = sketch_of([], MomentFeatures(2, order="mean"))
    header, tensors = ExactSketchFormat().pack(zeros)
    size = int(header["dim"])
    more = {"bits": "1", "least": "0", "shift": header["frac_bits"]}
    header |= {"version": "3", "kind": "counts", **more}
    counts = np.zeros((size + 7) // 8, np.uint8)
    tensors = {"count": tensors["count"], "counts": counts}
    with pytest.raises(SketchFileError, match="counts nothing"):
        loads(encode((header, tensors), None, ""))


def test_every_flipped_bit_is_refused(made):
    data = dumps(made)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(SketchFileError):
            loads(bytes(flipped))


def test_every_truncation_is_refused(made):
    data = dumps(made)
    for length in range(len(data)):
        with pytest.raises(SketchFileError):
            loads(data[:length])
    with pytest.raises(SketchFileError, match="too long"):
        loads(data + b"\0")


def test_what_takes_more_than_max_bytes_unpacked_is_refused():
    phi = CountMinFeatures(2, width=2**14, depth=1)
    data = dumps(sketch_rows(np.eye(2), phi))
    assert len(data) < 2**13

    assert loads(data, max_bytes=2**18).size == 2**14
    with pytest.raises(SketchFileError, match="262144 bytes, 262143 allowed"):
        loads(data, max_bytes=2**18 - 1)


def test_an_open_vocabulary_is_packed_as_well():
    phi = CountMinFeatures(width=4, depth=2)
    keys = np.array([5, 2**64 - 1, 5], np.uint64)
    total = phi.sum_items(ItemRows(keys, 3))
    made = Sketch(total, 3, phi.spec, lineage=frozenset({"0" * 32}))

    assert parts(dumps(made))[0]["__metadata__"]["n_features"] == str(2**64)
    assert read_by_hand(dumps(made)) == (total.to_ints(), 3)
    assert loads(dumps(made)) == made
