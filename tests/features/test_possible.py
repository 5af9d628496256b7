"""Totals obey what sums of rows must, exactly; what no rows add up to is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchlearn as sl
from portable.maps import NAMES, feature_map, golden_rows
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapMismatch, RemovalError
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.hashing import BloomFeatures, CountMinFeatures
from sketchlearn.features.moments import MomentFeatures

D = 3
BASIS = np.eye(D)[:, :2]
ANCHORS = [[-2.0, 0.0], [0.0, 1.0], [2.0, -1.0]]
CELLS = CellFeatures(ANCHORS, basis=BASIS, centre=np.zeros(D))
CROSSED = CellFeatures(ANCHORS, basis=BASIS, centre=np.zeros(D), n_crossed=2)
MAPS = {
    "mean": MomentFeatures(D, order="mean"),
    "variance": MomentFeatures(D, order="variance"),
    "covariance": MomentFeatures(D, order="covariance"),
    "fine": MomentFeatures(D, order="covariance", bits=38),
    "cross": CrossMomentFeatures(D, 2, targets=[1]),
    "some": CrossMomentFeatures(D, 1, kept=[0, 2], importance=[0.25, 1.0]),
    "cells": CELLS,
    "crossed": CROSSED,
    "count-min": CountMinFeatures(D, width=4, depth=3),
    "bloom": BloomFeatures(D, width=4, depth=3),
    "together": ConcatenatedFeatures([MomentFeatures(D), CROSSED]),
}
ROWS = np.random.default_rng(0).normal(size=(60, D))


@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.sampled_from([-31.0, -1.5, -1e-9, 0.0, 1e-7, 0.1, 2.0, 32.0])
                 | st.floats(-32, 32), min_size=D, max_size=D),
        min_size=1,
        max_size=6,
    )
)  # fmt: skip
def test_totals_of_rows_are_possible(name, rows):
    sketch = sl.sketch_rows(np.array(rows), MAPS[name])
    assert sketch.is_possible
    assert (sketch + sl.sketch_rows(ROWS, MAPS[name])).is_possible


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(chosen=st.lists(st.integers(0, 59), min_size=1, max_size=6))
def test_totals_of_rows_are_possible_for_every_registered_map(name, chosen):
    sketch = sl.sketch_rows(golden_rows(name)[chosen], feature_map(name))
    assert sketch.is_possible
    other = sl.sketch_rows(golden_rows(name)[:3], feature_map(name))
    assert (sketch + other).is_possible
    assert (sketch - sketch).is_possible


@pytest.mark.parametrize("name", MAPS)
def test_what_was_added_can_be_taken_away(name):
    whole, part = sl.sketch_rows(ROWS, MAPS[name]), sl.sketch_rows(ROWS[7:], MAPS[name])
    assert whole - part == sl.sketch_rows(ROWS[:7], MAPS[name])
    assert (whole - whole).is_possible


def refused(phi, rows, others):
    whole = sl.sketch_rows(np.array(rows), phi)
    with pytest.raises(RemovalError, match="Nothing was removed"):
        whole - sl.sketch_rows(np.array(others), phi)
    return True


def test_a_variance_is_never_negative():
    rows = np.ones((5, D))
    for name in ("variance", "covariance", "fine", "cross", "some", "together"):
        assert refused(MAPS[name], rows, [[1.0, 1.0, 1.5]])
        assert refused(MAPS[name], rows, [[1.0, 0.5, 1.0]])


def test_a_cell_never_holds_fewer_than_no_rows():
    rows = [[-2.0, 0.0, 0.0], [-2.1, 0.1, 0.0], [2.0, -1.0, 0.0]]
    for phi in (CELLS, CROSSED, MAPS["together"]):
        assert refused(phi, rows, [[0.0, 1.0, 0.0]])
    # The right cell, but its only row was another one.
    for phi in (CELLS, CROSSED):
        assert refused(phi, rows, [[2.1, -1.0, 0.0]])


def test_a_filter_never_holds_an_item_fewer_times_than_never():
    phi = BloomFeatures(D, width=64, depth=2)
    assert refused(phi, [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])


def forged(sketch, index, value):
    entries = sketch.total.to_ints()
    entries[index] += value
    return replace(sketch, total=Int128Array.from_ints(entries), source_map=None)


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("variance", D, -(2**52)),
        ("covariance", D, -(2**52)),
        ("cross", D, -(2**52)),
        ("cells", 0, 1),
        ("cells", 0, -(2 ** CELLS.frac_bits)),
        ("crossed", 3, -(2**60)),
        ("count-min", 0, 1),
        ("bloom", 0, 1),
        ("together", D, -(2**60)),
    ],
)  # fmt: skip
def test_a_forged_total_is_found_when_its_map_is_there(name, index, value):
    sketch = forged(sl.sketch_rows(ROWS, MAPS[name]), index, value)
    with pytest.raises(FeatureMapMismatch, match="no rows add up"):
        sketch.with_map(MAPS[name])
    with pytest.raises(FeatureMapMismatch, match="no rows add up"):
        _ = sketch.feature_map


def test_loaded_sketches_obey_the_same_laws(tmp_path):
    phi = MAPS["together"]
    whole, other = sl.sketch_rows(np.ones((5, D)), phi), sl.sketch_rows(ROWS[:1], phi)
    for name, sketch in (("whole", whole), ("other", other)):
        sl.save(sketch, tmp_path / name)
    whole, other = (sl.load(tmp_path / name) for name in ("whole", "other"))
    with pytest.raises(RemovalError, match="no 4 rows add up"):
        whole - other


def test_variances_are_told_exactly():
    phi = MAPS["cross"]
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0 + 2.0**-22, 3.0]])
    total = sl.sketch_rows(rows, phi).total
    first, second, third = phi.scatter(total, 2, phi.frac_bits)
    step = 2 ** (phi.frac_bits - 22)
    assert (first, second, third) == (0, step * step, 0)
