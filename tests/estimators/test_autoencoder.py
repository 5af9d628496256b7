"""An autoencoder is its sketch: it adapts, forgets, merges and releases with it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from tests.decoders.autoencoders.test_linear import binary_rows

import sketchlearn as sl
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    FeatureMapMismatch,
    RemovalError,
    RowsError,
    TooNoisy,
)
from sketchlearn.metrics import balanced_accuracy
from sketchlearn.testing import release_seeded

ROWS = binary_rows(600, 20)
LABELS = (ROWS[:, 0] > 0.5).astype(int)


@pytest.fixture(params=["learned", "pca"])
def fitted(request):
    return sl.CompressiveAutoencoder(5, decoder=request.param).fit(ROWS)


def test_codes_and_rows_have_the_shapes_and_values_they_should(fitted):
    codes = fitted.transform(ROWS)
    assert codes.shape == (600, 5)
    back = fitted.inverse_transform(codes)
    assert back.min() >= 0
    assert back.max() <= 1
    rows = fitted.reconstruct(ROWS)
    assert np.array_equal(rows, back > 0.5)
    assert fitted.score(ROWS) == balanced_accuracy(ROWS, rows)
    assert fitted.score(ROWS) > 0.8
    assert np.allclose(fitted.mean_, ROWS.mean(axis=0))
    assert len(fitted.get_feature_names_out()) == 5


def test_a_code_as_wide_as_the_rows_loses_nothing():
    wide = sl.CompressiveAutoencoder().fit(ROWS)
    assert wide.n_components_ == 20
    assert wide.score(ROWS) == 1.0


def test_all_forms_of_rows_give_one_autoencoder(tmp_path):
    names = [f"c{i}" for i in range(20)]
    frame = pd.DataFrame(ROWS.astype(np.int8), columns=names)
    pa.parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    forms = [
        frame,
        csr_array(ROWS),
        ROWS > 0.5,
        (ROWS[i : i + 100] for i in range(0, 600, 100)),
        str(tmp_path / "rows.parquet"),
    ]
    expected = sl.CompressiveAutoencoder(4).fit(ROWS)
    for rows in forms:
        found = sl.CompressiveAutoencoder(4).fit(rows)
        assert found.sketch_ == expected.sketch_
        assert np.array_equal(found._coder.encode(ROWS), expected.transform(ROWS))


@pytest.mark.parametrize("sketch_size", ["auto", 60])
def test_rows_that_come_and_go_leave_the_autoencoder_as_it_was(sketch_size):
    coder = sl.CompressiveAutoencoder(4, sketch_size=sketch_size).fit(ROWS[:400])
    before, digest = coder.transform(ROWS), coder.sketch_.digest
    coder.partial_fit(ROWS[400:])
    assert coder.sketch_.digest != digest
    coder.forget(ROWS[400:])  # bounds are declared: no plan keeps a trace
    assert coder.sketch_.digest == digest
    assert np.array_equal(coder.transform(ROWS), before)


def test_a_sketch_of_other_rows_is_another_autoencoder():
    other = binary_rows(600, 20, seed=7)
    coder = sl.CompressiveAutoencoder(4).fit(ROWS)
    at_home, abroad = coder.score(ROWS), coder.score(other)
    coder.partial_fit(other).forget(ROWS)
    assert coder.sketch_ == sl.CompressiveAutoencoder(4).fit(other).sketch_
    assert at_home > abroad
    assert coder.score(other) > coder.score(ROWS)


def test_merging_is_fitting_all_rows():
    left = sl.CompressiveAutoencoder(4).fit(ROWS[:250])
    left.merge(sl.CompressiveAutoencoder(4).fit(ROWS[250:]))
    assert left.sketch_ == sl.CompressiveAutoencoder(4).fit(ROWS).sketch_


def test_parties_sketch_with_the_plan():
    coder = sl.CompressiveAutoencoder(4, sketch_size=60)
    phi = coder.plan(20)
    assert phi.origin == "declared"
    whole = sl.sketch_rows(ROWS[:300], phi) + sl.sketch_rows(ROWS[300:], phi)
    assert coder.fit_sketch(whole).score(ROWS) == coder.fit(ROWS).score(ROWS)


@pytest.mark.parametrize("decoder", ["learned", "pca"])
def test_a_release_of_many_rows_is_decoded_like_the_rows(decoder):
    rows = np.tile(ROWS, (200, 1))
    coder = sl.CompressiveAutoencoder(4, decoder=decoder)
    exact = sl.sketch_rows(rows, coder.plan(20))
    private = release_seeded(exact, 0, epsilon=2.0, delta=1e-8)
    without = coder.fit_sketch(exact).score(ROWS)
    assert coder.fit_sketch(private).score(ROWS) > without - 0.03


def test_classes_add_up_and_weigh_the_codes():
    coder = sl.CompressiveAutoencoder(4).fit(ROWS, LABELS)
    assert coder.classes_.tolist() == [0, 1]
    assert coder.sketch_ == sl.CompressiveAutoencoder(4).fit(ROWS).sketch_
    codes = coder.transform(ROWS)
    assert codes.shape == (600, 6)
    assert np.allclose(codes[:, 4:].sum(axis=1), 1, atol=1e-5)
    right = codes[:, 4:].argmax(axis=1) == LABELS
    assert right.mean() > 0.7
    assert (
        coder.score(ROWS) >= sl.CompressiveAutoencoder(4).fit(ROWS).score(ROWS) - 0.02
    )


def test_rows_of_classes_come_and_go_exactly():
    coder = sl.CompressiveAutoencoder(4).fit(ROWS[:400], LABELS[:400])
    digests = {label: one.digest for label, one in coder.sketches_.items()}
    coder.partial_fit(ROWS[400:], LABELS[400:]).forget(ROWS[400:], LABELS[400:])
    assert {label: one.digest for label, one in coder.sketches_.items()} == digests
    other = sl.CompressiveAutoencoder(4).fit(ROWS[400:], LABELS[400:])
    whole = sl.CompressiveAutoencoder(4).fit(ROWS, LABELS)
    assert coder.merge(other).sketches_ == whole.sketches_


def test_one_sketch_a_class_can_be_passed_as_a_mapping():
    coder = sl.CompressiveAutoencoder(4)
    phi = coder.plan(20)
    parts = {c: sl.sketch_rows(ROWS[c == LABELS], phi) for c in (0, 1)}
    expected = sl.CompressiveAutoencoder(4).fit(ROWS, LABELS).transform(ROWS)
    assert np.array_equal(coder.fit_sketch(parts).transform(ROWS), expected)


def test_classes_may_be_a_column(tmp_path):
    frame = pd.DataFrame(ROWS, columns=[f"c{i}" for i in range(20)])
    frame["label"] = LABELS
    found = sl.CompressiveAutoencoder(4).fit(frame, "label")
    assert found.sketch_ == sl.CompressiveAutoencoder(4).fit(ROWS).sketch_
    assert found.n_features_in_ == 20
    with pytest.raises(RowsError, match="binarize is for all columns"):
        sl.CompressiveAutoencoder(binarize=0.5).fit(frame, "label")


def test_classes_that_are_missing_or_too_many_are_refused_and_nothing_changes():
    plain = sl.CompressiveAutoencoder(4).fit(ROWS)
    classed = sl.CompressiveAutoencoder(4).fit(ROWS, LABELS)
    before = classed.sketch_
    for coder, y in ((plain, LABELS), (classed, None)):
        for verb in ("partial_fit", "forget"):
            with pytest.raises(RowsError, match="was fitted with"):
                getattr(coder, verb)(ROWS, y)
    with pytest.raises(RowsError, match="one of these has classes"):
        plain.merge(classed)
    with pytest.raises(RowsError, match="never had any"):
        classed.forget(ROWS, np.full(600, 7))
    with pytest.raises(RowsError, match="no rows left"):
        classed.forget(ROWS, LABELS)
    assert classed.sketch_ is before
    assert not hasattr(classed.fit(ROWS), "classes_")


@pytest.mark.parametrize("odd", [0.5, 0.999, 2.0, -1.0])
def test_rows_of_other_numbers_are_refused_in_all_ways(odd):
    rows = ROWS.copy()
    rows[17, 3] = odd
    coder = sl.CompressiveAutoencoder(4)
    with pytest.raises(RowsError):
        coder.fit(rows)
    assert not hasattr(coder, "sketch_")
    coder.fit(ROWS)
    before = coder.sketch_
    for verb in ("partial_fit", "transform", "score", "reconstruct", "score_samples"):
        with pytest.raises(RowsError):
            getattr(coder, verb)(rows)
    assert coder.sketch_ is before


def test_numbers_are_made_zeros_and_ones_where_that_is_asked_for(tmp_path):
    numbers = ROWS * 3.0 - 1
    coder = sl.CompressiveAutoencoder(4, binarize=0.0).fit(numbers)
    plain = sl.CompressiveAutoencoder(4).fit(ROWS)
    assert coder.sketch_ == plain.sketch_
    assert coder.score(numbers) == plain.score(ROWS)
    frame = pd.DataFrame(numbers, columns=[f"c{i}" for i in range(20)])
    pa.parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    for rows in (frame, str(tmp_path / "rows.parquet"), iter([numbers])):
        again = sl.CompressiveAutoencoder(4, binarize=0.0).fit(rows)
        assert again.sketch_ == plain.sketch_
    opened = sl.open_rows(numbers, above=0.0)
    assert (
        sl.CompressiveAutoencoder(4, binarize=0.0).fit(opened).sketch_ == plain.sketch_
    )
    assert sl.CompressiveAutoencoder(4).fit(opened).sketch_ == plain.sketch_
    with pytest.raises(RowsError, match="open already"):
        sl.CompressiveAutoencoder(4, binarize=0.5).fit(opened)


def test_rows_unlike_those_of_the_sketch_have_low_scores():
    coder = sl.CompressiveAutoencoder(4).fit(ROWS)
    odd = (np.random.default_rng(0).random((200, 20)) < 0.5).astype(float)
    usual, strange = coder.score_samples(ROWS), coder.score_samples(odd)
    assert usual.max() <= 0
    assert usual.mean() > strange.mean() + 0.05


def test_what_makes_no_sense_is_refused():
    coder = sl.CompressiveAutoencoder(4).fit(ROWS)
    with pytest.raises(RowsError, match="codes have 4 columns"):
        coder.inverse_transform(np.zeros((2, 5)))
    with pytest.raises(RemovalError):
        coder.forget(ROWS)
    with pytest.raises(RowsError, match="takes a sketch"):
        coder.fit_sketch(ROWS)
    with pytest.raises(FeatureMapError, match="holds no second moments"):
        coder.fit_sketch(sl.sketch_rows(ROWS, sl.FourierFeatures(20, 8)))
    for wrong in ({"n_components": 0}, {"decoder": "best"}, {"binarize": "yes"}):
        with pytest.raises(FeatureMapError):
            sl.CompressiveAutoencoder(**wrong).fit(ROWS)


def test_a_sketch_that_leaves_most_features_out_says_so():
    with pytest.warns(ConvergenceWarning, match="no room in this sketch"):
        sl.CompressiveAutoencoder(4, sketch_size=8).fit(ROWS)


def test_codes_feed_a_regression_or_a_classifier_in_a_pipeline():
    target = ROWS @ np.linspace(0, 1, 20)
    coder = sl.CompressiveAutoencoder(6, per_class=False)
    regression = make_pipeline(coder, Ridge()).fit(ROWS, target)
    assert regression.score(ROWS, target) > 0.5
    assert not hasattr(regression[0], "classes_")
    classes = make_pipeline(sl.CompressiveAutoencoder(6), LogisticRegression())
    assert classes.fit(ROWS, LABELS).score(ROWS, LABELS) > 0.8
    assert regression[0].partial_fit(ROWS, target).n_samples_seen_ == 1200


def test_the_papers_networks_adapt_forget_and_know_classes():
    coder = sl.CompressiveAutoencoder(decoder="network").fit(ROWS[:300])
    digest = coder.sketch_.digest
    assert coder.transform(ROWS).shape == (600, 50)
    assert coder.inverse_transform(coder.transform(ROWS)).shape == ROWS.shape
    coder.partial_fit(ROWS[300:]).forget(ROWS[300:])
    assert coder.sketch_.digest == digest
    classed = sl.CompressiveAutoencoder(decoder="network").fit(ROWS, LABELS)
    assert classed.transform(ROWS).shape == (600, 52)
    assert classed.score(ROWS) > 0.6


def test_the_papers_networks_have_their_own_sizes_and_take_zeros_and_ones():
    for wrong in ({"n_components": 4}, {"sketch_size": 100}):
        with pytest.raises(FeatureMapError, match="decoder='network' has"):
            sl.CompressiveAutoencoder(decoder="network", **wrong).fit(ROWS)
    with pytest.raises(RowsError, match="zeros and ones"):
        sl.CompressiveAutoencoder(decoder="network").fit(ROWS * 0.5)
    with pytest.raises(RowsError, match="takes 1 to 1000"):
        sl.CompressiveAutoencoder(decoder="network").fit(np.zeros((3, 1001)))


def test_a_sketch_of_the_papers_networks_comes_back_from_its_file(tmp_path):
    coder = sl.CompressiveAutoencoder(decoder="network").fit(ROWS)
    sl.save(coder.sketch_, tmp_path / "a.sketch")
    again = sl.CompressiveAutoencoder(decoder="network")
    loaded = sl.load(tmp_path / "a.sketch")
    assert np.array_equal(
        again.fit_sketch(loaded).transform(ROWS), coder.transform(ROWS)
    )


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_numbers_that_are_no_classes_are_refused_with_what_to_do():
    for y in (ROWS @ np.linspace(0, 1, 20), np.arange(600)):
        with pytest.raises(RowsError, match="per_class=False"):
            sl.CompressiveAutoencoder(4).fit(ROWS, y)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        sl.CompressiveAutoencoder(4).fit(ROWS, LABELS[:7])


def test_sketches_of_classes_know_their_columns():
    names = [f"c{i}" for i in range(20)]
    frame = pd.DataFrame(ROWS, columns=names)
    left = sl.CompressiveAutoencoder(4).fit(frame, LABELS)
    assert left.sketch_.columns == tuple(names)
    other = frame.rename(columns=lambda name: "z" + name)
    right = sl.CompressiveAutoencoder(4).fit(other, LABELS)
    with pytest.raises(FeatureMapMismatch):
        left.merge(right)
    whole = frame.assign(label=LABELS)
    left = sl.CompressiveAutoencoder(4).fit(whole, "label")
    right = sl.CompressiveAutoencoder(4).fit(whole[whole.columns[::-1]], "label")
    with pytest.raises(FeatureMapMismatch):
        left.merge(right)


def test_sketching_alone_gives_what_fit_decodes_and_checks_it_before():
    coder = sl.CompressiveAutoencoder(4)
    assert coder.sketch(ROWS) == coder.fit(ROWS).sketch_
    assert coder.sketch(ROWS, LABELS) == coder.fit(ROWS, LABELS).sketches_
    with pytest.raises(RowsError, match="other numbers than 0 and 1"):
        coder.sketch(ROWS * 0.5)


def test_releases_of_other_rows_and_clipped_sketches_are_refused():
    coder = sl.CompressiveAutoencoder(4)
    uniform = np.random.default_rng(0).random((5000, 20))
    exact = sl.sketch_rows(uniform, coder.plan(20))
    private = release_seeded(exact, 0, epsilon=4.0, delta=1e-8)
    with pytest.raises(RowsError, match="20 of 20 features hold other numbers"):
        coder.fit_sketch(private)
    rows = np.tile(ROWS, (100, 1))
    rows[:, 3] = 0.5  # a single one
    exact = sl.sketch_rows(rows, coder.plan(20))
    private = release_seeded(exact, 0, epsilon=4.0, delta=1e-8)
    with pytest.raises(RowsError, match="1 of 20 features .* feature 3"):
        coder.fit_sketch(private)
    clipped = sl.clipped(coder.plan(20), norm_bound=5.0)
    with pytest.raises(FeatureMapError, match="clipped rows"):
        coder.fit_sketch(sl.sketch_rows(ROWS, clipped))
    other = sl.CompressivePCA(3, bounds=(-5, 5)).plan(20)
    with pytest.raises(FeatureMapError, match="another range"):
        coder.fit_sketch(sl.sketch_rows(ROWS, other))


def test_released_classes_are_decoded_and_rare_ones_have_the_mean_of_all():
    rows, labels = np.tile(ROWS, (100, 1)), np.tile(LABELS, 100)
    labels[0] = 2
    coder = sl.CompressiveAutoencoder(4)
    phi = coder.plan(20)
    parts = {c: sl.sketch_rows(rows[labels == c], phi) for c in (0, 1, 2)}
    private = {
        c: release_seeded(one, c, epsilon=2.0, delta=1e-8) for c, one in parts.items()
    }
    with pytest.warns(ConvergenceWarning, match="class 2 has too few rows"):
        coder.fit_sketch(private)
    assert coder.score(ROWS) > 0.8


def test_too_much_noise_is_refused():
    coder = sl.CompressiveAutoencoder(4)
    rows = np.random.default_rng(0).integers(0, 2, (3000, 20))  # nothing in common
    exact = sl.sketch_rows(rows, coder.plan(20))
    private = release_seeded(exact, 0, epsilon=0.05, delta=1e-8)
    with pytest.raises(TooNoisy, match="fewer columns"):
        coder.fit_sketch(private)


def test_single_and_double_precision_are_made_the_same_zeros_and_ones():
    numbers = np.where(ROWS > 0, np.float32(0.1), np.float32(0))
    single = sl.CompressiveAutoencoder(4, binarize=0.1).fit(numbers)
    double = sl.CompressiveAutoencoder(4, binarize=0.1).fit(numbers.astype(float))
    assert single.sketch_ == double.sketch_
    assert single.score(numbers) == double.score(numbers.astype(float))


def test_scores_of_rows_weigh_ones_and_zeros_as_the_score_does():
    coder = sl.CompressiveAutoencoder(3).fit(ROWS)
    share = ROWS.mean()
    wrong = coder.reconstruct(ROWS) != ROWS
    expected = np.where(ROWS > 0.5, 0.5 / share, 0.5 / (1 - share)) * wrong
    assert np.allclose(coder.score_samples(ROWS), -expected.mean(axis=1))
    assert coder.score(ROWS) == pytest.approx(1 + coder.score_samples(ROWS).mean())


def test_pca_of_a_small_sketch_says_that_codes_are_not_resolved():
    with pytest.warns(ConvergenceWarning, match="saw 2 directions"):
        sl.CompressiveAutoencoder(10, decoder="pca", sketch_size=40).fit(ROWS)


def test_a_class_that_is_forgotten_is_gone():
    coder = sl.CompressiveAutoencoder(4).fit(ROWS[:400], LABELS[:400])
    digest = coder.sketch_.digest
    coder.partial_fit(ROWS[400:], np.full(200, 7))
    assert coder.classes_.tolist() == [0, 1, 7]
    coder.forget(ROWS[400:], np.full(200, 7))
    assert coder.classes_.tolist() == [0, 1]
    assert coder.sketch_.digest == digest


def test_weights_of_classes_are_named_after_them():
    coder = sl.CompressiveAutoencoder(2).fit(ROWS, np.array(["no", "yes"])[LABELS])
    assert coder.get_feature_names_out().tolist() == [
        "compressiveautoencoder0",
        "compressiveautoencoder1",
        "compressiveautoencoder_class_no",
        "compressiveautoencoder_class_yes",
    ]
    assert coder.set_output(transform="pandas").transform(ROWS).shape == (600, 4)


def test_a_single_class_has_no_weight_and_no_name():
    coder = sl.CompressiveAutoencoder(2).fit(ROWS, np.zeros(600, int))
    assert coder.transform(ROWS).shape == (600, 2)
    assert coder.get_feature_names_out()[-1] == "compressiveautoencoder1"
    assert coder.n_components_ == 2


def test_the_papers_networks_say_how_wide_their_codes_are():
    assert sl.CompressiveAutoencoder(decoder="network").fit(ROWS).n_components_ == 50
