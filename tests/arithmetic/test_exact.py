"""Integers add without error, and rounding to the lattice happens exactly once."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.arithmetic import exact
from sketchlearn.arithmetic.exact import (
    FEATURE_BITS,
    SAFE_ROWS,
    Int128Array,
    frac_bits_for,
    lattice_round,
    lattice_sum,
)

int127 = st.integers(-(2**126), 2**126 - 1)
EDGES = [0, 1, -1, 2**63, -(2**63), 2**64 - 1, -(2**64), 2**64, 2**126, -(2**126)]


@given(st.lists(st.tuples(int127, int127), min_size=1, max_size=20))
def test_arithmetic_agrees_with_python_integers(pairs):
    a = Int128Array.from_ints(left for left, _ in pairs)
    b = Int128Array.from_ints(right for _, right in pairs)

    assert (a + b).to_ints() == [left + right for left, right in pairs]
    assert (a - b).to_ints() == [left - right for left, right in pairs]
    assert a.less_than(b).tolist() == [left < right for left, right in pairs]
    assert (a + b) - b == a


def test_a_hundred_thousand_random_operations_leave_no_mismatch():
    rng = np.random.default_rng(0)
    size, expected = 100, [0] * 100
    total = Int128Array.zeros(size)
    for _ in range(1000):
        values = [
            int(v) << int(s)
            for v, s in zip(
                rng.integers(-(2**62), 2**62, size),
                rng.integers(0, 50, size),
                strict=True,
            )
        ]
        sign = 1 if rng.random() < 0.6 else -1
        other = Int128Array.from_ints(values)
        total = total + other if sign > 0 else total - other
        expected = [e + sign * v for e, v in zip(expected, values, strict=True)]
    assert total.to_ints() == expected


@pytest.mark.parametrize("left", EDGES)
def test_carries_and_borrows_cross_the_words(left):
    for right in EDGES:
        a, b = Int128Array.from_ints([left]), Int128Array.from_ints([right])
        if left - right < 2**127:
            assert (a - b).to_ints() == [left - right]
        if -(2**127) <= left + right < 2**127:
            assert (a + b).to_ints() == [left + right]


def test_leaving_the_128_bit_range_is_an_error_not_a_wrap():
    top = Int128Array.from_ints([2**127 - 1])
    with pytest.raises(OverflowError):
        top + Int128Array.from_ints([1])
    with pytest.raises(OverflowError):
        Int128Array.from_ints([-(2**127)]) - Int128Array.from_ints([1])
    with pytest.raises(OverflowError):
        Int128Array.from_ints([2**127])
    with pytest.raises(OverflowError):
        Int128Array.from_ints([2**100]).shifted(27)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 63))
def test_widening_shifts_exactly(value, shift):
    wide = Int128Array.from_int64(np.array([value])).shifted(shift)
    assert wide.to_ints() == [value << shift]


@given(st.lists(int127, min_size=1, max_size=5), st.integers(1, 2**80))
def test_quotients_are_correctly_rounded(values, divisor):
    quotients = Int128Array.from_ints(values).divided_by(divisor)
    assert quotients.tolist() == [value / divisor for value in values]


@given(
    st.lists(st.integers(-(2**64), 2**64), min_size=1, max_size=8),
    st.integers(0, 62),
    st.integers(1, 2**64),
    st.integers(0, 1200),
)
@settings(max_examples=500)
def test_quotients_are_those_of_fractions(values, twos, odd, shift):
    wide = [value << twos for value in values]
    divisor = odd << shift
    found = Int128Array.from_ints(wide).divided_by(divisor)

    assert found.tolist() == [float(Fraction(value, divisor)) for value in wide]


@pytest.mark.parametrize("value", [2**53 - 1, 2**53, 2**53 + 1, 2**54 + 2, 2**63, 1])
@pytest.mark.parametrize("divisor", [1, 3, 2**53 - 1, 2**53, 2**53 + 1, 3 << 900])
def test_quotients_at_the_edge_of_floats_are_correctly_rounded(value, divisor):
    values = [value, -value, 3, 0]
    found = Int128Array.from_ints(values).divided_by(divisor)

    assert found.tolist() == [float(Fraction(one, divisor)) for one in values]
    assert not np.signbit(found[-1])


def test_quotients_below_the_normal_floats_are_rounded_once():
    values, divisor = [3, -7, 2**100 + 1], 5 << 1073
    found = Int128Array.from_ints(values).divided_by(divisor)

    assert found.tolist() == [float(Fraction(one, divisor)) for one in values]


def test_most_counts_need_no_python_integers(monkeypatch):
    counts = np.arange(-1000, 1000)
    wide = Int128Array.from_int64(counts).shifted(80)
    to_ints, lengths = Int128Array.to_ints, []

    def counted(self):
        lengths.append(len(self))
        return to_ints(self)

    monkeypatch.setattr(Int128Array, "to_ints", counted)
    found = wide.divided_by(7 << 80)

    assert found.tolist() == (counts / 7).tolist()
    assert wide.within(-1000 << 80, 999 << 80)
    assert wide.in_units(80).tolist() == counts.tolist()
    assert sum(lengths) == 0


int128 = st.integers(-(2**127), 2**127 - 1)


@given(st.lists(int128, min_size=1, max_size=8), int128, int128)
def test_bounds_are_decided_to_the_last_step(values, low, high):
    array = Int128Array.from_ints(values)
    least, most = min(values), max(values)

    assert array.within(low, high) == all(low <= v <= high for v in values)
    assert array.within(least, most)
    assert not array.within(least + 1, most)
    assert not array.within(least, most - 1)
    assert array.within(-(2**200), 2**200)
    assert not array.within(2**200, 2**201)
    assert not array.within(-(2**201), -(2**200))


@given(
    st.lists(st.integers(-(2**64), 2**64), min_size=1, max_size=8),
    st.integers(0, 62),
    st.integers(0, 140),
)
@settings(max_examples=500)
def test_units_are_whole_and_fit_or_are_none(values, twos, bits):
    wide = [value << twos for value in values]
    found = Int128Array.from_ints(wide).in_units(bits)
    whole = all(value % 2**bits == 0 for value in wide)
    units = [value >> bits for value in wide]

    if whole and all(-(2**63) <= unit < 2**63 for unit in units):
        assert found.tolist() == units
    else:
        assert found is None


@given(st.integers(1, 5), st.lists(int128, min_size=30, max_size=30))
def test_sums_of_blocks_are_those_of_python(length, values):
    values = values[: len(values) // length * length]
    starts = range(0, len(values), length)
    expected = [sum(values[start : start + length]) for start in starts]

    assert Int128Array.from_ints(values).block_sums(length) == expected


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=50),
    st.sampled_from([10, 31, 44]),
)
def test_rounding_is_rint_to_the_lattice(values, bits):
    array = np.array(values, np.float32)
    expected = [int(np.rint(np.float64(v) * 2.0**bits)) for v in array]

    assert lattice_round(array, bits).tolist() == expected
    assert lattice_sum(array[:, None], bits).tolist() == [sum(expected)]


def test_sums_stay_exact_up_to_the_stated_number_of_rows():
    ones = np.ones((SAFE_ROWS, 1), np.float32)
    assert lattice_sum(ones, 44).tolist() == [SAFE_ROWS * 2**44]
    assert lattice_sum(-ones, 44).tolist() == [-SAFE_ROWS * 2**44]


@settings(max_examples=300)
@given(st.floats(1e-9, 1e9))
def test_the_lattice_is_the_finest_that_keeps_44_bits(bound):
    bits = frac_bits_for(bound)
    assert bound * 2.0**bits <= 2.0**44 < bound * 2.0 ** (bits + 1)


def test_arrays_cannot_be_changed_behind_a_sketch():
    array = Int128Array.zeros(3)
    with pytest.raises(ValueError, match="read-only"):
        array.hi[0] = 1


def test_sums_of_the_largest_features_leave_one_bit_of_64_to_spare():
    assert SAFE_ROWS * 2**FEATURE_BITS == 2**62


def test_floats_decide_a_comparison_only_where_their_rounding_cannot():
    rounding = 2**24 * 2.0**-53 / 2  # of the norm of the longest total, at worst

    assert rounding < exact._ROUGHLY < 2 * rounding
