"""Whole numbers have one packed form: the digits of one large number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.arithmetic import packing
from sketchlearn.arithmetic.packing import (
    PackedInts,
    bits_of,
    pack_ints,
    packed_bytes,
    unpack_ints,
)

int64 = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-100, 100)
NUMBERS = st.one_of(
    st.lists(int64, min_size=1, max_size=40),
    st.lists(small, min_size=1, max_size=40),
    st.lists(st.integers(0, 1), min_size=1, max_size=40),
)


def packed_by_hand(values):
    """Least number, bits and bytes, with Python integers alone."""
    least = min(values)
    bits = max(1, (max(values) - least).bit_length())
    whole = sum((value - least) << bits * i for i, value in enumerate(values))
    return least, bits, whole.to_bytes(-(-len(values) * bits // 8), "little")


@given(NUMBERS)
@settings(max_examples=300)
def test_the_bytes_are_those_of_one_large_number(values):
    packed = pack_ints(np.array(values, np.int64))

    assert (packed.least, packed.bits, packed.data.tobytes()) == packed_by_hand(values)


@given(NUMBERS)
@settings(max_examples=300)
def test_packed_numbers_come_back(values):
    packed = pack_ints(np.array(values, np.int64))

    assert unpack_ints(packed, len(values)).tolist() == values
    assert len(packed.data) == packed_bytes(len(values), packed.bits)


@pytest.mark.parametrize(
    ("values", "bits", "n_bytes"),
    [
        ([0], 1, 1),
        ([7], 1, 1),
        ([0] * 100, 1, 13),
        ([0, 100] * 50, 7, 88),
        ([-50, 50] * 50, 7, 88),
        ([0, 127], 7, 2),
        ([0, 128], 8, 2),
        ([-(2**63), 2**63 - 1], 64, 16),
    ],
)
def test_numbers_take_the_bits_of_their_range_and_one_at_least(values, bits, n_bytes):
    packed = pack_ints(np.array(values, np.int64))

    assert bits_of(np.array(values, np.int64)) == packed.bits == bits
    assert len(packed.data) == n_bytes


@given(st.integers(1, 64), st.data())
def test_any_bytes_are_numbers(bits, data):
    size = data.draw(st.integers(1, 20))
    raw = data.draw(st.binary(min_size=packed_bytes(size, bits)))
    raw = raw[: packed_bytes(size, bits)]
    least = data.draw(int64)
    given_bytes = PackedInts(least, bits, np.frombuffer(raw, np.uint8))
    whole = int.from_bytes(raw, "little")
    expected = [least + (whole >> bits * i) % 2**bits for i in range(size)]

    found = unpack_ints(given_bytes, size).tolist()
    assert [value % 2**64 for value in found] == [value % 2**64 for value in expected]


@pytest.mark.parametrize("bits", [1, 3, 7, 8, 33, 63, 64])
def test_blocks_leave_no_seam(monkeypatch, bits):
    values = np.random.default_rng(0).integers(0, 2**bits, 100, np.uint64)
    values = np.append(values, np.array([0, 2**bits - 1], np.uint64))
    values = (values - np.uint64(2**63)).view(np.int64)
    whole = pack_ints(values)
    monkeypatch.setattr(packing, "_PACKED_AT_ONCE", 8)
    pieces = pack_ints(values)

    assert pieces.data.tobytes() == whole.data.tobytes()
    assert np.array_equal(unpack_ints(whole, len(values)), values)


def test_a_block_ends_where_a_byte_does():
    assert packing._PACKED_AT_ONCE % 8 == 0
