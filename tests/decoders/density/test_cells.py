"""Cells give a density of their own, and bear out or refuse a mixture."""

import numpy as np
import pytest

from sketchlearn import CellFeatures, ConcatenatedFeatures, MomentFeatures, sketch_rows
from sketchlearn.decoders.density.cells import CellStatistics
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.estimators.kmeans import CompressiveKMeans

RNG = np.random.default_rng(0)
CENTRES = np.array([[-2.0, 0.0], [2.0, 0.5], [0.0, 3.0]])
LABELS = RNG.choice(3, 40_000, p=[0.5, 0.3, 0.2])
X = CENTRES[LABELS] + 0.5 * RNG.normal(size=(40_000, 2))
ANCHORS = RNG.uniform(-3, 4, (12, 2))
CELLS = CellFeatures(ANCHORS, basis=np.eye(2), centre=np.zeros(2))
PLAN = ConcatenatedFeatures([MomentFeatures(2), CELLS])


def statistics(rows, plan=PLAN):
    sketch = sketch_rows(rows, plan)
    moments = NystromDecoder().decode(sketch).params
    part = plan.find(CellFeatures)[0]
    return CellStatistics.read(part.feature_map, sketch.mean[part.where], moments)


def mixture(means, variance=0.25, weights=None):
    size = len(means)
    weights = np.full(size, 1 / size) if weights is None else np.asarray(weights)
    factors = np.tile(np.sqrt(variance) * np.eye(2), (size, 1, 1))
    return Density(9.0, weights, np.asarray(means), factors, np.eye(2), np.zeros(2), 0)


def test_the_density_of_cells_has_the_mean_and_the_variances_of_the_rows():
    density = statistics(X).density()
    mean = density.weights @ density.component_means
    spread = np.einsum("jaa->ja", density.component_covariances)
    total = density.weights @ (spread + (density.component_means - mean) ** 2)
    assert np.allclose(mean, X.mean(axis=0), atol=1e-6)
    assert np.allclose(total, X.var(axis=0), atol=1e-5)


def test_second_moments_of_cells_may_stand_beside_their_means():
    more = CellFeatures(ANCHORS, basis=np.eye(2), centre=np.zeros(2), n_crossed=2)
    rich = statistics(X, ConcatenatedFeatures([MomentFeatures(2), more]))
    assert np.allclose(rich.means, statistics(X).means, atol=1e-6)


def test_a_mixture_near_the_truth_is_matched_to_it():
    astray = np.array([[0.2, -0.2], [-0.2, 0.1], [-0.2, 0.2]])
    start = mixture(CENTRES + astray, weights=[0.4, 0.3, 0.3])
    found, misfit = statistics(X).matched(start, rng=np.random.default_rng(0))
    assert misfit < 0.02
    order = np.argsort(found.component_means[:, 0])
    assert np.allclose(found.component_means[order], CENTRES[[0, 2, 1]], atol=0.05)
    assert np.allclose(found.weights[order], [0.5, 0.2, 0.3], atol=0.02)
    assert np.allclose(found.component_covariances, np.eye(2) / 4, atol=0.05)


def test_a_mixture_of_too_few_components_does_not_explain_the_cells():
    start = mixture(CENTRES[:2])
    assert statistics(X).matched(start, rng=np.random.default_rng(0))[1] > 0.1


def test_rows_that_are_no_mixture_of_one_covariance_keep_their_cells():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((20_000, 1)) < 0.5, 0.01, 1.0) * rng.normal(
        size=(20_000, 2)
    )
    km = CompressiveKMeans(4, sketch_size=200).fit(rows)
    part = km.sketch_.feature_map.find(CellFeatures)[0].feature_map
    assert len(km.density_.weights) > len(part.anchors) / 2


@pytest.mark.filterwarnings("ignore:a sketch of 406 numbers is too small")
def test_clusters_are_found_where_cells_alone_would_mix_them():
    rng = np.random.default_rng(3)
    centres = 3 * rng.normal(size=(10, 8))
    rows = centres[rng.integers(10, size=30_000)] + rng.normal(size=(30_000, 8))
    km = CompressiveKMeans(10, sketch_size=400).fit(rows)
    kinds = [part.feature_map.kind for part in km.sketch_.feature_map.parts()]
    assert kinds == ["moments", "harmonics", "cells"]
    assert km.sketch_.size <= 400 + 2 * 8
    gaps = np.linalg.norm(km.cluster_centers_[:, None] - centres, axis=2).min(axis=0)
    assert gaps.max() < 0.2
    assert len(km.density_.weights) < 20


@pytest.mark.parametrize("bounds", [None, (-20.0, 20.0)])
def test_a_plan_for_releases_has_no_fourier_features_in_its_first_of_two_rounds(bounds):
    km = CompressiveKMeans(10, sketch_size=1000, rounds=2, bounds=bounds)
    kinds = [part.feature_map.kind for part in km.plan(5).parts()]
    assert kinds == (["moments", "harmonics"] if bounds is None else ["moments"])


def test_decoding_twice_gives_the_same_density():
    sketch = CompressiveKMeans(3, sketch_size=120).fit(X).sketch_
    one, two = (DensityDecoder().decode(sketch).params for _ in range(2))
    assert np.array_equal(one.means, two.means)
