"""k-means from a sketch is nearly Lloyd's, for every k, and keeps the sketch's laws."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn import CompressivePCA, clipped, load, save, sketch_rows
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    FeatureMapMismatch,
    RowsError,
)
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.ledger import Ledger
from sketchlearn.privacy import release
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
CENTRES = 3 * RNG.normal(size=(5, 6))
X = CENTRES[RNG.integers(5, size=6000)] + RNG.normal(size=(6000, 6))
BOUNDS = (-16.0, 16.0)
KS = range(2, 8)


def ratio(km, rows):
    k = len(km.cluster_centers_)
    best = KMeans(k, n_init=5, random_state=0).fit(rows).inertia_
    return -km.score(rows) / best


@parametrize_with_checks(
    [
        CompressiveKMeans(n_clusters=3, sketch_size=300),
        CompressiveKMeans(n_clusters=3, sketch_size=30, rounds=1, n_init=2),
        CompressiveKMeans(n_clusters=2, sketch_size=5),
    ]
)
def test_estimator_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("rounds", "limit"), [(1, 1.01), (2, 1.03), (None, 1.03)])
def test_inertia_is_close_to_lloyds(rounds, limit):
    km = CompressiveKMeans(5, sketch_size=600, rounds=rounds).fit(X)
    assert ratio(km, X) < limit
    assert km.inertia_ == pytest.approx(-km.score(X), rel=0.15)
    assert np.array_equal(km.labels_, km.predict(X))
    assert km.transform(X[:7]).shape == (7, 5)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("size", [4, 30, 100, 1000])
def test_the_sketch_never_holds_more_than_asked_beside_mean_and_variance(size, rounds):
    km = CompressiveKMeans(3, sketch_size=size, rounds=rounds).fit(X)
    assert km.sketch_.size <= size + 2 * 6
    assert np.isfinite(km.cluster_centers_).all()


def test_wide_rows_are_clustered_in_their_principal_directions():
    wide = X @ RNG.normal(size=(6, 80)) + 0.3 * RNG.normal(size=(6000, 80))
    assert ratio(CompressiveKMeans(5, sketch_size=1000).fit(wide), wide) < 1.1


def test_one_sketch_serves_every_k():
    km = CompressiveKMeans(5, sketch_size=600).fit(X)
    sketch = km.sketch_
    for k in (1, 2, 9):
        km.fit_sketch(sketch, n_clusters=k)
        assert km.cluster_centers_.shape == (k, 6)
        assert ratio(km, X) < 1.12
    assert km.n_clusters == 5


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_best_k_is_the_one_the_silhouette_of_the_rows_prefers(rounds):
    found = CompressiveKMeans(3, sketch_size=600, rounds=rounds).fit(X).select_k(KS)
    some = X[:1500]
    labels = [KMeans(k, n_init=3, random_state=0).fit_predict(some) for k in KS]
    silhouettes = [silhouette_score(some, found) for found in labels]
    assert found.candidates == tuple(KS)
    assert found.best == KS[int(np.argmax(silhouettes))]
    assert (np.diff(found.inertias) < 0).all()


def test_the_selection_can_be_drawn():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    axes = CompressiveKMeans(3).fit(X).select_k(range(2, 5)).plot()
    assert axes.get_xlabel() == "number of clusters"
    pyplot.close("all")


def test_adding_then_forgetting_leaves_no_trace():
    half = CompressiveKMeans(3, sketch_size=100, bounds=BOUNDS).fit(X[:3000])
    km = CompressiveKMeans(3, sketch_size=100, bounds=BOUNDS).fit(X[:1000])
    km.partial_fit(X[1000:])
    assert km.n_samples_seen_ == 6000
    assert not hasattr(km, "labels_")
    km.forget(X[3000:])
    assert km.sketch_ == half.sketch_
    assert np.array_equal(km.cluster_centers_, half.cluster_centers_)


def test_two_rounds_forget_their_rows_but_warn_about_the_plan():
    km = CompressiveKMeans(3, sketch_size=100, rounds=2).fit(X[:3000])
    before = km.sketch_
    km.partial_fit(X[3000:])
    with pytest.warns(DataPlanWarning, match="bounds"):
        km.forget(X[3000:])
    assert km.sketch_ == before


def test_merging_fitted_estimators_equals_fitting_all_rows():
    left, right, whole = (
        CompressiveKMeans(3, sketch_size=100, bounds=BOUNDS).fit(part)
        for part in (X[:9], X[9:], X)
    )
    assert left.merge(right).sketch_ == whole.sketch_
    assert np.array_equal(left.cluster_centers_, whole.cluster_centers_)


def test_plans_of_two_fits_do_not_merge():
    left, right = (
        CompressiveKMeans(3, rounds=2).fit(part) for part in (X[:3000], X[3000:])
    )
    with pytest.raises(FeatureMapMismatch):
        left.merge(right)


def test_parties_with_one_plan_of_two_rounds_get_what_one_machine_would(tmp_path):
    estimator = CompressiveKMeans(5, sketch_size=400, rounds=2, bounds=BOUNDS)
    first = estimator.plan(6)
    halves = (X[:2000], X[2000:])
    merged = sum(sketch_rows(part, first) for part in halves)
    second = estimator.plan(6, first=merged)
    assert second.origin == "data"
    save(sum(sketch_rows(part, second) for part in halves), tmp_path / "a.sketch")
    estimator.fit_sketch(load(tmp_path / "a.sketch"))
    assert ratio(estimator, X) < 1.04


def test_a_second_round_planned_from_a_private_first_may_be_released():
    estimator = CompressiveKMeans(5, sketch_size=200, rounds=2, bounds=BOUNDS)
    promise = {"epsilon": 5.0, "delta": 1e-5}
    exact = sketch_rows(X, estimator.plan(6))
    book = Ledger.ephemeral(epsilon=20.0, delta=1e-5)
    second = estimator.plan(6, first=release(exact, **promise, ledger=book))
    assert second.origin == "declared"
    for unpaid in (exact, release_seeded(exact, 0, **promise)):
        assert estimator.plan(6, first=unpaid).origin == "data"
    private = release(sketch_rows(X, second), **promise, ledger=book)
    estimator.fit_sketch(private)
    spread = ((X - X.mean(axis=0)) ** 2).sum()
    assert -estimator.score(X) < 0.6 * spread


def test_files_and_streams_are_clustered_like_arrays(tmp_path):
    names = [f"f{i}" for i in range(6)]
    table = pa.table({name: X[:, i] for i, name in enumerate(names)})
    pq.write_table(table, tmp_path / "rows.parquet")
    from_file = CompressiveKMeans(5, sketch_size=300).fit(tmp_path / "rows.parquet")
    from_rows = CompressiveKMeans(5, sketch_size=300).fit(X)
    assert np.allclose(from_file.cluster_centers_, from_rows.cluster_centers_)
    assert list(from_file.feature_names_in_) == names
    assert not hasattr(from_file, "labels_")
    stream = CompressiveKMeans(5, sketch_size=300).fit(iter([X[:100], X[100:]]))
    assert stream.sketch_.count == 6000
    with pytest.raises(RowsError, match="read twice"):
        CompressiveKMeans(5, rounds=2).fit(iter([X]))


@pytest.mark.parametrize("rounds", [1, 2])
def test_constant_and_duplicate_features_do_no_harm(rounds):
    odd = np.concatenate([X, X[:, :2], np.full((6000, 3), 7.0)], axis=1)
    km = CompressiveKMeans(5, sketch_size=600, rounds=rounds).fit(odd)
    assert ratio(km, odd) < 1.05
    assert np.allclose(km.cluster_centers_[:, -3:], 7.0, atol=1e-3)


@pytest.mark.parametrize("rounds", [1, 2])
def test_heavy_tails_are_no_obstacle(rounds):
    heavy = RNG.pareto(2.5, size=(4000, 4))
    km = CompressiveKMeans(5, sketch_size=1000, rounds=rounds).fit(heavy)
    assert ratio(km, heavy) < (1.6 if rounds == 1 else 1.15)


@pytest.mark.parametrize("rounds", [1, 2])
def test_rows_that_are_all_the_same_give_one_place_and_a_warning(rounds):
    km = CompressiveKMeans(3, sketch_size=60, rounds=rounds)
    with pytest.warns(ConvergenceWarning, match="distinct"):
        km.fit(np.full((50, 2), 4.0))
    assert np.allclose(km.cluster_centers_, 4.0)


def test_synthetic_rows_are_like_the_rows():
    rows = CompressiveKMeans(5, sketch_size=600).fit(X).sample(4000)
    assert rows.shape == (4000, 6)
    assert np.allclose(rows.mean(axis=0), X.mean(axis=0), atol=0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 2.5}, "n_clusters"),
        ({"rounds": 3}, "rounds"),
        ({"sketch_size": 0}, "sketch_size"),
        ({"n_init": 0}, "n_init"),
    ],
)
def test_arguments_that_make_no_sense_are_named(change, message):
    with pytest.raises(FeatureMapError, match=message):
        CompressiveKMeans(**{"n_clusters": 3, **change}).fit(X[:50])


def test_more_clusters_than_rows_is_an_error():
    with pytest.raises(RowsError, match="n_samples=4 should be >= n_clusters=5"):
        CompressiveKMeans(5).fit(X[:4])


def test_a_second_plan_reads_the_range_of_a_sample_of_rows_in_any_order():
    rows = np.random.default_rng(0).normal(size=(500, 3))
    km = CompressiveKMeans(3, rounds=2, bounds=(-8.0, 8.0))
    first = sketch_rows(rows, km.plan(3))
    plans = [km.plan(3, rows=sample, first=first) for sample in (rows, rows[::-1])]
    extremes = np.stack([rows.min(axis=0), rows.max(axis=0)])
    plans.append(km.plan(3, rows=extremes, first=first))
    assert len({plan.fingerprint for plan in plans}) == 1


def test_a_second_plan_that_has_seen_rows_says_so_even_after_a_release():
    rows = np.random.default_rng(0).normal(size=(500, 3))
    km = CompressiveKMeans(3, rounds=2, bounds=(-8.0, 8.0))
    terms = {"epsilon": 50.0, "delta": 1e-5, "neighbours": "replace"}
    first = release(
        sketch_rows(rows, clipped(km.plan(3), norm_bound=4.0)),
        **terms,
        ledger=Ledger.ephemeral(**terms),
        count="public",
    )
    assert km.plan(3, first=first).origin == "declared"
    assert km.plan(3, rows=rows, first=first).origin == "data"


def test_bounds_far_wider_than_the_rows_cost_nothing_in_two_rounds():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 3)) + rng.choice([-9.0, 9.0], (900, 1))
    close, wide = (
        CompressiveKMeans(2, rounds=2, bounds=(-b, b)).fit(rows) for b in (16.0, 1e6)
    )
    assert wide.score(rows) == pytest.approx(close.score(rows), rel=1e-3)


def test_what_is_no_sketch_and_what_is_no_number_are_refused():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(RowsError, match="fit_sketch takes a sketch; got ndarray"):
        CompressiveKMeans(2).fit_sketch(rows)
    with pytest.raises(FeatureMapError, match="n_clusters must be a whole number"):
        CompressiveKMeans("3").fit(rows)


def test_a_sketch_of_moments_alone_is_decoded_with_a_warning():
    rows = np.random.default_rng(0).normal(size=(500, 2))
    sketch = CompressivePCA().fit(rows).sketch_
    with pytest.warns(ConvergenceWarning, match="moments alone"):
        CompressiveKMeans(2).fit_sketch(sketch)


@pytest.mark.parametrize("kind", ["path", "frame", "table"])
def test_fit_predict_labels_files_and_tables(tmp_path, kind):
    table = pa.table({f"f{i}": X[:, i] for i in range(6)})
    pq.write_table(table, tmp_path / "rows.parquet")
    data = {"path": tmp_path / "rows.parquet", "table": table}
    data = data.get(kind, table.to_pandas())
    km = CompressiveKMeans(5, sketch_size=600)
    labels = km.fit_predict(data)
    assert (labels == km.predict(table.to_pandas())).all()
    assert labels is km.labels_


def test_fit_predict_refuses_a_stream_before_reading_it():
    stream = iter([X])
    with pytest.raises(RowsError, match="cannot be read again to label"):
        CompressiveKMeans(5).fit_predict(stream)
    assert next(stream) is X


@pytest.mark.parametrize(
    "change",
    [
        {"n_clusters": 0},
        {"n_init": 0.5},
        {"rounds": True},
        {"sketch_size": -3},
        {"bounds": (1.0, 0.0)},
        {"random_state": "seed"},
    ],
)
def test_parameters_are_checked_before_a_row_is_read(change):
    stream = iter([X])
    sketch = sketch_rows(X, CompressiveKMeans(5, bounds=BOUNDS).plan(6))
    km = CompressiveKMeans(**change)
    for attempt in (
        lambda: km.fit(stream),
        lambda: km.partial_fit(stream),
        lambda: km.plan(6),
        lambda: km.fit_sketch(sketch),
    ):
        with pytest.raises(FeatureMapError, match=next(iter(change))):
            attempt()
    assert next(stream) is X
