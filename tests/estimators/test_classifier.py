"""One density per class classifies like mixtures fitted to the rows of each class."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn import MomentFeatures, sketch_rows
from sketchlearn.decoders.density.class_mixture import ClassMoments
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    FeatureMapMismatch,
    RowsError,
    TooNoisy,
)
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
MEANS = MomentFeatures(2, order="mean")
Y = RNG.integers(3, size=6000)
X = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 3.0]])[Y] + RNG.normal(size=(6000, 2))


@parametrize_with_checks(
    [CompressiveClassifier(sketch_size=60), CompressiveClassifier(2, sketch_size=30)]
)
def test_estimator_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_one_gaussian_per_class_is_quadratic_discriminant_analysis(load):
    rows, classes = load(return_X_y=True)
    ours = CompressiveClassifier(1).fit(rows, classes)
    theirs = QuadraticDiscriminantAnalysis().fit(rows, classes)
    assert ours.score(rows, classes) > theirs.score(rows, classes) - 0.03


def test_two_components_separate_classes_that_interleave():
    y = RNG.integers(2, size=4000)
    rows = RNG.normal(size=(4000, 2))
    rows[:, 0] += np.where(y == 1, 2.0, -2.0) + RNG.choice([-4.0, 4.0], size=4000)
    one, two = (
        CompressiveClassifier(n, sketch_size=200).fit(rows, y).score(rows, y)
        for n in (1, 2)
    )
    assert one < 0.8
    assert two > 0.95


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_accuracy_is_within_three_points_of_a_mixture_per_class(
    load, n_components, covariance_type
):
    rows, classes = load(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    fit, rest = slice(None, None, 2), slice(1, None, 2)
    logs = []
    for label in np.unique(classes):
        theirs = GaussianMixture(
            n_components, covariance_type=covariance_type, reg_covar=1e-3
        ).set_params(random_state=0)
        theirs.fit(rows[fit][classes[fit] == label])
        logs.append(theirs.score_samples(rows[rest]))
        logs[-1] += np.log((classes[fit] == label).mean())
    accuracy = (np.argmax(logs, axis=0) == classes[rest]).mean()
    ours = CompressiveClassifier(n_components, covariance_type=covariance_type)
    ours.fit(rows[fit], classes[fit])
    assert ours.score(rows[rest], classes[rest]) > accuracy - 0.03


def test_units_of_the_features_do_not_matter():
    factor = np.array([1e-6, 1e5])
    one, other = (
        CompressiveClassifier(2, sketch_size=200).fit(X * f, Y).predict(X * f)
        for f in (1.0, factor)
    )
    assert (one == other).mean() > 0.99


def test_classes_with_few_rows_get_fewer_components():
    rows, classes = load_wine(return_X_y=True)
    model = CompressiveClassifier(3).fit(rows, classes)
    counts = np.bincount(classes)
    sizes = [len(mixture.weights_) for mixture in model.mixtures_]
    assert sizes == np.minimum(counts // 13, 3).tolist()


def test_probabilities_sum_to_one_and_priors_are_shares():
    model = CompressiveClassifier(1, sketch_size=60).fit(X, Y)
    assert np.allclose(model.predict_proba(X[:50]).sum(axis=1), 1.0)
    assert np.allclose(model.class_prior_, np.bincount(Y) / 6000)


def test_adding_forgetting_and_merging_are_arithmetic_on_the_sketches():
    options = {"sketch_size": 60, "bounds": (-16.0, 16.0)}
    whole = CompressiveClassifier(1, **options).fit(X, Y)
    left = CompressiveClassifier(1, **options).fit(X[:2000], Y[:2000])
    right = CompressiveClassifier(1, **options).fit(X[2000:], Y[2000:])
    assert left.merge(right).sketches_ == whole.sketches_
    left.forget(X[2000:], Y[2000:])
    assert left.partial_fit(X[2000:], Y[2000:]).sketches_ == whole.sketches_
    with pytest.raises(RowsError, match="no rows left"):
        whole.forget(X, Y)


def test_two_rounds_can_be_sketched_apart_with_shared_plans():
    model = CompressiveClassifier(2, sketch_size=100, rounds=2)
    first_map = model.plan(2, rows=X)
    halves = (slice(0, 2500), slice(2500, None))

    def merged(maps):
        left, right = (
            {c: sketch_rows(X[h][Y[h] == c], maps[c]) for c in range(3)} for h in halves
        )
        return {c: left[c] + right[c] for c in range(3)}

    first = merged(dict.fromkeys(range(3), first_map))
    extremes = np.stack([X.min(axis=0), X.max(axis=0)])
    second = merged(model.plan(2, rows=extremes, first=first))
    whole = CompressiveClassifier(2, sketch_size=100).fit(X, Y)
    assert second == whole.sketches_
    assert model.fit_sketches(second).score(X, Y) == whole.score(X, Y)


def test_every_class_has_cells_of_its_own_within_the_numbers_it_may_hold():
    model = CompressiveClassifier(2, sketch_size=100).fit(X, Y)
    maps = [sketch.feature_map for sketch in model.sketches_.values()]
    assert len(set(maps)) == 3
    for feature_map in maps:
        assert feature_map.find(CellFeatures)
        assert feature_map.sketch_size <= 100 + 2 * 2


def test_adding_and_forgetting_are_exact_after_two_rounds():
    model = CompressiveClassifier(2, sketch_size=100).fit(X[:3000], Y[:3000])
    before = dict(model.sketches_)
    model.partial_fit(X[3000:], Y[3000:])
    assert model.sketches_[0].count == (Y == 0).sum()
    with pytest.warns(DataPlanWarning, match="keep a trace"):
        model.forget(X[3000:], Y[3000:])
    assert model.sketches_ == before


def test_a_class_first_seen_later_is_planned_like_the_others():
    early = Y[:3000] < 2
    model = CompressiveClassifier(2, sketch_size=100)
    model.fit(X[:3000][early], Y[:3000][early]).partial_fit(X[3000:], Y[3000:])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.sketches_[2].feature_map.find(CellFeatures)
    assert model.score(X, Y) > 0.9


def test_classifiers_that_planned_for_themselves_do_not_merge():
    left = CompressiveClassifier(1, sketch_size=60).fit(X[:2000], Y[:2000])
    right = CompressiveClassifier(1, sketch_size=60).fit(X[2000:], Y[2000:])
    before = dict(left.sketches_)
    with pytest.raises(FeatureMapMismatch, match="same map"):
        left.merge(right)
    assert left.sketches_ == before


def test_rounds_that_make_no_sense_are_named():
    with pytest.raises(FeatureMapError, match="'rounds' parameter .* must be"):
        CompressiveClassifier(2, rounds=3).fit(X, Y)


def test_private_sketches_of_each_class_classify():
    model = CompressiveClassifier(1, sketch_size=20, bounds=(-8.0, 8.0))
    plan = model.plan(2)
    sketches = {
        c: release_seeded(sketch_rows(X[c == Y], plan), c, epsilon=5.0, delta=1e-6)
        for c in range(3)
    }
    assert model.fit_sketches(sketches).score(X, Y) > 0.8


def test_no_sketch_at_all_is_an_error():
    with pytest.raises(RowsError, match="one for each class"):
        CompressiveClassifier().fit_sketches({})


def test_a_class_that_comes_later_is_planned_even_if_the_first_one_is_constant():
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.zeros((100, 2)), 5 + rng.normal(size=(300, 2))])
    model = CompressiveClassifier(2, method="density")
    found = model.fit(rows, np.repeat([0, 1], [100, 300]))
    later = rng.normal(size=(300, 2)) - 5
    found.partial_fit(later, np.full(300, 2))
    assert found.score(later, np.full(300, 2)) > 0.98


@pytest.mark.parametrize("offset", [1e5, 1e7, 1e9])
def test_where_the_rows_are_does_not_matter(offset):
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=2000)
    rows = 6 * rng.normal(size=(4, 3))[labels] + rng.normal(size=(2000, 3))
    here = CompressiveClassifier().fit(rows, labels).score(rows, labels)
    there = CompressiveClassifier().fit(rows + offset, labels)
    assert there.score(rows + offset, labels) == pytest.approx(here, abs=0.005)


def test_forgetting_warns_where_the_plan_has_seen_the_rows():
    model = CompressiveClassifier(1, sketch_size=60).fit(X, Y)
    with pytest.warns(DataPlanWarning, match="keep a trace"):
        model.forget(X[:100], Y[:100])


def test_a_failure_leaves_the_classifier_as_it_was():
    model = CompressiveClassifier(1, sketch_size=60).fit(X, Y)
    before = dict(vars(model))
    other = np.ones((5, 3))
    for change in (model.fit, model.partial_fit):
        with pytest.raises((RowsError, ValueError)):
            change(np.where(other > 0, np.nan, other), np.zeros(5))
        assert vars(model) == before
    sketches = {**model.sketches_, 1: sketch_rows(X, MEANS)}
    with pytest.raises(FeatureMapError, match="second moments"):
        model.fit_sketches(sketches)
    assert vars(model) == before


@pytest.mark.parametrize("rounds", [1, 2])
def test_files_and_named_columns_give_what_arrays_give(tmp_path, rounds):
    table = pa.table({"a": X[:, 0], "label": Y, "b": X[:, 1]})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    model = CompressiveClassifier(2, sketch_size=100, rounds=rounds)
    whole = clone(model).fit(X, Y)
    for data in (path, table, table.to_pandas()):
        found = clone(model).fit(data, y="label")
        assert found.sketches_ == whole.sketches_
        assert found.feature_names_in_.tolist() == ["a", "b"]
        assert found.predict(table.to_pandas()[["a", "b"]]).tolist() == (
            whole.predict(X).tolist()
        )
    found.partial_fit(path, y="label")
    assert found.sketches_[0].count == 2 * whole.sketches_[0].count
    with pytest.raises(RowsError, match="name of the column"):
        clone(model).fit(path, Y)
    with pytest.raises(RowsError, match="'other' names a column"):
        clone(model).fit(path, "other")


def test_a_random_state_with_a_state_plans_the_same_map_every_time():
    model = CompressiveClassifier(2, random_state=np.random.RandomState(3))
    assert model.fit(X, Y).sketches_ == model.fit(X, Y).sketches_


@pytest.mark.parametrize(
    "change",
    [
        {"n_components": 0},
        {"covariance_type": "tied"},
        {"method": "additive"},
        {"sketch_size": 0},
        {"rounds": 3},
        {"shrinkage": -1.0},
        {"shrinkage": "much"},
        {"bounds": 3.0},
        {"random_state": -1},
    ],
)
def test_parameters_are_checked_before_anything_is_read(change):
    def unread():
        raise AssertionError
        yield

    model = CompressiveClassifier(**change)
    sketches = {0: sketch_rows(X, CompressiveClassifier().plan(2))}
    with pytest.raises(FeatureMapError, match=next(iter(change))):
        model.fit(unread(), "label")
    with pytest.raises(FeatureMapError, match=next(iter(change))):
        model.plan(2)
    with pytest.raises(FeatureMapError, match=next(iter(change))):
        model.fit_sketches(sketches)


def test_labels_that_have_no_order_are_refused():
    sketch = sketch_rows(X, CompressiveClassifier().plan(2))
    with pytest.raises(RowsError, match="all numbers or all text"):
        CompressiveClassifier().fit_sketches({0: sketch, "a": sketch})


@pytest.mark.parametrize(
    ("kind", "n_classes"),
    [(np.bool_, 3), (np.uint8, 260), (np.int8, 130), (np.float32, 3)],
)
def test_every_class_is_told_apart_whatever_the_type_of_the_rows(kind, n_classes):
    labels = np.arange(10 * n_classes) % n_classes
    rows = RNG.integers(2, size=(len(labels), 2)).astype(kind)
    model = CompressiveClassifier(1, method="density", sketch_size=60)
    other = clone(model).fit(rows.astype(float), labels)
    assert model.fit(rows, labels).classes_.tolist() == list(range(n_classes))
    assert model.sketches_ == other.sketches_
    assert model.predict(rows).tolist() == other.predict(rows).tolist()


def test_whole_numbers_that_no_float_holds_are_refused():
    rows = np.array([[1, 2], [3, 2**53 + 1], [5, 6], [7, 8]])
    with pytest.raises(RowsError, match="represented exactly"):
        CompressiveClassifier().fit(rows, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("n_components", "seed"), [*((1, seed) for seed in range(8)), (2, 0), (2, 2)]
)
def test_standardized_digits_are_told_apart(n_components, seed):
    rows, classes = load_digits(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    fit, rest, known, asked = train_test_split(
        rows, classes, random_state=seed, stratify=classes
    )
    model = CompressiveClassifier(n_components, method="density").fit(fit, known)
    assert model.score(fit, known) > 0.95
    assert model.score(rest, asked) > 0.9


@given(value=st.floats(-1e9, 1e9), n_components=st.sampled_from([1, 2]))
@settings(max_examples=25, deadline=None)
def test_a_constant_feature_changes_nothing_even_where_it_varies_later(
    value, n_components
):
    model = CompressiveClassifier(n_components, sketch_size=100)
    plain = clone(model).fit(X[:500], Y[:500]).predict(X[500:900])
    more = np.column_stack([X, np.full(len(X), value)])
    found = clone(model).fit(more[:500], Y[:500])
    assert (found.predict(more[500:900]) == plain).mean() > 0.97
    more[:, 2] += 1 + abs(value)
    assert (found.predict(more[500:900]) == plain).mean() > 0.97


def test_one_row_far_out_is_told_once_whatever_the_number_of_classes():
    rows = X.copy()
    rows[0] = 1e3
    with pytest.warns(ConvergenceWarning, match="lie far from all others") as caught:
        CompressiveClassifier(2, sketch_size=100).fit(rows, Y)
    assert len(caught) == 1


def test_one_value_far_out_leaves_the_others_to_be_seen():
    rows = X.copy()
    rows[0, 0] = 1e9
    with pytest.warns(ConvergenceWarning, match="in feature 0 a few rows lie"):
        model = CompressiveClassifier(1, sketch_size=100).fit(rows, Y)
    others = [mixture for c, mixture in enumerate(model.mixtures_) if c != Y[0]]
    for label, mixture in zip(np.delete(range(3), Y[0]), others, strict=True):
        exact = X[label == Y].mean(axis=0)
        assert np.allclose(mixture.means_[0], exact, atol=0.01)


def one_hot_table(n=6000, n_levels=30):
    """Two features that tell two classes apart, and rare levels that tell nothing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 2))
    labels = (rows.sum(axis=1) + 0.5 * rng.normal(size=n) > 0).astype(int)
    return np.hstack([rows, np.eye(n_levels)[rng.integers(n_levels, size=n)]]), labels


@pytest.mark.parametrize("n_components", [1, 2])
def test_rare_levels_leave_the_classes_to_a_linear_rule(n_components):
    rows, labels = one_hot_table()
    linear = LinearDiscriminantAnalysis().fit(rows[:4000], labels[:4000])
    model = CompressiveClassifier(n_components)
    told = "in feature 2, 3, 4, 5, 6, 25 more one of two values is rare"
    with pytest.warns(ConvergenceWarning, match=told):
        model.fit(rows[:4000], labels[:4000])
    assert model.method_ == "linear"
    best = linear.score(rows[4000:], labels[4000:])
    assert model.score(rows[4000:], labels[4000:]) > best - 0.01
    chances = model.predict_proba(rows[4000:])
    assert np.allclose(chances.sum(axis=1), 1.0)
    theirs = linear.predict_proba(rows[4000:])
    assert np.abs(chances - theirs).mean() < 0.02
    assert len(model.mixtures_) == 2


def test_one_covariance_for_all_classes_is_linear_discriminant_analysis():
    model = CompressiveClassifier(method="linear", shrinkage=0.0).fit(X, Y)
    theirs = LinearDiscriminantAnalysis().fit(X, Y)
    assert model.method_ == "linear"
    assert np.allclose(model.predict_proba(X), theirs.predict_proba(X), atol=0.01)
    far = CompressiveClassifier(method="linear", shrinkage=0.0).fit(X + 1e9, Y)
    assert (far.predict(X + 1e9) == model.predict(X)).mean() > 0.999


@pytest.mark.parametrize("seed", range(4))
def test_no_rows_are_told_apart_worse_than_by_the_largest_class(seed):
    rng = np.random.default_rng(seed)
    rows = np.exp(2 * rng.normal(size=(2000, 6)))
    rows[:, 3:] = rng.random((2000, 3)) < 0.02
    labels = (rows[:, 0] * rng.exponential(size=2000) > 40 / (1 + seed)).astype(int)
    rows[labels == 1] *= 1 + seed
    with pytest.warns(ConvergenceWarning, match="would mislead"):
        model = CompressiveClassifier(1 + seed % 2).fit(rows, labels)
    assert model.score(rows, labels) > 1 - labels.mean() - 0.005


def test_a_rule_that_would_be_worse_leans_to_the_largest_class():
    means = [np.array([0.0]), np.array([1.0])]
    wide = [DenseCovariance(np.eye(1) * value) for value in (100.0, 1e-4)]
    classes = tuple(
        Moments(100.0, mean, one, np.zeros(1), 1)
        for mean, one in zip(means, wide, strict=True)
    )
    for share in (0.5, 0.8, 0.99):
        priors = np.array([share, 1 - share])
        known = ClassMoments(classes, priors, Scaling.identity(1), np.zeros(1))
        rule = known.linear_rule(shrinkage=1e-3, seed=0)
        rows = 10 * np.random.default_rng(0).normal(size=(4000, 1))
        right = (rule(rows).argmax(axis=1) == 0).mean()
        told = share * right + (1 - share) * (rule(np.ones((1, 1))).argmax() == 1)
        assert told > max(share, 1 - share) - 0.01


def test_what_was_released_or_merged_chooses_as_what_was_fitted():
    rows, labels = one_hot_table(n_levels=25)
    model = CompressiveClassifier(
        1, bounds=([-8.0] * 2 + [0.0] * 25, [8.0] * 2 + [1.0] * 25)
    )
    sketches = {
        c: sketch_rows(rows[labels == c], model.plan(27), progress=False)
        for c in (0, 1)
    }
    released = {
        c: release_seeded(one, c, epsilon=50.0, delta=1e-6)
        for c, one in sketches.items()
    }
    for known in (sketches, released):
        with pytest.warns(ConvergenceWarning, match="one of two values is rare"):
            assert model.fit_sketches(known).method_ == "linear"
        assert model.score(rows, labels) > 0.85


def test_a_class_of_noise_is_named():
    model = CompressiveClassifier(1, sketch_size=20, bounds=(-8.0, 8.0))
    plan = model.plan(2)
    counts = {"ours": 6000, "theirs": 2}
    sketches = {
        label: release_seeded(sketch_rows(X[:n], plan), 0, epsilon=1.0, delta=1e-6)
        for label, n in counts.items()
    }
    with pytest.raises(TooNoisy, match="class 'theirs': the noise"):
        model.fit_sketches(sketches)
