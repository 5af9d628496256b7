"""Item frequencies and membership: the laws of every estimator, and honest answers."""

import warnings
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sketchlearn as sl
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    FeatureMapMismatch,
    PoolingError,
    RemovalError,
    RowsError,
)

WORDS = ("the cat and the dog and the bird saw the man of the house and " * 5).split()
MANY = [f"w{int(x)}" for x in np.random.default_rng(0).zipf(1.4, 4000) if x < 3000]


def test_frequencies_of_a_vocabulary_that_fits_are_exact():
    fitted = sl.FrequencyEstimator(vocabulary="fit", sketch_size=200).fit(WORDS)
    declared = sl.FrequencyEstimator(sorted(set(WORDS)), sketch_size=200).fit(WORDS)
    truth = Counter(WORDS)
    for one in (fitted, declared):
        found = one.query(list(truth))
        assert np.round(found.counts).tolist() == list(truth.values())
        assert (found.low <= found.counts + 1e-9).all()
        assert (found.counts <= found.high + 1e-9).all()
    assert declared.sketch_.size == len(truth)
    assert declared.counts_.sum() == len(WORDS)
    assert declared.frequencies_.sum() == pytest.approx(1)


def test_a_joint_decoding_is_closer_than_the_classical_ones():
    truth = Counter(MANY)
    items = list(truth)
    counts = np.array([truth[item] for item in items])
    errors = {}
    for decoder in ("joint", "count-min", "count-sketch", "count-sketch-mean"):
        one = sl.FrequencyEstimator(items, sketch_size=150, decoder=decoder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            errors[decoder] = np.square(one.fit(MANY).counts_ - counts).mean()
    assert errors["joint"] < 0.5 * min(
        error for name, error in errors.items() if name != "joint"
    )


@pytest.mark.parametrize("decoder", ["count-min", "count-sketch", "joint"])
def test_error_bars_of_an_open_vocabulary_hold_what_they_say(decoder):
    truth = Counter(MANY)
    items, inside = list(truth), []
    for seed in range(8):
        one = sl.FrequencyEstimator(
            sketch_size=300, decoder=decoder, random_state=seed
        ).fit(MANY)
        found = one.query(items, confidence=0.8)
        counts = np.array([truth[item] for item in items])
        inside.append(np.mean((found.low <= counts) & (counts <= found.high)))
        proved = one.query(items, confidence=0.8, guaranteed=True)
        kept = (proved.low <= counts) & (counts <= proved.high)
        assert kept.mean() > 0.75
    assert np.mean(inside) > 0.75


def test_the_same_rows_in_every_form_give_the_same_sketch(tmp_path):
    ids = np.random.default_rng(1).integers(0, 40, 300)
    table = pa.table({"id": ids, "other": ids * 0.5})
    pq.write_table(table, tmp_path / "ids.parquet")
    one_hot = np.zeros((300, 40))
    one_hot[np.arange(300), ids] = 1
    estimator = sl.FrequencyEstimator(40, sketch_size=20)
    expected = estimator.sketch(ids).digest
    forms = [
        ids.tolist(),
        pa.array(ids),
        [{int(i)} for i in ids],
        one_hot,
        sp.csr_array(one_hot),
        (part for part in np.array_split(ids, 7)),
    ]
    assert [estimator.sketch(form).digest for form in forms] == [expected] * len(forms)
    named = sl.FrequencyEstimator(40, sketch_size=20, column="id")
    assert named.sketch(tmp_path / "ids.parquet").digest == expected
    assert named.sketch(table).digest == expected
    assert sl.sketch_items(ids, estimator.plan(), vocabulary=40).digest == expected


@settings(max_examples=20)
@given(
    ids=st.lists(st.integers(0, 30), min_size=3, max_size=40),
    cut=st.integers(1, 2),
)
def test_adding_merging_and_forgetting_are_exact(ids, cut):
    make = sl.FrequencyEstimator(31, sketch_size=10)
    whole = clone(make).fit(ids)
    added = clone(make).fit(ids[:cut]).partial_fit(ids[cut:])
    merged = clone(make).fit(ids[:cut]).merge(clone(make).fit(ids[cut:]))
    kept = clone(make).fit(ids).forget(ids[cut:])
    assert added.sketch_.digest == merged.sketch_.digest == whole.sketch_.digest
    assert kept.sketch_.digest == clone(make).fit(ids[:cut]).sketch_.digest


def test_a_fitted_vocabulary_grows_with_the_rows():
    one = sl.FrequencyEstimator("fit", sketch_size=50).fit(["a", "b", "a"])
    one.partial_fit(["c", "a"])
    assert list(one.vocabulary_.items) == ["a", "b", "c"]
    assert np.round(one.counts_).tolist() == [3, 1, 1]


def test_a_sketch_of_an_open_vocabulary_is_decoded_with_a_list_later():
    opened = sl.FrequencyEstimator(sketch_size=80).fit(WORDS)
    again = sl.loads(sl.dumps(opened.sketch_))
    listed = sl.FrequencyEstimator(sorted(set(WORDS))).fit_sketch(again)
    truth = Counter(WORDS)
    assert listed.top(1).items == ["the"]
    assert [round(c) for c in listed.top(1).counts] == [truth["the"]]


def test_counts_of_a_release_carry_its_noise(tmp_path):
    law = 1 / np.arange(1, 21)
    ids = np.random.default_rng(0).choice(20, 30_000, p=law / law.sum())
    for size in (10, 40):  # hashed, and counters
        make = sl.FrequencyEstimator(20, sketch_size=size, row_items=1)
        fitted = make.fit(ids)
        ledger = sl.Ledger(tmp_path / f"{size}.ledger", epsilon=10, delta=1e-5)
        private = sl.release(fitted.sketch_, epsilon=1.0, delta=1e-6, ledger=ledger)
        truth = np.bincount(ids, minlength=20)
        found = clone(make).fit_sketch(private).query(range(20), confidence=0.999)
        inside = (found.low <= truth) & (truth <= found.high)
        assert inside.mean() >= 0.9
        assert (found.high > found.low).all()


def test_membership_is_certain_where_the_vocabulary_fits():
    rows = [[0, 3], [3, 7], []]
    for decoder in ("joint", "bloom", "counting-bloom"):
        one = sl.MembershipEstimator(10, sketch_size=4000, decoder=decoder).fit(rows)
        assert one.contains(range(10)).tolist() == [j in (0, 3, 7) for j in range(10)]
        assert one.membership_.shape == (10,)
        assert ((one.membership_ >= 0) & (one.membership_ <= 1)).all()


def test_a_bloom_filter_merges_by_or_and_never_misses():
    make = sl.MembershipEstimator(sketch_size=2000, decoder="bloom")
    left, right = clone(make).fit(WORDS[:20]), clone(make).fit(WORDS[20:])
    whole = clone(make).fit(WORDS)
    assert left.merge(right).sketch_.digest == whole.sketch_.digest
    assert whole.contains(sorted(set(WORDS))).all()
    assert whole.sketch_.packed_bytes == 250
    with pytest.raises(PoolingError, match="cannot"):
        whole.forget(WORDS[:1])
    counting = sl.MembershipEstimator(sketch_size=2000, decoder="counting-bloom")
    counting.fit(WORDS).forget(["bird"] * Counter(WORDS)["bird"])
    assert counting.contains(["the", "bird"]).tolist() == [True, False]


def test_the_decoder_runs_once_and_when_it_is_asked(monkeypatch):
    calls = []
    read = type(sl.FrequencyEstimator(3).fit([0, 1])._reading).decode
    monkeypatch.setattr(
        "sketchlearn.decoders.counts.reading.CountReading.decode",
        lambda *given, **known: calls.append(1) or read(*given, **known),
    )
    one = sl.FrequencyEstimator(300, sketch_size=50)
    for part in pairwise(range(0, 200, 10)):
        one.partial_fit(list(range(*part)))
    assert not calls
    one.top(3)
    one.query([1, 2])
    assert len(one.counts_) == 300
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda f: f.query([40]), RowsError, "not in the declared vocabulary"),
        (lambda f: f.query(["a"]), RowsError, "not in the declared vocabulary"),
        (lambda f: f.query(3), RowsError, r"query\(\[item\]\)"),
        (lambda f: f.query([1], confidence=1.5), FeatureMapError, "confidence"),
        (lambda f: f.top(0), FeatureMapError, "n must be a whole number"),
        (lambda f: f.partial_fit([3, 40]), RowsError, "not in the declared vocabulary"),
        (lambda f: f.partial_fit([3, None]), RowsError, "position 1|row 1|missing"),
        (lambda f: f.partial_fit([0.5]), RowsError, "integers, text"),
        (lambda f: f.partial_fit(np.array([[-1, 0]])), RowsError, "negative|columns"),
        (lambda f: f.forget([2] * 10), RemovalError, "."),
        (lambda f: f.forget([9, 9, 9, 9]), RemovalError, "."),
        (lambda f: f.set_params(decoder="best").fit([1]), FeatureMapError, "decoder"),
        (
            lambda f: f.set_params(vocabulary=7).fit_sketch(f.sketch_),
            FeatureMapMismatch,
            "vocabulary of 20 items",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_lost(attempt, error, message):
    fitted = sl.FrequencyEstimator(20, sketch_size=10).fit([1, 2, 3, 2])
    before = fitted.sketch_
    with pytest.raises(error, match=message):
        attempt(fitted)
    assert fitted.sketch_ is before


def test_negative_and_fractional_counts_are_refused():
    make = sl.FrequencyEstimator(2, sketch_size=10)
    with pytest.raises(RowsError, match="negative"):
        make.fit(np.array([[1, 0], [-1, 0]]))
    with pytest.raises(RowsError, match="whole"):
        make.fit(sp.csr_array([[0.5, 1.0]]))


def test_an_open_vocabulary_cannot_be_listed():
    one = sl.FrequencyEstimator(sketch_size=30).fit(WORDS)
    for attempt in (lambda: one.counts_, lambda: one.top(3)):
        with pytest.raises(RowsError, match="open"):
            attempt()
    assert not hasattr(one, "counts_")
    assert {"query", "sketch_"} <= set(dir(one)) - {"counts_", "frequencies_"}
    assert "FrequencyEstimator" in one._repr_html_()
    member = sl.MembershipEstimator(sketch_size=30).fit_sketch(one.sketch_)
    with pytest.raises(RowsError, match="bloom"):
        member.query(["the"])


def test_an_estimator_that_is_not_fitted_says_so():
    for one in (sl.FrequencyEstimator(), sl.MembershipEstimator()):
        with pytest.raises(NotFittedError):
            one.query(["a"])


def test_a_sketch_that_says_too_little_warns():
    ids = np.random.default_rng(0).integers(0, 5000, 20_000)
    one = sl.FrequencyEstimator(5000, sketch_size=10).fit(ids)
    with pytest.warns(ConvergenceWarning, match="larger sketch_size"):
        _ = one.counts_


def test_a_sketch_of_numbers_is_refused():
    numbers = sl.sketch_rows(np.eye(3), sl.MomentFeatures(3))
    with pytest.raises(FeatureMapError, match="not of items"):
        sl.FrequencyEstimator(3).fit_sketch(numbers)


def test_merging_takes_over_the_items_that_the_other_one_found():
    left = sl.FrequencyEstimator("fit", sketch_size=100).fit(["a", "b", "b"])
    right = sl.FrequencyEstimator("fit", sketch_size=100).fit(["c", "b"])
    left.merge(right)
    assert dict(zip(left.vocabulary_.items, left.counts_.round(), strict=True)) == {
        "a": 1,
        "b": 3,
        "c": 1,
    }


def test_items_that_were_collected_are_there_until_some_are_forgotten():
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.3, 3000) % 500
    make = sl.FrequencyEstimator("fit", sketch_size=50)
    fitted = make.fit(ids[:2000]).partial_fit(ids[2000:])
    found = fitted.query(np.unique(ids))
    assert found.low.min() >= 1
    assert sl.MembershipEstimator("fit", sketch_size=50).fit(ids).membership_.min() == 1

    fitted.forget(ids[:1000])  # nobody knows of which items all are gone
    assert fitted.query(np.unique(ids)).low.min() == 0

    other = sl.FrequencyEstimator(list(np.unique(ids)), sketch_size=50)
    other.fit_sketch(clone(make).fit(ids).sketch_)  # nobody said they are there
    assert other.query(np.unique(ids)).low.min() == 0


@pytest.mark.parametrize("decoder", ["joint", "count-min", "count-sketch"])
def test_an_item_that_was_never_collected_cannot_be_forgotten(decoder):
    fitted = sl.FrequencyEstimator("fit", decoder=decoder).fit(["a", "b", "b"])
    before = fitted.sketch_.digest
    with pytest.raises(RemovalError, match="1 of the items of .* never added"):
        fitted.forget(["c"])
    assert fitted.sketch_.digest == before
    assert fitted.vocabulary_.items == ["a", "b"]


@pytest.mark.parametrize("decoder", ["joint", "count-min"])
@pytest.mark.parametrize("vocabulary", [5, 5000, None])
def test_forgetting_more_than_there_was_is_refused(vocabulary, decoder):
    fitted = sl.FrequencyEstimator(vocabulary, decoder=decoder).fit([1, 2, 2])
    before = fitted.sketch_.digest
    with pytest.raises(RemovalError, match="fewer than no times"):
        fitted.forget([3])
    assert fitted.sketch_.digest == before


def test_a_vocabulary_shows_its_first_items():
    fruit = sl.Vocabulary(["fig", "plum", "kiwi", "pear"])
    assert repr(fruit) == "Vocabulary of 4 items: 'fig', 'plum', 'kiwi', ..."


@pytest.mark.parametrize("rows", [["a"], ["a", "b"], [["a", "b"], ["b"]]])
def test_what_is_known_exactly_needs_no_warning(rows):
    fitted = sl.FrequencyEstimator("fit", sketch_size=100).fit(rows)
    assert fitted.counts_.sum() == pytest.approx(sum(map(len, rows)))


def test_counters_and_tables_of_priors_are_decoded_from_files(tmp_path):
    words = ["a", "b", "c"]
    fitted = sl.FrequencyEstimator(words).fit(["a", "b", "a"])
    sl.save(fitted.sketch_, tmp_path / "w.sketch")
    loaded = sl.load(tmp_path / "w.sketch")
    assert sl.FrequencyEstimator(words).fit_sketch(loaded).counts_.tolist() == [2, 1, 0]

    rows = np.random.default_rng(0).integers(0, 2, (200, 30))
    make = sl.FrequencyEstimator(
        30, sketch_size=10, prior=sl.ItemPrior.from_rows(rows[:100])
    )
    fitted = clone(make).fit(rows[100:])
    sl.save(fitted.sketch_, tmp_path / "p.sketch")
    again = clone(make).fit_sketch(sl.load(tmp_path / "p.sketch"))
    np.testing.assert_array_equal(again.counts_, fitted.counts_)


def test_more_rows_than_two_to_the_31st_have_a_law():
    ids = np.random.default_rng(0).zipf(1.3, 3_000_000) % 700
    make = sl.FrequencyEstimator(700, sketch_size=200)
    found = clone(make).fit_sketch(make.fit(ids).sketch_)  # who knows what rows hold
    assert np.isfinite(found.counts_).all()
    assert found.counts_.sum() == pytest.approx(len(ids), rel=0.1)


@pytest.mark.parametrize("n_items", [50, 3000, 20_000])
def test_counters_are_read_and_not_decoded(n_items):
    counts = np.random.default_rng(0).poisson(3.0, (2, n_items))
    fitted = sl.FrequencyEstimator(n_items, sketch_size=20_000, row_items=10**6).fit(
        counts
    )
    np.testing.assert_array_equal(fitted.counts_, counts.sum(axis=0))
    found = fitted.query([0, 1])
    np.testing.assert_array_equal(found.low, found.high)


def test_columns_of_a_table_need_not_occur():
    rows = np.zeros((20, 200), int)
    rows[:, :5] = 1
    fitted = sl.FrequencyEstimator("fit", sketch_size=100).fit(rows)
    assert fitted.query(range(5, 200)).low.max() == 0
    assert fitted.frequencies_.max() <= 1


def test_what_was_collected_is_not_the_vocabulary_of_another_sketch():
    fitted = sl.FrequencyEstimator("fit", sketch_size=20).fit(list("aabbc"))
    before = fitted.sketch_
    fitted.partial_fit(list("xyz")).fit_sketch(before)
    assert fitted.query(["x"]).low.tolist() == [0]
    other = sl.FrequencyEstimator(sketch_size=20).fit(list("qrs"))
    assert fitted.fit_sketch(other.sketch_).vocabulary_ is None


def test_a_release_does_not_show_which_items_were_read(tmp_path):
    fitted = sl.FrequencyEstimator("fit", sketch_size=50, row_items=1)
    fitted.fit(np.arange(5000) % 90)
    ledger = sl.Ledger(tmp_path / "a.ledger", epsilon=1, delta=1e-5)
    private = sl.release(fitted.sketch_, epsilon=1, delta=1e-6, ledger=ledger)
    with pytest.raises(RowsError, match="vocabulary of this sketch is open"):
        fitted.fit_sketch(private).top(3)


def test_different_vocabularies_are_not_merged():
    left = sl.FrequencyEstimator(["a", "b"], sketch_size=1).fit(["a"])
    right = sl.FrequencyEstimator(["y", "z"], sketch_size=1).fit(["z"])
    before = left.sketch_.digest
    with pytest.raises(FeatureMapMismatch, match="different vocabularies"):
        left.merge(right)
    assert left.sketch_.digest == before


def test_items_are_asked_for_by_a_generator_too():
    fitted = sl.FrequencyEstimator("fit").fit(["a", "b", "a"])
    assert fitted.query(item for item in "ab").counts.tolist() == [2, 1]


def test_what_makes_no_sense_is_refused_before_rows_are_read():
    read = iter([["a"]])
    with pytest.raises(RowsError, match="both be given vocabulary='fit'"):
        sl.FrequencyEstimator("fit").fit(sl.open_items(read))
    assert next(read) == ["a"]
    prior = sl.ItemPrior.from_rows(np.tile(np.eye(3, dtype=int), (9, 1)))
    with pytest.raises(FeatureMapError, match="for decoder='joint'"):
        sl.FrequencyEstimator(3, decoder="count-min", prior=prior).fit([1])
