"""A sketch of items is the same however its rows come, and costs what they hold."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import sketchlearn as sl
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    RowRangeError,
    RowsError,
)
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.rows import arrays
from sketchlearn.rows.item_blocks import BLOCK_IDS
from sketchlearn.rows.items import ItemRows
from sketchlearn.sketching.local_items import LocalItems
from sketchlearn.sketching.tally import TALLY_KEYS, StreamTally

N_ITEMS = 12
OPEN = [
    sl.CountMinFeatures(width=5, depth=3),
    sl.CountSketchFeatures(width=8, depth=2, seed=4),
    sl.JointCountFeatures(width=8, depth=2, seed=4),
    sl.BloomFeatures(width=7, depth=2),
    sl.CounterFeatures.of_keys(np.arange(N_ITEMS)),
]
TABLE = np.random.default_rng(0).integers(-1, 2, (N_ITEMS, 6))
SIZED = [
    sl.CountMinFeatures(N_ITEMS, width=5, depth=3),
    sl.CountSketchFeatures(N_ITEMS, width=8, depth=2),
    sl.JointCountFeatures(N_ITEMS, width=8, depth=2),
    sl.BloomFeatures(N_ITEMS, width=7, depth=2),
    sl.CounterFeatures(N_ITEMS),
    sl.TableFeatures(TABLE, row_items=100),
]
POOLINGS = ["mean", "sum", "max", "min", "p-norm:2", "log-sum-exp"]

streams = st.lists(st.integers(0, N_ITEMS - 1), min_size=1, max_size=40)
baskets = st.lists(
    st.lists(st.integers(0, N_ITEMS - 1), max_size=6), min_size=1, max_size=20
)


def written_out(rows):
    table = np.zeros((len(rows), N_ITEMS))
    for number, row in enumerate(rows):
        np.add.at(table[number], np.array(row, int), 1)
    return table


@settings(deadline=None, max_examples=50)
@given(streams, st.sampled_from(OPEN + SIZED), st.sampled_from(POOLINGS), st.data())
def test_order_batches_and_parts_of_a_stream_change_nothing(ids, phi, pooling, data):
    whole = sl.sketch_items(ids, phi, pooling=pooling)
    assert whole.count == len(ids)
    cut = data.draw(st.integers(0, len(ids)))
    shuffled = data.draw(st.permutations(ids))
    parts = np.split(np.array(shuffled), [cut])
    batches = iter([parts[0], parts[1].astype(np.int32)])
    assert sl.sketch_items(batches, phi, pooling=pooling) == whole
    if 0 < cut < len(ids):
        parts = [ids[:cut], ids[cut:]]
        one, other = (sl.sketch_items(part, phi, pooling=pooling) for part in parts)
        assert one + other == whole
        if pooling in ("mean", "sum"):
            assert whole - other == one


@settings(deadline=None, max_examples=50)
@given(baskets, st.sampled_from(SIZED), st.sampled_from(POOLINGS))
def test_sets_sparse_and_dense_tables_have_one_sketch(rows, phi, pooling):
    table = written_out(rows)
    written = sl.sketch_rows(table, phi, pooling=pooling)
    sparse = sp.csr_array(table)
    assert sl.sketch_items(rows, phi, pooling=pooling) == written
    assert sl.sketch_items(table, phi, pooling=pooling) == written
    assert sl.sketch_items(sparse, phi, pooling=pooling) == written
    assert sl.sketch_rows(sparse, phi, pooling=pooling) == written
    assert sl.sketch_items(pa.array(rows), phi, pooling=pooling) == written


@settings(deadline=None, max_examples=50)
@given(baskets, st.sampled_from(OPEN[:3] + SIZED))
def test_a_listed_vocabulary_gives_keys_to_open_maps_and_positions_to_others(rows, phi):
    names = [f"item {i}" for i in range(N_ITEMS)]
    named = [[names[item] for item in row] for row in rows]
    table = written_out(rows)
    from_names = sl.sketch_items(named, phi, vocabulary=names)
    assert from_names == sl.sketch_items(table, phi, vocabulary=names)
    if phi in SIZED:
        assert from_names == sl.sketch_rows(table, phi)
    else:
        assert from_names == sl.sketch_items(named, phi)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=3), min_size=1))
def test_all_forms_of_a_stream_have_one_sketch(ids):
    phi = sl.CountSketchFeatures(width=9, depth=3)
    whole = sl.sketch_items(ids, phi)
    frame = pd.DataFrame({"id": ids, "n": 0})
    forms = [np.array(ids, object), pd.Series(ids), pl.Series(ids), pa.array(ids)]
    forms += [pa.array(ids).dictionary_encode(), [[one] for one in ids], iter(ids)]
    for form in forms:
        assert sl.sketch_items(form, phi) == whole
    assert sl.sketch_items(frame, phi, column="id") == whole
    assert sl.sketch_items(pl.DataFrame(frame).lazy(), phi, column="id") == whole


@settings(deadline=None, max_examples=50)
@given(streams, streams)
def test_a_bloom_filter_pooled_by_max_is_the_or_of_its_parts(one, other):
    phi = sl.BloomFeatures(width=16, depth=3)
    bits = [sl.sketch_items(ids, phi, pooling="max").pooled for ids in (one, other)]
    both = sl.sketch_items(one + other, phi, pooling="max")
    assert np.array_equal(both.pooled, np.logical_or(*bits))
    held = phi.columns_of(np.unique(one).astype(np.uint64)).max(axis=0).toarray()
    assert np.array_equal(bits[0], held.ravel())


def test_count_min_counts_what_a_loop_counts():
    phi = sl.CountMinFeatures(width=6, depth=2, row_items=1)
    ids = np.random.default_rng(1).integers(0, 50, 500)
    expected = np.zeros(12)
    for key in ids:
        expected += phi.columns_of(np.array([key], np.uint64)).toarray()[0]
    sketch = sl.sketch_items(ids, phi)
    assert np.array_equal(sketch.count * sketch.mean, expected)


@pytest.mark.parametrize("largest", [TALLY_KEYS, 2**62])
@pytest.mark.parametrize("threads", [1, 3])
def test_long_streams_in_several_threads_have_the_sum_of_their_items(threads, largest):
    rng = np.random.default_rng(2)
    ids = rng.integers(0, largest, 3 * BLOCK_IDS + 17)
    ids[: 2 * BLOCK_IDS] %= 1000  # some blocks are tallied and others are not
    phi = sl.CountSketchFeatures(width=64, depth=3)
    with threadpool_limits(threads, user_api="blas"):
        sketch = sl.sketch_items(ids, phi)
    keys, times = np.unique(ids, return_counts=True)
    expected = times @ phi.columns_of(keys.astype(np.uint64))
    assert np.array_equal(sl.sketch_items(iter(ids.tolist()), phi).total, sketch.total)
    assert sketch.count == len(ids)
    assert sketch.total == phi.in_steps(expected)


def test_a_tally_counts_small_keys_of_streams_only():
    tally = StreamTally()
    assert tally.add(ItemRows(np.array([3, 3], np.uint64), 2))
    assert tally.add(ItemRows(np.array([900, 3], np.uint64), 5, None, np.array([1, 4])))
    assert not tally.add(ItemRows(np.array([3, TALLY_KEYS], np.uint64), 2))
    assert not tally.add(ItemRows(np.array([3, 4], np.uint64), 1, np.array([0, 2])))
    taken = tally.take()
    assert dict(zip(taken.keys.tolist(), taken.values.tolist(), strict=True)) == {
        3: 6,
        900: 1,
    }


def test_sparse_counts_are_never_made_dense_for_items(monkeypatch):
    def refuse(data):
        raise AssertionError("made dense")

    monkeypatch.setattr(arrays, "from_sparse", refuse)
    wide = sp.coo_array(([1, 2], ([0, 1], [5, 2**40])), shape=(2, 2**41))
    phi = sl.CountMinFeatures(width=8, depth=2)
    assert sl.sketch_rows(wide, phi).count == 2
    assert sl.sketch_items(wide, phi) == sl.sketch_rows(wide, phi)


def test_sparse_rows_that_are_no_counts_are_sketched_as_before():
    rows = np.array([[0.5, 0, -1.0], [0, 2.0, 0]])
    phi = sl.CountSketchFeatures(3, width=4, depth=2)
    assert sl.sketch_rows(sp.csr_array(rows), phi) == sl.sketch_rows(rows, phi)
    with pytest.raises(RowsError, match="row 0 .* no whole number"):
        sl.sketch_items(rows, phi)


def test_a_bloom_filter_counts_different_items_of_a_row():
    phi = sl.BloomFeatures(3, width=8, depth=2, row_items=2)
    rows = np.array([[7.0, 1.0, 0.0]])
    assert sl.sketch_rows(sp.csr_array(rows), phi) == sl.sketch_rows(rows, phi)
    for wrong in (np.ones((1, 3)), sp.csr_array(np.ones((1, 3)))):
        with pytest.raises(RowRangeError, match="more than 2"):
            sl.sketch_rows(wrong, phi)


def test_opened_items_are_rows_too():
    phi = sl.CountMinFeatures(width=5, depth=2)
    ids = ["b", "a"]
    assert sl.sketch_rows(sl.open_items(ids), phi) == sl.sketch_items(ids, phi)
    once = LocalItems(sl.open_items(iter(ids), vocabulary="fit"))
    assert (once.is_repeatable, once.vocabulary) == (False, None)
    assert once.sketch(phi) == sl.sketch_items(ids, phi)
    assert list(once.vocabulary.items) == ids


def test_maps_of_another_size_or_kind_are_refused():
    with pytest.raises(FeatureMapMismatch, match="12 items, .* 2"):
        sl.sketch_items(["a"], SIZED[0], vocabulary=["a", "b"])
    with pytest.raises(RowsError, match="3 features, but 12"):
        sl.sketch_items(np.eye(3), SIZED[0])
    with pytest.raises(RowsError, match="row 1 .* not in the declared"):
        sl.sketch_items([11, 12], SIZED[0])
    with pytest.raises(FeatureMapError, match="takes rows of numbers"):
        sl.sketch_items([1], sl.MomentFeatures(2))
    phi = sl.CountMinFeatures(width=5, depth=2, row_items=1)
    with pytest.raises(RowRangeError, match="row 1 holds more than 1 items"):
        sl.sketch_items([["a"], ["b", "c"]], phi)


def test_every_map_that_counts_items_is_tested_here():
    tested = {type(phi) for phi in OPEN + SIZED}
    public = {getattr(sl, name) for name in dir(sl) if name.endswith("Features")}
    items = {kind for kind in public if issubclass(kind, AbstractItemMap)}
    assert items - {AbstractItemMap} == tested
