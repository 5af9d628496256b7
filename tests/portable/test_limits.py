"""Exactness holds to the ends of what a map accepts."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from portable import reference
from portable.maps import exact_rows, exact_values, feature_map
from portable.reference import norm_squared
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.clipping import clipped
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.hashing import BloomFeatures, CountMinFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.networks.forward import NetworkSpec

SATURATED = [41, 93, 111, 260, 1000, 4096]
"""Sizes, some of whose square roots are rounded down to below the true norm."""


def check_additive(phi, rows):
    assert phi.batch_sum(rows).to_ints() == reference.total(phi, rows)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_saturated_units_stay_within_the_norm_bound(activation):
    for size in SATURATED:
        phi = ActivationFeatures(np.full((1, size), 100.0), activation=activation)
        found = phi.batch_sum(np.array([[1000.0]])).to_ints()
        assert norm_squared(found) <= phi.spec.norm_steps**2


@pytest.mark.parametrize("head", ["tanh", "sigmoid"])
def test_saturated_networks_stay_within_the_norm_bound(head):
    for size in SATURATED:
        tensors = {
            "layers.last.weight": np.full((size, 1), 100.0, np.float32),
            "layers.last.bias": np.zeros(size, np.float32),
        }
        phi = NetworkFeatures(NetworkSpec(1, size, head=head), tensors)
        found = phi.batch_sum(np.array([[50.0]])).to_ints()
        assert norm_squared(found) <= phi.spec.norm_steps**2


def test_waves_of_equal_phase_stay_within_the_norm_bound():
    for size in SATURATED:
        for activation in ("cos", "sin", "fourier"):
            matrix = np.full((1, size), 1.5707963)
            phi = ActivationFeatures(matrix, activation=activation)
            found = phi.batch_sum(np.array([[1.0]])).to_ints()
            assert norm_squared(found) <= phi.spec.norm_steps**2


@pytest.mark.parametrize("order", ["mean", "variance", "covariance"])
def test_means_of_many_bits_are_exact(order):
    phi = MomentFeatures(2, order=order, reach=65536.0, bits=28)
    rows = 65536.0 - np.abs(exact_rows(300, 2, 1, 2.0**-30))
    check_additive(phi, rows)


def test_means_of_many_bits_do_not_wrap():
    phi = MomentFeatures(1, order="mean", reach=65536.0, bits=28)
    rows = np.full((2**13, 1), 65536.0)
    assert phi.batch_sum(rows).to_ints() == [2**13 << (16 + 56)]


def test_cross_moments_of_many_bits_are_exact():
    importance = [2.0 ** -(i % 13) for i in range(20)]
    phi = CrossMomentFeatures(20, 2, bits=32, importance=importance)
    check_additive(phi, 32.0 - np.abs(exact_rows(3, 20, 5, 2.0**-10, bits=26)))


def test_the_nearest_of_far_anchors_is_found():
    step = 2.0**-17
    for seed in range(40):
        middle = np.rint(exact_values(1, seed, 2000.0)[0] / step) * step + 8000
        phi = CellFeatures(
            [[middle], [middle + 2 * step], [middle + 5 * step]],
            basis=[[1.0]],
            centre=[0.0],
            reach=40000.0,
        )
        check_additive(phi, np.array([[middle + 2 * step]]))


def test_the_nearest_of_very_far_anchors_is_found():
    anchors = [[30000.0], [-30000.0], [0.0]]
    phi = CellFeatures(anchors, basis=[[1.0]], centre=[0.0], reach=60000.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_additive(phi, np.array([[10.0]]))


def test_sums_of_large_coordinates_are_exact():
    phi = CellFeatures([[0.0]], basis=[[30.3]], centre=[0.0], reach=60000.0)
    check_additive(phi, exact_rows(400, 1, 3, 30000.0) + 30000.0)
    wide = CellFeatures([[0.0]], basis=[[30001.3]], centre=[0.0], reach=60000.0)
    with pytest.raises(RowRangeError):
        wide.batch_sum(np.array([[59999.0]]))


def test_bounds_of_cells_are_products_and_not_powers():
    for step in (1518, 3794, 4230):
        given = {"basis": [[0.3]], "centre": [0.0], "reach": 4 + step / 1024}
        phi = CellFeatures([[0.0]], **given, n_crossed=0)
        farthest, _ = phi._projection.bounds()
        assert phi.value_bound == farthest * farthest


def test_the_bound_of_concatenated_maps_is_summed_in_order():
    phi = feature_map("concatenated-three")
    a, b, c = (part.norm_bound for part in phi.members)
    a, b = a / c, b / c  # c is the largest
    assert phi.norm_bound == c * math.sqrt(a * a + b * b + 1.0) * (1 + 2.0**-40)


def test_fingerprints_do_not_depend_on_the_byte_order():
    phi, other = (CountMinFeatures(5, width=3, depth=2) for _ in range(2))
    large = {name: array.astype(">i8") for name, array in other.weights().items()}
    other.weights = lambda: large
    assert other.fingerprint == phi.fingerprint


def test_small_negative_totals_are_compared_exactly():
    assert not Int128Array.from_ints([-5]).norm_at_most(4)
    assert not Int128Array.from_ints([-1000]).within(-10, 10)


def test_small_positive_totals_are_compared_exactly():
    assert not Int128Array.from_ints([5]).norm_at_most(4)
    assert not Int128Array.from_ints([1000]).within(-10, 10)
    assert Int128Array.from_ints([-5, 12]).norm_at_most(13)


def test_a_bloom_filter_refuses_what_is_no_number():
    phi = BloomFeatures(2, width=3, depth=1)
    with pytest.raises(RowRangeError):
        phi.batch_sum(np.array([[np.nan, 0.0]]))


def test_a_nystrom_map_of_small_shift_takes_its_own_landmarks():
    marks = np.arange(20)[:, None] / 200
    NystromFeatures(marks, shift=1e-9)(marks)


@pytest.mark.parametrize("bound", [1e-240, 1e-100, 2.0**-60, 2.0**60, 1e100, 1e240])
def test_clipping_holds_for_bounds_of_any_size(bound):
    phi = clipped(FourierFeatures(2, 6), norm_bound=bound)
    rows = exact_rows(10, 2, 7, 4.0)
    for row in rows:
        found = phi.batch_sum(row[None]).to_ints()
        assert norm_squared(found) <= phi.spec.norm_steps**2
    singles = [phi.batch_sum(row[None]).to_ints() for row in rows]
    totals = [sum(column) for column in zip(*singles, strict=True)]
    assert phi.batch_sum(rows).to_ints() == totals


@pytest.mark.parametrize("bound", [1.7e308])
def test_clipping_to_bounds_that_cannot_be_kept_is_refused(bound):
    with pytest.raises(FeatureMapError):
        clipped(FourierFeatures(2, 6), norm_bound=bound)(np.zeros((1, 2)))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_quadratic_map_refuses_impossible_bounds(bound):
    with pytest.raises((FeatureMapError, ValueError)):
        QuadraticFeatures(2, 2, value_bound=bound)


@pytest.mark.parametrize("bits", [8, 22, 36])
@pytest.mark.parametrize("order", ["mean", "variance", "covariance"])
def test_moments_of_few_rows_are_exact_for_all_bits(order, bits):
    phi = MomentFeatures(3, order=order, reach=256.0, bits=bits)
    rows = exact_rows(40, 3, bits, 256.0, bits=44)
    check_additive(phi, rows)
    corners = np.where(exact_rows(40, 3, 1) < 0, -256.0, 256.0)
    check_additive(phi, corners)


def test_the_largest_row_has_the_largest_moments():
    phi = MomentFeatures(2, order="covariance", reach=65536.0, bits=28)
    row = np.full((1, 2), -65536.0)
    found = [Fraction(v, 2**phi.frac_bits) for v in phi.batch_sum(row).to_ints()]
    assert found == [-(2**16)] * 2 + [2**32] * 3


@pytest.mark.parametrize("n_features", [1, 3, 7])
@pytest.mark.parametrize("share", [0.12, 0.28, 1.0])
def test_sums_of_many_fine_rows_are_exact(n_features, share):
    phi = MomentFeatures(n_features, reach=1.0, bits=42)
    # Low digits of one step: nothing but the sum of the rows grows large.
    coarse = np.floor((share - np.abs(exact_rows(66_000, 1, 9, 0.01))) * 2.0**21)
    rows = np.repeat(coarse * 2.0**-21 - 2.0**-42, n_features, axis=1)
    expected = sum(reference.steps(rows[:, 0].tolist(), 42)) << 42
    assert phi.batch_sum(rows).to_ints()[:n_features] == [expected] * n_features
