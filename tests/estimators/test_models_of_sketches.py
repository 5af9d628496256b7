"""A model is a function of its sketch and its declared settings.

Whatever was added, taken out or merged on the way: every fitted attribute and every
answer is that of the rows that remain, bit for bit where the plan is declared.
"""

import warnings
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import sketchlearn as sl
from sketchlearn.estimators.base import AbstractSketchEstimator
from sketchlearn.estimators.per_class import AbstractPerClassEstimator
from sketchlearn.rows.vocabulary import Vocabulary

RNG = np.random.default_rng(0)
CENTRES = RNG.uniform(0.2, 0.8, (3, 4))
LABELS = np.arange(240) % 3
ROWS = np.clip(CENTRES[LABELS] + 0.04 * RNG.normal(size=(240, 4)), 0, 1)
GONE = np.where(np.arange(240) < 200, LABELS, 7)
TARGETS = ROWS @ np.array([1.0, -2.0, 0.5, 0.0]) + 2
BITS = (ROWS > 0.5).astype(float)
IDS = RNG.zipf(1.4, 240) % 60
NAMES = [f"name {number}" for number in IDS]
BASKETS = [IDS[i : i + 1 + i % 4].tolist() for i in range(240)]
LISTED = [f"name {number}" for number in range(60)]
BOX = {"bounds": (0.0, 1.0)}
SMALL = {"rounds": 1, "sketch_size": 20, **BOX}

CASES = {
    "pca": (lambda: sl.CompressivePCA(2, **BOX), ROWS, None),
    "kmeans": (lambda: sl.CompressiveKMeans(2, n_init=1, **SMALL), ROWS, None),
    "mixture": (
        lambda: sl.CompressiveGaussianMixture(2, covariance_type="diag", **SMALL),
        ROWS,
        None,
    ),
    "ridge": (
        lambda: sl.CompressiveRidge(bounds=(0.0, 1.0), target_bounds=(-4.0, 4.0)),
        ROWS,
        TARGETS,
    ),
    "classifier": (lambda: sl.CompressiveClassifier(**BOX), ROWS, LABELS),
    "a class that goes": (lambda: sl.CompressiveClassifier(**BOX), ROWS, GONE),
    "codes of classes": (lambda: sl.CompressiveAutoencoder(2), BITS, GONE),
    "autoencoder": (lambda: sl.CompressiveAutoencoder(2), BITS, None),
    "ids": (lambda: sl.FrequencyEstimator(60, sketch_size=40), IDS, None),
    "names": (lambda: sl.FrequencyEstimator(LISTED, sketch_size=40), NAMES, None),
    "open": (lambda: sl.FrequencyEstimator(sketch_size=40), NAMES, None),
    "counters": (lambda: sl.FrequencyEstimator(60, sketch_size=90), IDS, None),
    "baskets": (lambda: sl.FrequencyEstimator(60, sketch_size=40), BASKETS, None),
    "least": (
        lambda: sl.FrequencyEstimator(60, sketch_size=40, decoder="count-min"),
        IDS,
        None,
    ),
    "membership": (lambda: sl.MembershipEstimator(60, sketch_size=40), BASKETS, None),
    "filter": (
        lambda: sl.MembershipEstimator(sketch_size=90, decoder="counting-bloom"),
        NAMES,
        None,
    ),
}
WAYS = ["forget", "add and forget", "partial_fit", "merge", "twice", "fit again"]


def parts(X, y, start, stop):
    return X[start:stop], None if y is None else y[start:stop]


def fitted(way, make, X, y):
    """A model of the first 150 rows, by one way or another."""
    kept, gone = parts(X, y, 0, 150), parts(X, y, 150, 240)
    first, rest = parts(X, y, 0, 70), parts(X, y, 70, 150)
    match way:
        case "forget":
            return make().fit(X, y).forget(*gone)
        case "add and forget":
            one = make().fit(*gone).partial_fit(*kept)
            read_all(one, X)  # what was decoded on the way leaves nothing
            return one.forget(*gone)
        case "partial_fit":
            return make().partial_fit(*first).partial_fit(*rest)
        case "merge":
            return make().fit(*rest).merge(make().fit(*first))
        case "twice":
            one = make().fit(*gone).forget(*parts(X, y, 160, 240)).partial_fit(*kept)
            return one.forget(*parts(X, y, 150, 160))
    return make().fit(X, y).fit(*kept)


def read_all(one, X):
    """Fitted attributes by name, and what the model says of rows or items."""
    found = {name: vars(one)[name] for name in vars(one) if name.endswith("_")}
    for name in dir(type(one)):
        is_fitted = name.endswith("_") and not name.startswith("_")
        if is_fitted and hasattr(one, name):
            found[name] = getattr(one, name)
    found.pop("labels_", None)  # of rows that were given, and of no sketch
    for name in ("transform", "predict", "predict_proba", "score_samples"):
        if hasattr(one, name) and isinstance(X, np.ndarray) and X.ndim == 2:
            found[name] = getattr(one, name)(X[:20])
    if hasattr(one, "query"):
        listed = "names" if isinstance(X[0], str) else "numbers"
        found["query"] = one.query(LISTED if listed == "names" else list(range(60)))
    if hasattr(one, "top") and one.vocabulary_ is not None:
        found["top"] = one.top(5)
    return found


def same(left, right):
    """Whether two values are equal to the bit."""
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, Vocabulary):
        return left.equals(right)
    if isinstance(left, BaseEstimator):
        return same(vars(left), vars(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            same(left[key], right[key]) for key in left
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if is_dataclass(left) and not isinstance(left, sl.Sketch):
        names = [field.name for field in fields(left)]
        return all(same(getattr(left, n), getattr(right, n)) for n in names)
    return type(left) is type(right) and left == right


def test_every_estimator_is_tested():
    named = [getattr(sl, name) for name in sl.__all__]
    bases = (AbstractSketchEstimator, AbstractPerClassEstimator)
    ours = {one for one in named if isinstance(one, type) and issubclass(one, bases)}
    assert ours == {type(make()) for make, _, _ in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_how_rows_came_and_went_leaves_no_trace(name):
    make, X, y = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = read_all(make().fit(*parts(X, y, 0, 150)), X)
        for way in WAYS:
            found = read_all(fitted(way, make, X, y), X)
            assert found.keys() == expected.keys(), way
            for key in expected:
                assert same(found[key], expected[key]), (way, key)
