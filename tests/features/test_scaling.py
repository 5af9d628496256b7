"""Declared bounds land in [-1, 1] by exact powers of two, and origin is remembered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.scaling import Scaling

numbers = st.floats(-1e12, 1e12)


@given(numbers, numbers)
def test_bounds_map_inside_the_unit_interval(a, b):
    low, high = min(a, b), max(a, b)
    scaling = Scaling.from_bounds(low, high, n_features=1)

    ends = scaling(np.array([[low], [high]]))

    assert np.abs(ends).max() <= 1 + 1e-9
    if high - low > 1e-6 * max(abs(low), abs(high), 1e-6):
        assert np.ptp(ends) > 0.4  # and waste at most about two bits of range


@given(numbers, numbers)
def test_factors_are_powers_of_two(a, b):
    scaling = Scaling.from_bounds(min(a, b), max(a, b), n_features=1)
    assert np.frexp(scaling.factor)[0] == 0.5


def test_scaling_float32_rows_is_exact():
    rng = np.random.default_rng(0)
    rows = rng.uniform(2000, 2050, (1000, 1)).astype(np.float32)
    scaling = Scaling.from_rows(rows)

    back = scaling(rows) / scaling.factor + scaling.shift

    assert np.array_equal(back, rows)
    assert scaling.origin == "data"


def test_a_constant_column_scales_to_zero():
    scaling = Scaling.from_rows(np.full((3, 1), 7.0))
    assert np.abs(scaling(np.full((1, 1), 7.0))).max() < 0.05


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.0, "reversed for feature 0"),
        (np.nan, 1.0, "finite"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "do not fit"),
        (None, 1.0, "two numbers, .* got NoneType"),
        ("0", 1.0, "two numbers, .* got str"),
        (0.0, object(), "two numbers, .* got object"),
        (0.0, [1.0, [2.0, 3.0]], "two numbers, .* got list"),
        (0.0, 1j, "two numbers, .* got complex"),
    ],
)
def test_bad_bounds_say_what_is_wrong(low, high, message):
    with pytest.raises(FeatureMapError, match=message):
        Scaling.from_bounds(low, high)


@pytest.mark.parametrize(
    ("shift", "factor", "origin", "message"),
    [
        ([0.0], [0.0], "declared", "positive"),
        ([0.0], [np.inf], "declared", "finite"),
        ([0.0, 1.0], [1.0], "declared", "one length"),
        ([0.0], [1.0], "guessed", "origin"),
    ],
)
def test_bad_constants_say_what_is_wrong(shift, factor, origin, message):
    with pytest.raises(FeatureMapError, match=message):
        Scaling(np.array(shift), np.array(factor), origin)


def test_a_description_gives_the_scaling_back():
    scaling = Scaling.from_bounds([0.0, 5.0], [3.0, 9.0])
    again = Scaling.from_description(scaling.describe())
    assert np.array_equal(again.shift, scaling.shift)
    assert np.array_equal(again.factor, scaling.factor)
    assert again.origin == "declared"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaling.from_bounds(0, 1, n_features=10**12),
        lambda: Scaling.identity(10**12),
    ],
)
def test_more_features_than_rows_have_are_refused_before_they_are_written_out(make):
    with pytest.raises(FeatureMapError, match="at most 16777216"):
        make()
