"""k-means from a sketch is nearly Lloyd's, for every k, and keeps the sketch's laws."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
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
    TooNoisy,
)
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.release import release
from sketchlearn.sketching.local_rows import LocalRows
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
@pytest.mark.filterwarnings("ignore::sketchlearn.errors.ConvergenceWarning")
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
@pytest.mark.filterwarnings("ignore::sketchlearn.errors.ConvergenceWarning")
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
    km = CompressiveKMeans(5, sketch_size=1000, rounds=rounds)
    if rounds == 1:
        with pytest.warns(ConvergenceWarning, match="a few rows lie far"):
            km.fit(heavy)
    else:
        km.fit(heavy)
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
    with pytest.raises(FeatureMapError, match="'n_clusters' .*must be an int"):
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


def blobs(n_rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    centres = 5 * rng.normal(size=(5, 4))
    return centres[rng.integers(5, size=n_rows)] + rng.normal(size=(n_rows, 4))


@pytest.mark.parametrize("rounds", [1, 2])
def test_one_row_far_out_is_told_with_the_features_and_what_to_do(rounds):
    rows = blobs()
    rows[0, 2] = 1e3
    table = pa.table({name: rows[:, i] for i, name in enumerate("abcd")})
    km = CompressiveKMeans(5, sketch_size=500, rounds=rounds)
    with pytest.warns(ConvergenceWarning, match="'c' a few rows lie far.*bounds"):
        km.fit(table)
    rows[0] = 1e3
    with pytest.warns(ConvergenceWarning, match="a few rows lie far from all others"):
        km.fit(rows)


def test_bounds_far_too_wide_are_told_where_they_do_harm():
    rows = blobs()
    with pytest.warns(ConvergenceWarning, match="bounds are much wider than the rows"):
        CompressiveKMeans(5, sketch_size=500, bounds=(-250.0, 250.0)).fit(rows)
    CompressiveKMeans(5, sketch_size=500, bounds=(-30.0, 30.0)).fit(rows)
    CompressiveKMeans(5, sketch_size=500, bounds=(-250.0, 250.0), rounds=2).fit(rows)


@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_inertia_lies_in_its_interval(rounds, k):
    rng = np.random.default_rng(k)
    for rows in (blobs(), rng.uniform(size=(3000, 3)), rng.normal(size=(2000, 40))):
        km = CompressiveKMeans(k, sketch_size=1500, rounds=rounds).fit(rows)
        low, high = km.inertia_interval_
        assert low <= -km.score(rows) <= high * (1 + 1e-9)
        assert low <= km.inertia_ <= high
        if rounds == 2:
            assert km.inertia_ == pytest.approx(-km.score(rows), rel=0.15)


@pytest.mark.parametrize("k", [2, 10])
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_inertia_of_heavy_tails_lies_in_its_interval_and_is_not_far_below(
    rounds, k
):
    for seed in range(2):
        rows = np.exp(2 * np.random.default_rng(seed).normal(size=(2000, 4)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            km = CompressiveKMeans(k, sketch_size=500, rounds=rounds).fit(rows)
        low, high = km.inertia_interval_
        assert low <= -km.score(rows) <= high * (1 + 1e-9)
        assert low <= km.inertia_ <= high
        assert km.inertia_ > -0.4 * km.score(rows)


@settings(max_examples=20, deadline=None)
@given(
    arrays(np.int8, (30, 2)),
    st.integers(1, 4),
    st.integers(8, 60),
)
def test_no_rows_have_more_inertia_than_the_upper_end(rows, k, size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        km = CompressiveKMeans(k, sketch_size=size, rounds=2).fit(rows)
    scale = (rows.astype(float) ** 2).sum() + 1
    assert -km.score(rows) <= km.inertia_interval_[1] + 1e-9 * scale


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_sketch_is_the_one_that_fit_decodes(tmp_path, rounds):
    pq.write_table(
        pa.table({f"f{i}": X[:, i] for i in range(6)}), tmp_path / "rows.parquet"
    )
    km = CompressiveKMeans(5, sketch_size=300, rounds=rounds)
    sketch = km.sketch(tmp_path / "rows.parquet")
    assert sketch == clone(km).fit(tmp_path / "rows.parquet").sketch_


def released(rows, epsilon, km, seed=0):
    sketch = sketch_rows(rows, km.plan(rows.shape[1]))
    return release_seeded(sketch, seed, epsilon=epsilon, delta=1e-7)


def test_releases_of_noise_are_refused_and_good_ones_pass_without_a_word():
    km = CompressiveKMeans(5, sketch_size=500, bounds=(-32.0, 32.0))
    with pytest.raises(TooNoisy, match="times the variance.*larger epsilon"):
        km.fit_sketch(released(blobs(500), 0.5, km))
    with pytest.warns(ConvergenceWarning, match="of the variance.*smaller sketch_size"):
        km.fit_sketch(released(blobs(6000), 1.0, km))
    rows = blobs(100_000)
    km.fit_sketch(released(rows, 1.0, km))
    assert ratio(km, rows) < 1.2
    low, high = km.inertia_interval_
    assert low <= -km.score(rows) <= high


def test_a_sketch_too_small_for_k_says_which_size_is_not():
    rows = np.random.default_rng(0).normal(size=(3000, 4))
    with pytest.warns(ConvergenceWarning, match="use sketch_size >= 6010") as told:
        CompressiveKMeans(50, sketch_size=300).fit(rows)
    assert len(told) == 1
    with pytest.warns(ConvergenceWarning, match="sketch_size >= 6010 and rounds=2"):
        CompressiveKMeans(50, sketch_size=300, rounds=1).fit(rows)
    CompressiveKMeans(50, sketch_size=6010).fit(rows)


@pytest.mark.parametrize("k", [10, 40])
def test_by_default_the_sketch_grows_with_k_and_is_nearly_lloyds(k):
    rng = np.random.default_rng(1)
    rows = (
        rng.normal(size=(6000, 4))
        + 4 * rng.normal(size=(k, 4))[rng.integers(k, size=6000)]
    )
    km = CompressiveKMeans(k).fit(rows)
    assert max(1500, 60 * k) < km.sketch_.size <= max(2000, 120 * k + 10) + 2 * 4
    assert ratio(km, rows) < 1.15


def wide_blobs(d, k, n=3000):
    rng = np.random.default_rng(0)
    return rng.uniform(-5, 5, (k, d))[rng.integers(k, size=n)] + 0.5 * rng.normal(
        size=(n, d)
    )


@pytest.mark.parametrize(("d", "k"), [(20, 30), (40, 20)])
def test_clusters_that_differ_in_many_directions_are_found(d, k):
    rows = wide_blobs(d, k)
    assert ratio(CompressiveKMeans(k).fit(rows), rows) < 1.1


def test_clusters_in_directions_without_cells_are_told():
    rows = wide_blobs(20, 30)
    with pytest.warns(ConvergenceWarning, match="in so few directions"):
        km = CompressiveKMeans(30, sketch_size=1500).fit(rows)
    assert ratio(km, rows) > 1.1


def test_one_round_with_enough_frequencies_is_not_too_small():
    rows = wide_blobs(3, 25)
    CompressiveKMeans(25, sketch_size=300, rounds=1).fit(rows)  # warnings are errors
    with pytest.warns(ConvergenceWarning, match="one round, in 101 numbers"):
        CompressiveKMeans(25, sketch_size=100, rounds=1).fit(rows)


def test_a_plan_of_two_rounds_has_the_size_that_fit_would_take():
    km = CompressiveKMeans(30, rounds=2)
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    first = sketch_rows(rows, km.plan(3, rows=rows))
    second = sketch_rows(rows, km.plan(3, rows=rows, first=first))
    assert second == clone(km).fit(rows).sketch_
    assert clone(km).fit_sketch(second).cluster_centers_.shape == (30, 3)


@pytest.mark.parametrize("n", [1000, 5000])
def test_one_row_far_from_all_others_is_told_and_leaves_some_inertia(n):
    rows = np.random.default_rng(0).normal(1000, 5, (n, 2))
    rows[0] = 1e6
    with pytest.warns(ConvergenceWarning, match="far from all others") as told:
        km = CompressiveKMeans(3).fit(rows)
    assert len(told) == 1
    assert "rounds=2" not in str(told[0].message)
    low, high = km.inertia_interval_
    assert low <= -km.score(rows) <= high
    assert km.inertia_ > 0


def test_rows_far_from_zero_have_the_inertia_of_the_same_rows_near_it():
    rows = wide_blobs(3, 4)
    near = CompressiveKMeans(4).fit(rows)
    far = CompressiveKMeans(4).fit(rows + 1e9)
    assert -far.score(rows + 1e9) == pytest.approx(-near.score(rows), rel=1e-3)
    assert far.inertia_ == pytest.approx(near.inertia_, rel=1e-2)


@pytest.mark.parametrize("seed", [3, 5])
def test_many_narrow_clusters_have_more_inertia_than_the_lower_end(seed):
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-5, 5, (100, 10))
    rows = centres[rng.integers(100, size=6000)] + 0.5 * rng.normal(size=(6000, 10))
    km = CompressiveKMeans(100, n_init=1).fit(rows)
    low, high = km.inertia_interval_
    assert low <= -km.score(rows) <= high


def test_places_that_are_nearly_the_same_are_no_news():
    rows = np.repeat(np.arange(9.0)[:, None], 50, axis=0)
    rows[:5] += 1e-9
    CompressiveKMeans(5, sketch_size=400).fit(rows)  # warnings are errors


def test_a_stream_that_leaves_its_planned_range_is_told():
    rng = np.random.default_rng(0)
    first, later = rng.uniform(-0.9, 0.9, (65_536, 2)), rng.uniform(-24, 24, (9000, 2))
    with pytest.warns(ConvergenceWarning, match="later rows of this stream"):
        CompressiveKMeans(2, sketch_size=60).sketch(iter([first, later]))


def test_declared_bounds_are_planned_without_a_look(monkeypatch):
    def refuse(batches):
        raise AssertionError

    monkeypatch.setattr(LocalRows, "extremes", refuse)
    sketch = CompressiveKMeans(2, sketch_size=60, bounds=BOUNDS).sketch(X)
    plan = CompressiveKMeans(2, sketch_size=60, bounds=BOUNDS).plan(6)
    assert sketch.feature_map == plan
