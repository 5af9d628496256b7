"""What a user passes as rows is of one kind, told without reading or importing."""

import dask.array
import dask.dataframe
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
import scipy.sparse
import torch

from sketchlearn.rows.kinds import RowsKind, is_in_memory, kind_of
from sketchlearn.rows.open_rows import open_rows

ROWS = np.eye(3)
TABLE = pa.table({"a": [1.0, 2.0]})
FRAME = TABLE.to_pandas()


class Relation:
    """What a relation of DuckDB shows of itself without being run."""

    __module__ = "duckdb"
    select = None

    @property
    def shape(self):
        raise AssertionError("the query was run")


KINDS = {
    "OPENED": [open_rows(ROWS)],
    "OPENED_STREAM": [open_rows(iter([ROWS]))],
    "FILES": ["rows.csv", ["rows.csv"], ("a.npy", "b.npy")],
    "ARRAY": [ROWS, ROWS[0], memoryview(ROWS), np.ma.array(ROWS), pa.array([1.0])],
    "LIST": [[], [[1.0]], ((1, 2), (3, 4)), [ROWS[0]], [1.0]],
    "SPARSE": [scipy.sparse.csr_array(ROWS), scipy.sparse.coo_matrix(ROWS)],
    "PANDAS": [FRAME],
    "POLARS": [pl.DataFrame(FRAME)],
    "TENSOR": [torch.eye(2), torch.nn.Parameter(torch.eye(2))],
    "ARROW": [TABLE, TABLE.to_batches()[0]],
    "COLUMN": [FRAME["a"], pl.Series([1.0])],
    "LAZY": [pl.LazyFrame(FRAME)],
    "DATASET": [pa.dataset.dataset(TABLE)],
    "QUERY": [Relation()],
    "ARROW_STREAM": [TABLE.to_reader(), TABLE["a"]],
    "ITERATOR": [iter([ROWS]), map(np.asarray, [ROWS]), (r for r in [ROWS])],
    "BATCHES": [[ROWS], (FRAME, FRAME), [TABLE.to_reader()], [Relation()], {1.0, 2.0}],
    "ENGINE": [dask.array.ones((2, 2)), dask.dataframe.from_pandas(FRAME)],
    "UNKNOWN": [3, None, {"a": 1}, b"rows", object()],
}


@pytest.mark.parametrize("name", KINDS)
def test_every_input_is_of_one_kind(name):
    for data in KINDS[name]:
        assert kind_of(data) is RowsKind[name]


def test_every_kind_has_an_example():
    assert {kind.name for kind in RowsKind} - KINDS.keys() == {"FRAME"}


def test_a_frame_of_another_library_is_in_memory_and_can_be_read_again():
    class Frame:
        columns = ("a",)

        def __arrow_c_stream__(self, requested_schema=None):
            return TABLE.__arrow_c_stream__(requested_schema)

        def __array__(self, dtype=None, copy=None):
            return FRAME.to_numpy()

    assert kind_of(Frame()) is RowsKind.FRAME
    assert is_in_memory(Frame())
    batches = open_rows(Frame())
    assert batches.is_repeatable
    for _ in range(2):
        assert np.concatenate(list(batches)).tolist() == [[1.0], [2.0]]


def test_files_streams_and_batches_are_not_in_memory():
    gone = {"OPENED", "FILES", "LAZY", "DATASET", "ARROW_STREAM", "ITERATOR"}
    gone |= {"OPENED_STREAM", "BATCHES", "ENGINE", "QUERY", "UNKNOWN"}
    for name, inputs in KINDS.items():
        assert [is_in_memory(data) for data in inputs] == [name not in gone] * len(
            inputs
        )
