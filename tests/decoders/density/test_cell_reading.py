"""Cells with second moments are pieces of the rows that are known like Gaussians."""

import numpy as np
import pytest

from sketchlearn import sketch_rows
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import MomentFeatures

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(4000, 3)) @ RNG.normal(size=(3, 3))
ROWS[:1500] += [2.0, 0.0, 1.0]
ANCHORS = np.array([[-2.0, 0, 0], [2, 0, 0], [0, 2, 1], [30, 30, 30]])
NEAREST = ((ROWS[:, None] - ANCHORS) ** 2).sum(axis=2).argmin(axis=1)


def read(n_crossed):
    cells = CellFeatures(
        ANCHORS, basis=np.eye(3), centre=np.zeros(3), n_crossed=n_crossed
    )
    sketch = sketch_rows(ROWS, ConcatenatedFeatures([MomentFeatures(3), cells]))
    return read_sketch(sketch).cells


def within(cell):
    inside = ROWS[cell == NEAREST]
    return np.cov(inside.T, bias=True)


def test_shares_means_and_covariances_are_those_of_the_rows_in_each_cell():
    cells = read(3)
    assert np.allclose(cells.shares, np.bincount(NEAREST, minlength=4) / 4000)
    for cell in range(3):
        inside = ROWS[cell == NEAREST]
        assert np.allclose(cells.means[cell], inside.mean(axis=0), atol=1e-5)
        assert np.allclose(cells.spread[cell], within(cell), atol=1e-4)
    assert not cells.spread[3].any()


def test_correlations_that_were_not_sketched_are_those_of_cells_on_average():
    cells = read(2)
    shares = np.bincount(NEAREST, minlength=4) / 4000
    pooled = sum(shares[cell] * within(cell) for cell in range(3))
    spread = np.sqrt(np.diag(pooled))
    for cell in range(3):
        found, exact = cells.spread[cell], within(cell)
        assert np.allclose(found[:2, :2], exact[:2, :2], atol=1e-4)
        assert np.allclose(np.diag(found), np.diag(exact), atol=1e-4)
        expected = (pooled / spread / spread[:, None])[2, 0]
        assert found[2, 0] == pytest.approx(
            expected * np.sqrt(exact[2, 2] * exact[0, 0]), abs=1e-3
        )


def test_drawn_points_have_the_mean_and_covariance_of_all_rows():
    points = read(3).draw(20_000, np.random.default_rng(1))
    assert len(points) == pytest.approx(20_000, abs=4)
    assert np.allclose(points.mean(axis=0), ROWS.mean(axis=0), atol=1e-2)
    assert np.allclose(np.cov(points.T), np.cov(ROWS.T), atol=2e-2)


def test_weighted_points_have_the_moments_of_every_cell():
    cells = read(3)
    unit = np.random.default_rng(2).normal(size=(30_000, 3))
    points = ROWS.mean(axis=0) + unit @ np.linalg.cholesky(np.cov(ROWS.T)).T
    where = cells.locate(points)
    weights = cells.weigh(points, where)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.min() >= 0
    for cell in range(3):
        inside, share = where == cell, cells.shares[cell]
        assert weights[inside].sum() == pytest.approx(share, abs=1e-9)
        mean = weights[inside] @ points[inside] / share
        away = points[inside] - mean
        covariance = (weights[inside, None] * away).T @ away / share
        scale = np.sqrt(np.diag(within(cell)))
        assert np.abs(mean - cells.means[cell]).max() < 0.05 * scale.max()
        gap = (covariance - within(cell)) / scale / scale[:, None]
        assert np.abs(gap).max() < 0.1


def test_points_that_have_the_moments_of_the_cells_keep_equal_weights():
    cells = read(3)
    weights = cells.weigh(ROWS, cells.locate(ROWS))
    assert np.allclose(weights, 1 / 4000, rtol=1e-2)


def test_a_cell_with_too_few_points_only_gets_its_share():
    cells = read(3)
    crowd = np.repeat(ANCHORS[1:2], 500, axis=0)
    crowd = crowd + 0.1 * np.random.default_rng(3).normal(size=(500, 3))
    points = np.concatenate([crowd, ANCHORS[:1], ANCHORS[:1]])
    weights = cells.weigh(points, cells.locate(points))
    expected = cells.shares[0] / (cells.shares[0] + cells.shares[1])
    assert np.allclose(weights[-2:], expected / 2)
