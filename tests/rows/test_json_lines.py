"""JSON Lines are read as CSV files are: by name, as float64, in bounded memory."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.rows import json_lines
from sketchlearn.rows.open_items import open_items
from sketchlearn.rows.open_rows import open_rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.jsonl"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 64)


def write(path, rows, newline="\n"):
    path.write_text("".join(json.dumps(row) + newline for row in rows))
    return path


def gather(data, **options):
    return np.concatenate(list(open_rows(data, **options)))


def message(data, **options):
    with pytest.raises(RowsError) as caught:
        list(open_rows(data, **options))
    return str(caught.value)


def test_columns_go_by_name_in_any_order(path):
    write(path, [{"a": 1, "b": 2.5}, {"b": -1e300, "a": True and 3}])
    batches = open_rows(path)

    assert batches.names == ("a", "b")
    assert batches.n_rows is None
    assert gather(path).tolist() == [[1.0, 2.5], [3.0, -1e300]]
    assert gather(path, columns=["b"]).tolist() == [[2.5], [-1e300]]


def test_both_suffixes_blank_lines_returns_and_byte_order_marks_are_read(tmp_path):
    content = b'\xef\xbb\xbf\n{"a": 1}\r\n\n  \n{"a": 2}'
    for name in ("x.jsonl", "x.ndjson"):
        (tmp_path / name).write_bytes(content)
        assert gather(tmp_path / name).tolist() == [[1.0], [2.0]]


@pytest.mark.usefixtures("small_blocks")
def test_a_column_may_turn_to_decimals_after_the_first_block(path):
    rows = [{"a": i, "b": None} for i in range(50)]
    write(path, [*rows, {"a": 50.5, "b": 7}])

    assert gather(path, columns=["a"])[-1].tolist() == [50.5]
    assert gather(path, on_invalid="drop").tolist() == [[50.5, 7.0]]


@pytest.mark.usefixtures("small_blocks")
def test_a_missing_name_is_a_missing_number(path):
    write(path, [{"a": 1, "b": 2}, {"a": 3}, {"a": None, "b": 5}, {"a": 6, "b": 7}])

    assert "2 rows contain NaN" in message(path)
    assert gather(path, on_invalid="drop").tolist() == [[1, 2], [6, 7]]
    assert gather(path, columns=["b"], on_invalid="drop").tolist() == [[2], [5], [7]]


@pytest.mark.usefixtures("small_blocks")
def test_a_name_that_comes_late_is_not_left_out_in_silence(path):
    write(path, [*({"a": i, "b": i} for i in range(20)), {"a": 1, "b": 1, "late": 2}])

    assert "has names in later lines" in message(path)
    assert len(gather(path, columns=["a"])) == 21


@pytest.mark.parametrize("value", [2**53, 2**53 + 1, -(2**60)])
def test_whole_numbers_that_float64_may_round_are_refused(path, value):
    write(path, [{"a": 1}, {"a": value}])
    text = message(path)

    assert "row 1 of" in text
    assert "column 'a'" in text
    assert "exactly" in text
    assert str(value) not in text
    assert gather(write(path, [{"a": 1.5}, {"a": 2.0**60}]))[1] == 2.0**60


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"x": 1}], "JSON object"),
        ([[1, 2]], "JSON list of whole"),
        ([[1, "x"]], "JSON list"),
        ([1, "x"], "JSON text or whole"),
        ([1, True], "JSON truth or whole"),
        (["x"], "string"),
    ],
)
def test_columns_that_are_not_numbers_are_refused_by_name(path, values, kind):
    write(path, [{"n": 1, "odd": value} for value in values])
    text = message(path)

    assert (
        f"column 'odd' of {str(path)!r} has type {kind}, which is not a number" in text
    )
    assert gather(path, columns=["n"]).tolist() == [[1.0]] * len(values)
    assert "column 'odd'" in message(path, encodings={"odd": [1.5]})


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("value", ["secret", [1], {"secret": 1}, True])
def test_a_later_value_of_another_type_is_refused_by_name(path, value):
    write(path, [*({"n": i, "a": i} for i in range(50)), {"n": 1, "a": value}])
    text = message(path)

    assert "column 'a' of" in text
    assert "secret" not in text
    assert len(gather(path, columns=["n"])) == 51


@pytest.mark.parametrize(
    "content",
    [
        b'[{"a": 1}, {"a": 2}]\n',
        b'{"a":\n 1}\n',
        b'{"a": 1}\n{"a": 2\n',
        b'{"a": 1, "a": 2}\n',
        b'{"a": "\xff"}\n',
        b"3\n",
        b"a,b\n1,2\n",
        b'{"a": ' + b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_not_one_object_a_line_is_refused(path, content):
    path.write_bytes(content)
    text = message(path)

    assert f"cannot read {str(path)!r} as JSON Lines" in text
    assert "one JSON object" in text


def test_files_without_rows_or_with_one_endless_line_are_refused(path, monkeypatch):
    path.write_bytes(b"\n\n")
    assert message(path).startswith("0 rows in")
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 64)
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 1000)
    path.write_bytes(b'{"a": 1, "b": "' + b"x" * 5000 + b'"}\n')
    assert "line of more than 1,000 bytes" in message(path, columns=["a"])


def test_lines_may_be_longer_than_a_block(path, monkeypatch):
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 64)
    write(path, [{"a": i, "b": "x" * 3000} for i in range(5)])

    assert gather(path, columns=["a"]).ravel().tolist() == list(range(5))


def test_truth_values_and_categories_are_encoded(path):
    write(path, [{"c": "u", "t": True, "z": "01"}, {"c": "v", "t": False, "z": "10"}])
    known = {"c": ["u", "v"], "z": ["01", "10"]}

    assert gather(path, encodings=known).tolist() == [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1]]


@pytest.mark.usefixtures("small_blocks")
def test_categories_may_be_missing_in_the_first_block(path):
    write(path, [*({"c": None, "n": 1} for _ in range(20)), {"c": "u", "n": 1}])

    assert "a missing category" in message(path, encodings={"c": ["u"]})
    kept = gather(path, encodings={"c": ["u"]}, on_invalid="drop")
    assert kept.tolist() == [[1, 1]]


def test_ids_are_whole_numbers_texts_or_lists_of_them(path):
    def read(values):
        write(path, [{"user": value, "n": 0.5} for value in values])
        batches = open_items(path, column="user", vocabulary="fit")
        n_rows = sum(rows.n_rows for rows in batches)
        return n_rows, sorted(batches.vocabulary.items)

    assert read(["b", "a", "b"]) == (3, ["a", "b"])
    assert read(["2020-01-01", "NA"]) == (2, ["2020-01-01", "NA"])
    assert read([7, 2**60 + 1]) == (2, [7, 2**60 + 1])
    assert read([["b"], [], ["a", "b"]]) == (3, ["a", "b"])
    with pytest.raises(RowsError, match="holds JSON text or whole"):
        read(["a", 1])


def test_memory_does_not_grow_with_the_file(path):
    line = json.dumps({"a": 1.25, "b": "x" * 200}).encode() + b"\n"

    def peak(n_lines):
        path.write_bytes(line * n_lines)
        batches = open_rows(path, columns=["a"], batch_rows=1000)
        pool = pa.default_memory_pool()
        tracemalloc.start()
        base, most = pool.bytes_allocated(), 0
        for _ in batches:
            most = max(most, pool.bytes_allocated() - base)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found + most

    assert peak(100_000) < 1.5 * peak(20_000)
