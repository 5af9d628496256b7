"""Queries are run anew for every reading, for the columns that are asked for."""

import threading

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import sketchlearn as sl
from sketchlearn.errors import RowsError
from sketchlearn.rows.kinds import RowsKind, is_in_memory, kind_of
from sketchlearn.rows.open_items import open_items
from sketchlearn.rows.open_rows import open_rows

ROWS = np.random.default_rng(0).normal(size=(5000, 3))
TABLE = pa.table({"a": ROWS[:, 0], "b c": ROWS[:, 1], 'd"e.f': ROWS[:, 2]})


@pytest.fixture
def database():
    connection = duckdb.connect()
    connection.register("rows", TABLE)
    yield connection
    connection.close()


def ibis_table(database):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.memtable(TABLE)


def ibis_polars(database):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.polars.connect({"rows": pl.DataFrame(TABLE)}).table("rows")


def daft_frame(database):
    daft = pytest.importorskip("daft", reason="Daft is not installed")
    return daft.from_arrow(TABLE)


QUERIES = {
    "DuckDB": lambda database: database.sql("SELECT * FROM rows"),
    "ibis": ibis_table,
    "ibis on polars": ibis_polars,
    "Daft": daft_frame,
}


@pytest.fixture(params=QUERIES)
def query(request, database):
    return QUERIES[request.param](database)


def gather(data, **options):
    return np.concatenate(list(open_rows(data, **options)))


def test_a_query_is_read_as_often_as_one_likes(query):
    batches = open_rows(query, batch_rows=700)

    assert kind_of(query) is RowsKind.QUERY
    assert not is_in_memory(query)
    assert batches.is_repeatable
    assert batches.n_rows is None
    assert batches.names == tuple(TABLE.column_names)
    assert batches.source.startswith("a query of ")
    assert np.array_equal(batches.peek(10), ROWS[:10])
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(batches)), ROWS)


def test_columns_are_selected_by_any_name(query):
    chosen = ['d"e.f', "b c"]

    assert np.array_equal(gather(query, columns=chosen), ROWS[:, [2, 1]])
    assert np.array_equal(gather(query, columns=["b c"]), ROWS[:, [1]])
    with pytest.raises(RowsError, match="no column 'z' in a query of"):
        open_rows(query, columns=["z"])


def test_queries_are_batches_too(query):
    batches = open_rows([query, TABLE, query])

    assert batches.is_repeatable
    for _ in range(2):
        assert len(np.concatenate(list(batches))) == 15_000


def test_a_column_that_is_not_asked_for_is_not_computed(database):
    query = database.sql("SELECT a, CAST('no number' AS DOUBLE) AS bad FROM rows")
    lazy = pl.LazyFrame(TABLE).with_columns(
        bad=pl.col("a").map_batches(lambda column: 1 / 0, return_dtype=pl.Float64)
    )

    for data in (query, lazy):
        assert np.array_equal(gather(data, columns=["a"]), ROWS[:, :1])


def test_an_error_of_a_query_names_no_value(database):
    query = database.sql(
        "SELECT CAST(x AS DOUBLE) AS a FROM (VALUES ('1'), ('secret')) t(x)"
    )
    with pytest.raises(RowsError, match=r"DuckDB cannot be run \(Conv") as caught:
        gather(query)

    assert "secret" not in str(caught.value)


def test_a_closed_connection_is_said_to_be_one(database):
    query = database.sql("SELECT a FROM rows")
    batches = open_rows(query)
    database.close()

    with pytest.raises(RowsError, match="connection must be open"):
        list(batches)
    with pytest.raises(RowsError, match="connection must be open"):
        open_rows(query)


def test_a_reading_that_was_given_up_is_in_nobodys_way(database):
    batches = open_rows(database.sql("SELECT * FROM rows"), batch_rows=10)
    for _ in range(20):
        next(iter(batches))
        batches.peek(15)

    assert np.array_equal(np.concatenate(list(batches)), ROWS)


def test_a_second_reading_at_the_same_time_is_refused_and_the_first_whole(database):
    batches = open_rows(
        database.sql("SELECT range::DOUBLE AS a FROM range(3_000_000)"), batch_rows=100
    )
    reading = iter(batches)
    first = [next(reading)]
    with pytest.raises(RowsError, match="used by nothing else"):
        next(iter(batches))

    assert len(np.concatenate([*first, *reading])) == 3_000_000


def test_a_query_is_read_in_another_thread(database):
    query, found = database.sql("SELECT * FROM rows"), []
    worker = threading.Thread(target=lambda: found.append(gather(query)))
    worker.start()
    worker.join()

    assert np.array_equal(found[0], ROWS)


def test_types_of_a_database_are_read_or_refused_by_name(database):
    query = database.sql(
        "SELECT 1::TINYINT AS i, TRUE AS t, 1.5::FLOAT AS f, NULL::DOUBLE AS n"
    )
    assert gather(query, columns=["i", "t", "f"]).tolist() == [[1.0, 1.0, 1.5]]
    with pytest.raises(RowsError, match="1 row contains NaN"):
        gather(query)
    for kind in ("1.5 AS x", "'u' AS x", "DATE '2020-01-01' AS x", "[1.0] AS x"):
        with pytest.raises(RowsError, match="column 'x' of a query of DuckDB has type"):
            open_rows(database.sql(f"SELECT {kind}"))
    with pytest.raises(RowsError, match="0 rows in a query of DuckDB"):
        gather(database.sql("SELECT a FROM rows WHERE a > 1e9"))


def test_ids_are_read_from_a_query(database):
    query = database.sql("SELECT 'u' || (range % 3) AS user, range AS n FROM range(9)")
    items = open_items(query, column="user", vocabulary=["u0", "u1", "u2"])

    for _ in range(2):
        assert sum(rows.n_rows for rows in items) == 9


def test_the_result_of_a_cursor_is_read_once(database):
    reader = database.sql("SELECT a FROM rows").to_arrow_reader(100)
    batches = open_rows(reader)

    assert not batches.is_repeatable
    assert np.array_equal(np.concatenate(list(batches)), ROWS[:, :1])


def test_two_rounds_of_a_query_are_those_of_the_rows(query, tmp_path):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(TABLE, path, row_group_size=1000)
    fitted = [
        sl.CompressiveKMeans(3, sketch_size=60, rounds=2, n_init=1).fit(data)
        for data in (query, path, ROWS)
    ]

    assert len({model.sketch_.digest for model in fitted}) == 1
    assert np.array_equal(fitted[0].cluster_centers_, fitted[2].cluster_centers_)
