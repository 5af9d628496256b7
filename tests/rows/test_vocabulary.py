"""A vocabulary lists different items, and finds the position of each."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn import Vocabulary, open_items
from sketchlearn.errors import RowsError
from sketchlearn.rows.ids import Ids, keys_of
from sketchlearn.rows.keys import SIPHASH

ids = st.one_of(
    st.lists(st.text(st.characters(codec="utf-8")), unique=True, min_size=1),
    st.lists(st.binary(), unique=True, min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1),
    st.lists(st.integers(0, 2**64 - 1), unique=True, min_size=1),
)


@settings(deadline=None, max_examples=50)
@given(ids, st.randoms())
def test_every_item_has_its_position(items, random):
    vocabulary = Vocabulary(items)
    order = random.sample(range(len(items)), len(items))
    shuffled = [items[i] for i in order]
    assert list(vocabulary.items) == items
    assert vocabulary.take(order) == shuffled
    assert vocabulary.positions_of(shuffled).tolist() == order
    assert vocabulary.keys(SIPHASH).tolist() == keys_of(items).tolist()
    assert vocabulary.keys(None).tolist() == list(range(len(items)))


def test_a_number_of_items_names_them_by_position():
    vocabulary = Vocabulary(5)
    assert (len(vocabulary), list(vocabulary.items)) == (5, [0, 1, 2, 3, 4])
    assert vocabulary.positions_of([4, 0]).tolist() == [4, 0]
    asked = Ids(np.array([5, 2**64 - 1, 1], np.uint64))
    assert vocabulary.find(asked).tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    "form", [tuple, np.array, pd.Series, pd.Categorical, pa.array, iter]
)
def test_ids_of_a_vocabulary_come_in_all_forms(form):
    assert list(Vocabulary(form(["b", "a"])).items) == ["b", "a"]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (0, "from 1 to"),
        (2**48, "from 1 to"),
        ([], "at least 1"),
        ("abc", "not a single text"),
        (["a", "b", "a"], "items 0 and 2"),
        (["a", None], "missing"),
        ([1, "a"], "unlike others"),
        ([1.0], "type double"),
        (True, "ids"),
    ],
)
def test_what_is_no_vocabulary_is_refused(declared, text):
    with pytest.raises(RowsError, match=text):
        Vocabulary(declared)


def test_an_unknown_item_is_named_by_its_row_and_never_by_its_id():
    with pytest.raises(RowsError, match="row 1 of the input") as caught:
        Vocabulary(["a", "b"]).positions_of(["a", "secret"])
    assert "secret" not in str(caught.value)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.text(max_size=2), max_size=8), min_size=1))
def test_a_fitted_vocabulary_has_the_items_that_were_read(batches):
    read = [item for batch in batches for item in batch]
    if not read:
        return
    parts = [pa.array(batch, pa.string()) for batch in batches]
    opened = open_items(iter(parts), vocabulary="fit")
    assert opened.vocabulary is None
    assert sum(rows.n_rows for rows in opened) == len(read)
    assert opened.vocabulary.items == list(dict.fromkeys(read))


@pytest.mark.parametrize(
    ("data", "items"),
    [
        ([{3}, [5, 3], []], [3, 5]),
        ([-1, 2**62, -1], [-1, 2**62]),
        (np.array([2**64 - 1], np.uint64), [2**64 - 1]),
        ([b"\xff", b"a"], [b"\xff", b"a"]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["b", "a"]),
        (pd.Categorical(["b"], categories=["a", "b"]), ["b"]),
        (np.eye(3), [0, 1, 2]),
    ],
)
def test_fitted_vocabularies_keep_what_ids_are(data, items):
    opened = open_items(data, vocabulary="fit")
    list(opened)
    assert list(opened.vocabulary.items) == items


@pytest.mark.parametrize("cut", [-1, -(2**63)])
def test_negative_integers_are_no_large_ones_of_the_same_bits(cut):
    signed, unsigned = np.array([cut, 5]), np.array([cut % 2**64, 5], np.uint64)

    for declared, others in ((signed, unsigned), (unsigned, signed)):
        vocabulary = Vocabulary(declared)
        assert vocabulary.find(Ids(declared)).tolist() == [0, 1]
        assert vocabulary.find(Ids(others)).tolist() == [-1, 1]
