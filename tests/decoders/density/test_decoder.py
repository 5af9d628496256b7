"""A density decoded from a sketch is the density of the rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans

from sketchlearn import CompressivePCA, sketch_rows
from sketchlearn.decoders.clusters.kmeans import solve_kmeans
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.fourier_fit import (
    FourierTarget,
    _Problem,
    fit_mixture,
)
from sketchlearn.decoders.density.mixture import Density, Mixture
from sketchlearn.decoders.density.prior import copula_rows, planned_range
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.features.scaling import Scaling
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 4.0, -1.0]])
LABELS = RNG.integers(3, size=20_000)
X = CENTRES[LABELS] + 0.4 * RNG.normal(size=(20_000, 3))


def mean_inertia(rows, centres):
    return ((rows[:, None] - centres) ** 2).sum(axis=2).min(axis=1).mean()


@pytest.mark.parametrize("shape", ["tied", "diag", "full"])
def test_the_gradient_of_the_fit_is_the_slope_of_its_loss(shape):
    rng = np.random.default_rng(1)
    target = FourierTarget(
        rng.normal(size=(20, 3)),
        rng.normal(size=20) / 3,
        rng.normal(size=20) / 3,
        np.eye(3) + 0.1,
    )
    problem = _Problem(target, shape, 4, 3)
    point = 0.4 * rng.normal(size=problem.cut[1] + np.prod(problem.scale_shape))
    steps = 1e-6 * np.eye(len(point))
    slopes = [(problem(point + e)[0] - problem(point - e)[0]) / 2e-6 for e in steps]
    assert np.allclose(problem(point)[1], slopes, atol=1e-6)


def test_a_fit_recovers_a_mixture_from_its_own_characteristic_function():
    waves = np.linspace(0.1, 3.0, 40)[:, None]
    means, spread = np.array([-0.9, 0.9]), 0.19**0.5
    z = np.exp(-(waves[:, 0] ** 2) * spread**2 / 2) * np.exp(1j * waves * means).mean(1)
    target = FourierTarget(waves, z.real, z.imag, np.eye(1))
    start = Mixture(
        np.array([0.7, 0.3]), np.array([[-0.2], [0.4]]), np.full((2, 1), 0.7)
    )
    found = fit_mixture(target, start, shape="diag").mixture
    assert np.allclose(np.sort(found.means[:, 0]), means, atol=1e-2)
    assert np.allclose(found.weights, 0.5, atol=1e-2)
    assert np.allclose(found.factors[:, 0, 0], spread, atol=1e-2)


@pytest.mark.parametrize("rounds", [1, 2])
def test_clusters_of_the_density_are_the_clusters_of_the_rows(rounds):
    km = CompressiveKMeans(3, sketch_size=300, rounds=rounds).fit(X)
    found = solve_kmeans(km.density_, 3, rng=np.random.default_rng(0))
    best = KMeans(3, n_init=3, random_state=0).fit(X)
    assert mean_inertia(X, found.centers) < 1.02 * best.inertia_ / len(X)
    assert found.inertia == pytest.approx(best.inertia_ / len(X), rel=0.15)


@pytest.mark.parametrize("rounds", [1, 2])
def test_samples_have_the_moments_of_the_rows(rounds):
    density = CompressiveKMeans(3, sketch_size=300, rounds=rounds).fit(X).density_
    rows, _ = density.sample(20_000, np.random.default_rng(0))
    assert np.allclose(rows.mean(axis=0), X.mean(axis=0), atol=0.06)
    assert np.allclose(np.cov(rows.T), np.cov(X.T), atol=0.12)


def test_log_density_is_that_of_the_components_in_full_space():
    rng = np.random.default_rng(2)
    density = Density(
        9.0,
        Mixture(
            np.array([0.3, 0.7]),
            rng.normal(size=(2, 2)),
            np.tril(rng.normal(size=(2, 2, 2))) + 2 * np.eye(2),
        ),
        rng.normal(size=(4, 2)),
        rng.normal(size=4),
        0.25,
    )
    rows = rng.normal(size=(6, 4))
    parts = [
        w * multivariate_normal(m, c).pdf(rows)
        for w, m, c in zip(
            density.weights,
            density.component_means,
            density.component_covariances,
            strict=True,
        )
    ]
    assert np.allclose(density.score_samples(rows), np.log(sum(parts)))


def test_guessed_rows_keep_moments_and_stay_in_range():
    covariance = np.array([[0.2, 0.01], [0.01, 0.004]])
    known, mean = DenseCovariance(covariance), np.array([0.3, 0.05])
    moments = Moments(1e3, mean, known, np.zeros(2), 2)
    rng = np.random.default_rng(0)
    rows = copula_rows(moments, 0.0, 1.0, n_rows=50_000, rng=rng)
    assert np.allclose(rows.mean(axis=0), moments.mean, atol=0.01)
    assert np.allclose(rows.var(axis=0), np.diag(covariance), rtol=0.1)
    assert np.cov(rows.T)[0, 1] > 0
    assert rows.min() > -0.01
    assert rows.max() < 1.01


def test_the_range_seen_in_data_is_narrower_than_the_range_accepted():
    scaling = Scaling.from_bounds([0.0], [4.0], origin="data")
    assert planned_range(scaling, 32.0, 1) == (0.0, 4.0)
    assert planned_range(None, 32.0, 1) == (-32.0, 32.0)


def test_a_sketch_of_moments_alone_gives_a_density_with_these_moments():
    sketch = CompressivePCA(bounds=(-8, 8)).fit(X).sketch_
    density = DensityDecoder().decode(sketch).params
    rows, _ = density.sample(20_000, np.random.default_rng(0))
    assert np.allclose(rows.mean(axis=0), X.mean(axis=0), atol=0.1)
    assert np.allclose(np.cov(rows.T), np.cov(X.T), atol=0.4)


def test_fewer_places_than_clusters_repeat_a_centre():
    two = Density(
        9.0,
        Mixture(np.ones(2) / 2, np.array([[-1.0], [1.0]]), np.zeros((2, 1))),
        np.ones((1, 1)),
        np.zeros(1),
        0.0,
    )
    found = solve_kmeans(two, 4, rng=np.random.default_rng(0))
    assert found.centers.shape == (4, 1)
    assert set(found.centers.ravel().tolist()) == {-1.0, 1.0}


def test_decoding_is_the_same_every_time():
    sketch = CompressiveKMeans(3, sketch_size=200, rounds=1).fit(X).sketch_
    left, right = (DensityDecoder().decode(sketch).params for _ in range(2))
    assert np.array_equal(left.mixture.means, right.mixture.means)


@pytest.mark.filterwarnings("ignore:the noise of this release")
@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_a_private_sketch_gives_finite_centres(epsilon):
    estimator = CompressiveKMeans(3, sketch_size=100, bounds=(-8.0, 8.0))
    sketch = sketch_rows(X, estimator.plan(3))
    private = release_seeded(sketch, 0, epsilon=epsilon, delta=1e-6)
    estimator.fit_sketch(private)
    assert np.isfinite(estimator.cluster_centers_).all()
    if epsilon == 10.0:
        best = KMeans(3, n_init=3, random_state=0).fit(X).inertia_ / len(X)
        assert mean_inertia(X, estimator.cluster_centers_) < 1.2 * best


def test_the_density_of_rows_that_are_all_the_same_is_finite_and_highest_there():
    density = CompressiveKMeans(1, sketch_size=50).fit(np.full((9, 3), 2.0)).density_
    at, beside = density.score_samples(np.array([[2.0] * 3, [2.0, 2.0, 2.1]]))
    assert np.isfinite([at, beside]).all()
    assert at > beside
