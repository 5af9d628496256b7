"""Units of rows never decide whether clusters, mixtures and classes can be fitted.

Rows of any magnitude, with constant, duplicate or collinear columns, are fitted like
rows near one or refused with an error of our own; nothing overflows on the way.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import sketchlearn as sl
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    RowRangeError,
    RowsError,
    SketchlearnError,
)
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.estimators.mixture import CompressiveGaussianMixture

RNG = np.random.default_rng(0)
LABELS = RNG.integers(2, size=120)
BASE = RNG.normal(size=(120, 3)) + 6.0 * LABELS[:, None]
TABLES = {
    "plain": BASE,
    "collinear": np.outer(BASE[:, 0], [1.0, 2.0, 3.0]),
    "constant": np.column_stack([BASE, np.ones(120)]),
    "duplicate": np.column_stack([BASE, BASE[:, :1]]),
    "far": BASE + 1e6,
    "one": BASE[:, :1],
}
ESTIMATORS = {
    "kmeans": CompressiveKMeans,
    "full": CompressiveGaussianMixture,
    "diag": CompressiveGaussianMixture,
    "classifier": CompressiveClassifier,
}


def make(name, n, **options):
    if name in ("full", "diag"):
        options |= {"covariance_type": name, "reg_covar": 0.0}
    return ESTIMATORS[name](n, **options)


def right_share(found):
    """Of rows in their own cluster, whichever number it has."""
    agree = (found == LABELS).mean()
    return max(agree, 1 - agree)


@settings(max_examples=25, deadline=None)
@given(
    exponent=st.integers(-300, 300),
    table=st.sampled_from(sorted(TABLES)),
    name=st.sampled_from(sorted(ESTIMATORS)),
    rounds=st.sampled_from([1, 2]),
    n=st.sampled_from([1, 2]),
)
def test_rows_of_any_magnitude_are_fitted_or_refused(exponent, table, name, rounds, n):
    rows = TABLES[table] * 10.0**exponent
    model = make(name, n, sketch_size=100, rounds=rounds)
    if table == "constant" and name in ("full", "diag") and abs(exponent) < 140:
        with pytest.raises(RowsError, match="feature 3 is constant"):
            model.fit(rows)
        return
    try:
        model.fit(rows, LABELS)
    except RowRangeError:
        assert abs(exponent) >= 137
        assert not hasattr(model, "n_features_in_")
        return
    except RowsError as error:  # at the edge of what is in range, too
        if table != "constant" or "feature 3 is constant" not in str(error):
            raise
        assert name in ("full", "diag")
        assert abs(exponent) >= 137
        return
    found = model.predict(rows)
    assert n == 1 or right_share(found) > 0.95


@pytest.mark.parametrize("name", ["kmeans", "full", "diag"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_as_many_rows_as_clusters_are_enough_and_fewer_are_not(name, rounds):
    rows = BASE[:3]
    model = make(name, 3, sketch_size=200, rounds=rounds)
    if name == "kmeans":
        model.fit(rows)
        assert np.isfinite(model.cluster_centers_).all()
    with pytest.raises(RowsError, match="n_samples=3 should be >="):
        make(name, 4, sketch_size=200, rounds=rounds).fit(rows)


def test_the_feature_at_fault_is_named_before_anything_is_fitted():
    rows = BASE * [1.0, 1e200, 1.0]
    for model in (CompressiveKMeans(2), CompressiveGaussianMixture(2)):
        with pytest.raises(RowRangeError, match="column 1: the magnitude is beyond"):
            model.fit(rows)
    with pytest.raises(RowRangeError, match="feature 1 differ by less than 1e-144"):
        CompressiveKMeans(2).fit(BASE * [1.0, 1e-200, 1.0])
    with pytest.raises(FeatureMapError, match="bounds reach beyond"):
        CompressiveKMeans(2, bounds=(0.0, 1e300)).plan(3)


# Rows that are nearly all the same, or nearly none.

TWO = np.array([[0.0, 1.0], [3.0, -2.0]])
RARE = np.eye(200)[:, :1]
POOR = {
    "constant": np.full((50, 2), 3.3),
    "zeros": np.zeros((50, 2)),
    "one row": TWO[:1],
    "two rows": TWO,
    "one other row": np.column_stack([RARE, 0 * RARE]),
    "one other value": RARE,
    "two different rows": TWO[RNG.integers(2, size=50)],
    "three different values": RNG.integers(3, size=(60, 1)).astype(float),
    "rounding errors": 1 + 1e-15 * RNG.normal(size=(50, 2)),
    "huge and tiny": RNG.normal(size=(50, 2)) * [1e100, 1e-100],
    "less than tiny": RNG.normal(size=(50, 2)) * 1e-310,
    "an outlier": np.concatenate([np.zeros((49, 2)), [[1e100, 1.0]]]),
}
MODELS = {
    "pca": sl.CompressivePCA(1),
    "standardized": sl.CompressivePCA(1, standardize=True),
    "ridge": sl.CompressiveRidge(),
    "no ridge": sl.CompressiveRidge(alpha=0.0, fit_intercept=False),
    "autoencoder": sl.CompressiveAutoencoder(1, binarize=0.5, per_class=False),
    **{
        f"{name} {rounds}": make(name, 2, sketch_size=100, rounds=rounds)
        for name in ESTIMATORS
        for rounds in (1, 2)
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("table", POOR)
@pytest.mark.parametrize("name", MODELS)
def test_poor_rows_are_fitted_with_finite_numbers_or_refused(name, table):
    rows = POOR[table]
    model = clone(MODELS[name])
    try:
        model.fit(rows, np.arange(len(rows)) % 2)
    except SketchlearnError:
        assert not hasattr(model, "n_features_in_")
        return
    for key, value in vars(model).items():
        if isinstance(value, float | np.ndarray) and key.endswith("_"):
            numbers = np.asarray(value)
            assert numbers.dtype.kind not in "fc" or np.isfinite(numbers).all(), key
    ask = getattr(model, "predict", None) or model.transform
    assert np.isfinite(np.asarray(ask(rows), float)).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_other_value_is_a_cluster_of_its_own():
    for rounds in (1, 2):
        centers = sl.CompressiveKMeans(2, rounds=rounds).fit(RARE).cluster_centers_
        np.testing.assert_allclose(np.sort(centers[:, 0]), [0, 1], atol=0.01)


@pytest.mark.parametrize("exponent", [-162, -200, -300, -310])
@pytest.mark.parametrize("make", [sl.CompressivePCA, sl.CompressiveRidge])
def test_columns_too_small_for_their_squares_are_named(make, exponent):
    frame = pd.DataFrame(BASE * [1.0, 1.0, 10.0**exponent], columns=["a", "b", "speck"])
    with pytest.warns(ConvergenceWarning, match=r"^(speck|feature 2): .* Multiply"):
        make().fit(frame, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(BASE * [1.0, 1.0, 1e-150], LABELS)
