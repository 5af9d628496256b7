"""Cells give a density of their own, and tell whether a mixture explains them."""

import numpy as np
import pytest

from sketchlearn import CellFeatures, ConcatenatedFeatures, MomentFeatures, sketch_rows
from sketchlearn.decoders.clusters.explained import CenterTuning, explaining_mixture
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.mixture import Mixture
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.estimators.kmeans import CompressiveKMeans

RNG = np.random.default_rng(0)
CENTRES = np.array([[-2.0, 0.0], [2.0, 0.5], [0.0, 3.0]])
LABELS = RNG.choice(3, 40_000, p=[0.5, 0.3, 0.2])
X = CENTRES[LABELS] + 0.5 * RNG.normal(size=(40_000, 2))
ANCHORS = RNG.uniform(-3, 4, (12, 2))
CELLS = CellFeatures(ANCHORS, basis=np.eye(2), centre=np.zeros(2))
PLAN = ConcatenatedFeatures([MomentFeatures(2), CELLS])


def read(rows, plan=PLAN):
    return read_sketch(sketch_rows(rows, plan))


def explained_by(centers):
    return explaining_mixture(read(X).cells, centers, len(X), 0, CenterTuning())


def test_the_density_of_cells_has_the_mean_and_the_variances_of_the_rows():
    reading = read(X)
    density = reading.cells.density(reading.moments)
    mean = density.weights @ density.component_means
    spread = np.einsum("jaa->ja", density.component_covariances)
    total = density.weights @ (spread + (density.component_means - mean) ** 2)
    assert np.allclose(mean, X.mean(axis=0), atol=1e-6)
    assert np.allclose(total, X.var(axis=0), atol=1e-5)


def test_second_moments_of_cells_may_stand_beside_their_means():
    more = CellFeatures(ANCHORS, basis=np.eye(2), centre=np.zeros(2), n_crossed=2)
    rich = read(X, ConcatenatedFeatures([MomentFeatures(2), more])).cells
    assert np.allclose(rich.means, read(X).cells.means, atol=1e-6)


def test_a_mixture_near_the_truth_is_matched_to_it():
    astray = np.array([[0.2, -0.2], [-0.2, 0.1], [-0.2, 0.2]])
    found = explained_by(CENTRES + astray)
    order = np.argsort(found.means[:, 0])
    assert np.allclose(found.means[order], CENTRES[[0, 2, 1]], atol=0.05)
    assert np.allclose(found.weights[order], [0.5, 0.2, 0.3], atol=0.02)
    assert np.allclose(found.variances, 0.25, atol=0.05)


def test_a_mixture_of_too_few_components_does_not_explain_the_cells():
    assert explained_by(CENTRES[:2]) is None


def test_points_drawn_as_the_rows_were_are_misplaced_as_often_as_chance_has_it():
    cells, rng = read(X[:4000]).cells, np.random.default_rng(5)
    truth = Mixture(np.array([0.5, 0.3, 0.2]), CENTRES, np.full((3, 2), 0.5))
    found = [
        cells.misplaced(cells.locate(truth.sample(2000, rng)[0])) for _ in range(50)
    ]
    assert np.mean(found) == pytest.approx(
        cells.expected_misplaced(2000, 4000), rel=0.25
    )


def test_rows_that_are_no_mixture_of_one_covariance_keep_their_cells():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((20_000, 1)) < 0.5, 0.01, 1.0) * rng.normal(
        size=(20_000, 2)
    )
    km = CompressiveKMeans(4, sketch_size=200).fit(rows)
    part = km.sketch_.feature_map.find(CellFeatures)[0].feature_map
    assert len(km.density_.weights) > len(part.anchors) / 2


def test_clusters_are_found_where_cells_alone_would_mix_them():
    rng = np.random.default_rng(3)
    centres = 3 * rng.normal(size=(10, 8))
    rows = centres[rng.integers(10, size=30_000)] + rng.normal(size=(30_000, 8))
    km = CompressiveKMeans(10, sketch_size=400).fit(rows)
    kinds = [part.feature_map.kind for part in km.sketch_.feature_map.parts()]
    assert kinds == ["moments", "cells"]
    assert km.sketch_.size <= 400 + 2 * 8
    gaps = np.linalg.norm(km.cluster_centers_[:, None] - centres, axis=2).min(axis=0)
    assert gaps.max() < 0.2


@pytest.mark.parametrize("bounds", [None, (-20.0, 20.0)])
def test_the_first_of_two_rounds_has_moments_alone(bounds):
    km = CompressiveKMeans(10, sketch_size=1000, rounds=2, bounds=bounds)
    assert [part.feature_map.kind for part in km.plan(5).parts()] == ["moments"]


def test_decoding_twice_gives_the_same_density():
    sketch = CompressiveKMeans(3, sketch_size=120).fit(X).sketch_
    one, two = (DensityDecoder().decode(sketch).params for _ in range(2))
    assert np.array_equal(one.mixture.means, two.mixture.means)
