"""Ridge from a sketch is scikit-learn's Ridge where the sketch holds enough."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from sketchlearn import CompressivePCA, CompressiveRidge, clipped, sketch_rows
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    RowRangeError,
    RowsError,
    TooNoisy,
)
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 8)) @ RNG.normal(size=(8, 8)) + 3
Y = X @ RNG.normal(size=(8, 2)) + 0.3 * RNG.normal(size=(2000, 2)) + [5, -2]
y = Y[:, 0]
BOUNDS = {"bounds": (-64, 64), "target_bounds": (-128, 128)}


@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("target", [y, Y], ids=["one", "two"])
def test_an_exact_sketch_gives_scikit_learns_ridge(alpha, intercept, target):
    ours = CompressiveRidge(alpha, fit_intercept=intercept).fit(X, target)
    theirs = Ridge(alpha, fit_intercept=intercept).fit(X, target)
    assert ours.coef_.shape == theirs.coef_.shape
    assert np.allclose(ours.coef_, theirs.coef_, atol=1e-7)
    assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    assert np.allclose(ours.predict(X), theirs.predict(X), atol=1e-6)


def test_a_small_sketch_predicts_almost_as_well():
    factors = RNG.normal(size=(3000, 4))
    wide = factors @ RNG.normal(size=(4, 50)) + 0.2 * RNG.normal(size=(3000, 50))
    target = factors @ [1.0, -2.0, 0.5, 1.0] + 0.1 * RNG.normal(size=3000)
    ours = CompressiveRidge(sketch_size=500).fit(wide, target)
    assert ours.sketch_.size <= 500 + 2 * 51
    assert ours.score(wide, target) > 0.97
    assert Ridge().fit(wide, target).score(wide, target) > 0.97


def test_targets_leave_no_feature_out_for_a_second_column():
    phi = CompressiveRidge(sketch_size=46, **BOUNDS).plan(12)
    assert phi.kept.tolist() == list(range(13))
    assert phi.targets == (12,)


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_the_named_decoder_completes_a_small_sketch():
    sketch = CompressiveRidge(sketch_size=2000).fit(*structured("weak", 0)).sketch_
    learned, plain, default = (
        CompressiveRidge(**chosen).fit_sketch(sketch).coef_
        for chosen in ({"decoder": "learned"}, {"decoder": "nystrom"}, {})
    )
    assert np.array_equal(default, learned)
    assert not np.allclose(learned, plain)


def test_the_decoder_does_not_matter_where_the_sketch_holds_all():
    learned, plain = (
        CompressiveRidge(decoder=name).fit(X, y) for name in ("learned", "nystrom")
    )
    assert np.array_equal(learned.coef_, plain.coef_)


@pytest.mark.parametrize("size", [30, 2000])
def test_an_unknown_decoder_is_refused_at_any_sketch_size(size):
    with pytest.raises(FeatureMapError, match=r"'learned', 'nystrom'.* Got 'magic'"):
        CompressiveRidge(sketch_size=size, decoder="magic").fit(X, y)


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_covariances_with_the_target_are_exact_in_a_small_sketch():
    ridge = CompressiveRidge(sketch_size=30).fit(X, y)
    strong = CompressiveRidge(1e9, sketch_size=30).fit_sketch(ridge.sketch_)
    exact = Ridge(1e9).fit(X, y)
    assert np.allclose(strong.coef_, exact.coef_, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("target", [y, Y], ids=["one", "two"])
def test_the_score_of_an_exact_sketch_is_that_on_its_rows(alpha, intercept, target):
    ridge = CompressiveRidge(alpha, fit_intercept=intercept).fit(X, target)
    assert ridge.score_estimate_ == pytest.approx(ridge.score(X, target), abs=1e-6)


def test_the_score_of_a_constant_target_is_that_of_its_mean():
    ridge = CompressiveRidge().fit(X, np.full(2000, 7.0))
    assert ridge.score_estimate_ == 1.0


STRUCTURES = ["factors", "alike", "opposite", "independent", "weak", "binary"]


def structured(kind, seed, n_rows=1500, d=120):
    """Rows whose correlations a few sums of groups do not show, and a target."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_rows, d))
    signs = rng.choice([-1.0, 1.0], size=d)
    if kind == "factors":
        rows = rng.normal(size=(n_rows, 12)) @ rng.normal(size=(12, d)) + noise
        return rows, rows @ rng.normal(size=d)
    if kind == "alike":
        rows = rng.normal(size=(n_rows, 1)) + 0.05 * noise
        return rows, rows[:, :60].sum(axis=1) - rows[:, 60:].sum(axis=1)
    if kind == "opposite":  # sums of groups cancel what features have in common
        common = rng.normal(size=n_rows)
        rows = common[:, None] * signs + 0.2 * noise
        return rows, 0.2 * common + rng.normal(size=n_rows)
    if kind == "independent":
        return noise, noise @ rng.normal(size=d)
    if kind == "weak":
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        rows = (noise * np.geomspace(10, 0.1, d)) @ basis.T
        return rows, rows @ basis[:, 60:] @ rng.normal(size=60)
    parents = rng.random((n_rows, 6)) < 0.4
    rows = parents[:, rng.integers(6, size=d)] ^ (rng.random((n_rows, d)) < 0.2)
    return rows.astype(float), parents @ np.arange(6.0) + rng.normal(size=n_rows)


def best_group(ridge, rows, target):
    """R² of the sums of groups of features that the sketch holds: the best of them."""
    phi = ridge.sketch_.feature_map
    kept = phi.kept[phi.kept < rows.shape[1]]
    weights = phi.omega[: len(kept), : phi.n_columns]
    sums = (rows * phi.scaling.factor[: rows.shape[1]])[:, kept] @ weights
    return max(np.corrcoef(one, target)[0, 1] ** 2 for one in sums.T)


@pytest.mark.filterwarnings("ignore:the sketch saw")
@pytest.mark.parametrize("decoder", ["learned", "nystrom"])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_compressed_sketch_predicts_no_worse_than_its_best_group(kind, decoder):
    for seed, size in enumerate((250, 400, 700, 1000, 2000, 4000)):
        rows, target = structured(kind, seed)
        ridge = CompressiveRidge(
            1e-6, sketch_size=size, decoder=decoder, random_state=seed
        ).fit(rows, target)
        score = ridge.score(rows, target)
        assert score > best_group(ridge, rows, target) - 1e-6
        assert ridge.score_estimate_ < score + 0.1
        features = ridge.sketch_.feature_map.kept[:-1]
        one = max(np.corrcoef(x, target)[0, 1] ** 2 for x in rows[:, features].T)
        assert score > one - 1e-6


@pytest.mark.filterwarnings("ignore:the sketch saw")
@pytest.mark.parametrize("decoder", ["learned", "nystrom"])
def test_few_columns_promise_no_more_than_they_know(decoder):
    promised = []
    for seed in range(30):
        rng = np.random.default_rng(1000 + seed)
        d, n_factors = int(rng.integers(20, 60)), int(rng.integers(1, 6))
        factors = rng.normal(size=(1500, n_factors)) @ rng.normal(size=(n_factors, d))
        rows = factors + rng.uniform(0, 1) * rng.normal(size=(1500, d))
        target = (rows / rows.std(axis=0))[:, :5] @ rng.normal(size=5)
        target += rng.normal(size=1500)
        phi = CrossMomentFeatures(d + 1, 1 + seed % 4, targets=[d], reach=64.0)
        ridge = CompressiveRidge(1e-6, decoder=decoder)
        ridge.fit_sketch(sketch_rows(np.column_stack([rows, target]), phi))
        score = ridge.score(rows, target)
        one = max(np.corrcoef(x, target)[0, 1] ** 2 for x in rows.T)
        assert score > one - 1e-6
        promised.append(ridge.score_estimate_ - score)
    assert np.mean(promised) < 1e-6
    assert max(promised) < 1e-3


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_a_larger_sketch_predicts_better_on_average():
    sizes, scores = (300, 1500, 6000), []
    for kind in STRUCTURES:
        for seed in range(3):
            rows, target = structured(kind, seed)
            ridges = (CompressiveRidge(sketch_size=n, random_state=seed) for n in sizes)
            scores.append([one.fit(rows, target).score(rows, target) for one in ridges])
    assert (np.diff(np.mean(scores, axis=0)) > 0).all()


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_two_targets_of_a_compressed_sketch_are_scored_by_their_mean():
    rows, target = structured("factors", 0)
    both = np.column_stack([target, rows[:, :3].sum(axis=1)])
    with pytest.warns(ConvergenceWarning, match=r"score_estimate_ is 0\."):
        ridge = CompressiveRidge(sketch_size=2000).fit(rows, both)
    assert 0 < ridge.score_estimate_ < ridge.score(rows, both) + 0.05
    one = CompressiveRidge().fit_sketch(ridge.sketch_, targets=[120])
    beside = np.column_stack([rows, both[:, 1]])
    assert one.score_estimate_ < one.score(beside, target) + 0.05


def test_adding_then_forgetting_leaves_no_trace():
    ridge = CompressiveRidge(**BOUNDS).fit(X, y)
    before = ridge.sketch_
    ridge.partial_fit(X[:5], y[:5]).forget(X[:5], y[:5])
    assert ridge.sketch_ == before
    part = CompressiveRidge(**BOUNDS).fit(X[:500], y[:500])
    rest = CompressiveRidge(**BOUNDS).fit(X[500:], y[500:])
    assert part.merge(rest).sketch_ == before


def test_named_targets_come_from_files_and_frames(tmp_path):
    frame = pd.DataFrame(np.column_stack([X, Y]), columns=[*"abcdefgh", "u", "v"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    path = tmp_path / "rows.csv"
    theirs = Ridge().fit(X, Y)
    both = CompressiveRidge().fit(path, y=["u", "v"])
    assert np.allclose(both.coef_, theirs.coef_, atol=1e-6)
    assert both.feature_names_in_.tolist() == list("abcdefgh")
    one = CompressiveRidge().fit(path, y="u")
    assert one.n_features_in_ == 9  # the other target is a feature then
    assert CompressiveRidge().fit(frame, y=["u", "v"]).sketch_ == both.sketch_
    with pytest.raises(RowsError, match=r"no column 'w'"):
        CompressiveRidge().fit(path, y="w")
    with pytest.raises(RowsError, match="name of the target column"):
        CompressiveRidge().fit(path, y=y)


def test_one_sketch_serves_pca_and_ridge():
    ridge = CompressiveRidge(**BOUNDS).fit(X, y)
    pca = CompressivePCA(3).fit_sketch(ridge.sketch_, features=range(8))
    assert np.allclose(
        pca.explained_variance_, CompressivePCA(3).fit(X).explained_variance_
    )


def test_any_feature_of_a_sketch_can_be_the_target():
    sketch = CompressivePCA().fit(X).sketch_
    ridge = CompressiveRidge(0.5).fit_sketch(sketch, targets=[2])
    others = [0, 1, 3, 4, 5, 6, 7]
    assert np.allclose(ridge.coef_, Ridge(0.5).fit(X[:, others], X[:, 2]).coef_)


def test_parties_with_one_plan_merge():
    plan = CompressiveRidge(**BOUNDS).plan(8, n_targets=2)
    rows = np.column_stack([X, Y])
    merged = sketch_rows(rows[:7], plan) + sketch_rows(rows[7:], plan)
    assert merged == CompressiveRidge(**BOUNDS).fit(X, Y).sketch_


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_a_compressed_sketch_never_predicts_worse_than_the_mean():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        factors = rng.normal(size=(1500, 5))
        noise = [0.0, 0.1, 1.0, 10.0][seed]
        wide = factors @ rng.normal(size=(5, 150)) + noise * rng.normal(
            size=(1500, 150)
        )
        target = wide[:, :3].sum(axis=1)
        for size in (302, 800, 2000):
            ridge = CompressiveRidge(sketch_size=size).fit(wide, target)
            assert 0 <= ridge.score(wide, target) <= 1


def test_features_of_very_different_sizes_keep_their_coefficients():
    rows = RNG.normal(size=(5000, 2)) * [1e8, 1.0]
    ridge = CompressiveRidge().fit(rows, rows @ [1e-8, 1.0])
    assert np.allclose(ridge.coef_, [1e-8, 1.0], rtol=1e-3)


def test_several_targets_survive_sparse_rows_plans_and_files():
    thin = sparse.csr_array(X * (np.abs(X) > 3))
    assert CompressiveRidge().fit(thin, Y).coef_.shape == (2, 8)
    plan = CompressiveRidge(**BOUNDS).plan(8, n_targets=2)
    sketch = sketch_rows(np.column_stack([X, Y]), plan)
    fitted = CompressiveRidge().fit_sketch(sketch)
    assert np.allclose(fitted.coef_, Ridge().fit(X, Y).coef_, atol=1e-6)


def test_columns_are_matched_by_name_and_targets_are_remembered(tmp_path):
    frame = pd.DataFrame(np.column_stack([X, y]), columns=[*"abcdefgh", "y"])
    frame.to_parquet(tmp_path / "one.parquet")
    frame[[*"yhgfedcba"]].to_parquet(tmp_path / "other.parquet")
    twice = CompressiveRidge(**BOUNDS).fit(tmp_path / "one.parquet", y="y")
    twice.partial_fit(tmp_path / "other.parquet", y="y")
    assert twice.sketch_ == CompressiveRidge(**BOUNDS).fit([*X, *X], [*y, *y]).sketch_
    with pytest.raises(RowsError, match="the target is"):
        twice.partial_fit(tmp_path / "one.parquet", y="a")


def test_a_sketch_without_planned_targets_asks_for_them():
    sketch = CompressivePCA().fit(X).sketch_
    with pytest.raises(FeatureMapError, match="targets="):
        CompressiveRidge().fit_sketch(sketch)
    for bad in ([9], [1, 1], [0.5]):
        with pytest.raises(FeatureMapError, match="targets"):
            CompressiveRidge().fit_sketch(sketch, targets=bad)
    chosen = CompressiveRidge().fit_sketch(sketch, targets=[2])
    with pytest.raises(FeatureMapError, match="cannot add rows"):
        chosen.partial_fit(X[:, 1:], X[:, 0])


def test_sparse_rows_are_rows():
    thin = X * (np.abs(X) > 3)
    ours = CompressiveRidge().fit(sparse.csr_array(thin), y)
    assert np.allclose(ours.coef_, CompressiveRidge().fit(thin, y).coef_)
    assert np.allclose(ours.predict(sparse.csr_array(thin)), ours.predict(thin))


def test_bad_arguments_say_what_is_wrong():
    with pytest.raises(FeatureMapError, match="both bounds and target_bounds"):
        CompressiveRidge(bounds=(0, 1)).fit(X, y)
    with pytest.raises(FeatureMapError, match="alpha"):
        CompressiveRidge(-1.0).fit(X, y)
    with pytest.raises(RowsError, match="requires y"):
        CompressiveRidge().fit(X)
    with pytest.raises(FeatureMapError, match="too small for 2 targets"):
        CompressiveRidge(sketch_size=8).fit(X, Y)


@pytest.mark.parametrize(("d", "n_targets"), [(1, 1), (63, 1), (1000, 1), (1000, 23)])
def test_by_default_a_thousand_features_are_exact_with_their_targets(d, n_targets):
    phi = CompressiveRidge(**BOUNDS).plan(d, n_targets=n_targets)
    assert isinstance(phi, MomentFeatures)


def test_by_default_more_features_are_compressed_with_a_warning():
    with pytest.warns(ConvergenceWarning, match="sketch_size=12507501 is exact"):
        phi = CompressiveRidge(**BOUNDS).plan(5000)
    assert phi.n_columns == 104
    assert len(phi.kept) == 5001


def hard_to_compress(n_rows=1500, d=100):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, d)) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = rows * np.linspace(0.1, 3, d) @ rng.normal(size=(d, d))
    return rows, rows @ rng.normal(size=d)


def test_too_few_directions_are_a_warning_that_says_how_many_are_enough():
    rows, target = hard_to_compress()
    with pytest.warns(ConvergenceWarning, match="sketch_size >= ") as caught:
        weak = CompressiveRidge(sketch_size=500).fit(rows, target)
    enough = int(str(caught[0].message).rpartition(">= ")[2].rstrip("."))
    strong = CompressiveRidge(sketch_size=enough).fit(rows, target)  # no warning
    assert weak.score(rows, target) < 0.9
    assert strong.score(rows, target) > 0.99


@pytest.mark.filterwarnings("ignore:the sketch saw")
def test_predictions_from_many_features_need_no_square_matrix():
    d = 6000
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(300, 4))
    wide = factors @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(300, d))
    targets = factors @ rng.normal(size=(4, 2)) + [3, -5]
    ridge = CompressiveRidge(sketch_size=10 * d)
    tracemalloc.start()
    ridge.fit(wide, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < d * d * 8 / 2
    assert ridge.score(wide, targets) > 0.99
    plain = CompressiveRidge(fit_intercept=False).fit_sketch(ridge.sketch_)
    missed = targets - plain.predict(wide)
    assert (np.mean(missed**2, axis=0) < np.mean(targets**2, axis=0) * 0.7).all()
    other = CompressiveRidge().fit_sketch(ridge.sketch_, targets=[7])
    rest = np.column_stack([np.delete(wide, 7, axis=1), targets])
    assert other.score(rest, wide[:, 7]) > 0.9


@pytest.mark.parametrize("size", [1e150, 1e160, 1e300])
def test_units_whose_squares_no_float_holds_are_refused(size):
    with pytest.raises(RowRangeError, match="units of the rows"):
        CompressiveRidge().fit(X * size, y)
    with pytest.raises(RowRangeError, match="units of the rows"):
        CompressiveRidge().fit(X, y * size)


@pytest.mark.parametrize("size", [1e-100, 1e8, 1e100])
def test_the_unit_of_the_rows_does_not_matter(size):
    ours = CompressiveRidge(0.0).fit(X * size, y * size)
    assert np.allclose(ours.coef_, Ridge(0.0).fit(X, y).coef_, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": "much"}, "alpha"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"sketch_size": 0}, "sketch_size"),
        ({"decoder": "magic"}, "decoder"),
        ({"random_state": 1.5}, "random_state"),
        ({"bounds": (0, 1)}, "both bounds"),
        ({"bounds": (0, 1), "target_bounds": 7}, "pair"),
    ],
)
def test_parameters_are_checked_before_anything_else(arguments, message):
    ridge = CompressiveRidge(**arguments)
    for act in (
        ridge._check_parameters,
        lambda: ridge.plan(5),
        lambda: ridge.fit_sketch("no sketch"),
    ):
        with pytest.raises(FeatureMapError, match=message):
            act()


def private_ridge(n_rows, epsilon, seed, **arguments):
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 3))
    rows = factors @ rng.normal(size=(3, 10)) + 0.5 * rng.normal(size=(n_rows, 10))
    target = factors @ [1.0, 2.0, -1.0] + 0.5 * rng.normal(size=n_rows)
    rows, target = rows.clip(-8, 8), target.clip(-8, 8)
    ridge = CompressiveRidge(bounds=(-8, 8), target_bounds=(-8, 8), **arguments)
    phi = clipped(ridge.plan(10), norm_bound=2.0)
    sketch = sketch_rows(np.column_stack([rows, target]), phi)
    private = release_seeded(sketch, seed, epsilon=epsilon, delta=1e-6)
    score = ridge.fit_sketch(private).score(rows, target)
    assert abs(ridge.score_estimate_ - score) < 0.3
    return score


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", ["auto", 40])
def test_coefficients_of_noise_alone_are_refused(seed, size):
    with pytest.raises(TooNoisy, match="more rows"):
        private_ridge(500, 0.5, seed, sketch_size=size)


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_well_above_the_noise_are_given_in_silence(seed):
    assert private_ridge(20_000, 1.0, seed) > 0.8


def test_coefficients_with_noise_in_them_are_a_warning():
    with pytest.warns(ConvergenceWarning, match="noise is part"):
        assert private_ridge(1500, 1.0, 0) > 0.5


@pytest.mark.parametrize("seed", range(6))
def test_a_target_lost_in_noise_is_refused_whatever_its_noisy_variance(seed):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, size=(5000, 100))
    target = 100 + 0.01 * rng.normal(size=5000)
    ridge = CompressiveRidge(bounds=(0, 1), target_bounds=(0, 256), sketch_size=500)
    phi = clipped(ridge.plan(100), norm_bound=6.0)
    sketch = sketch_rows(np.column_stack([rows, target]), phi)
    with pytest.raises(TooNoisy):
        ridge.fit_sketch(release_seeded(sketch, seed, epsilon=1.0, delta=1e-6))


def test_many_directions_may_be_the_wrong_ones_and_that_is_told():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(200, 200)))[0]
    rows = (rng.normal(size=(2000, 200)) * np.geomspace(10, 0.1, 200)) @ basis.T
    target = rows @ basis[:, 100:] @ rng.normal(size=100)
    exact = 201 * 202 // 2
    with pytest.warns(ConvergenceWarning, match=f"Use sketch_size >= {exact}"):
        CompressiveRidge(sketch_size=65 * 201).fit(rows, target)
    assert (
        CompressiveRidge(sketch_size=exact).fit(rows, target).score(rows, target) > 0.9
    )


@pytest.mark.parametrize("size", [4, 8, 40])
def test_features_without_room_are_warned_of_with_a_size_that_holds_all(size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 40)) @ rng.normal(size=(40, 40))
    target = rows @ rng.normal(size=40)
    with pytest.warns(ConvergenceWarning, match="of 40 features.* >= 861"):
        CompressiveRidge(sketch_size=size).fit(rows, target)
    CompressiveRidge(sketch_size=861).fit(rows, target)  # no warning
