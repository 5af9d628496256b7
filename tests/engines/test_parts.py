"""Parts of a job add up to its sketch, none of them twice, in one run."""

import pickle
import subprocess
import sys

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchlearn as sl
from sketchlearn.engines import dask_engine
from sketchlearn.engines.base import AbstractTask, told_by_workers
from sketchlearn.errors import (
    FeatureMapError,
    FeatureMapMismatch,
    NoRowsError,
    PrivacyError,
    RowRangeError,
    RowsError,
    SketchFileError,
)
from sketchlearn.sketching.passes import part_of_run

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(400, 3))
TABLE = pa.table({name: ROWS[:, i] for i, name in enumerate("abc")})
PHI = sl.FourierFeatures(3, 16)
WHOLE = sl.sketch_rows(TABLE, PHI)


def parts_of(partial, *tables):
    return [one["sketch"][0].as_py() for table in tables for one in partial(table)]


def test_a_function_of_batches_gives_one_row_of_bytes():
    partial = sl.partial_sketch(PHI)
    (row,) = partial(iter(TABLE.to_batches(max_chunksize=37)))
    assert row.schema == partial.schema
    assert sl.merge(pa.Table.from_batches([row])) == WHOLE
    assert sl.loads(row["sketch"][0].as_py()) == WHOLE


def test_no_rows_give_no_part():
    partial = sl.partial_sketch(PHI, on_invalid="drop")
    gone = pa.table({name: [np.nan] for name in "abc"})
    for nothing in (iter([]), TABLE.slice(0, 0), gone):
        assert list(partial(nothing)) == []
    with pytest.raises(NoRowsError, match="no part"):
        sl.merge([])


def test_a_function_can_be_pickled_and_stays_of_its_job():
    partial = sl.partial_sketch(PHI)
    again = pickle.loads(pickle.dumps(partial))
    parts = parts_of(partial, TABLE[:100]) + parts_of(again, TABLE[100:])
    whole = sl.merge(parts)
    assert whole == WHOLE
    assert set(whole.lineage) == {partial.task.run}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=6), st.randoms(use_true_random=False))
def test_any_cut_and_any_order_add_up_to_the_same(cuts, random):
    ends = [0, *sorted(cuts), 400]
    partial = sl.partial_sketch(PHI)
    tables = [TABLE[i:j] for i, j in zip(ends[:-1], ends[1:], strict=True)]
    parts = parts_of(partial, *tables)
    random.shuffle(parts)
    assert sl.merge(parts) == WHOLE


def test_columns_are_those_asked_for_or_those_of_the_plan():
    turned = TABLE.select(["c", "b", "a"])
    partial = sl.partial_sketch(PHI, columns=["a", "b", "c"])
    assert sl.merge(parts_of(partial, turned)) == WHOLE
    plan = sl.CompressivePCA(2, bounds=(-9, 9)).fit(TABLE).sketch_
    planned = plan.feature_map
    there = sl.merge(parts_of(sl.partial_sketch(planned), TABLE))
    assert there == plan
    with pytest.raises(RowsError, match="expected"):
        parts_of(sl.partial_sketch(PHI), TABLE.select(["a"]))


def test_a_part_that_comes_twice_is_refused():
    """As of a task that was tried twice, and both results taken."""
    task = sl.partial_sketch(PHI).task
    first, again, other = task([TABLE[:9]], 0), task([TABLE[:9]], 0), task([TABLE], 1)
    assert first == again
    assert sl.merge([first, other]).count == 409
    for twice in ([first, again], [first, other, other]):
        with pytest.raises(PrivacyError, match="share the run"):
            sl.merge(twice)


def test_a_job_and_a_part_of_it_are_not_added():
    partial = sl.partial_sketch(PHI)
    parts = parts_of(partial, TABLE[:9], TABLE[9:])
    whole, part = sl.merge(parts), sl.loads(parts[0])
    for pair in ([whole, part], [part, whole], [whole, sl.merge(parts)]):
        with pytest.raises(PrivacyError, match="share the run"):
            sl.merge(pair)
        with pytest.raises(PrivacyError, match="share the run"):
            pair[0] + pair[1]
    rest = whole - part
    assert rest == sl.sketch_rows(TABLE[9:], PHI)
    assert rest + part == whole


def test_parts_that_were_joined_before_are_still_of_one_run():
    task = sl.partial_sketch(PHI).task
    bounds = range(0, 400, 40)
    parts = [task([TABLE[i : i + 40]], i) for i in bounds]
    joined = [task.joined(parts[:3]), task.joined(parts[3:7]), *parts[7:]]
    whole = sl.merge(joined)
    assert whole == WHOLE
    assert set(whole.lineage) == {task.run}
    with pytest.raises(PrivacyError, match="share the run"):
        task.joined([parts[0], parts[0]])


def test_a_partition_that_is_named_is_never_added_twice():
    partial = sl.partial_sketch(PHI)

    def run(table, partition):
        (row,) = partial(table, partition)
        return row["sketch"][0].as_py()

    assert sl.merge([run(TABLE[:9], 0), run(TABLE[9:], 1)]) == WHOLE
    with pytest.raises(PrivacyError, match="share the run"):
        sl.merge([run(TABLE[:9], 0), run(TABLE[9:], 1), run(TABLE[:9], 0)])


def test_some_parts_are_a_larger_part_and_one_part_stays_itself():
    partial = sl.partial_sketch(PHI)
    parts = parts_of(partial, TABLE[:9], TABLE[9:50], TABLE[50:90], TABLE[90:])
    halves = [sl.merge(parts[:2], complete=False), sl.merge(parts[2:], complete=False)]
    assert [len(half.lineage) for half in halves] == [2, 2]
    with pytest.raises(PrivacyError, match="share the run"):
        halves[0] + sl.loads(parts[1])
    whole = sl.merge(halves)
    assert whole == WHOLE
    assert set(whole.lineage) == {partial.task.run}
    rest = whole - sl.merge(parts[:1])
    assert rest == sl.sketch_rows(TABLE[9:], PHI)
    with pytest.raises(PrivacyError, match="taken out of this sketch before"):
        rest - sl.merge(parts[:1])


def test_thousands_of_parts_are_one_run():
    run = sl.partial_sketch(PHI).task.run
    one = sl.sketch_rows(ROWS[:1], PHI)
    many = (
        sl.Sketch(one.total, 1, one.features, "mean", frozenset({part_of_run(run, i)}))
        for i in range(10_000)
    )
    whole = sl.merge(many)
    assert (whole.count, set(whole.lineage)) == (10_000, {run})


def test_merge_is_the_sum_of_sketches():
    a, b = sl.sketch_rows(ROWS[:50], PHI), sl.sketch_rows(ROWS[50:], PHI)
    assert sl.merge([a, b]) == a + b
    assert sl.merge([a, sl.dumps(b)]).lineage == (a + b).lineage
    gone = a - sl.sketch_rows(ROWS[:10], PHI)
    assert sl.merge([gone, b]).lineage == (gone + b).lineage
    with pytest.raises(PrivacyError, match="share the run"):
        sl.merge([a, b, a])


def test_merge_takes_parts_in_every_form_they_come_back_in():
    partial = sl.partial_sketch(PHI)
    tables = [t for i in range(4) for t in partial(TABLE[i * 100 : (i + 1) * 100], i)]
    column = pa.concat_tables(tables)["sketch"]
    parts = column.to_pylist()
    for form in (
        tables,
        iter(tables),
        [batch for table in tables for batch in table.to_batches()],
        list(column),
        [{"sketch": part} for part in parts],
        [(part,) for part in parts],
        [parts[0], tables[1], sl.loads(parts[2]), bytearray(parts[3])],
    ):
        assert sl.merge(form) == WHOLE


def test_what_is_no_feature_map_is_refused():
    for wrong in (sl.CompressivePCA(2), None, "fourier"):
        for call in (sl.partial_sketch, lambda phi: sl.sketch_rows(ROWS, phi)):
            with pytest.raises(FeatureMapError, match="a feature map is needed"):
                call(wrong)


@pytest.mark.parametrize("form", [list, tuple, iter])
def test_several_datasets_of_an_engine_are_put_together_there(form):
    """And never is the first of them taken for all."""
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    one = dask.dataframe.from_pandas(frame[:100], npartitions=2)
    other = dask.dataframe.from_pandas(frame[100:], npartitions=2)
    array = dask.array.from_array(ROWS, chunks=100)
    for several in ([one, other], [one, frame], [frame, one], [array, array]):
        with pytest.raises(RowsError, match=r"concat, union"):
            sl.sketch_rows(form(several), PHI)
    model = sl.CompressivePCA(2, bounds=(-9, 9)).fit(frame)
    before = model.sketch_
    with pytest.raises(RowsError, match=r"concat, union"):
        model.forget(form([one, other]))
    assert model.sketch_ is before
    some = dask.dataframe.concat([one, other.partitions[0]])
    assert model.forget(some).sketch_.count == 400 - len(some)
    items = dask.dataframe.from_pandas(pd.DataFrame({"id": [1, 2]}), npartitions=1)
    with pytest.raises(RowsError, match=r"concat, union"):
        sl.sketch_items(form([items, items]), sl.CounterFeatures(4), column="id")


def test_merge_refuses_what_are_no_sketches_of_one_map():
    other = sl.sketch_rows(ROWS, sl.FourierFeatures(3, 16, seed=1))
    with pytest.raises(FeatureMapMismatch, match="seed"):
        sl.merge([WHOLE, other])
    with pytest.raises(SketchFileError):
        sl.merge([b"no sketch"])
    with pytest.raises(RowsError, match="got a int"):
        sl.merge([3])
    with pytest.raises(RowsError, match="list of sketches"):
        sl.merge(sl.dumps(WHOLE))
    with pytest.raises(RowsError, match="one column"):
        sl.merge(TABLE)
    book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    exact = sl.sketch_rows(ROWS, sl.clipped(PHI, norm_bound=2.0))
    private = sl.release(exact, epsilon=1.0, delta=1e-6, ledger=book)
    with pytest.raises(PrivacyError, match="merge_disjoint"):
        sl.merge([private])


def test_a_job_can_be_released_and_saved(tmp_path):
    phi = sl.clipped(PHI, norm_bound=2.0)
    frame = dask.dataframe.from_pandas(pd.DataFrame(ROWS, columns=list("abc")), 4)
    whole = sl.sketch_rows(frame, phi)
    sl.save(whole, tmp_path / "whole.sketch")
    assert sl.load(tmp_path / "whole.sketch").lineage == whole.lineage
    book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    sl.release(whole, epsilon=1.0, delta=1e-6, ledger=book)
    assert book.charges[0].lineage == tuple(whole.lineage)


@pytest.mark.parametrize("chunks", [(400, 3), (77, 3), (100, 2), (1, 1)])
def test_blocks_of_dask_arrays_are_whole_rows(chunks, monkeypatch):
    monkeypatch.setattr(dask_engine, "SECOND_STAGE", 16)
    array = dask.array.from_array(ROWS, chunks=chunks)
    assert sl.sketch_rows(array, PHI) == WHOLE
    fit = sl.CompressivePCA(2).fit
    assert fit(array).sketch_ == fit(ROWS).sketch_


def test_dask_columns_hold_ids():
    words = pd.Series(list("abcab") * 20, name="word")
    spread = dask.dataframe.from_pandas(words, npartitions=3)
    found = sl.FrequencyEstimator("fit", sketch_size=50).fit(spread)
    assert found.vocabulary_.items == ["a", "b", "c"]
    assert found.frequencies_ == pytest.approx([0.4, 0.4, 0.2], abs=1e-6)
    ids = dask.array.from_array(np.array([3, 1, 3, 3]), chunks=2)
    assert sl.FrequencyEstimator(4, sketch_size=50).fit(ids).sketch_.count == 4
    with pytest.raises(RowsError, match="2-D"):
        sl.CompressivePCA(1).fit(spread)


def test_dask_columns_are_called_anything():
    frame = pd.DataFrame(ROWS, columns=["chunks", "ndim", "to_delayed"])
    spread = dask.dataframe.from_pandas(frame, npartitions=2)
    assert sl.sketch_rows(spread, PHI) == WHOLE
    numbered = pd.DataFrame(ROWS, columns=[10, 20, 30])
    spread = dask.dataframe.from_pandas(numbered, npartitions=2)
    assert sl.sketch_rows(spread, PHI) == WHOLE
    for name in (None, 5):
        ids = pd.Series([3, 1, 3, 3], name=name)
        spread = dask.dataframe.from_pandas(ids, npartitions=2)
        assert sl.sketch_items(spread, sl.CounterFeatures(4)).count == 4
    labelled = pd.DataFrame(ROWS[:, :2], columns=["dataset", "b"])
    assert len(sl.CompressiveKMeans(2, sketch_size=100).fit_predict(labelled)) == 400


def test_ids_of_two_kinds_in_two_partitions_are_refused():
    parts = [pd.DataFrame({"id": pd.Series(p, dtype=object)}) for p in ([1, 2], ["x"])]
    phi = sl.CountMinFeatures(width=10, depth=2)
    with dask.config.set({"dataframe.convert-string": False}):
        spread = dask.dataframe.from_map(lambda i: parts[i], [0, 1], meta=parts[0])
        with pytest.raises(RowsError, match="in different partitions"):
            sl.sketch_items(spread, phi, column="id")


def test_dask_arrays_of_unknown_width_or_shape_are_refused():
    array = dask.array.from_array(ROWS, chunks=50)
    unknown = array[:, dask.array.from_array(np.array([True, False, True]), chunks=3)]
    with pytest.raises(RowsError, match="compute_chunk_sizes"):
        sl.sketch_rows(unknown, PHI)
    unknown_length = array[array[:, 0] > 0]
    assert sl.sketch_rows(unknown_length, PHI) == sl.sketch_rows(
        ROWS[ROWS[:, 0] > 0], PHI
    )


def test_rows_that_change_each_time_are_not_planned_from():
    def random(number):
        return pd.DataFrame(np.random.default_rng().normal(size=(50, 2)))

    meta = pd.DataFrame(np.zeros((1, 2)))
    frame = dask.dataframe.from_map(random, range(3), meta=meta)
    with pytest.raises(RowsError, match=r"other rows each time .* persist"):
        sl.CompressivePCA(1).fit(frame)
    sl.CompressivePCA(1, bounds=(-9, 9)).fit(frame)


def test_rows_of_equal_partitions_are_told_apart_or_need_not_be():
    frame = pd.DataFrame(np.tile(ROWS[:50], (6, 1)))
    spread = dask.dataframe.from_map(lambda i: frame[:50], range(6), meta=frame[:0])
    fit = sl.CompressiveKMeans(2, sketch_size=200).fit
    assert fit(spread).sketch_ == fit(frame).sketch_


def test_an_error_of_a_worker_is_told_as_it_was():
    class EngineError(Exception):
        pass

    text = "Traceback ...\nsketchlearn.errors.RowRangeError: row 3 is far.\n  at x.y(z)"
    with pytest.raises(RowRangeError, match=r"^row 3 is far\.$"), told_by_workers():
        raise EngineError(text)
    with pytest.raises(EngineError), told_by_workers():
        raise EngineError("out of memory")


def test_a_task_of_its_own_says_that_its_results_are_not_joined():
    class Nothing(AbstractTask):
        def result_of(self, batches, partition):
            return None

    with pytest.raises(TypeError, match="not joined"):
        Nothing().joined([b""])


def test_workers_import_neither_torch_nor_scikit_learn():
    script = (
        "import pickle, sys, sketchlearn as sl\n"
        "phi = sl.FourierFeatures(2, 8)\n"
        "partial = pickle.loads(pickle.dumps(sl.partial_sketch(phi)))\n"
        "import pyarrow as pa\n"
        "list(partial(pa.table({'a': [1.0], 'b': [2.0]})))\n"
        "slow = {'torch', 'sklearn', 'dask', 'ray', 'pyspark'}\n"
        "sys.exit(','.join(slow & set(sys.modules)) or 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
