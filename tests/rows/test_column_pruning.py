"""Columns that are not asked for are not decoded, and may be damaged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.rows import csv_files
from sketchlearn.rows.open_rows import open_rows

ROWS = np.random.default_rng(0).normal(size=(5000, 2))


def gather(data, **options):
    return np.concatenate(list(open_rows(data, **options)))


def test_a_damaged_column_of_a_parquet_file_is_not_read(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})
    pa.parquet.write_table(table, path, use_dictionary=False)
    column = pa.parquet.read_metadata(path).row_group(0).column(1)
    content, start = bytearray(path.read_bytes()), column.data_page_offset
    content[start : start + column.total_compressed_size] = bytes(
        column.total_compressed_size
    )
    path.write_bytes(content)

    assert np.array_equal(gather(path, columns=["a"]), ROWS[:, :1])
    with pytest.raises(RowsError, match="as Parquet"):
        gather(path)


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_column_of_text_that_turns_is_not_converted(tmp_path, monkeypatch, separator):
    monkeypatch.setattr(csv_files, "CSV_BLOCK_BYTES", 256)
    path = tmp_path / ("x.csv" if separator == "," else "x.tsv")
    rows = [f"{a!r}{separator}{i}" for i, a in enumerate(ROWS[:, 0].tolist())]
    last = f"0.5{separator}not a number"
    path.write_text("\n".join([f"a{separator}b", *rows, last]) + "\n")

    assert np.array_equal(gather(path, columns=["a"])[:-1], ROWS[:, :1])
    with pytest.raises(RowsError, match="as CSV"):
        gather(path)
