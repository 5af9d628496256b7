"""An item has one key of 64 bits, in every form its id is given in, for ever."""

import hashlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.rows.ids import keys_of
from sketchlearn.rows.keys import SUMS, ItemKey, KeyRecipe

STEP = 0x9E3779B97F4A7C15
GOLDEN_KEYS = {
    b"": 0xA706DD2F4D197E6F,
    b"item": 0x15CBB6B4417E162,
    b"12345678": 0x12A7373CD9A8F650,
    b"longer than eight": 0xFBA36D1C8EE186A5,
}
VECTORS = {0: "310e0edd47db6f72", 1: "fd67dc93c539f874", 2: "5a4fa9d909806c0d"}
VECTORS |= {3: "2d7efbd796666785", 7: "37d1018bf50002ab", 8: "6224939a79f5f593"}
VECTORS |= {9: "b0e4a90bdf82009e", 15: "e545be4961ca29a1", 63: "724506eb4c328a95"}
SECRET = ItemKey(b"sixteen or more bytes")
KEYED = KeyRecipe.under(SECRET)


def mixed(word):
    """The mixing function of splitmix64, in Python integers."""
    word %= 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def summed(text):
    """The recipe ``sums`` of ``rows/keys.py``, word by word."""
    words = [text[i : i + 8] for i in range(0, len(text), 8)] or [b""]
    numbers = [int.from_bytes(word, "little") for word in words]
    hashes = [mixed(word + (k + 1) * STEP) for k, word in enumerate(numbers)]
    return mixed(len(text) + STEP + sum(hashes))


def siphash(text, key):
    """SipHash-2-4 of Aumasson and Bernstein, in Python integers."""
    halves = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")]
    start = [b"somepseu", b"dorandom", b"lygenera", b"tedbytes"]
    v = [int.from_bytes(word, "big") ^ halves[i % 2] for i, word in enumerate(start)]

    def rounds(times):
        def turned(word, bits):
            return (word << bits | word >> 64 - bits) % 2**64

        for _ in range(times):
            for a, b, bits in ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17)):
                v[a] = (v[a] + v[b]) % 2**64
                v[b] = turned(v[b], bits) ^ v[a]
                if bits in (13, 17):
                    v[a] = turned(v[a], 32)

    last = text[len(text) // 8 * 8 :].ljust(7, b"\0") + bytes([len(text) % 256])
    for first in range(0, len(text) + 1, 8):
        word = text[first : first + 8] if first + 8 <= len(text) else last
        v[3] ^= int.from_bytes(word, "little")
        rounds(2)
        v[0] ^= int.from_bytes(word, "little")
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def key_of(text, key=bytes(range(16))):
    """The recipe ``siphash``, and that of a secret."""
    if len(text) <= 512:
        return siphash(text, key)
    digest = hashlib.blake2b(text, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little")


def hash_keys_of(secret):
    """Keys of SipHash that a secret stands for: of texts, and of integers."""
    made = hashlib.sha256(b"sketchlearn item key: hash" + secret).digest()
    return made[:16], made[16:]


def test_keys_of_older_sketches_never_change():
    assert keys_of(list(GOLDEN_KEYS), SUMS).tolist() == list(GOLDEN_KEYS.values())


def test_keys_of_texts_are_the_vectors_of_siphash():
    texts = [bytes(range(size)) for size in range(64)]
    keys = keys_of(texts)
    assert keys.tolist() == [key_of(text) for text in texts]
    for size, vector in VECTORS.items():
        assert keys[size : size + 1].astype("<u8").tobytes().hex() == vector


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=200)))
def test_keys_of_bytes_are_those_of_the_definition(texts):
    secret = hash_keys_of(SECRET)[0]
    assert keys_of(texts).tolist() == [key_of(text) for text in texts]
    assert keys_of(texts, KEYED).tolist() == [key_of(text, secret) for text in texts]
    assert keys_of(texts, SUMS).tolist() == [summed(text) for text in texts]


@pytest.mark.parametrize("size", [63, 64, 65, 72, 505, 511, 512, 513, 1000, 100_003])
def test_long_texts_among_short_ones_have_their_own_keys(size):
    texts = [b"a", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"", b"bc"]
    assert keys_of(texts).tolist() == [key_of(text) for text in texts]
    assert keys_of(texts, SUMS).tolist() == [summed(text) for text in texts]


def test_integers_have_hashes_under_a_secret_key_alone():
    numbers = [0, -1, 2**40, 5]
    secret = hash_keys_of(SECRET)[1]
    expected = [siphash((n % 2**64).to_bytes(8, "little"), secret) for n in numbers]
    assert keys_of(numbers, KEYED).tolist() == expected
    assert keys_of(numbers, SUMS).tolist() == keys_of(numbers).tolist()


def test_a_secret_key_is_shown_nowhere():
    for shown in (repr, str, format, lambda key: repr([key])):
        assert "sixteen" not in shown(SECRET)
    assert "sixteen" not in repr(KEYED)
    assert SECRET.hex() not in KEYED.name


@pytest.mark.parametrize("secret", [b"short", "a text of 16 or more", None, 5])
def test_a_weak_key_is_refused(secret):
    with pytest.raises(FeatureMapError, match="16 or more secret bytes"):
        ItemKey(secret)


texts_of_people = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(deadline=None, max_examples=50)
@given(st.lists(texts_of_people, min_size=1))
def test_all_forms_of_texts_have_the_same_keys(texts):
    expected = [key_of(text.encode()) for text in texts]
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary())
    forms = [texts, tuple(texts), [text.encode() for text in texts]]
    forms += [pa.array(texts, kind) for kind in kinds]
    forms += [pa.array([text.encode() for text in texts], pa.binary_view())]
    forms += [pa.array(texts).dictionary_encode(), pa.chunked_array([texts, []])]
    forms += [pd.Series(texts), pd.Series(texts, dtype="category"), pl.Series(texts)]
    forms += [pl.Series(texts, dtype=pl.Categorical), np.array(texts, object)]
    forms += [np.array(texts, np.dtypes.StringDType())]
    for form in forms:
        assert keys_of(form).tolist() == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_arrays_of_numpy_have_the_keys_of_their_texts(texts):
    wide = np.array([*texts, "x"])
    assert keys_of(wide).tolist() == keys_of([*texts, "x"]).tolist()
    narrow = np.array([text.encode() for text in [*texts, "x"]])
    assert keys_of(narrow).tolist() == keys_of([*texts, "x"]).tolist()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)) | st.lists(st.integers(0, 2**64 - 1)))
def test_integers_are_their_own_keys(numbers):
    assert keys_of(numbers).tolist() == [number % 2**64 for number in numbers]


@pytest.mark.parametrize("kind", ["i1", "u1", ">i2", "u2", "i4", ">u4", "i8", "u8"])
def test_integers_of_all_types_have_the_same_keys(kind):
    numbers = [0, 1, 100] + ([-3] if "i" in kind else [])
    expected = [number % 2**64 for number in numbers]
    array = np.array(numbers, kind)
    forms = [array, array[::1], list(array), pd.Series(numbers, dtype="Int64")]
    forms += [pa.array(numbers), pl.Series(numbers)]
    for form in forms:
        assert keys_of(form).tolist() == expected


def test_parts_of_an_arrow_array_have_the_keys_of_the_whole():
    texts = pa.array([f"text {i}" for i in range(100)])
    assert keys_of(texts.slice(13, 40)).tolist() == keys_of(texts)[13:53].tolist()


def test_a_million_short_texts_have_different_keys():
    keys = keys_of([f"{i:x}" for i in range(1_000_000)])
    assert len(np.unique(keys)) == 1_000_000
    for bits in (keys >> np.uint64(52), keys & np.uint64(4095)):
        share = np.bincount(bits.astype(np.int64), minlength=4096) / 1e6 * 4096
        assert abs(share - 1).max() < 0.4  # deviations of 1/16, and 4096 of them


def test_one_bit_of_a_text_changes_half_of_the_bits_of_its_key():
    text = bytearray(b"some text of 3 words")
    flipped = []
    for bit in range(8 * len(text)):
        other = bytearray(text)
        other[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(other))
    changed = keys_of(flipped) ^ keys_of([bytes(text)])
    ones = np.unpackbits(changed.view(np.uint8)).reshape(len(flipped), 64)
    assert abs(ones.mean() - 0.5) < 0.02
    assert ones.sum(axis=1).min() > 12
    assert ones.mean(axis=0).min() > 0.25


WRONG = {
    "a missing one": (["a", None], "row 1 of the input .* is missing"),
    "a missing first": ([None, "a"], "row 0 of the input .* is missing"),
    "NaN among texts": (["a", float("nan")], "row 1 of the input .* is missing"),
    "an Arrow null": (pa.array([1, None]), "row 1 of the input .* is missing"),
    "a null category": (pd.Series(["a", None], dtype="category"), "row 1 .* missing"),
    "a masked one": (np.ma.array([1, 2], mask=[False, True]), "row 1 .* missing"),
    "a decimal": ([1.5], "type double"),
    "decimals": (np.array([1.0, 2.0]), "type float64.*integers"),
    "a boolean": ([True], "type bool"),
    "booleans": (np.array([True]), "type bool"),
    "a boolean among integers": ([5, 1, True], "row 2 .* is a boolean"),
    "an integer and a text": ([1, "a"], "row 1 .* is a str, unlike others"),
    "a text and an integer": (["a", 1], "row 1 .* is a int, unlike others"),
    "too large an integer": ([1, 2**64], "row 1 .* more than 64 bits"),
    "too small an integer": ([-(2**63) - 1], "row 0 .* more than 64 bits"),
    "two integers of the same bits": ([-1, 2**64 - 1], "row 0 .* is negative"),
    "no UTF-8": (["\ud800"], "kinds, or are no ids"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "type datetime64"),
    "lists": ([[1]], "type list"),
    "objects": ([object()], "row 0 .* is a object"),
    "a table": (np.zeros((2, 2), int), "1-D"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_id_is_refused_with_its_row(what):
    data, text = WRONG[what]
    with pytest.raises(RowsError, match=text):
        keys_of(data)
