"""PCA from a sketch is scikit-learn's PCA where the sketch holds enough."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from sketchlearn import (
    CompressivePCA,
    FourierFeatures,
    MomentFeatures,
    clipped,
    load,
    save,
    sketch_rows,
)
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    FeatureMapMismatch,
    RemovalError,
    RowRangeError,
    RowsError,
    TooNoisy,
)
from sketchlearn.plans.moments import LEARNED, auto_size
from sketchlearn.registry import load_model
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(12, 12)) * np.linspace(3, 0.1, 12)
X = RNG.normal(size=(3000, 12)) @ MIXING.T + 40
BOUNDS = (-100.0, 200.0)


def exact_pca(n_components=None):
    """The reference; scikit-learn's own choice may be a solver that draws unseeded."""
    return PCA(n_components, svd_solver="full")


def same_axes(left, right):
    return np.abs(np.abs(np.sum(left * right, axis=1)) - 1).max()


def test_an_exact_sketch_gives_scikit_learns_pca():
    # Declared bounds are rounded finely, a range that was seen to 22 bits.
    seen, theirs = CompressivePCA(5).fit(X), exact_pca(5).fit(X)
    assert np.allclose(seen.explained_variance_, theirs.explained_variance_, rtol=1e-6)
    ours = CompressivePCA(5, bounds=BOUNDS).fit(X)

    assert same_axes(seen.components_, theirs.components_) < 1e-9
    assert same_axes(ours.components_, theirs.components_) < 1e-9
    for name in (
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "noise_variance_",
    ):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8)
    signs = np.sign(np.sum(ours.components_ * theirs.components_, axis=1))
    assert np.allclose(ours.transform(X), theirs.transform(X) * signs, atol=1e-6)
    back = ours.inverse_transform(ours.transform(X))
    assert np.allclose(back, theirs.inverse_transform(theirs.transform(X)), atol=1e-6)


def test_standardising_after_the_fact_equals_standardising_first():
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    ours = CompressivePCA(standardize=True, bounds=BOUNDS).fit(X)
    theirs = exact_pca().fit(scaled)
    assert same_axes(ours.components_, theirs.components_) < 1e-8
    assert np.allclose(ours.explained_variance_, theirs.explained_variance_)
    assert np.allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(scaled)))


def test_a_small_sketch_finds_the_leading_components():
    wide = RNG.normal(size=(4000, 3)) @ RNG.normal(size=(3, 60)) * 5
    wide = wide + 0.1 * RNG.normal(size=wide.shape)
    ours, theirs = CompressivePCA(3, sketch_size=360).fit(wide), exact_pca(3).fit(wide)
    assert ours.sketch_.size == 2 * 60 + 360
    overlap = np.linalg.svd(ours.components_ @ theirs.components_.T)[1]
    assert overlap.min() > 0.99


@pytest.mark.filterwarnings("ignore:the sketch saw", "ignore:.*have no room")
@pytest.mark.parametrize("size", [1, 10, 25, 77])
def test_the_sketch_never_holds_more_than_asked_beside_mean_and_variance(size):
    pca = CompressivePCA(sketch_size=size).fit(X)
    assert pca.sketch_.size <= size + 2 * 12
    assert np.allclose(pca.components_ @ pca.components_.T, np.eye(12), atol=1e-9)
    assert (np.diff(pca.explained_variance_) <= 1e-9).all()


@pytest.mark.parametrize(
    ("d", "size", "kept", "columns"),
    [
        (12, 78, None, None),  # all of the second moment
        (12, 5, 5, 1),  # less than one column for each
        (12, 17, 12, 1),  # a second column would cost more than 31 % of the features
        (12, 18, 9, 2),
        (12, 31, 12, 2),  # a third, more than half of that
        (12, 33, 11, 3),
        (12, 43, 12, 3),
        (12, 44, 11, 4),
        (120, 165, 120, 1),
        (120, 166, 83, 2),
        (120, 300, 120, 2),
        (120, 306, 102, 3),
        (120, 470, 117, 4),
    ],
)
def test_some_features_make_room_for_another_column(d, size, kept, columns):
    phi = CompressivePCA(sketch_size=size, bounds=BOUNDS).plan(d)
    if kept is None:
        assert isinstance(phi, MomentFeatures)
        return
    assert (len(phi.kept), phi.n_columns) == (kept, columns)
    assert phi.sketch_size == 2 * d + kept * columns


def test_the_features_of_least_spread_make_room():
    low, high = np.zeros(12), np.ones(12)
    high[4] = 2.0**-5
    phi = CompressivePCA(sketch_size=22, bounds=(low, high)).plan(12)
    assert phi.kept.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.filterwarnings("ignore:the sketch saw", "ignore:.*have no room")
def test_the_named_decoder_completes_a_small_sketch():
    sketch = CompressivePCA(sketch_size=24).fit(X).sketch_
    decoders = {"learned": load_model(LEARNED), "nystrom": NystromDecoder()}
    found = {}
    for name, decoder in decoders.items():
        pca = CompressivePCA(2, decoder=name).fit_sketch(sketch)
        covariance = decoder.decode(sketch).params.covariance * 3000 / 2999
        assert np.allclose(
            pca.explained_variance_, np.linalg.eigvalsh(covariance)[:-3:-1]
        )
        found[name] = pca.components_
    assert not np.allclose(found["learned"], found["nystrom"])
    default = CompressivePCA(2).fit_sketch(sketch)
    assert np.array_equal(default.components_, found["learned"])


def test_the_decoder_does_not_matter_where_the_sketch_holds_all():
    learned, plain = (
        CompressivePCA(3, decoder=name).fit(X) for name in ("learned", "nystrom")
    )
    assert np.array_equal(learned.components_, plain.components_)


@pytest.mark.parametrize("size", [24, 2000])
@pytest.mark.parametrize("name", ["magic", None, "Learned"])
def test_an_unknown_decoder_is_refused_at_any_sketch_size(size, name):
    with pytest.raises(FeatureMapError, match="decoder.*'learned', 'nystrom'"):
        CompressivePCA(sketch_size=size, decoder=name).fit(X)


def test_constant_features_get_no_room_in_the_sketch():
    padded = np.concatenate([X, np.full((3000, 100), 7.0)], axis=1)
    padded_pca = CompressivePCA(4, sketch_size=72).fit(padded)
    assert padded_pca.sketch_.size == 2 * 112 + 12 * 6
    plain = CompressivePCA(4, sketch_size=72).fit(X)
    assert padded_pca.explained_variance_[0] > 0.8 * plain.explained_variance_[0]


def test_adding_then_forgetting_leaves_no_trace():
    half = CompressivePCA(3, bounds=BOUNDS).fit(X[:1500])
    pca = CompressivePCA(3, bounds=BOUNDS).fit(X[:1000]).partial_fit(X[1000:])
    assert pca.n_samples_seen_ == 3000
    pca.forget(X[1500:])
    assert pca.sketch_ == half.sketch_
    assert np.array_equal(pca.components_, half.components_)


def test_forgetting_from_a_plan_made_of_data_warns():
    pca = CompressivePCA(3).fit(X)
    with pytest.warns(DataPlanWarning, match="bounds"):
        pca.forget(X[:100])
    assert pca.sketch_.count == 2900


def test_merging_fitted_estimators_equals_fitting_all_rows():
    left, right = (
        CompressivePCA(3, bounds=BOUNDS).fit(part) for part in (X[:9], X[9:])
    )
    assert left.merge(right).sketch_ == CompressivePCA(bounds=BOUNDS).fit(X).sketch_
    other = CompressivePCA(3, bounds=(-300, 300)).fit(X)
    with pytest.raises(FeatureMapMismatch, match="scaling"):
        left.merge(other)


@pytest.mark.filterwarnings("ignore:the sketch saw", "ignore:.*have no room")
@pytest.mark.parametrize("size", [20, 2000])
def test_parties_with_one_plan_merge_to_what_one_machine_would_fit(size, tmp_path):
    estimator = CompressivePCA(sketch_size=size, bounds=BOUNDS)
    save(estimator.plan(12), tmp_path / "study.map")
    parts = [
        sketch_rows(part, load(tmp_path / "study.map")) for part in (X[:50], X[50:])
    ]
    save(parts[0] + parts[1], tmp_path / "all.sketch")
    together = CompressivePCA().fit_sketch(load(tmp_path / "all.sketch"))
    alone = estimator.fit(X)
    assert together.sketch_ == alone.sketch_
    assert np.array_equal(together.components_, alone.components_)


def test_files_frames_and_generators_fit_like_arrays(tmp_path):
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    fitted = CompressivePCA(3).fit(X)
    for data in (
        str(tmp_path / "*.parquet"),
        tmp_path / "rows.parquet",
        frame,
        (X[i : i + 100] for i in range(0, 3000, 100)),
        pa.Table.from_pandas(frame),
    ):
        other = CompressivePCA(3).fit(data)
        assert other.sketch_ == fitted.sketch_
    assert CompressivePCA().fit(frame).feature_names_in_.tolist() == list(frame)
    from_file = CompressivePCA().fit(tmp_path / "rows.parquet")
    assert from_file.feature_names_in_.tolist() == list(frame)
    assert from_file.transform(frame).shape == (3000, 12)


def test_output_follows_set_output():
    pca = CompressivePCA(2).set_output(transform="pandas").fit(X)
    assert list(pca.transform(X).columns) == ["compressivepca0", "compressivepca1"]


def test_a_share_of_variance_chooses_the_number_of_components():
    ours, theirs = CompressivePCA(0.9).fit(X), exact_pca(0.9).fit(X)
    assert ours.n_components_ == theirs.n_components_


@pytest.mark.parametrize("asked", [0, 13, -1, 1.5, "mle", True])
def test_bad_numbers_of_components_are_refused(asked):
    with pytest.raises(FeatureMapError, match="n_components"):
        CompressivePCA(asked).fit(X)


def test_large_offsets_cost_no_precision():
    shifted = X + 1e6
    ours, theirs = CompressivePCA(3).fit(shifted), exact_pca(3).fit(X)
    ratio = ours.explained_variance_ / theirs.explained_variance_
    assert np.allclose(ratio, 1, rtol=1e-5)


def test_a_later_value_far_out_of_range_is_refused_and_nothing_is_lost():
    pca = CompressivePCA(3).fit(X)
    digest = pca.sketch_.digest
    with pytest.raises(RowRangeError, match="bounds"):
        pca.partial_fit(X * 1e6)
    assert pca.sketch_.digest == digest


def test_a_failed_fit_leaves_the_model_as_it_was():
    pca = CompressivePCA(2, bounds=BOUNDS).fit(X)
    with pytest.raises(RowRangeError):
        pca.fit(np.full((5, 3), 1e6))
    assert pca.n_features_in_ == 12
    assert pca.transform(X).shape == (3000, 2)


def test_forgetting_every_row_is_refused_and_says_so():
    pca = CompressivePCA(2, bounds=BOUNDS).fit(X)
    with pytest.raises(RemovalError, match="Nothing was forgotten"):
        pca.forget(X)
    assert pca.sketch_.count == 3000


def test_scales_of_rows_in_memory_come_from_all_of_them():
    heavy = np.sort(RNG.lognormal(0, 2, (200_000, 2)), axis=0)
    ours, theirs = CompressivePCA().fit(heavy), exact_pca().fit(heavy)
    assert np.allclose(ours.explained_variance_, theirs.explained_variance_)


@pytest.mark.parametrize("offset", [1e9, 1e11, 1.7e12])
def test_far_away_data_is_centred_exactly(offset):
    rows = np.round(X[:, :2] * 1024) / 1024 + offset
    wide = CompressivePCA(bounds=(0, 2 * offset)).fit(rows)
    near = CompressivePCA().fit(rows)
    expected = exact_pca().fit(rows - offset).explained_variance_
    assert np.allclose(near.explained_variance_, expected, rtol=1e-6)
    assert np.allclose(wide.explained_variance_, expected, rtol=1e-2)


@pytest.mark.parametrize("size", [1e-140, 1e-30, 1e30, 1e100])
def test_the_unit_of_the_rows_does_not_matter(size):
    ours = CompressivePCA().fit(X * size).explained_variance_ratio_
    assert np.allclose(ours, exact_pca().fit(X).explained_variance_ratio_)


def test_more_components_than_the_sketch_saw_are_a_warning():
    with pytest.warns(ConvergenceWarning, match="not resolved"):
        CompressivePCA(5, sketch_size=30).fit(X)


def test_streams_are_matched_by_column_name(tmp_path):
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    frame[frame.columns[::-1]].to_parquet(tmp_path / "reversed.parquet")
    pca = CompressivePCA(2, bounds=BOUNDS).fit(frame)
    pca.partial_fit(tmp_path / "reversed.parquet")
    assert pca.sketch_ == CompressivePCA(bounds=BOUNDS).fit([*X, *X]).sketch_
    other = CompressivePCA(2, bounds=BOUNDS).fit(frame[frame.columns[::-1]])
    with pytest.raises(FeatureMapMismatch, match="column 'c0' where right has 'c11'"):
        pca.merge(other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"random_state": -1}, "random_state"),
        ({"random_state": 1.5}, "random_state"),
        ({"sketch_size": 1.5}, "sketch_size"),
        ({"sketch_size": 0}, "sketch_size"),
    ],
)
def test_bad_parameters_are_refused_at_any_width(arguments, message):
    with pytest.raises(FeatureMapError, match=message):
        CompressivePCA(**arguments).fit(X)
    assert CompressivePCA(random_state=None).fit(X).n_components_ == 12


def test_transform_of_a_path_says_what_it_takes(tmp_path):
    with pytest.raises(RowsError, match="rows in memory"):
        CompressivePCA().fit(X).transform(tmp_path / "rows.parquet")


def test_a_sketch_without_second_moments_is_refused():
    sketch = sketch_rows(X, FourierFeatures(12, 8))
    with pytest.raises(FeatureMapError, match=r"no second moments.*plan"):
        CompressivePCA().fit_sketch(sketch)


def test_components_of_some_features_of_the_sketch():
    whole = CompressivePCA().fit(X)
    some = CompressivePCA(2).fit_sketch(whole.sketch_, features=[0, 3, 5])
    theirs = exact_pca(2).fit(X[:, [0, 3, 5]])
    assert same_axes(some.components_, theirs.components_) < 1e-9
    with pytest.raises(FeatureMapError, match="feature numbers below 12"):
        CompressivePCA().fit_sketch(whole.sketch_, features=[99])


def test_bad_bounds_and_bad_rows_say_what_to_do():
    with pytest.raises(FeatureMapError, match="pair"):
        CompressivePCA(bounds=3).fit(X)
    with pytest.raises(RowsError, match="city"):
        CompressivePCA().fit(pd.DataFrame({"a": [1.0], "city": ["Oslo"]}))
    with pytest.raises(NotFittedError):
        CompressivePCA().transform(X)
    with pytest.raises(NotFittedError):
        CompressivePCA().forget(X)


@pytest.mark.parametrize("bound", [1e13, 1e14])
def test_bounds_so_wide_that_rounding_drowns_the_rows_say_so(bound):
    with pytest.warns(ConvergenceWarning, match="than the rounding of the rows"):
        CompressivePCA(2, bounds=(-bound, bound)).fit(X)


def test_what_a_plan_has_not_seen_is_rounded_finely():
    tiny = np.random.default_rng(0).normal(size=(1000, 3)) * 1e-8
    pca = CompressivePCA(2).fit(tiny[:1]).partial_fit(tiny[1:])
    expected = exact_pca(2).fit(tiny).explained_variance_
    assert np.allclose(pca.explained_variance_, expected, rtol=1e-3)

    rows = np.random.default_rng(1).normal(size=(3000, 4))
    rows[0, 0] = 1e8  # a hundred million times the spread of the others
    assert CompressivePCA(2).fit(rows).sketch_.feature_map.bits > 30
    assert CompressivePCA(2).fit(rows[1:]).sketch_.feature_map.bits == 22


@pytest.mark.parametrize("d", [1, 62, 63, 200, 1000, 1023])
def test_by_default_the_second_moments_of_a_thousand_features_are_exact(d):
    phi = CompressivePCA(bounds=BOUNDS).plan(d)
    assert isinstance(phi, MomentFeatures)
    assert phi.sketch_size == d + d * (d + 1) // 2


@pytest.mark.parametrize(
    ("d", "columns"), [(1100, 476), (2000, 262), (5000, 104), (20_000, 64)]
)
def test_by_default_more_features_are_compressed_with_a_warning(d, columns):
    exact = d * (d + 1) // 2
    with pytest.warns(ConvergenceWarning, match=rf"{columns} dir.*sketch_size={exact}"):
        phi = CompressivePCA(bounds=BOUNDS).plan(d)
    assert phi.n_columns == columns
    CompressivePCA(bounds=BOUNDS, sketch_size=64 * d).plan(d)  # no warning


def test_the_default_size_is_bounded_for_any_number_of_features():
    assert max(auto_size(d) for d in range(1, 500_000, 997)) < 2**22
    assert auto_size(10**6) == 8 * 10**6


def test_constant_features_do_not_make_a_sketch_inexact():
    wide = np.zeros((50, 2000))
    wide[:, :100] = np.random.default_rng(0).normal(size=(50, 100))
    ours, theirs = CompressivePCA(3).fit(wide), exact_pca(3).fit(wide)  # no warning
    ratio = ours.explained_variance_ / theirs.explained_variance_
    assert np.allclose(ratio, 1, rtol=1e-3)


def test_the_features_kept_are_the_same_on_every_machine():
    phi = CompressivePCA(sketch_size=5, bounds=BOUNDS).plan(12)
    assert phi.kept.tolist() == [1, 3, 6, 8, 10]  # as far apart as can be
    ranges = np.ones(12)
    ranges[[2, 7]] = 64.0
    wide = CompressivePCA(sketch_size=5, bounds=(-ranges, ranges)).plan(12)
    assert wide.kept.tolist() == [1, 2, 6, 7, 10]  # and the widest ones


WIDE = np.random.default_rng(5).normal(size=(80, 4)) @ (
    np.random.default_rng(6).normal(size=(4, 6000)) * [[8.0], [4.0], [2.0], [1.0]]
)
WIDE += 0.1 * np.random.default_rng(7).normal(size=WIDE.shape)


@pytest.mark.parametrize("standardize", [False, True])
def test_components_of_many_features_need_no_square_matrix(standardize):
    pca = CompressivePCA(4, sketch_size=10 * 6000, standardize=standardize)
    tracemalloc.start()
    pca.fit(WIDE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000 * 6000 * 8 / 4
    rows = (WIDE - WIDE.mean(axis=0)) / (WIDE.std(axis=0) if standardize else 1)
    theirs = exact_pca(4).fit(rows)
    assert np.allclose(pca.components_ @ pca.components_.T, np.eye(4), atol=1e-9)
    kept, best = (
        np.square(rows @ axes.T).sum() for axes in (pca.components_, theirs.components_)
    )
    assert kept > 0.9999 * best
    ratio = pca.explained_variance_ratio_ / theirs.explained_variance_ratio_
    assert np.allclose(ratio, 1, atol=0.02)


@pytest.mark.parametrize("asked", [None, 0.9999999])
def test_of_many_features_the_directions_that_were_seen_are_given(asked):
    with pytest.warns(ConvergenceWarning, match="they are given"):
        pca = CompressivePCA(asked, sketch_size=10 * 6000).fit(WIDE)
    assert pca.components_.shape == (10, 6000)
    assert np.allclose(pca.components_ @ pca.components_.T, np.eye(10), atol=1e-9)
    assert CompressivePCA(0.9).fit_sketch(pca.sketch_).n_components_ <= 4


@pytest.mark.parametrize("size", [1e150, 1e160, 1e300, 1e-160, 1e-300])
@pytest.mark.parametrize("sketch_size", ["auto", 24])
def test_units_whose_squares_no_float_holds_are_refused(size, sketch_size):
    with pytest.raises(RowRangeError, match="units of the rows"):
        CompressivePCA(2, sketch_size=sketch_size).fit(X * size)


@pytest.mark.parametrize("size", [1e8, 1e100])
def test_one_large_column_is_the_first_component(size):
    mixed = X * np.array([size, *np.ones(11)])
    pca = CompressivePCA(2).fit(mixed)
    assert np.isfinite(pca.explained_variance_).all()
    assert abs(pca.components_[0, 0]) > 0.99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": "mle"}, "n_components"),
        (
            {"sketch_size": "Auto"},
            "sketch_size.* must be an int .*or a str among .'auto'",
        ),
        ({"n_components": True}, "n_components"),
        ({"n_components": 1.0}, "n_components"),
        ({"sketch_size": True}, "sketch_size"),
        ({"standardize": "yes"}, "standardize"),
        ({"decoder": "magic"}, "decoder"),
        ({"random_state": -1}, "random_state"),
        ({"bounds": 3}, "pair"),
        ({"bounds": (2, 1)}, "reversed"),
    ],
)
def test_parameters_are_checked_before_anything_else(arguments, message):
    pca = CompressivePCA(**arguments)
    for act in (
        pca._check_parameters,
        lambda: pca.plan(5),
        lambda: pca.fit_sketch("no sketch"),
    ):
        with pytest.raises(FeatureMapError, match=message):
            act()


def test_more_components_than_features_are_refused_when_planning():
    with pytest.raises(FeatureMapError, match="n_features=5"):
        CompressivePCA(6).plan(5)


def private_pca(n_rows, epsilon, seed, n_components=2, **arguments):
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, 20))
    rows = np.clip(factors + 0.5 * rng.normal(size=factors.shape), -6, 6)
    pca = CompressivePCA(n_components, bounds=(-6, 6), **arguments)
    norm_bound = 5.0 if not arguments else 3.0
    sketch = sketch_rows(rows, clipped(pca.plan(20), norm_bound=norm_bound))
    private = release_seeded(sketch, seed, epsilon=epsilon, delta=1e-6)
    return pca.fit_sketch(private), rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", ["auto", 60])
def test_components_of_noise_alone_are_refused(seed, size):
    with pytest.raises(TooNoisy, match="more rows"):
        private_pca(500, 0.5, seed, sketch_size=size)


@pytest.mark.parametrize("seed", range(5))
def test_components_well_above_the_noise_are_given_in_silence(seed):
    pca, rows = private_pca(20_000, 1.0, seed)
    theirs = exact_pca(2).fit(rows)
    assert np.linalg.svd(pca.components_ @ theirs.components_.T)[1].min() > 0.95


def test_components_below_the_noise_are_counted_in_a_warning():
    with pytest.warns(ConvergenceWarning, match="2 of 10 components stand out"):
        private_pca(20_000, 1.0, 0, n_components=10)


def test_a_sketch_of_a_thousand_features_merges_forgets_and_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 1000)).clip(-4, 4)
    pca = CompressivePCA(3, bounds=(-4, 4)).fit(rows[:40]).partial_fit(rows[40:])
    assert pca.sketch_.size == 1000 + 500_500
    save(pca.sketch_, tmp_path / "wide.sketch")
    again = CompressivePCA(3).fit_sketch(load(tmp_path / "wide.sketch"))
    assert np.array_equal(again.components_, pca.components_)
    theirs = exact_pca(3).fit(rows)
    assert np.allclose(pca.explained_variance_, theirs.explained_variance_, rtol=1e-5)
    first = CompressivePCA(3, bounds=(-4, 4)).fit(rows[:40])
    assert pca.forget(rows[40:]).sketch_ == first.sketch_


def test_features_without_room_and_a_basis_that_nobody_saw_are_told():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 120))
    wide += 0.1 * rng.normal(size=wide.shape)
    with pytest.warns(ConvergenceWarning, match=r"90 features, .* Use sketch_size >= "):
        CompressivePCA(1, sketch_size=30).fit(wide)
    with pytest.warns(ConvergenceWarning, match="saw 1 directions of 120 features"):
        CompressivePCA(sketch_size=120).fit(wide)
    CompressivePCA(sketch_size=120 * 10).fit(wide)
    CompressivePCA(5, sketch_size=120 * 10).fit(wide)
