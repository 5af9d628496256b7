"""Rows of items come in many forms; what is wrong is told with its row."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn import open_items, open_rows
from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.rows.ids import keys_of
from sketchlearn.rows.item_blocks import BLOCK_IDS
from sketchlearn.rows.open_items import ItemBatches

WORDS = ["tea", "milk", "tea", "NA", "zoë"]
ROWS = [["tea", "milk"], ["tea", "tea"], [], ["zoë"]]
TABLE = pa.table({"word": WORDS, "n": [1, 2, 3, 4, 5]})


def content(opened):
    """Rows as lists of pairs of key and count, sorted; a stream is in no order."""
    found = []
    for rows in opened:
        assert rows.n_rows == len(rows)
        keys, matrix = rows.matrix()
        matrix = matrix.tocsr()
        for row in range(rows.n_rows):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            held, times = keys[matrix.indices[part]], matrix.data[part]
            pairs = zip(held.tolist(), times.tolist(), strict=True)
            found.append(sorted(pairs))
    return found


def as_stream(ids):
    return sorted([(int(key), 1)] for key in keys_of(ids))


class Capsule:
    """What DuckDB and others hand out: an Arrow stream and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


STREAMS = {
    "list": lambda: WORDS,
    "tuple": lambda: tuple(WORDS),
    "bytes": lambda: [word.encode() for word in WORDS],
    "array": lambda: np.array(WORDS),
    "objects": lambda: np.array(WORDS, object),
    "Series": lambda: pd.Series(WORDS),
    "categories": lambda: pd.Series(WORDS, dtype="category"),
    "polars Series": lambda: pl.Series(WORDS),
    "Arrow array": lambda: pa.array(WORDS),
    "chunked array": lambda: TABLE["word"],
    "one column": lambda: TABLE.select(["word"]),
    "generator of ids": lambda: (word for word in WORDS),
    "generator of rows": lambda: ([word] for word in WORDS),
    "generator of arrays": lambda: iter([pa.array(WORDS[:2]), np.array(WORDS[2:])]),
    "rows of one": lambda: [[word] for word in WORDS],
}
COLUMNS = {
    "Arrow table": lambda: TABLE,
    "record batch": lambda: TABLE.to_batches()[0],
    "pandas": lambda: TABLE.to_pandas(),
    "polars": lambda: pl.DataFrame(TABLE),
    "lazy": lambda: pl.DataFrame(TABLE).lazy(),
    "reader": lambda: TABLE.to_reader(),
    "dataset": lambda: pyarrow.dataset.dataset(TABLE),
    "capsule": lambda: Capsule(TABLE),
    "generator": lambda: (TABLE.slice(i, 1) for i in range(5)),
    "list of tables": lambda: [TABLE.slice(0, 2), TABLE.slice(2)],
}


@pytest.mark.parametrize("form", STREAMS)
def test_ids_in_any_form_are_rows_of_one_item(form):
    opened = open_items(STREAMS[form]())
    assert isinstance(opened, ItemBatches)
    assert sorted(content(opened)) == as_stream(WORDS)


@pytest.mark.parametrize("form", COLUMNS)
def test_a_column_of_a_table_is_named(form):
    assert sorted(content(open_items(COLUMNS[form](), column="word"))) == as_stream(
        WORDS
    )


@pytest.fixture
def folder(tmp_path):
    for number, part in enumerate((TABLE.slice(0, 2), TABLE.slice(2))):
        pa.parquet.write_table(part, tmp_path / f"{number}.parquet")
        part.to_pandas().to_csv(tmp_path / f"{number}.csv", index=False)
        path = str(tmp_path / f"{number}.arrow")
        with pa.ipc.new_file(path, part.schema) as writer:
            writer.write_table(part)
    return tmp_path


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("column", ["word", "n"])
def test_a_column_of_files_is_read_by_glob_or_list_of_paths(folder, suffix, column):
    expected = as_stream(TABLE[column])
    opened = open_items(str(folder / f"*.{suffix}"), column=column)
    assert opened.is_repeatable
    assert opened.n_rows == (None if suffix == "csv" else 5)
    assert sorted(content(opened)) == sorted(content(opened)) == expected
    paths = [folder / f"{i}.{suffix}" for i in range(2)]
    assert sorted(content(open_items(paths, column=column))) == expected


def test_ids_of_text_files_are_integers_or_texts_and_never_decimals(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"big,date,half\n{2**62 + 1},2020-01-02,0.5\n-1,2020-01-03,1\n")
    for column, ids in (
        ("big", [2**62 + 1, -1]),
        ("date", ["2020-01-02", "2020-01-03"]),
        ("half", ["0.5", "1"]),
    ):
        assert sorted(content(open_items(path, column=column))) == as_stream(ids)


def test_text_files_without_names_and_with_empty_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,NA\n2,\n")
    with pytest.raises(RowsError, match="header=False"):
        open_items(path, column="f0")
    found = content(open_items(path, column="f0", header=False))
    assert found == [[(1, 1)], [(2, 1)]]
    with pytest.raises(RowsError, match="row 1 of the input .*'f1'.* is missing"):
        list(open_items(path, column="f1", header=False))


BASKETS = {
    "lists": lambda: ROWS,
    "tuples": lambda: [tuple(row) for row in ROWS],
    "arrays": lambda: pd.Series([np.array(row, "U4") for row in ROWS]),
    "Arrow lists": lambda: pa.array(ROWS),
    "large lists": lambda: pa.array(ROWS, pa.large_list(pa.large_string())),
    "views": lambda: pa.array(ROWS, pa.list_view(pa.string())),
    "chunked": lambda: pa.chunked_array([ROWS[:1], ROWS[1:]]),
    "Series": lambda: pd.Series(ROWS),
    "polars Series": lambda: pl.Series(ROWS),
    "objects": lambda: np.array([*ROWS, None], object)[:-1],
    "generator": lambda: iter(ROWS),
    "generator of columns": lambda: iter([pa.array(ROWS[:3]), pa.array(ROWS[3:])]),
}


@pytest.mark.parametrize("form", BASKETS)
def test_rows_of_several_items_keep_what_they_hold(form):
    tea, milk, zoe = keys_of(["tea", "milk", "zoë"]).tolist()
    expected = [sorted([(tea, 1), (milk, 1)]), [(tea, 2)], [], [(zoe, 1)]]
    assert content(open_items(BASKETS[form]())) == expected


def test_sets_hold_an_item_once():
    rows = [{1, 2}, frozenset([3]), set()]
    expected = [[(1, 1), (2, 1)], [(3, 1)], []]
    for form in (rows, iter(rows), pd.Series(rows), [[2, 1], range(3, 4), ()]):
        assert content(open_items(form)) == expected
    frame = pd.DataFrame({"set": rows, "b": 0})
    assert content(open_items(frame, column="set")) == expected


COUNTS = np.array([[0, 2, 0], [1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        lambda a: a.astype(float),
        torch.tensor,
        pd.DataFrame,
        lambda a: pa.table({str(i): a[:, i] for i in range(3)}),
        sp.csr_array,
        sp.csc_matrix,
        sp.coo_array,
        sp.lil_array,
        lambda a: iter([a[:1], sp.csr_array(a[1:])]),
        lambda a: [a[:1], a[1:]],
        open_rows,
    ],
)
def test_tables_of_counts_hold_items_by_position_or_by_name(form):
    expected = [[(1, 2)], [(0, 1), (2, 1)], []]
    assert content(open_items(form(COUNTS))) == expected
    names = ["x", "y", "z"]
    keys = keys_of(names).tolist()
    named = [sorted((keys[i], times) for i, times in row) for row in expected]
    assert content(open_items(form(COUNTS), vocabulary=names)) == named


def test_zeros_that_are_stored_are_not_held():
    stored = sp.csr_array((np.array([0, 3]), [0, 1], [0, 1, 2]), shape=(2, 2))
    assert content(open_items(stored)) == [[], [(1, 3)]]


def test_batches_are_bounded_and_rows_are_counted():
    opened = open_items(np.arange(3 * BLOCK_IDS + 1))
    assert opened.n_rows == 3 * BLOCK_IDS + 1
    assert [len(rows) for rows in opened] == [BLOCK_IDS] * 3 + [1]


def test_what_is_read_once_is_not_read_twice():
    opened = open_items(iter(WORDS))
    assert not opened.is_repeatable
    list(opened)
    with pytest.raises(RowsError, match="cannot be read twice"):
        list(opened)
    stream = iter(WORDS)
    open_items(stream)
    with pytest.raises(RowsError, match="cannot be read twice"):
        open_items(stream)
    assert open_items(opened) is opened
    with pytest.raises(RowsError, match="open already"):
        open_items(opened, vocabulary=3)


FRAME = pd.DataFrame({"a": [1], "b": ["x"]})
WRONG_ITEMS = {
    "nothing": ([], {}, "0 rows"),
    "no batch": (iter([]), {}, "0 rows"),
    "empty batches": (iter([np.array([], int)] * 2), {}, "0 rows"),
    "a null": (pa.table({"w": [1, None]}), {"column": "w"}, "row 1 .*'w'.* missing"),
    "a null in a list": ([[1], [2, None]], {}, "row 1 .* is missing"),
    "a null in an Arrow list": (pa.array([[1], [2, None]]), {}, "row 1 .* missing"),
    "a missing row": ([[1], None], {}, "row 1 .* is missing, and others"),
    "a missing Arrow row": (pa.array([[1], None]), {}, "row 1 .* is missing, and"),
    "an id among rows": ([[1], "a"], {}, "row 1 .* is a str, and others"),
    "a row among ids": ([1, [2]], {}, "row 1 .* is a list"),
    "a list in a row": ([[[1]]], {}, "type list"),
    "mixed rows": ([[1], ["a"]], {}, "row 1 .* is a str, unlike"),
    "mixed batches": (
        iter([np.array([1]), np.array(["a"])]),
        {},
        "texts from row 1 .* integers before",
    ),
    "ids and counts": (iter([np.array([1]), np.eye(2)]), {}, "counts from row 1"),
    "rows and batches": (iter([[1], np.array([2])]), {}, "row 1 .* is a ndarray"),
    "a list of arrays": ([np.array([1, 2])], {}, "rows of items or batches of ids"),
    "a list of columns": ([pa.array([1, 2])], {}, "rows of items or batches of ids"),
    "a generator of generators": (iter([iter([1])]), {}, "batch 0: cannot read items"),
    "a negative count": (sp.csr_array([[0, 1], [0, -1]]), {}, "row 1 .* negative"),
    "a fraction": (np.array([[0.0, 0.5]]), {}, "row 0 .* no whole number"),
    "NaN": (np.array([[0.0, np.nan]]), {}, "NaN"),
    "sparse NaN": (sp.csr_array([[0.0, np.nan]]), {}, "NaN"),
    "a huge count": (np.array([[2**32]]), {}, "2\\*\\*32"),
    "an unknown item": ([0, 1, 2], {"vocabulary": 2}, "row 2 .* not in the declared"),
    "an unknown text": (["a"], {"vocabulary": ["b"]}, "row 0 .* not in the declared"),
    "an unknown in a set": ([["a"], ["a", "c"]], {"vocabulary": ["a"]}, "row 1"),
    "too few names": (np.eye(3), {"vocabulary": ["a"]}, "3 columns, .* 1 items"),
    "three dimensions": (np.zeros((1, 1, 1)), {}, "3-D"),
    "a number": (3, {}, "cannot read items from a int"),
    "a dict": ({"a": 1}, {}, "a dict is no list"),
    "dicts": ([{"a": 1}], {}, "a dict is no list"),
    "a column of a list": ([1], {"column": "a"}, "column is for"),
    "a header of a list": ([1], {"header": True}, "header is for"),
    "no column named": (FRAME, {}, "name it: open_items"),
    "another column": (FRAME, {"column": "c"}, "no column 'c'"),
    "another word": ([1], {"vocabulary": "all"}, "vocabulary must be"),
    "a struct": (pa.array([{"a": 1}]), {}, "type struct"),
    "a generator in one": (iter([object()]), {}, "batch 0: cannot read items"),
}


@pytest.mark.parametrize("what", WRONG_ITEMS)
def test_what_is_wrong_is_said_in_one_sentence(what):
    data, options, text = WRONG_ITEMS[what]
    with pytest.raises(RowsError, match=text):
        list(open_items(data, **options))


ROW = st.lists(st.integers(0, 9), max_size=5)
ELEMENTS = st.one_of(
    st.lists(st.integers(0, 9)),
    st.lists(st.sampled_from(WORDS)),
    st.lists(ROW.map(list)),
    st.lists(ROW.map(tuple)),
    st.lists(ROW.map(frozenset)),
    st.lists(ROW.map(np.array)),
    st.lists(ROW.map(pa.array)),
    st.lists(ROW.map(iter)),
    st.lists(st.lists(ROW.map(list))),
    st.lists(ROW.map(lambda row: np.array([row], int))),
)


@settings(deadline=None, max_examples=200)
@given(ELEMENTS)
def test_what_a_list_holds_has_the_same_meaning_one_by_one(elements):
    forms = [elements, tuple(elements), iter(elements), (one for one in elements)]
    found = []
    for form in forms:
        try:
            found.append(sorted(content(open_items(form))))
        except RowsError:  # an iterator is read by the first of them
            found.append(None)
    meanings = [one for one in found if one is not None]
    assert all(one == meanings[0] for one in meanings)


def test_rows_of_a_generator_may_be_one_list_that_is_filled_again():
    def rows():
        row = []
        for number in range(3):
            row[:] = [number] * 2
            yield row

    assert content(open_items(rows())) == [[(0, 2)], [(1, 2)], [(2, 2)]]


def test_rows_one_by_one_are_read_in_blocks(monkeypatch):
    monkeypatch.setattr("sketchlearn.rows.item_sources.BLOCK_IDS", 8)
    blocks = list(open_items([number] * 3 for number in range(5)))
    assert [rows.n_rows for rows in blocks] == [2, 2, 1]


def test_a_generator_of_paths_with_a_column_is_of_files(folder):
    paths = [str(folder / f"{i}.parquet") for i in range(2)]
    expected = content(open_items(paths, column="word"))
    assert content(open_items(iter(paths), column="word")) == expected


def test_a_single_text_is_a_path():
    with pytest.raises(MissingFileError):
        open_items("tea")
    with pytest.raises(MissingFileError):
        open_items(Path("tea.csv"), column="word")
