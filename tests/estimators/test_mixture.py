"""A mixture fitted to a sketch is nearly the one EM fits to the rows."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    RowsError,
)
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.estimators.mixture import CompressiveGaussianMixture
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
MEANS = 3 * RNG.normal(size=(3, 4))
ROOTS = RNG.normal(size=(3, 4, 4)) * 0.4 + np.eye(4)
LABELS = RNG.choice(3, 20_000, p=[0.5, 0.3, 0.2])
X = MEANS[LABELS] + np.einsum("nab,nb->na", ROOTS[LABELS], RNG.normal(size=(20_000, 4)))
ROUND = MEANS[LABELS] + RNG.normal(size=(20_000, 4)) * [0.5, 1.0, 1.5, 0.7]


@parametrize_with_checks(
    [
        CompressiveGaussianMixture(sketch_size=60),
        CompressiveGaussianMixture(2, sketch_size=30, covariance_type="diag", rounds=1),
    ]
)
def test_estimator_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("kind", "rows"), [("full", X), ("diag", ROUND)])
def test_held_out_likelihood_is_within_two_percent_of_em(kind, rows, rounds):
    train, test = rows[:10_000], rows[10_000:]
    theirs = GaussianMixture(3, covariance_type=kind, n_init=3, random_state=0)
    best = theirs.fit(train).score(test)
    ours = CompressiveGaussianMixture(
        3, covariance_type=kind, sketch_size=800, rounds=rounds
    ).fit(train)
    assert ours.score(test) > best - 0.02 * abs(best)
    assert ours.covariances_.shape == theirs.covariances_.shape
    assert np.allclose(np.sort(ours.weights_), np.sort(theirs.weights_), atol=0.03)


@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize(("d", "k", "size"), [(8, 6, 1500), (30, 4, 2000)])
def test_many_components_or_features_are_within_two_percent_of_em(kind, d, k, size):
    rng = np.random.default_rng(d)
    labels = rng.integers(k, size=15_000)
    spreads = np.exp(0.3 * rng.normal(size=(k, d)))
    rows = 2 * rng.normal(size=(k, d))[labels]
    rows = rows + spreads[labels if kind == "diag" else 0 * labels] * rng.normal(
        size=(15_000, d)
    )
    train, test = rows[:10_000], rows[10_000:]
    theirs = GaussianMixture(k, covariance_type=kind, random_state=0).fit(train)
    ours = CompressiveGaussianMixture(k, covariance_type=kind, sketch_size=size)
    best = theirs.score(test)
    assert ours.fit(train).score(test) > best - 0.02 * abs(best)
    assert ours.sketch_.size <= size + 2 * d


def test_one_sketch_serves_every_number_of_components():
    sketch = CompressiveGaussianMixture(3, sketch_size=800).fit(X).sketch_
    for k in (1, 2):
        again = CompressiveGaussianMixture(k, sketch_size=800).fit_sketch(sketch)
        assert len(again.weights_) == k
        best = GaussianMixture(k, random_state=0).fit(X).score(X)
        assert again.score(X) > best - 0.02 * abs(best)


def test_units_of_the_features_do_not_matter():
    factor = np.array([1e-6, 1.0, 1e3, 1e6])
    options = {"sketch_size": 800, "reg_covar": 0.0}
    one = CompressiveGaussianMixture(3, **options).fit(X)
    other = CompressiveGaussianMixture(3, **options).fit(X * factor)
    volume = np.log(factor).sum()
    assert other.score(X * factor) + volume == pytest.approx(one.score(X), abs=1e-2)


def test_identical_rows_have_a_density_as_wide_as_the_regularisation():
    gm = CompressiveGaussianMixture(1, sketch_size=60).fit(np.ones((100, 2)))
    peak = multivariate_normal(np.ones(2), 1e-6 * np.eye(2)).logpdf(np.ones(2))
    assert np.allclose(gm.score_samples(np.ones((3, 2))), peak)
    with pytest.warns(ConvergenceWarning, match="only 1 of n_components=2"):
        CompressiveGaussianMixture(2, sketch_size=60).fit(np.ones((100, 2)))


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_a_constant_feature_adds_nothing_but_its_narrow_peak(kind):
    rows = np.column_stack([X[:, :2], np.full(len(X), 7.0)])
    options = {"covariance_type": kind, "sketch_size": 300}
    with_it = CompressiveGaussianMixture(2, **options).fit(rows).score(rows)
    without = CompressiveGaussianMixture(2, **options).fit(rows[:, :2])
    peak = -np.log(2 * np.pi * 1e-6) / 2
    assert with_it == pytest.approx(without.score(rows[:, :2]) + peak, abs=0.1)


def test_scores_and_probabilities_are_those_of_the_mixture():
    gm = CompressiveGaussianMixture(3, sketch_size=800).fit(X)
    parts = np.stack(
        [
            w * multivariate_normal(m, c).pdf(X[:20])
            for w, m, c in zip(gm.weights_, gm.means_, gm.covariances_, strict=True)
        ],
        axis=1,
    )
    assert np.allclose(gm.score_samples(X[:20]), np.log(parts.sum(axis=1)))
    shares = parts / parts.sum(axis=1, keepdims=True)
    assert np.allclose(gm.predict_proba(X[:20]), shares)
    assert np.array_equal(gm.predict(X[:20]), parts.argmax(axis=1))


def test_one_component_is_the_gaussian_of_the_moments():
    gm = CompressiveGaussianMixture(1, sketch_size=60, rounds=1).fit(X)
    assert np.allclose(gm.means_[0], X.mean(axis=0), atol=1e-3)
    assert np.allclose(gm.covariances_[0], np.cov(X.T), atol=1e-2)


def test_samples_come_from_the_components_they_are_labelled_with():
    gm = CompressiveGaussianMixture(3, sketch_size=800).fit(X)
    rows, labels = gm.sample(6000)
    for j in range(3):
        assert np.allclose(rows[labels == j].mean(axis=0), gm.means_[j], atol=0.25)


def test_adding_then_forgetting_leaves_no_trace():
    options = {"sketch_size": 100, "bounds": (-32.0, 32.0)}
    half = CompressiveGaussianMixture(2, **options).fit(X[:3000])
    gm = CompressiveGaussianMixture(2, **options).fit(X[:1000])
    gm.partial_fit(X[1000:4000]).forget(X[3000:4000])
    assert gm.sketch_ == half.sketch_
    assert np.array_equal(gm.means_, half.means_)


def test_adding_then_forgetting_is_exact_after_two_rounds():
    gm = CompressiveGaussianMixture(2, sketch_size=100).fit(X[:3000])
    sketch, means = gm.sketch_, gm.means_
    gm.partial_fit(X[3000:5000])
    with pytest.warns(DataPlanWarning):
        gm.forget(X[3000:5000])
    assert gm.sketch_ == sketch
    assert np.array_equal(gm.means_, means)


def test_arguments_that_make_no_sense_are_named():
    with pytest.raises(FeatureMapError, match="covariance_type"):
        CompressiveGaussianMixture(2, covariance_type="round").fit(X)
    with pytest.raises(FeatureMapError, match="n_components"):
        CompressiveGaussianMixture(0).fit(X)
    with pytest.raises(RowsError, match="n_samples=3"):
        CompressiveGaussianMixture(4).fit(X[:3])


def test_diagonal_mixtures_keep_the_variances_of_collinear_features():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    rows = np.hstack([x, 2 * x])
    found = CompressiveGaussianMixture(2, covariance_type="diag").fit(rows)
    away = found.means_ - found.weights_ @ found.means_
    total = found.weights_ @ (found.covariances_ + away**2)
    assert np.allclose(total, rows.var(axis=0), rtol=0.05)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("kind", ["full", "diag"])
def test_too_few_components_for_the_clusters_still_cover_them(rounds, kind):
    rng = np.random.default_rng(1)
    centres = 8 * rng.normal(size=(12, 6))
    rows = centres[rng.integers(12, size=6000)] + rng.normal(size=(6000, 6))
    found = CompressiveGaussianMixture(3, covariance_type=kind, rounds=rounds).fit(rows)
    best = GaussianMixture(3, covariance_type=kind, random_state=0).fit(rows)
    assert found.score(rows) > best.score(rows) - 1.5


@pytest.mark.parametrize(
    "change",
    [
        {"n_components": 0},
        {"covariance_type": "tied"},
        {"reg_covar": -1.0},
        {"reg_covar": float("nan")},
        {"rounds": 0},
        {"sketch_size": 2.5},
        {"bounds": "wide"},
    ],
)
def test_parameters_are_checked_before_a_row_is_read(change):
    stream = iter([np.ones((9, 2))])
    gm = CompressiveGaussianMixture(**change)
    for attempt in (lambda: gm.fit(stream), lambda: gm.plan(2)):
        with pytest.raises(FeatureMapError, match=next(iter(change))):
            attempt()
    assert len(next(stream)) == 9


def test_a_regularisation_wider_than_the_rows_is_told():
    rows = 1e-8 * np.random.default_rng(0).normal(size=(500, 2))
    with pytest.warns(ConvergenceWarning, match="reg_covar=1e-06 is larger"):
        CompressiveGaussianMixture(1).fit(rows)


@pytest.mark.filterwarnings("ignore::sketchlearn.errors.PrivacyWarning")
@pytest.mark.parametrize(
    ("d", "n", "epsilon", "is_told"),
    [(3, 1000, 10.0, False), (10, 1000, 10.0, True), (30, 20_000, 1.0, True)],
)
def test_a_noisy_release_is_no_worse_than_one_gaussian(d, n, epsilon, is_told):
    rng = np.random.default_rng(0)
    centres = rng.uniform(-0.7, 0.7, (4, d))
    rows = centres[rng.integers(4, size=n)] + 0.08 * rng.normal(size=(n, d))
    rows = np.clip(rows, -1, 1)
    gm = CompressiveGaussianMixture(4, bounds=(-1, 1))
    private = release_seeded(gm.sketch(rows), 0, epsilon=epsilon, delta=1e-6)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gm.fit_sketch(private)
    one = CompressiveGaussianMixture(1, bounds=(-1, 1)).fit(rows)
    assert gm.score(rows) > one.score(rows) - 1
    assert is_told == any("narrower than the noise" in str(w.message) for w in told)


def test_constant_and_boolean_features_are_no_matter_of_units():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (2000, 5)).astype(float)
    rows[:, 2] = 3.0
    CompressiveGaussianMixture(16).fit(rows)  # warnings are errors
    with pytest.warns(ConvergenceWarning, match="the variance of feature 0"):
        CompressiveGaussianMixture(2).fit(rows * [1e-4, 1, 1, 1, 1])


def test_one_row_far_from_all_others_is_told():
    rows = np.random.default_rng(0).normal(1000, 5, (1000, 2))
    rows[0] = 1e6
    with pytest.warns(ConvergenceWarning, match="far from all others") as told:
        CompressiveGaussianMixture(3).fit(rows)
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_a_sketch_for_clusters_is_decoded_into_as_many_components_as_asked_for(kind):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 3)) + 6 * rng.integers(2, size=(4000, 1))
    sketch = CompressiveKMeans(4).fit(rows).sketch_
    gm = CompressiveGaussianMixture(2, covariance_type=kind).fit_sketch(sketch)
    assert gm.covariances_.shape == ((2, 3, 3) if kind == "full" else (2, 3))
    assert np.allclose(np.sort(gm.means_[:, 0]), [0.0, 6.0], atol=0.3)
