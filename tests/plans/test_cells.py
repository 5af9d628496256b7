"""Cells fill the room they are given, wherever the rows vary, whatever their units."""

import numpy as np
import pytest

from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.plans.cells import ClusterCells, MixtureCells
from sketchlearn.plans.first_round import FirstRound

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(6, 6))
COVARIANCE = ROOT @ ROOT.T


def plan(room, *, n_components=2, along_features=False, factor=1.0, flat=False):
    scale = np.ones(6) * factor
    covariance = COVARIANCE * scale * scale[:, None]
    if flat:
        covariance = 0 * covariance
    moments = Moments(100.0, np.zeros(6), DenseCovariance(covariance), np.zeros(6), 6)
    low, high = -9 * scale, 9 * scale
    phi = MomentFeatures(6, scaling=Scaling.from_bounds(low, high))
    known = FirstRound(phi, phi, moments, low, high, room, "data")
    units = np.sqrt(np.diag(COVARIANCE)) * scale
    return MixtureCells(n_components, along_features, units).place(known, 0)


@pytest.mark.parametrize("room", [40, 100, 223, 224, 900])
@pytest.mark.parametrize("along_features", [False, True])
def test_cells_take_no_more_than_their_room_and_leave_no_cell_unused(
    room, along_features
):
    cells = plan(room, along_features=along_features)
    count, r = cells.anchors.shape
    size = 1 + 2 * r + cells.n_crossed * (cells.n_crossed - 1) // 2
    assert room - size < count * size <= room


def test_all_products_are_kept_as_soon_as_eight_cells_can_hold_them():
    assert plan(8 * 28).n_crossed == 6
    assert plan(8 * 28 - 1).n_crossed < 6
    assert plan(8 * 28, n_components=12).n_crossed < 6


def test_coordinates_are_principal_with_fourth_roots_of_their_variances():
    cells = plan(300)
    basis = cells.basis * cells.scaling.factor[:, None]
    seen = basis.T @ COVARIANCE @ basis
    variances = np.diag(seen)
    assert np.allclose(seen, np.diag(variances), atol=1e-5)
    spread = np.sqrt(np.diag(COVARIANCE))
    values = np.linalg.eigvalsh(COVARIANCE / spread / spread[:, None])[::-1]
    assert np.allclose(variances, np.sqrt(values / values[0]), rtol=1e-4)


def test_coordinates_along_features_mix_no_features():
    basis = plan(300, along_features=True).basis
    assert ((basis != 0).sum(axis=0) == 1).all()


def test_units_of_the_features_do_not_matter():
    factor = np.array([1e-6, 1.0, 1e3, 1.0, 1e6, 10.0])
    assert np.allclose(plan(300).anchors, plan(300, factor=factor).anchors, atol=1e-4)


def test_without_room_or_variance_there_are_no_cells():
    assert plan(3) is None
    assert plan(300, flat=True) is None
    assert plan(12).anchors.shape == (4, 1)


def cluster_cells(bound):
    """Cells of two features of variance one, known to lie within a bound."""
    moments = Moments(100.0, np.zeros(2), DenseCovariance(np.eye(2)), np.zeros(2), 2)
    low, high = np.full(2, -bound), np.full(2, bound)
    phi = MomentFeatures(2, reach=1.0, scaling=Scaling.from_bounds(low, high))
    known = FirstRound(phi, phi, moments, low, high, 100, "data")
    return ClusterCells(3).place(known, 0)


def test_cells_see_rows_in_their_deviation_unless_bounds_are_wide():
    near, far = cluster_cells(3.0), cluster_cells(1000.0)
    deviation = near.basis * near.scaling.factor[:, None]
    assert np.allclose(deviation.T @ deviation, np.eye(2), atol=1e-4)
    # A coordinate below eight: what a row adds to the noise of a release is bounded.
    assert 7.8 < far.value_bound < 8
