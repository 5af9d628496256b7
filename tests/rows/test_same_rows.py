"""A sketch is of its rows: what they come in makes no difference, to the last bit."""

import json

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchlearn as sl

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2000, 4)) * [1.0, 1e-3, 9.0, 2.0]
ROWS[:, 2:] = np.abs(ROWS[:, 2:].round())  # counts of two items
NAMES = ["a", "b", "c", "d"]
TABLE = pa.table({name: ROWS[:, i] for i, name in enumerate(NAMES)})
MAPS = [
    (["a", "b", "c", "d"], sl.MomentFeatures(4, reach=64.0)),
    (["b", "a"], sl.FourierFeatures(n_features=2, sketch_size=64, scale=1.0, seed=0)),
    (["c", "d"], sl.CountSketchFeatures(2, width=8, depth=3)),
]


def as_json(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist())


def write(folder, name):
    path = folder / name
    if name.endswith(".parquet"):
        pa.parquet.write_table(TABLE, path, row_group_size=300)
    elif name.endswith(".csv"):
        pa.csv.write_csv(TABLE, path)
    elif name.endswith(".jsonl"):
        path.write_text(as_json(TABLE))
    else:
        pa.feather.write_feather(TABLE, path, chunksize=300)
    return path


def in_memory(folder, name):
    path = write(folder, name)
    fsspec.filesystem("memory").pipe(f"/same/{name}", path.read_bytes())
    return f"memory://same/{name}"


def ibis_table(folder):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.memtable(TABLE)


def daft_frame(folder):
    daft = pytest.importorskip("daft", reason="Daft is not installed")
    return daft.from_arrow(TABLE)


KINDS = {
    "pandas": lambda folder: pd.DataFrame(ROWS, columns=NAMES),
    "polars": lambda folder: pl.DataFrame(ROWS, schema=NAMES),
    "LazyFrame": lambda folder: pl.scan_parquet(write(folder, "x.parquet")),
    "Arrow": lambda folder: TABLE,
    "dataset": lambda folder: pa.dataset.dataset(write(folder, "x.parquet")),
    "DuckDB": lambda folder: duckdb.from_arrow(TABLE),
    "DuckDB of a file": lambda folder: duckdb.read_csv(str(write(folder, "x.csv"))),
    "ibis": ibis_table,
    "Daft": daft_frame,
    **{
        name: lambda folder, name=name: write(folder, name)
        for name in ("x.parquet", "x.csv", "x.jsonl", "x.feather")
    },
    **{
        f"memory://{name}": lambda folder, name=name: in_memory(folder, name)
        for name in ("x.parquet", "x.csv", "x.jsonl", "x.feather")
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_has_the_same_sketches(tmp_path, kind):
    data = KINDS[kind](tmp_path)

    for columns, feature_map in MAPS:
        found = sl.sketch_rows(data, feature_map, columns=columns)
        array = ROWS[:, [NAMES.index(name) for name in columns]]
        assert found.digest == sl.sketch_rows(array, feature_map).digest


@pytest.mark.parametrize("kind", ["LazyFrame", "DuckDB", "ibis", "x.parquet"])
def test_planned_cells_are_the_same(tmp_path, kind):
    fit = sl.CompressiveKMeans(3, sketch_size=300).fit
    assert fit(KINDS[kind](tmp_path)).sketch_ == fit(ROWS).sketch_


def test_a_learned_map_is_the_same(tmp_path):
    phi = sl.load_model("pca-sqnet-100").feature_map()
    rows = RNG.normal(size=(200, phi.n_features))
    frame = pd.DataFrame(rows, columns=[f"f{i}" for i in range(rows.shape[1])])
    frame.to_parquet(tmp_path / "wide.parquet")
    expected = sl.sketch_rows(rows, phi)
    for data in (
        frame,
        pl.scan_parquet(tmp_path / "wide.parquet"),
        duckdb.read_parquet(str(tmp_path / "wide.parquet")),
    ):
        assert sl.sketch_rows(data, phi) == expected


@given(
    st.lists(
        st.tuples(*[st.floats(-1e6, 1e6, allow_subnormal=True)] * 2),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_numbers_are_the_same_in_text_and_in_binary(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    array = np.array(rows)
    table = pa.table({"a": array[:, 0], "b": array[:, 1]})
    pa.parquet.write_table(table, folder / "x.parquet")
    (folder / "x.jsonl").write_text(as_json(table))
    lines = ["a,b", *(f"{a!r},{b!r}" for a, b in rows)]
    (folder / "x.csv").write_text("\n".join(lines) + "\n")

    for name in ("x.parquet", "x.jsonl", "x.csv"):
        found = np.concatenate(list(sl.open_rows(folder / name)))
        assert found.tobytes() == array.tobytes()


def test_totals_are_known_where_files_say_them(tmp_path):
    for name in ("x.parquet", "x.feather", "memory://x.parquet", "dataset"):
        assert sl.open_rows(KINDS[name](tmp_path)).n_rows == len(ROWS)
    filtered = pa.dataset.dataset(tmp_path / "x.parquet").filter(
        pa.dataset.field("a") > 0
    )
    for data in (tmp_path / "x.parquet", filtered):
        batches = sl.open_rows(data)
        rows = sum(map(len, batches))
        assert batches.n_rows in (None, rows)
    for name in ("x.csv", "x.jsonl", "LazyFrame", "DuckDB"):
        assert sl.open_rows(KINDS[name](tmp_path)).n_rows is None
