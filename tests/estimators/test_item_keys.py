"""Ids that somebody chose to be taken for others are not, or it is said.

Names are compared as names; under a secret key nobody else can tell which collide.
"""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import sketchlearn as sl
from sketchlearn.arithmetic.draws import GOLDEN, hash_keys
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, RowsError
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.plans.items import plan_items
from sketchlearn.rows.ids import keys_of
from sketchlearn.rows.keys import SUMS

FILES = Path(__file__).parents[1] / "golden"
KEY = sl.ItemKey(b"a secret of many bytes")
SIZES = {"width": 50, "depth": 5}


def unmixed(word):
    """The number of which the mixing function of splitmix64 makes this one."""
    word ^= word >> 31 ^ word >> 62
    word = word * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    word ^= word >> 27 ^ word >> 54
    word = word * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return word ^ word >> 30 ^ word >> 60


def twin(text, first):
    """A text that begins with other eight bytes and has the same sum of hashes."""
    words = [int.from_bytes(part, "little") for part in (text[:8], text[8:], first)]
    places = np.array([words[0], words[1] + GOLDEN, words[2]], object) % 2**64
    hashes = hash_keys(places.astype(np.uint64), 0).tolist()
    second = (unmixed((hashes[0] + hashes[1] - hashes[2]) % 2**64) - 2 * GOLDEN) % 2**64
    return first + second.to_bytes(8, "little")


NAME = b"name@example.org"
TWIN = twin(NAME, b"attacker")


def test_a_twin_of_older_keys_has_a_key_of_its_own():
    assert TWIN != NAME
    assert len(set(keys_of([NAME, TWIN], SUMS).tolist())) == 1
    assert len(set(keys_of([NAME, TWIN]).tolist())) == 2
    one = sl.FrequencyEstimator(sketch_size=500).fit([NAME] * 3 + [TWIN] * 40)
    assert one.query([NAME, TWIN]).counts.tolist() == [3.0, 40.0]


def test_two_names_of_one_key_are_refused_where_they_are_listed():
    older = sl.CountSketchFeatures(**SIZES, key_recipe="sums")
    sketch = sl.sketch_items([NAME, TWIN], older)
    with pytest.raises(RowsError, match="items 0 and 1 .* same 64-bit key"):
        sl.FrequencyEstimator([NAME, TWIN]).fit_sketch(sketch)
    collected = sl.FrequencyEstimator("fit", sketch_size=100)
    collected._planned = lambda recipe: older
    with pytest.raises(RowsError, match="same 64-bit key"):
        collected.fit([b"other", NAME, TWIN])


@pytest.mark.parametrize("recipe", ["sums", "siphash"])
def test_what_is_not_in_the_vocabulary_is_refused_whatever_its_key(recipe):
    phi = sl.CountSketchFeatures(**SIZES, key_recipe=recipe)
    with pytest.raises(RowsError, match="row 1 .* not in the declared vocabulary"):
        sl.sketch_items([NAME, TWIN], phi, vocabulary=[NAME])
    with pytest.raises(RowsError, match="not in the declared vocabulary"):
        sl.FrequencyEstimator([NAME]).fit([NAME]).query([TWIN])


def test_a_collected_vocabulary_holds_both_of_two_names_of_one_key():
    opened = sl.open_items([NAME, TWIN, NAME], vocabulary="fit")
    assert [len(rows) for rows in opened] == [3]
    assert opened.vocabulary.items == [NAME, TWIN]


@pytest.mark.parametrize("vocabulary", [None, "fit", 40, list(range(40))])
def test_a_secret_key_is_needed_again_and_never_stored(tmp_path, vocabulary):
    ids = np.random.default_rng(0).integers(0, 40, 300).tolist()
    make = sl.FrequencyEstimator(vocabulary, sketch_size=30, depth=3, key=KEY)
    one = clone(make).fit(ids[:200])
    sl.save(one.sketch_, tmp_path / "x.sketch")
    written = (tmp_path / "x.sketch").read_bytes()
    assert bytes(KEY) not in written
    assert KEY.hex().encode() not in written
    loaded = sl.load(tmp_path / "x.sketch")
    whole = clone(make).fit(ids).sketch_
    assert (
        loaded + sl.sketch_items(ids[200:], one.plan()) == clone(make).fit(ids).sketch_
    )

    again = clone(make).fit_sketch(loaded)
    assert again.query([1, 2]).counts.shape == (2,)
    assert again.partial_fit(ids[200:]).sketch_ == whole
    for wrong, said in ((None, "which files do not hold"), (os.urandom(16), "another")):
        key = None if wrong is None else sl.ItemKey(wrong)
        with pytest.raises(FeatureMapError, match=said):
            clone(make).set_params(key=key).fit_sketch(loaded)


def test_a_secret_key_of_the_estimator_is_that_of_the_sketch():
    plain = sl.FrequencyEstimator().fit(["a"]).sketch_
    with pytest.raises(FeatureMapError, match="without a secret key"):
        sl.FrequencyEstimator(key=KEY).fit_sketch(plain)
    keyed = sl.FrequencyEstimator(key=KEY).fit(["a"])
    assert sl.FrequencyEstimator().fit_sketch(keyed.sketch_).query(["a"]).counts == 1
    counted = sl.FrequencyEstimator(5, key=KEY).fit([1, 2])  # counters hash nothing
    assert counted.counts_.tolist() == [0, 1, 1, 0, 0]


@pytest.mark.parametrize("ids", [["a", "b"], [3, 4]])
def test_sketches_of_different_keys_do_not_meet(ids):
    maps = [sl.CountMinFeatures(**SIZES, key=key) for key in (KEY, KEY + b"!", None)]
    maps.append(sl.CountMinFeatures(**SIZES, key_recipe="sums"))
    sketches = [sl.sketch_items(ids, phi) for phi in maps]
    assert len({sketch.features.fingerprint for sketch in sketches}) == 4
    for other in sketches[1:]:
        with pytest.raises(FeatureMapMismatch, match="key_recipe"):
            _ = sketches[0] + other


def test_the_key_enters_the_buckets_of_numbered_items():
    plain, keyed, other = (
        sl.CountSketchFeatures(500, **SIZES, key=key) for key in (None, KEY, KEY + b"!")
    )
    assert (plain.buckets == keyed.buckets).mean() < 0.05  # by chance 1 of 50
    assert (other.buckets == keyed.buckets).mean() < 0.05
    ids = np.arange(500) % 7
    stream = sl.sketch_items(ids, keyed)
    assert stream == sl.sketch_rows(np.eye(500)[ids], keyed)


def test_a_map_goes_to_workers_with_its_key():
    phi = sl.CountSketchFeatures(**SIZES, key=KEY)
    assert sl.sketch_items(["a"], pickle.loads(pickle.dumps(phi))) == sl.sketch_items(
        ["a"], phi
    )
    assert isinstance(phi, AbstractItemMap)
    assert phi.with_key(KEY) == phi


def test_an_estimator_shows_no_key():
    one = sl.MembershipEstimator(key=KEY, decoder="bloom").fit(["a"])
    assert one.contains(["a", "b"]).tolist() == [True, False]
    assert "secret of" not in repr(one) + str(one) + one._repr_html_() + repr(
        one.plan()
    )
    with pytest.raises(FeatureMapError, match="ItemKey") as caught:
        sl.FrequencyEstimator(key=bytes(KEY)).fit(["a"])
    assert "secret of" not in str(caught.value)


def test_older_sketches_of_texts_are_asked_extended_and_merged():
    older = sl.load(FILES / "texts_sums_v3.sketch")
    one = sl.FrequencyEstimator(decoder="count-sketch").fit_sketch(older)
    assert one.query(["the"]).counts == 3
    assert one.partial_fit(["the"]).query(["the"]).counts == 4
    assert (one.sketch_ + older.with_new_lineage()).count == 17
    newer = sl.load(FILES / "texts_siphash_v3.sketch")
    with pytest.raises(FeatureMapMismatch, match="key_recipe"):
        _ = older + newer


def test_older_counters_of_listed_texts_are_read():
    words = ["the", "cat", "and"]
    older = plan_items(sl.Vocabulary(words), 100, recipe=SUMS)
    sketch = sl.loads(sl.dumps(sl.sketch_items(["cat", "and", "cat"], older)))
    assert "key_recipe" not in sketch.features.description
    one = sl.FrequencyEstimator(words, sketch_size=100).fit_sketch(sketch)
    assert one.counts_.tolist() == [0, 2, 1]
