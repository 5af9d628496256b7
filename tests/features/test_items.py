"""Maps of items: rows given by what they hold are the same rows written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchlearn import (
    BloomFeatures,
    CounterFeatures,
    CountMinFeatures,
    CountSketchFeatures,
    JointCountFeatures,
    TableFeatures,
    dumps,
    loads,
    sketch_items,
    sketch_rows,
)
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.items import OPEN_VOCABULARY
from sketchlearn.rows.items import ItemRows

D = 12
MAPS = {
    "count-min": CountMinFeatures(D, width=5, depth=3),
    "count-sketch": CountSketchFeatures(D, width=5, depth=3, seed=2),
    "joint-counts": JointCountFeatures(D, width=5, depth=3, seed=2),
    "bloom": BloomFeatures(D, width=5, depth=3),
    "counters": CounterFeatures(D),
    "table": TableFeatures(np.arange(-24, 24).reshape(D, 4)),
}
MAX_OK = [name for name in MAPS if name != "table"]
rows_of_items = st.lists(
    st.lists(st.integers(0, D - 1), max_size=6), min_size=1, max_size=8
)


def item_rows(rows):
    keys = np.array([item for row in rows for item in row], np.uint64)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return ItemRows(keys, len(rows), starts.astype(np.int64))


def written_out(rows):
    dense = np.zeros((len(rows), D))
    for i, row in enumerate(rows):
        np.add.at(dense[i], row, 1)
    return dense


@pytest.mark.parametrize("name", MAPS)
@given(rows=rows_of_items)
def test_items_add_up_to_the_rows_written_out(name, rows):
    phi = MAPS[name]
    assert phi.sum_items(item_rows(rows)) == phi.batch_sum(written_out(rows))


@pytest.mark.parametrize("name", MAPS)
@given(rows=rows_of_items)
def test_features_of_items_are_those_of_the_rows_written_out(name, rows):
    phi = MAPS[name]
    found = phi.features_of(item_rows(rows)).toarray()
    assert found.tolist() == phi(written_out(rows)).tolist()


@pytest.mark.parametrize("pooling", ["mean", "max", "min", "p-norm:2.0", "log-sum-exp"])
@pytest.mark.parametrize("name", MAX_OK)
def test_every_pooling_takes_items(name, pooling):
    rows = [[0, 3, 3], [5], [], [11, 0]]
    phi = MAPS[name]
    if pooling == "log-sum-exp":  # whose features must be near their bound
        phi = type(phi)(**{**phi.describe(), "value_bound": 8.0})
        if name == "bloom":
            return
    by_items = sketch_items(rows, phi, pooling=pooling)
    by_rows = sketch_rows(written_out(rows), phi, pooling=pooling)
    assert by_items.digest == by_rows.digest


@given(keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30))
def test_an_open_table_is_the_declared_one_for_small_keys(keys):
    small = np.array([key % D for key in keys], np.uint64)
    for cls in (CountMinFeatures, CountSketchFeatures):
        closed, opened = cls(D, width=5, depth=3), cls(width=5, depth=3)
        assert closed.sum_items(ItemRows(small, len(keys))).to_ints() == (
            opened.sum_items(ItemRows(small, len(keys))).to_ints()
        )
        every = np.array(keys, np.uint64)
        columns = opened.columns_of(every)
        assert abs(columns).sum(axis=1).tolist() == [3] * len(keys)
        total = opened.sum_items(ItemRows(every, len(keys)))
        steps = [value >> opened.frac_bits for value in total.to_ints()]
        assert steps == columns.sum(axis=0).tolist()


def test_an_open_table_takes_no_rows_written_out_and_no_room_for_items():
    phi = CountSketchFeatures(width=5, depth=3)
    assert phi.n_features == OPEN_VOCABULARY
    with pytest.raises(FeatureMapError, match="takes rows of"):
        phi(np.zeros((1, D)))
    sketch = sketch_items(["a", "b", "a"], phi)
    again = loads(dumps(sketch))
    assert again == sketch
    assert again.feature_map.n_features == OPEN_VOCABULARY
    assert loads(dumps(phi)) == phi


@pytest.mark.parametrize("cls", [CountMinFeatures, CountSketchFeatures, BloomFeatures])
@given(rows=st.lists(st.integers(0, 10**6), min_size=1, max_size=7))
def test_a_row_of_few_items_has_a_norm_within_its_bound(cls, rows):
    phi = cls(width=4, depth=5, row_items=7)
    features = phi.features_of(item_rows([rows])).toarray()
    assert np.linalg.norm(features) <= phi.norm_bound
    assert np.abs(features).max() <= phi.value_bound


def test_the_norm_bound_is_attained():
    phi = CountSketchFeatures(width=4, depth=5, row_items=3)
    features = phi.features_of(item_rows([[9, 9, 9]])).toarray()
    assert np.linalg.norm(features) == pytest.approx(phi.norm_bound)


@pytest.mark.parametrize("name", MAPS)
def test_a_row_of_more_items_than_declared_is_refused(name):
    described = {k: v for k, v in MAPS[name].describe().items() if k != "value_bound"}
    stored = {k: MAPS[name].weights()[k] for k in MAPS[name].stored_weights}
    phi = type(MAPS[name])(**described, **stored, row_items=2)
    with pytest.raises(RowRangeError, match="row 1 holds more than 2 items"):
        phi.sum_items(item_rows([[0], [1, 2, 3]]))
    with pytest.raises(RowRangeError, match="row 1 holds more than 2 items"):
        phi(written_out([[0], [1, 2, 3]]))
    assert phi.norm_bound is not None


def test_a_bucket_beyond_its_bound_is_refused_as_it_is_written_out():
    phi = CountMinFeatures(D, width=2, depth=2, value_bound=3.0)
    rows = [[0], [1, 1, 1, 1]]
    for attempt in (
        lambda: phi.sum_items(item_rows(rows)),
        lambda: phi(written_out(rows)),
    ):
        with pytest.raises(RowRangeError, match="row 1"):
            attempt()


def test_an_item_that_the_map_does_not_know_is_refused():
    for phi in (MAPS["count-sketch"], MAPS["counters"], MAPS["table"]):
        with pytest.raises(RowRangeError, match="beyond the 12 of the vocabulary"):
            phi.sum_items(ItemRows(np.array([D], np.uint64), 1))
    few = CounterFeatures.of_keys([5, 2**63])
    with pytest.raises(RowRangeError, match="not in the vocabulary"):
        few.sum_items(ItemRows(np.array([6], np.uint64), 1))


def test_counters_of_keys_count_them():
    phi = CounterFeatures.of_keys([7, 2**63, 1])
    items = ItemRows(np.array([1, 7, 1], np.uint64), 3)
    steps = [value >> phi.frac_bits for value in phi.sum_items(items).to_ints()]
    assert steps == [1, 0, 2]
    assert loads(dumps(phi)) == phi


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TableFeatures([[0.5]]), "whole numbers"),
        (lambda: TableFeatures([[0]]), "not all are 0"),
        (lambda: TableFeatures([[2**41]]), "between"),
        (lambda: CounterFeatures(), "n_items or keys"),
        (lambda: CounterFeatures.of_keys([1, 1]), "different"),
        (lambda: CountMinFeatures(2**50, width=2, depth=2), "fewer than 2"),
        (
            lambda: CountMinFeatures(4, width=2, depth=2, value_bound=1, row_items=1),
            "not both",
        ),
    ],
)
def test_a_map_that_makes_no_sense_is_refused(build, message):
    with pytest.raises(FeatureMapError, match=message):
        build()


def test_the_first_table_of_joint_counts_has_no_signs():
    phi = MAPS["joint-counts"]
    rows = np.random.default_rng(0).integers(0, 4, (20, D)).astype(float)
    features, signed = phi(rows), CountSketchFeatures(D, width=5, depth=3, seed=2)(rows)
    np.testing.assert_array_equal(features[:, :5].sum(axis=1), rows.sum(axis=1))
    np.testing.assert_array_equal(
        features[:, :5], CountMinFeatures(D, width=5, depth=3, seed=2)(rows)[:, :5]
    )
    np.testing.assert_array_equal(features[:, 5:], signed[:, 5:])
    with pytest.raises(FeatureMapError, match="at least 2 tables"):
        JointCountFeatures(D, width=5, depth=1)


def test_sums_of_large_entries_do_not_overflow():
    phi = TableFeatures([[2**40], [1]], row_items=1)
    rows = ItemRows(np.zeros(2**23 + 5, np.uint64), 2**23 + 5)
    assert phi.sum_items(rows).to_ints() == [(2**23 + 5) << (40 + phi.frac_bits)]


def test_what_a_row_adds_is_bounded_in_every_form():
    phi, row = TableFeatures([[1000], [1]], value_bound=2000.0), [[5, 0]]
    for rows in (np.array(row, float), np.array(row)):
        with pytest.raises(RowRangeError, match="row 0"):
            sketch_items(rows, phi)
        with pytest.raises(RowRangeError, match="row 0"):
            sketch_rows(rows.astype(float), phi)


def test_the_norm_of_a_bloom_filter_is_that_of_ones():
    phi = BloomFeatures(50, width=8, depth=3, row_items=5)
    rows = np.zeros((1, 50))
    rows[0, :5] = 1
    assert np.linalg.norm(phi(rows)) <= phi.norm_bound <= np.sqrt(15) + 1e-9
