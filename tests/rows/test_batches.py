"""Every kind of input gives the same rows exactly, or an error that says where."""

import gzip
from datetime import date
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.engines.sketch_items import sketch_items
from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.features.hashing import CountMinFeatures
from sketchlearn.rows import csv_files, tables
from sketchlearn.rows.open_rows import open_rows

ROWS = np.array([[0.0, 1.5], [-2.0, 0.0], [3.25, 4.0], [5.0, -6.5], [0.0, 8.0]])
NAMES = ("a", "b")
SINGLE = ("?", "i1", "u1", "i2", "u2", "f2", "f4")


class ArrowStream:
    """Anything that speaks the Arrow stream protocol, such as a DuckDB relation."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def table(array=ROWS):
    return pa.table({name: array[:, i] for i, name in enumerate(NAMES)})


def gather(data, **options):
    batches = list(open_rows(data, **options))
    return np.concatenate(batches)


def message(data, error=RowsError, **options):
    with pytest.raises(error) as caught:
        list(open_rows(data, **options))
    return str(caught.value)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def memmap(folder):
    np.save(folder / "m.npy", ROWS)
    return np.load(folder / "m.npy", mmap_mode="r")


def write(path, array=ROWS):
    kind = path.suffix if path.suffix != ".gz" else ".csv.gz"
    if kind in (".parquet", ".pq"):
        pyarrow.parquet.write_table(table(array), path, row_group_size=2)
    elif kind == ".csv":
        pyarrow.csv.write_csv(table(array), path)
    elif kind == ".csv.gz":
        text = table(array).to_pandas().to_csv(index=False)
        path.write_bytes(gzip.compress(text.encode()))
    elif kind == ".npy":
        np.save(path, array)
    else:
        pyarrow.feather.write_feather(table(array), path, chunksize=2)
    return path


def write_stream(path):
    with pa.ipc.new_stream(path, table().schema) as sink:
        sink.write_table(table())
    return path


def halves(folder, suffix):
    write(folder / f"1{suffix}", ROWS[:2])
    write(folder / f"2{suffix}", ROWS[2:])
    return folder


KINDS = {
    "C order": lambda folder: ROWS,
    "Fortran order": lambda folder: np.asfortranarray(ROWS),
    "strided": lambda folder: np.repeat(ROWS, 2, axis=0)[::2],
    "read-only": lambda folder: read_only(ROWS),
    "byte-swapped": lambda folder: ROWS.astype(">f8"),
    "memmap": memmap,
    "float16": lambda folder: ROWS.astype(np.float16),
    "longdouble": lambda folder: ROWS.astype(np.longdouble),
    "list": lambda folder: ROWS.tolist(),
    "tuple of rows": lambda folder: tuple(map(tuple, ROWS)),
    "list of 1-D arrays": lambda folder: list(ROWS),
    "pandas": lambda folder: pd.DataFrame(ROWS, columns=NAMES),
    "pandas, unnamed": lambda folder: pd.DataFrame(ROWS),
    "pandas, nullable": lambda folder: pd.DataFrame(ROWS).astype("Float64"),
    "polars": lambda folder: pl.DataFrame(ROWS, schema=NAMES),
    "LazyFrame": lambda folder: pl.DataFrame(ROWS, schema=NAMES).lazy(),
    "Arrow table": lambda folder: table(),
    "record batch": lambda folder: table().to_batches()[0],
    "reader": lambda folder: table().to_reader(max_chunksize=2),
    "dataset": lambda folder: pyarrow.dataset.dataset(write(folder / "x.parquet")),
    "Arrow stream": lambda folder: ArrowStream(table()),
    "csr": lambda folder: scipy.sparse.csr_array(ROWS),
    "csc": lambda folder: scipy.sparse.csc_matrix(ROWS),
    "coo": lambda folder: scipy.sparse.coo_array(ROWS),
    "tensor": lambda folder: torch.tensor(ROWS),
    "bfloat16 tensor": lambda folder: torch.tensor(ROWS).bfloat16(),
    "gradient, transposed": lambda folder: torch.tensor(ROWS.T, requires_grad=True).T,
    "generator": lambda folder: (ROWS[i : i + 2] for i in range(0, 5, 2)),
    "mixed generator": lambda folder: (
        kind for kind in [table(ROWS[:1]), ROWS[1:3], pl.DataFrame(ROWS[3:], NAMES)]
    ),
    "list of batches": lambda folder: [ROWS[:4], ROWS[4:]],
    "list of frames": lambda folder: [pd.DataFrame(ROWS[:4]), pd.DataFrame(ROWS[4:])],
    "list of readers": lambda folder: [table().to_reader()],
    "parquet": lambda folder: write(folder / "x.parquet"),
    "csv": lambda folder: write(folder / "x.csv"),
    "csv.gz": lambda folder: write(folder / "x.csv.gz"),
    "feather": lambda folder: write(folder / "x.feather"),
    "arrow stream file": lambda folder: write_stream(folder / "x.arrow"),
    "npy": lambda folder: str(write(folder / "x.npy")),
    "glob": lambda folder: str(halves(folder, ".parquet") / "*.parquet"),
    "folder": lambda folder: halves(folder, ".csv"),
    "list of paths": lambda folder: [
        halves(folder, ".pq") / "1.pq",
        write(folder / "2.npy", ROWS[2:]),
    ],
}
ONCE = ("reader", "generator", "mixed generator", "Arrow stream", "list of readers")


@pytest.mark.parametrize("batch_rows", [2, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_rows(tmp_path, kind, batch_rows):
    batches = open_rows(KINDS[kind](tmp_path), batch_rows=batch_rows)
    first = batches.peek(3)
    found = list(batches)

    assert batches.n_features == 2
    assert batches.n_rows in (None, 5)
    assert np.array_equal(first, ROWS[:3])
    assert np.array_equal(np.concatenate(found), ROWS)
    assert [len(batch) for batch in found] == ([2, 2, 1] if batch_rows == 2 else [5])
    assert all(batch.flags.c_contiguous for batch in found)
    assert {batch.dtype.name for batch in found} <= {"float32", "float64"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ONCE])
def test_arrays_frames_and_files_can_be_read_again(tmp_path, kind):
    batches = open_rows(KINDS[kind](tmp_path))

    assert np.array_equal(np.concatenate(list(batches)), ROWS)
    assert np.array_equal(np.concatenate(list(batches)), ROWS)


@pytest.mark.parametrize("kind", ONCE)
def test_generators_and_readers_cannot_be_read_twice(tmp_path, kind):
    batches = open_rows(KINDS[kind](tmp_path))
    list(batches)

    with pytest.raises(RowsError, match="cannot be read twice"):
        iter(batches)
    with pytest.raises(RowsError, match="cannot be read twice"):
        batches.peek(1)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_any_partition_into_batches_gives_back_the_same_rows(sizes, batch_rows):
    whole = np.arange(2.0 * (1 + sum(sizes))).reshape(-1, 2)
    cuts = np.cumsum([1, *sizes])[:-1]
    found = list(open_rows(iter(np.split(whole, cuts)), batch_rows=batch_rows))

    assert np.array_equal(np.concatenate(found), whole)
    assert all(len(batch) == batch_rows for batch in found[:-1])
    assert 0 < len(found[-1]) <= batch_rows


@given(
    st.lists(st.tuples(*[st.integers(0, 100)] * 3), min_size=1, max_size=20),
    st.sampled_from([*SINGLE, "i4", "u4", "i8", "u8", "f8", "g"]),
    st.sampled_from(["C", "F"]),
)
@settings(max_examples=100, deadline=None)
def test_any_type_and_layout_of_the_same_values_gives_equal_rows(values, kind, order):
    array = np.array(values).astype(kind).astype(kind, order=order)
    frame = pd.DataFrame(array, columns=list("xyz")) if kind != "g" else array
    single = kind in SINGLE

    for data in (array, frame):
        found = gather(data, batch_rows=7)
        assert np.array_equal(found, array.astype(float))
        assert found.dtype == (np.float32 if single else np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batches_of_a_contiguous_array_are_views(dtype):
    array = np.zeros((10, 3), dtype)
    found = list(open_rows(array, batch_rows=4))

    assert all(np.shares_memory(batch, array) for batch in found)


def test_extreme_finite_values_pass_unchanged():
    extreme = [[1e308, 5e-324], [1.7e308, -0.0], [-1e308, 2.0]]
    array = np.array(extreme)
    huge = np.full((4, 2), np.finfo(np.float32).max)

    assert gather(array).tobytes() == array.tobytes()
    assert np.array_equal(gather(huge), huge)


def test_columns_mixing_types_are_float64_and_small_ones_float32():
    frame = pl.DataFrame(
        {"a": [True, False], "b": [1, 2]}, {"a": pl.Boolean, "b": pl.Int16}
    )

    assert gather(frame).dtype == np.float32
    assert gather(frame.cast({"b": pl.Int32})).dtype == np.float64
    assert np.array_equal(gather(frame), [[1, 1], [0, 2]])


def test_a_later_batch_of_a_wider_type_is_not_rounded():
    parts = [np.zeros((1, 1), np.float32), np.full((1, 1), 0.1)]

    assert gather(iter(parts)).tolist() == [[0.0], [0.1]]


@pytest.mark.parametrize("value", [2**53, 2**53 + 2, -(2**63), 2**62 + 2**20])
def test_large_integers_that_are_exact_pass(value):
    assert gather(np.array([[value]], np.int64)) == value
    assert gather(pa.table({"a": pa.array([value, None])}), on_invalid="drop") == value


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
@pytest.mark.parametrize("make", [np.array, pd.DataFrame, lambda x: x, torch.tensor])
def test_integers_that_float64_would_round_are_refused(make, value):
    text = message(make([[1, 2], [3, value]]))

    assert "row 1 of the input, column 1" in text
    assert "cannot be represented exactly as float64" in text
    assert str(value) not in text


def test_rounded_unsigned_and_long_values_are_refused():
    fine = np.longdouble(1) + np.finfo(np.longdouble).eps

    assert "exactly" in message(np.array([[2**64 - 1]], np.uint64))
    assert "exactly" in message([[0.5, 2**53 + 1]])
    if fine != np.float64(fine):
        assert "exactly" in message(np.array([[fine]]))


def test_columns_select_and_order_by_name_or_position(tmp_path):
    for data in (table(), write(tmp_path / "x.csv"), write(tmp_path / "x.parquet")):
        batches = open_rows(data, columns=["b", "a"])
        assert batches.names == ("b", "a")
        assert np.array_equal(np.concatenate(list(batches)), ROWS[:, ::-1])
    for array in (ROWS, scipy.sparse.csr_array(ROWS), torch.tensor(ROWS)):
        assert np.array_equal(gather(array, columns=[1]), ROWS[:, 1:])


@pytest.mark.parametrize(
    "kind", ["pandas", "polars", "LazyFrame", "feather", "dataset"]
)
def test_every_named_kind_selects_columns(tmp_path, kind):
    assert np.array_equal(gather(KINDS[kind](tmp_path), columns=["b"]), ROWS[:, 1:])


def test_an_unused_column_may_have_any_type():
    frame = pd.DataFrame({"a": [1.0], "text": ["x"], "mixed": [object()]})

    assert gather(frame, columns=["a"]).tolist() == [[1.0]]


def test_an_unknown_column_is_answered_with_the_closest_name(tmp_path):
    (tmp_path / "x.csv").write_text("price," + ",".join("abcdefghijk") + "\n")
    text = message(tmp_path / "x.csv", columns=["prcie"])

    assert "no column 'prcie' in" in text
    assert "x.csv'; did you mean 'price'? Columns: price, a, b" in text
    assert text.endswith("h, i, ..")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("ab", r"list of names.*\['ab'\]"),
        (["a", "a"], "'a' 2 times"),
        ([], "empty"),
        (["a", 1], "names only"),
        ([1.5], "names or positions"),
        ([0], "no column 0 in"),
    ],
)
def test_a_wrong_choice_of_columns_is_refused(columns, words):
    with pytest.raises(RowsError, match=words):
        open_rows(table(), columns=columns)


def test_names_for_unnamed_data_and_wild_positions_are_refused():
    assert "no column names" in message(ROWS, columns=["a"])
    assert "no column 2 in an array of shape (5, 2)" in message(ROWS, columns=[2])
    assert "no column -1" in message(ROWS, columns=[-1])


def test_labels_that_are_not_strings_are_named_by_their_text():
    frame = pd.DataFrame(ROWS, columns=[3, 7])

    assert open_rows(frame).names == ("3", "7")
    assert np.array_equal(gather(frame, columns=["7"]), ROWS[:, 1:])


def test_duplicate_column_names_are_refused():
    frame = pd.DataFrame(ROWS, columns=["a", "a"])

    assert "several columns named 'a'" in message(frame)


CITIES = ["Oslo", "Rome", "Oslo"]
ENCODED = [[0, 1, 0, 5], [1, 0, 0, 6], [0, 1, 0, 7]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(CITIES),
        pa.array(CITIES, pa.large_string()),
        pa.array(CITIES, pa.string_view()),
        pa.array(CITIES).dictionary_encode(),
    ],
)
def test_encoded_columns_become_one_column_per_category_in_place(column):
    data = pa.table({"city": column, "n": pa.array([5, 6, 7], pa.int8())})
    batches = open_rows(data, encodings={"city": ["Rome", "Oslo", "Bern"]})

    assert batches.names == ("city=Rome", "city=Oslo", "city=Bern", "n")
    assert batches.n_features == 4
    assert np.concatenate(list(batches)).tolist() == ENCODED


@pytest.mark.parametrize("dtype", ["object", "str", "category"])
def test_encodings_work_on_pandas_and_polars_text(dtype):
    frame = pd.DataFrame({"city": CITIES, "n": [5, 6, 7]}).astype({"city": dtype})
    known = {"city": ["Rome", "Oslo", "Bern"]}

    assert gather(frame, encodings=known).tolist() == ENCODED
    categorical = pl.DataFrame({"city": CITIES, "n": [5, 6, 7]}).with_columns(
        pl.col("city").cast(pl.Categorical)
    )
    assert gather(categorical, encodings=known).tolist() == ENCODED


@pytest.mark.parametrize(
    ("values", "categories"),
    [([2, 1], [1, 2]), ([2.0, 1.0], [1, 2]), ([True, False], [False, True])],
)
def test_encodings_work_on_numbers_and_truth_values(tmp_path, values, categories):
    data = pa.table({"x": values})
    pyarrow.csv.write_csv(data, tmp_path / "x.csv")
    for source in (data, tmp_path / "x.csv"):
        found = gather(source, encodings={"x": categories})
        assert found.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_encoded_text_of_a_csv_file_is_not_taken_for_a_number(tmp_path):
    (tmp_path / "x.csv").write_text("zip,n\n01,1\n10,2\n")
    found = gather(tmp_path / "x.csv", encodings={"zip": ["01", "10"]})

    assert found.tolist() == [[1, 0, 1], [0, 1, 2]]


def test_a_value_outside_the_categories_is_refused_without_repeating_it():
    column = pa.array(["Oslo", "Rome", "Secret"])
    for data in (column, column.dictionary_encode()):
        text = message(
            pa.table({"city": data}), encodings={"city": ["Oslo", "Rome"]}, batch_rows=2
        )
        assert "column 'city'" in text
        assert "holds a value outside the declared categories" in text
        assert "Secret" not in text
        assert "row 2 of the input" in text


PEOPLE = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "c": ["x", None, "y", "x"]})


def forms_of(frame, folder):
    """The same table in memory and in files, with nulls as each has them."""
    frame.to_parquet(folder / "x.parquet")
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_json(folder / "x.jsonl", orient="records", lines=True)
    table = pa.Table.from_pandas(frame)
    text = frame["c"].astype(object)
    coded = table.set_column(1, "c", table["c"].combine_chunks().dictionary_encode())
    listed = table.set_column(
        1, "c", table["c"].combine_chunks().dictionary_encode("encode")
    )
    return {
        "objects": frame.assign(c=text),
        "NaN": frame.assign(c=text.where(text.notna(), float("nan"))),
        "categories": frame.assign(c=frame["c"].astype("category")),
        "polars": pl.DataFrame(table),
        "lazy": pl.DataFrame(table).lazy(),
        "Arrow": table,
        "dictionary": coded,
        "null in a dictionary": listed,
        "views": table.set_column(1, "c", table["c"].cast(pa.string_view())),
        "query": duckdb.from_arrow(table),
        "generator": iter([table.slice(0, 1), table.slice(1)]),
        "Parquet": folder / "x.parquet",
        "CSV": folder / "x.csv",
        "JSON": folder / "x.jsonl",
    }


def test_rows_without_a_category_are_dropped_or_refused_in_all_forms(tmp_path):
    known = {"c": ["x", "y"]}
    expected = [[1.0, 1.0, 0.0], [3.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
    for name, data in forms_of(PEOPLE, tmp_path).items():
        found = gather(data, encodings=known, on_invalid="drop")
        assert found.tolist() == expected, name
    for name, data in forms_of(PEOPLE, tmp_path).items():
        text = message(data, encodings=known)
        assert "1 row contains NaN or infinity, or a missing category" in text, name
    for name, data in forms_of(PEOPLE, tmp_path).items():
        text = message(data, encodings={"c": ["x"]}, on_invalid="drop")
        assert "outside the declared categories" in text, name


def test_numbers_as_categories_are_missing_where_they_are_nan():
    table = pa.table({"c": [1.0, float("nan"), None, 2.0]})
    for data in (table, table.to_pandas(), np.array([[1.0], [np.nan], [2.0]])):
        options = {"encodings": {"c": [1.0, 2.0]}}
        if isinstance(data, np.ndarray):
            data = pd.DataFrame(data, columns=["c"])
        assert gather(data, on_invalid="drop", **options).tolist() == [[1, 0], [0, 1]]


def test_an_empty_text_is_a_category_where_it_is_declared(tmp_path):
    (tmp_path / "x.csv").write_text("a,c\n1,\n2,u\n")
    for data in (tmp_path / "x.csv", pd.DataFrame({"a": [1, 2], "c": ["", "u"]})):
        found = gather(data, encodings={"c": ["u", ""]}, on_invalid="drop")
        assert found.tolist() == [[1, 0, 1], [2, 1, 0]]
        kept = gather(data, encodings={"c": ["u"]}, on_invalid="drop")
        assert kept.tolist() == [[2, 1]]


@pytest.mark.parametrize("number", [2**63, 2**63 + 1, 2**64 - 1, 2**70, -(2**63) - 1])
def test_whole_numbers_beyond_64_bits_are_refused_in_text_files(tmp_path, number):
    path = tmp_path / "x.csv"
    for text in (f"a,b\n{number},1\n", f"a,b\n5,1\n{number},1\n,2\n"):
        path.write_text(text)
        assert "2**53 or more" in message(path)
        assert gather(path, columns=["b"])[0] == 1
    path.write_text(f"a,b\n{number}.0,1\n0.5,1\n")  # decimals are rounded
    assert gather(path)[0, 0] == float(number)


def test_ids_beyond_int64_are_read_exactly_or_refused(tmp_path):
    path = tmp_path / "x.csv"
    ids = [2**63 + 1, 5, 2**64 - 1]
    path.write_text("a,b\n" + "".join(f"{one},1\n" for one in ids))
    table = pa.table({"a": pa.array(ids, pa.uint64())})
    phi = CountMinFeatures(width=50, depth=2)
    assert sketch_items(path, phi, column="a") == sketch_items(table, phi, column="a")
    for other in (-3, 2**64):
        path.write_text(f"a,b\n{2**63},1\n{other},1\n")
        with pytest.raises(RowsError, match="cannot read"):
            sketch_items(path, phi, column="a")


@pytest.mark.parametrize(
    ("encodings", "words"),
    [
        ({"city": ["x"], "ctiy": ["x"]}, "no column 'ctiy'.*did you mean 'city'"),
        ({"city": "Oslo"}, "must list the categories"),
        ({"city": []}, "at least one"),
        ({"city": ["a", "a"]}, "none twice"),
        ({"city": ["a", None]}, "none missing"),
        ({"city": ["a", 1]}, "all of one type"),
        ({"n": ["a"]}, "do not fit its type int64"),
        ({"n": [1.5]}, "do not fit its type int64"),
        (["city"], "must be a dict"),
    ],
)
def test_wrong_encodings_are_refused(encodings, words):
    data = pa.table({"city": ["x"], "n": [1]})
    with pytest.raises(RowsError, match=words):
        list(
            open_rows(
                data.select(["n"]) if "n" in encodings else data, encodings=encodings
            )
        )


def test_an_encoding_of_an_unselected_or_unnamed_column_is_refused():
    data = pa.table({"city": ["x"], "n": [1]})

    assert "leaves out" in message(data, columns=["n"], encodings={"city": ["x"]})
    assert "no column names" in message(ROWS, encodings={"city": ["x"]})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["Oslo"], "string"),
        ([Decimal("1.5")], "decimal"),
        ([date(2020, 1, 1)], "date32"),
        (pa.array([0], pa.timestamp("ns")), "timestamp"),
        (pa.array(["x"]).dictionary_encode(), "dictionary"),
        ([[1.0, 2.0]], "list"),
        ([{"x": 1.0}], "struct"),
        ([b"x"], "binary"),
    ],
)
def test_columns_that_are_not_numbers_are_refused_by_name_and_type(values, kind):
    text = message(pa.table({"n": [1], "city": values}))

    assert f"column 'city' of an Arrow table of shape (1, 2) has type {kind}" in text
    assert "columns=[...]" in text
    assert "encodings={'city': [...]}" in text


def test_objects_and_categories_of_pandas_are_refused():
    numbers = pd.DataFrame({"a": np.array([1, 2], object)})
    categories = pd.DataFrame({"a": pd.Categorical([1, 2])})
    mixed = pd.DataFrame({"a": np.array([1, "x"], object)})

    assert "type object" in message(numbers)
    assert "astype(float)" in message(numbers)
    assert "type dictionary" in message(categories)
    assert "mixed" in message(mixed, encodings={"a": ["x"]})


def test_unusual_pandas_columns_are_refused_by_name():
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray([1.0, 0.0])})
    swapped = pd.DataFrame({"a": np.array([1.0], ">f4")})

    assert "column 'a'" in message(sparse)
    assert "astype" in message(swapped)


@pytest.mark.parametrize(
    "array",
    [np.array([[1, None]], object), np.array([["x"]]), np.zeros((1, 1), "M8[s]")],
)
def test_arrays_that_are_not_numbers_are_refused(array):
    assert "is not a number" in message(array)


@pytest.mark.parametrize(
    "make",
    [np.array, pd.DataFrame, scipy.sparse.csr_array, torch.tensor, lambda x: x],
)
def test_complex_numbers_are_refused(make):
    assert "Complex data not supported" in message(make([[1j, 2.0]]))


def test_missing_values_count_as_nan():
    column = pa.array([1, None, 3], pa.int8())
    flags = pa.array([None, True, False])
    half = pa.array(np.array([1, 2, 3], np.float16), mask=np.array([0, 0, 1], bool))
    nulls = pa.nulls(3)
    for values, left in ((column, 2), (flags, 2), (half, 2)):
        data = pa.table({"a": values})
        assert "1 row contains NaN" in message(data)
        assert len(gather(data, on_invalid="drop")) == left
    assert "3 rows contain NaN" in message(pa.table({"a": nulls}))
    nullable = pd.DataFrame({"a": pd.array([1, None], "Int64")})
    assert gather(nullable, on_invalid="drop").tolist() == [[1.0]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity_are_refused_by_row(value, dtype):
    array = np.zeros((20, 3), dtype)
    array[[17, 18, 19], 1] = value
    text = message(array, batch_rows=8)

    assert text.startswith("3 rows contain NaN or infinity (first: row 17 of the input")
    assert "Nothing was added" in text
    assert "on_invalid='drop'" in text


def test_a_count_that_may_grow_says_so():
    array = np.full((4, 1), np.nan)

    assert message(array, batch_rows=2).startswith("at least 2 rows contain NaN")
    assert "batch 1" in message(iter([ROWS, array]))


def test_dropped_rows_are_left_out_and_batches_stay_full():
    array = np.arange(10.0)[:, None].copy()
    array[[0, 4, 5]] = np.nan
    found = list(open_rows(array, on_invalid="drop", batch_rows=3))

    assert [batch[:, 0].tolist() for batch in found] == [[1, 2, 3], [6, 7, 8], [9]]
    text = message(np.full((2, 1), np.inf), on_invalid="drop")
    assert "0 rows are left" in text
    assert "all 2 contain NaN" in text


def test_unknown_settings_are_refused():
    assert "'raise' or 'drop'; got 'ignore'" in message(ROWS, on_invalid="ignore")
    assert "at least 1; got 0" in message(ROWS, batch_rows=0)


def test_a_wrong_width_is_refused_and_located():
    text = message(ROWS, n_features=4)
    assert "have 2 features, but 4 were expected" in text

    text = message(iter([ROWS, ROWS[:, :1]]))
    assert "batch 1 (an array of shape (5, 1)) have 1 features, but 2 were" in text


def test_a_frame_with_other_columns_than_the_first_is_refused():
    first, swapped = (
        pd.DataFrame({"a": [1], "b": [2]}),
        pd.DataFrame({"b": [4], "a": [3]}),
    )

    assert gather([first, swapped]).tolist() == [[1, 2], [3, 4]]
    assert "no column 'b' in batch 1" in message([first, swapped[["a"]]])
    assert "column 'c' that batch 0" in message([first, swapped.assign(c=1)])


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(3),
        [1.0, 2.0],
        pd.Series([1.0]),
        pl.Series([1.0]),
        torch.zeros(3),
        scipy.sparse.coo_array(np.ones(3)),
        pa.chunked_array([[1.0]]),
        iter([np.zeros(3)]),
    ],
)
def test_one_dimension_asks_for_a_reshape(data):
    assert "Reshape your data" in message(data)


@pytest.mark.parametrize("shape", [(), (2, 2, 2)])
def test_other_dimensions_are_refused(shape):
    assert f"got {len(shape)}-D" in message(np.zeros(shape))
    assert f"got {len(shape)}-D" in message(torch.zeros(shape))
    if shape:
        assert "got 3-D" in message(np.zeros(shape).tolist())


def test_an_object_with_only_an_array_method_is_an_array():
    class Wrapper:
        def __array__(self, dtype=None, copy=None):
            return ROWS

    assert np.array_equal(gather(Wrapper()), ROWS)


def test_masked_sparse_and_ragged_inputs_say_what_to_do():
    masked = np.ma.masked_array(ROWS, ROWS > 4)
    with_index = torch.sparse_coo_tensor(
        [[0], [0]], [1.0], (2, 2), check_invariants=True
    )

    assert "filled(numpy.nan)" in message(masked)
    assert "to_dense()" in message(with_index)
    assert "differ in length" in message([[1, 2], [3]])


def empty_files(folder):
    write(folder / "e.parquet", ROWS[:0])
    (folder / "e.csv").write_text("a,b\n")
    write(folder / "e.arrow", ROWS[:0])
    write(folder / "e.npy", ROWS[:0])
    return [folder / f"e.{kind}" for kind in ("parquet", "csv", "arrow", "npy")]


def test_inputs_without_rows_are_refused(tmp_path):
    frames = [pd.DataFrame(ROWS[:0]), pl.DataFrame(ROWS[:0], NAMES), table()[:0]]
    streams = [iter([]), iter([ROWS[:0], ROWS[:0]]), table()[:0].to_reader()]
    lazy = pl.DataFrame(ROWS[:0], NAMES).lazy()
    for data in [ROWS[:0], [], *frames, *streams, lazy, *empty_files(tmp_path)]:
        assert message(data).startswith("0 rows in ")


@pytest.mark.parametrize("data", [np.zeros((3, 0)), [[], []], pd.DataFrame(index=[0])])
def test_inputs_without_columns_are_refused(data):
    with pytest.raises(
        RowsError, match=r"0 feature\(s\) \(shape=\(\d, 0\)\) while a minimum of 1 is"
    ):
        open_rows(data)


@pytest.mark.parametrize("data", [3.0, None, b"bytes", object()])
def test_an_unknown_object_is_answered_with_the_accepted_kinds(data):
    text = message(data)

    assert f"cannot read rows from a {type(data).__name__}" in text
    assert all(word in text for word in ("NumPy", "polars", "generator", "Parquet"))
    assert "batch 0: cannot read" in message(iter([data]))


def test_a_dict_is_answered_with_a_frame():
    assert "pandas.DataFrame(data)" in message({"a": [1.0]})


def test_an_error_of_the_generator_passes_through():
    def broken():
        yield ROWS
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        list(open_rows(broken()))


def test_a_missing_file_is_answered_with_the_closest_name(tmp_path):
    write(tmp_path / "events.csv")
    near = message(tmp_path / "evnts.csv", MissingFileError)
    far = message(tmp_path / "zzz" / "*.csv", MissingFileError)

    assert "evnts.csv" in near
    assert "did you mean" in near
    assert "events.csv'?" in near
    assert "zzz" in far
    assert "is missing" in far
    assert "*.pq" in message(str(tmp_path / "*.pq"), MissingFileError)


def test_folders_need_files_of_exactly_one_kind(tmp_path):
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("a\n1\n")
    assert "holds no file" in message(tmp_path, MissingFileError)
    write(tmp_path / "1.parquet")
    assert len(gather(tmp_path)) == 5
    write(tmp_path / "1.csv")
    assert "several kinds (.csv, .parquet)" in message(tmp_path)


def test_an_unsupported_suffix_is_answered_with_the_supported_ones(tmp_path):
    (tmp_path / "x.xlsx").write_bytes(b"")
    text = message(tmp_path / "x.xlsx")

    assert "x.xlsx" in text
    assert all(suffix in text for suffix in (".parquet", ".csv.gz", ".npy", ".ipc"))
    assert "holds a int" in message([tmp_path / "x.xlsx", 3])


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "arrow", "npy"])
def test_a_damaged_file_is_named(tmp_path, kind):
    path = tmp_path / f"bad.{kind}"
    path.write_bytes(b'a,b\n1,2\n3,4,5\n"')
    with pytest.raises(RowsError, match=r"cannot read .*bad") as caught:
        list(open_rows(path))

    assert caught.value.__cause__ is not None


def test_a_truncated_parquet_file_is_named_while_reading(tmp_path):
    path = write(
        tmp_path / "x.parquet", np.random.default_rng(0).normal(size=(5000, 2))
    )
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    path.write_bytes(content)

    assert "x.parquet' as Parquet" in message(path)


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1, "a"]], object), allow_pickle=True)

    assert "holds objects" in message(tmp_path / "x.npy")


def test_files_are_matched_by_column_name_and_the_odd_one_is_named(tmp_path):
    write(tmp_path / "1.csv", ROWS[:2])
    (tmp_path / "2.csv").write_text("b,a\n1.5,0\n")
    whole = gather(tmp_path)
    assert np.array_equal(whole, [*ROWS[:2], ROWS[0]])

    (tmp_path / "3.csv").write_text("a,c\n1,2\n")
    text = message(tmp_path)
    assert "no column 'b' in" in text
    assert "3.csv" in text


def test_files_of_different_float_types_are_not_rounded(tmp_path):
    pyarrow.parquet.write_table(
        pa.table({"a": pa.array([1.5], pa.float32())}), tmp_path / "1.parquet"
    )
    pyarrow.parquet.write_table(pa.table({"a": [0.1]}), tmp_path / "2.parquet")

    assert gather(tmp_path).tolist() == [[1.5], [0.1]]
    assert open_rows(tmp_path).n_rows == 2
    assert "(2 files)" in open_rows(tmp_path).source


def test_a_csv_column_may_turn_to_decimals_after_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BLOCK_BYTES", 64)
    lines = [f"{i},{i},\n" for i in range(50)] + ["50.5,51,7\n"]
    (tmp_path / "x.csv").write_text("a,b,c\n" + "".join(lines))
    found = gather(tmp_path / "x.csv", columns=["a", "b"], batch_rows=8)

    assert found.shape == (51, 2)
    assert found[-1].tolist() == [50.5, 51.0]
    kept = gather(tmp_path / "x.csv", on_invalid="drop")
    assert kept.tolist() == [[50.5, 51.0, 7.0]]


def test_csv_text_after_numbers_is_refused_without_repeating_it(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BLOCK_BYTES", 64)
    lines = [f"{i}\n" for i in range(50)] + ["secret\n"]
    (tmp_path / "x.csv").write_text("a\n" + "".join(lines))
    text = message(tmp_path / "x.csv")

    assert "x.csv' as CSV" in text
    assert "secret" not in text


def test_large_whole_numbers_of_a_csv_file_are_not_changed(tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n9007199254740993\n")
    text = message(tmp_path / "x.csv")

    assert "row 1 of" in text
    assert "column 'a'" in text
    assert "exactly" in text


def test_a_text_column_of_a_csv_file_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,city\n1,Oslo\n")

    assert "column 'city' of" in message(tmp_path / "x.csv")


def test_large_frames_and_tables_are_converted_in_parts(monkeypatch):
    monkeypatch.setattr(tables, "PANDAS_ROWS", 3)
    frame = pd.DataFrame({"a": range(10), "b": list("xyxyxyxyxy")})
    found = gather(frame, encodings={"b": ["x", "y"]}, batch_rows=4)

    assert found[:, 0].tolist() == list(range(10))
    assert found[:, 1].sum() == 5


@pytest.mark.parametrize(
    ("n_columns", "n_rows"), [(1, 32_768), (128, 32_768), (256, 16_384), (4096, 2048)]
)
def test_batches_hold_four_million_numbers_in_2048_to_32768_rows(n_columns, n_rows):
    rows = np.broadcast_to(np.zeros(n_columns, np.float32), (33_000, n_columns))
    assert len(next(iter(open_rows(rows)))) == n_rows


def test_peeking_past_the_end_gives_what_there_is():
    assert open_rows(ROWS).peek(100).shape == (5, 2)
    assert open_rows(ROWS).peek(0).shape == (0, 2)
    batches = open_rows(iter([ROWS]))
    assert batches.peek(100).shape == (5, 2)
    assert len(np.concatenate(list(batches))) == 5


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (ROWS, "an array of shape (5, 2)"),
        (table(), "an Arrow table of shape (5, 2)"),
        (iter([ROWS]), "a list_iterator of batches"),
    ],
)
def test_the_source_is_described_in_a_few_words(data, source):
    assert open_rows(data).source == source
