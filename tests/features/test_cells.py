"""Cells count and average the rows nearest to each anchor; planned maps say so."""

import numpy as np
import pytest

from contracts import check_feature_map
from sketchlearn import Scaling, sketch_rows
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.cells import CellFeatures

RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, (200, 5))
BASIS, CENTRE = RNG.normal(size=(5, 3)), RNG.uniform(-0.2, 0.2, 5)
ANCHORS = RNG.normal(size=(9, 3))
SCALING = Scaling.from_bounds(-np.ones(5), np.full(5, 3.0), origin="data")

MAPS = {
    "cells": CellFeatures(ANCHORS, basis=BASIS, centre=CENTRE),
    "scaled cells": CellFeatures(
        ANCHORS, basis=BASIS, centre=CENTRE, reach=1.0, scaling=SCALING
    ),
    "second moments": CellFeatures(ANCHORS, basis=BASIS, centre=CENTRE, n_crossed=3),
    "some products": CellFeatures(
        ANCHORS, basis=BASIS, centre=CENTRE, n_crossed=2, scaling=SCALING
    ),
    "squares": CellFeatures(ANCHORS, basis=BASIS, centre=CENTRE, n_crossed=0),
    "one cell": CellFeatures([[0.0]], basis=BASIS[:, :1], centre=CENTRE),
    "from rows": CellFeatures(ANCHORS, basis=BASIS, centre=CENTRE, origin="data"),
}


@pytest.mark.parametrize("name", MAPS)
def test_planned_maps_keep_the_contract_of_feature_maps(name):
    check_feature_map(MAPS[name], ROWS)


def test_cells_hold_the_share_and_the_mean_of_the_rows_nearest_to_each_anchor():
    sketch = sketch_rows(ROWS, MAPS["cells"])
    z = (ROWS - CENTRE) @ BASIS.astype(np.float32)
    nearest = ((z[:, None] - ANCHORS) ** 2).sum(axis=2).argmin(axis=1)
    table = sketch.mean.reshape(9, 4)
    for cell in range(9):
        inside = nearest == cell
        assert table[cell, 0] == pytest.approx(inside.mean(), abs=1e-12)
        assert np.allclose(table[cell, 1:], z[inside].sum(axis=0) / 200, atol=1e-5)


def test_cells_with_second_moments_hold_squares_and_products_of_first_coordinates():
    z = ((ROWS - CENTRE) @ BASIS.astype(np.float32)).astype(np.float64)
    nearest = ((z[:, None] - ANCHORS) ** 2).sum(axis=2).argmin(axis=1)
    pairs = {"squares": [], "second moments": [(1, 0), (2, 0), (2, 1)]}
    for name, crossed in pairs.items():
        products = [z[:, a] * z[:, b] for a, b in crossed]
        kept = np.column_stack([np.ones(200), z, z**2, *products])
        table = sketch_rows(ROWS, MAPS[name]).mean.reshape(9, -1)
        for cell in range(9):
            expected = kept[nearest == cell].sum(axis=0) / 200
            assert np.allclose(table[cell], expected, atol=1e-5)


def test_coordinates_are_clipped_where_products_are_sketched():
    far = CellFeatures([[0.0]], basis=[[10.0]], centre=[0.0], reach=32.0, n_crossed=1)
    assert np.array_equal(far(np.array([[20.0]])), [[1.0, 32.0, 1024.0]])
    assert far.value_bound == 1024.0


def test_cells_without_second_moments_are_described_as_they_always_were():
    assert "n_crossed" not in MAPS["cells"].description
    assert MAPS["squares"].description["n_crossed"] == 0


def test_a_plan_read_from_data_says_so_in_the_map_and_in_its_description():
    assert MAPS["cells"].origin == MAPS["cells"].spec.origin == "declared"
    for name in ("scaled cells", "from rows"):
        assert MAPS[name].origin == MAPS[name].spec.origin == "data"


def test_a_row_beyond_the_planned_reach_is_refused():
    with pytest.raises(RowRangeError, match="row 1 "):
        sketch_rows([[0.0] * 5, [9.0] * 5], MAPS["scaled cells"])


@pytest.mark.parametrize(
    ("anchors", "basis", "centre"),
    [
        (np.zeros((2, 2)), BASIS, CENTRE),
        (ANCHORS, BASIS, CENTRE[:4]),
        (ANCHORS * np.nan, BASIS, CENTRE),
        (ANCHORS, BASIS * np.inf, CENTRE),
    ],
)
def test_shapes_that_do_not_fit_are_refused(anchors, basis, centre):
    with pytest.raises(FeatureMapError):
        CellFeatures(anchors, basis=basis, centre=centre)


@pytest.mark.parametrize("n_crossed", [-1, 4, True, 1.5])
def test_products_of_coordinates_that_do_not_exist_are_refused(n_crossed):
    with pytest.raises(FeatureMapError, match="n_crossed must be"):
        CellFeatures(ANCHORS, basis=BASIS, centre=CENTRE, n_crossed=n_crossed)


def test_squares_of_anchors_leave_room_for_exact_distances():
    # Twice a product is below 2**52; with a square of 2**51, the sum is below 2**53.
    basis, centre = np.ones((1, 129)), np.zeros(1)
    anchors = np.ones((2, 129))  # of 22 bits: each coordinate has a square of 2**44
    anchors[1, 0] -= 2.0**-22
    phi = CellFeatures(anchors[:, :128], basis=basis[:, :128], centre=centre)
    assert sketch_rows([[1.0], [1.0]], phi).mean[0] == 1.0
    with pytest.raises(FeatureMapError, match="129 coordinates are too many"):
        CellFeatures(anchors, basis=basis, centre=centre)
