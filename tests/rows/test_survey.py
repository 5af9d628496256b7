"""A survey of rows says the same of them in whatever form they come."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.errors import RowsError
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.rows.survey import sample_spans, survey_rows

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(9000, 3)).astype(np.float32)
ROWS[8000:, 1] *= 100  # the end is different
TABLE = pa.table({name: ROWS[:, i] for i, name in enumerate("abc")})


def columns():
    return zip(TABLE.column_names, TABLE.columns, strict=True)


def look(data, first_rows=65_536, **options):
    return survey_rows(open_rows(data, **options), first_rows=first_rows)


def expected(rows):
    """The sample by its definition: at most eight blocks of 512 rows."""
    stride = 1
    while len(rows) > 8 * stride * 512:
        stride *= 2
    number = np.arange(len(rows)) // 512
    return rows[number % stride == 0]


def same(found, rows=ROWS):
    assert found.low.dtype == found.high.dtype == found.some.dtype == np.float64
    assert np.array_equal(found.low, rows.min(axis=0))
    assert np.array_equal(found.high, rows.max(axis=0))
    assert np.array_equal(found.some, expected(rows))
    assert found.n_rows == len(rows)
    assert found.is_whole
    return True


def test_every_kind_of_input_is_seen_whole_and_alike(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    for number, size in enumerate((9000, 1000, 700)):
        path = whole / f"{number}.parquet"
        pa.parquet.write_table(TABLE, path, row_group_size=size)
        assert same(look(path))
    pa.parquet.write_table(TABLE, whole / "plain.parquet", write_statistics=False)
    pa.feather.write_feather(TABLE, whole / "rows.arrow", chunksize=777)
    exact = pa.table({name: column.cast("float64") for name, column in columns()})
    pa.csv.write_csv(exact, whole / "rows.csv")
    np.save(whole / "rows.npy", ROWS)
    for name in ("plain.parquet", "rows.arrow", "rows.csv", "rows.npy"):
        assert same(look(whole / name))
    for number, start in enumerate(range(0, 9000, 2100)):
        part = TABLE.slice(start, 2100)
        pa.parquet.write_table(part, parts / f"{number}.parquet")
    assert same(look(parts))
    frame = TABLE.to_pandas()
    for data in (ROWS, ROWS.astype(float), TABLE, frame, [ROWS[:100], ROWS[100:]]):
        assert same(look(data))
    assert same(look(ROWS[i : i + 333] for i in range(0, 9000, 333)))


def test_a_parquet_file_is_surveyed_without_reading_all_of_it(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(TABLE, path, row_group_size=500)
    batches = open_rows(path)
    monkeypatch.setattr(type(batches), "__iter__", None)
    assert same(survey_rows(batches, first_rows=10))


def test_rows_that_are_left_out_are_not_surveyed(tmp_path):
    rows = ROWS.copy()
    rows[5] = [np.nan, 1e30, -1e30]
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({n: rows[:, i] for i, n in enumerate("abc")}), path)
    kept = np.delete(rows, 5, axis=0)
    assert same(look(path, on_invalid="drop"), kept)
    assert same(look(rows, on_invalid="drop"), kept)
    with pytest.raises(RowsError, match="row 5 of the input"):
        look(path)


def test_a_selection_is_surveyed_in_its_order(tmp_path):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(TABLE, path, row_group_size=1000)
    batches = open_rows(path).select(["c", "a"])
    assert same(survey_rows(batches, first_rows=10), ROWS[:, [2, 0]])
    frame = pd.DataFrame({"k": ["u", "v"] * 4500, "a": ROWS[:, 0]})
    frame.to_parquet(path)
    batches = open_rows(path, encodings={"k": ["u", "v"]}).select(["a", "k=v"])
    rows = np.stack([ROWS[:, 0], np.arange(9000) % 2], axis=1)
    assert same(survey_rows(batches, first_rows=10), rows)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint16", "int32", "uint32", "int64"])
def test_whole_numbers_in_an_index_are_their_values(tmp_path, kind):
    values = (ROWS[:, :1] > 0) if kind == "bool" else np.arange(9000)[:, None] % 100
    values = values.astype(kind)
    if kind in ("uint32", "int64"):
        values[7] = 2**32 - 1
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"a": values[:, 0]}), path, row_group_size=1000)
    assert same(look(path), values)


def test_of_a_long_stream_the_first_rows_are_surveyed():
    found = look((ROWS[i : i + 100] for i in range(0, 9000, 100)), first_rows=1000)
    assert np.array_equal(found.high, ROWS[:1000].max(axis=0))
    assert found.n_rows == 1000
    assert not found.is_whole
    assert look(iter([ROWS[:1000]]), first_rows=1000).is_whole


def test_negative_zero_is_zero(tmp_path):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"a": np.zeros(5)}), path)  # the index says -0.0
    for data in (path, np.full((5, 1), -0.0)):
        found = look(data)
        assert not np.signbit([found.low, found.high]).any()


@settings(max_examples=40, deadline=None)
@given(
    n_rows=st.integers(1, 9000),
    cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=5),
)
def test_how_a_stream_is_cut_does_not_matter(n_rows, cuts):
    rows, parts, start = ROWS[:n_rows], [], 0
    for cut in cuts * 9000:
        if start >= n_rows:
            break
        parts.append(rows[start : start + cut])
        start += cut
    assert same(look(iter(parts)), rows)


def test_samples_of_wide_rows_stay_small():
    found = look(np.zeros((100, 200_000), np.float32))
    assert found.some.size <= 8 * 2**19


def test_samples_of_long_inputs_have_more_than_four_blocks_and_at_most_eight():
    for n_rows in (*range(8 * 512 + 1, 40_000, 97), 10**9, 10**12):
        spans = sample_spans(n_rows, 512)
        assert 4 < len(spans) <= 8
        assert sum(stop - start for start, stop in spans) <= 4096
