"""One density per class classifies like mixtures fitted to the rows of each class."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn import sketch_rows
from sketchlearn.errors import RowsError
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
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
