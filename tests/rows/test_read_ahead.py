"""Threads that read ahead change neither rows nor their order, and end in the end."""

import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchlearn as sl
from sketchlearn.errors import RowsError
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.rows.read_ahead import read_ahead

ROWS = np.random.default_rng(5).normal(size=(5000, 3))


def quiet(before):
    """Whether no thread is left that was not there before."""
    for _ in range(100):
        if threading.active_count() <= before:
            return True
        time.sleep(0.05)
    return False


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(), max_size=5), max_size=8), st.integers(1, 4))
def test_items_come_in_order(units, n_readers):
    begun = [lambda unit=unit: iter(unit) for unit in units]
    assert list(read_ahead(begun, n_readers)) == [i for unit in units for i in unit]


def test_an_error_is_raised_where_its_item_would_have_come():
    def broken():
        yield 3
        raise RowsError("damaged")

    found = read_ahead([lambda: iter([1, 2]), broken, lambda: iter([4])], 3)
    assert [next(found) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(RowsError, match="damaged"):
        next(found)


def test_few_items_are_read_ahead():
    taken = []

    def unit():
        for number in range(100):
            taken.append(number)
            yield number

    found = read_ahead([unit], 1)
    next(found)
    time.sleep(0.3)
    assert len(taken) <= 5
    found.close()


def test_readers_end_when_nobody_listens():
    before = threading.active_count()
    closed = []

    def unit():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    found = read_ahead([unit, unit], 2)
    assert next(found) == 0
    found.close()
    assert quiet(before)
    assert len(closed) == 2


@pytest.fixture(params=["parquet", "csv", "arrow", "npy"])
def folder(request, tmp_path):
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    for number, start in enumerate(range(0, 5000, 700)):
        path = tmp_path / f"{number}.{request.param}"
        part = frame[start : start + 700]
        if request.param == "parquet":
            pq.write_table(pa.table(part), path, row_group_size=90)
        elif request.param == "csv":
            part.to_csv(path, index=False)
        elif request.param == "arrow":
            part.reset_index(drop=True).to_feather(path)
        else:
            np.save(path, part.to_numpy())
    return tmp_path


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_files_have_one_sketch_however_many_threads_read_them(folder, n_jobs):
    phi = sl.FourierFeatures(3, 16)
    before = threading.active_count()
    found = sl.sketch_rows(sl.open_rows(folder, n_jobs=n_jobs, batch_rows=256), phi)
    assert found == sl.sketch_rows(ROWS, phi)
    assert quiet(before)


def test_row_groups_are_read_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("sketchlearn.rows.parquet.CUT_ROWS", 1000)
    path = tmp_path / "a.parquet"
    table = pa.table(pd.DataFrame(ROWS))
    pq.write_table(table, path, row_group_size=600)
    piece = open_rows(path)._source.first
    assert len(piece.readers) == 5
    found = [len(b) for read in piece.readers for b in read([0, 1, 2], 10_000)]
    assert sum(found) == 5000
    for n_threads in (1, 3):
        parts = [part.floats() for part in open_rows(path).parts(n_threads)]
        assert np.array_equal(np.concatenate(parts), ROWS)


@pytest.mark.parametrize(
    ("group_rows", "n_readers"), [(4096, 3), (65_536, 3), (100, 3)]
)
def test_a_reader_has_65536_rows_in_groups_of_any_size(tmp_path, group_rows, n_readers):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": np.zeros(2 * 65_536 + 5000, np.float32)})
    pq.write_table(table, path, row_group_size=group_rows)
    readers = open_rows(path)._source.first.readers
    sizes = [sum(len(batch) for batch in read([0], 10**6)) for read in readers]
    assert len(sizes) == n_readers
    assert all(65_536 <= size < 65_536 + group_rows for size in sizes[:-1])


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_names_the_first_bad_row_of_many_files(tmp_path, n_jobs):
    for number in range(6):
        part = pd.DataFrame(ROWS[number * 500 : (number + 1) * 500])
        part.columns = list("abc")
        if number in (2, 4):
            part.loc[7, "b"] = np.nan
        part.to_parquet(tmp_path / f"{number}.parquet")
    before = threading.active_count()
    with pytest.raises(
        RowsError, match=r"first: row 1007 of the input, in .*2\.parquet"
    ):
        sl.sketch_rows(tmp_path, sl.FourierFeatures(3, 16), n_jobs=n_jobs)
    assert quiet(before)


def test_a_generator_stays_in_the_thread_that_made_it():
    threads = set()

    def batches():
        for start in range(0, 5000, 100):
            threads.add(threading.get_ident())
            yield ROWS[start : start + 100]

    sl.sketch_rows(batches(), sl.FourierFeatures(3, 16), n_jobs=3)
    assert threads == {threading.get_ident()}


def test_readers_end_though_the_error_is_kept(tmp_path):
    bad = ROWS.copy()
    bad[10, 1] = np.nan
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(pd.DataFrame(bad)), path, row_group_size=100)
    before = threading.active_count()
    try:
        rows = sl.open_rows(path, n_jobs=2, batch_rows=100)
        sl.sketch_rows(rows, sl.FourierFeatures(3, 16))
    except RowsError as error:
        kept = error
    assert quiet(before), kept


class Loader:
    """Batches that can be read again, always in the same array."""

    def __init__(self, values, shape):
        self.values, self.shape = values, shape

    def __iter__(self):
        array = np.empty(self.shape, int if len(self.shape) == 1 else float)
        for value in self.values:
            array[...] = value
            yield array


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_any_maker_of_batches_may_fill_the_same_array(n_jobs):
    phi = sl.MomentFeatures(2, order="mean")
    for shape in ((100, 2), (3000, 2)):
        found = sl.sketch_rows(Loader(range(10), shape), phi, n_jobs=n_jobs)
        assert found.mean.tolist() == [4.5, 4.5]
    ids = Loader(range(10), (1000,))
    for data in (ids, iter(ids), (pd.Series(part) for part in ids)):
        found = sl.sketch_items(data, sl.CounterFeatures(10), n_jobs=n_jobs)
        assert (found.mean * found.count).tolist() == [1000.0] * 10


@pytest.mark.parametrize("n_rows", [10, 3000])
def test_a_generator_may_fill_the_same_array_again_and_again(n_rows):
    def batches():
        array = np.empty((n_rows, 2))
        for number in range(6):
            array[:] = number
            yield array

    phi = sl.MomentFeatures(2, order="mean")
    assert sl.sketch_rows(batches(), phi, n_jobs=3).mean.tolist() == [2.5, 2.5]
    assert np.allclose(sl.CompressivePCA(1).fit(batches()).mean_, 2.5)
