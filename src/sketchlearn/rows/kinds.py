"""Kinds of input: the one place where it is told what a user passes as rows.

Libraries are told apart by the types of their objects and never imported. Opening
rows, and estimators that ask whether rows are in memory or can be read again, all go
by the answer given here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Literal, TypeVar, final

import numpy as np
import pyarrow as pa
import scipy.sparse

__all__ = [
    "LearnedArray",
    "OpenedRows",
    "RowsKind",
    "engine_of",
    "is_in_memory",
    "is_learned",
    "kind_of",
    "learned",
]

_LEARNED_MARK = "_sketchlearn_learned"
"""Where a frame says that its columns were learned from rows."""

_Rows = TypeVar("_Rows")


class OpenedRows(ABC):
    """Rows that were opened before: nothing is left to be told about their kind."""

    @property
    @abstractmethod
    def is_repeatable(self) -> bool:
        """Whether the rows can be read more than once."""


@final
class LearnedArray(np.ndarray[Any, Any]):
    """An array whose columns were learned from rows, and keep a trace of them.

    What they are, how many there are and what their numbers mean was read from rows
    that may be private: a sketch of such an array is of origin ``"data"``. It is an
    array like any other, and parts, copies, sums and concatenations of it are learned
    too. ``np.asarray`` makes a plain one, of which nothing is known.
    """

    __array_priority__ = 1.0  # decides what concatenations are

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        if return_scalar:
            return array[()]
        return super().__array_wrap__(array, context, return_scalar)

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class RowsKind(Enum):
    """What an input is, and with it who reads it and how often that is possible."""

    OPENED = auto()
    """Rows that ``open_rows`` returned."""
    OPENED_STREAM = auto()
    """The same of what is read once."""
    FILES = auto()
    """A path, glob or folder, or a list of these."""
    ARRAY = auto()
    """An array, or what NumPy makes one of."""
    LIST = auto()
    """A list of rows, each a list of numbers."""
    SPARSE = auto()
    """A SciPy sparse matrix or array."""
    PANDAS = auto()
    POLARS = auto()
    FRAME = auto()
    """A frame of another library, with Arrow's and NumPy's interfaces."""
    TENSOR = auto()
    """A torch tensor."""
    ARROW = auto()
    """An Arrow table or record batch."""
    COLUMN = auto()
    """A single column of a frame, which is no table of rows."""
    LAZY = auto()
    """A polars LazyFrame, whose rows may be in files."""
    DATASET = auto()
    """An Arrow dataset, likewise."""
    QUERY = auto()
    """A query of DuckDB, ibis or Daft, which is run anew for every reading."""
    ARROW_STREAM = auto()
    """A reader, or anything else with ``__arrow_c_stream__``: read once."""
    ITERATOR = auto()
    """A generator of batches: read once."""
    BATCHES = auto()
    """A list, or another collection, of batches."""
    ENGINE = auto()
    """A dataset of Dask, Ray or Spark: its rows are read where they are."""
    UNKNOWN = auto()

    @property
    def is_validated(self) -> bool:
        """Whether scikit-learn can check these rows, and make an array of them."""
        return self in _VALIDATED

    @property
    def is_read_once(self) -> bool:
        """Whether a second look at the rows is impossible."""
        return self in _READ_ONCE


_READ_ONCE = {RowsKind.OPENED_STREAM, RowsKind.ARROW_STREAM, RowsKind.ITERATOR}
_STREAMS = {
    RowsKind.LAZY,
    RowsKind.DATASET,
    RowsKind.QUERY,
    RowsKind.ARROW_STREAM,
}
_VALIDATED = {
    RowsKind.ARRAY,
    RowsKind.LIST,
    RowsKind.SPARSE,
    RowsKind.PANDAS,
    RowsKind.POLARS,
    RowsKind.FRAME,
}
_QUERIES = {"duckdb", "_duckdb", "ibis", "daft"}
"""Libraries whose tables are queries."""


def kind_of(data: Any) -> RowsKind:
    """Tell what an input is, without reading it.

    Examples
    --------
    >>> [kind_of(data).name for data in ([[1.0, 2.0]], ["a.csv", "b.csv"], iter([]))]
    ['LIST', 'FILES', 'ITERATOR']
    """
    if isinstance(data, OpenedRows):
        is_again = data.is_repeatable
        return RowsKind.OPENED if is_again else RowsKind.OPENED_STREAM
    if isinstance(data, list | tuple):
        return _kind_of_list(data)
    if isinstance(data, str | os.PathLike):
        return RowsKind.FILES
    if engine_of(data) is not None:
        return RowsKind.ENGINE
    table = _kind_of_table(data)
    if table is not None:
        return table
    if hasattr(data, "__array__") or isinstance(data, memoryview):
        return RowsKind.ARRAY
    if isinstance(data, Iterator):
        return RowsKind.ITERATOR
    if isinstance(data, Iterable) and not isinstance(data, Mapping | bytes | bytearray):
        return RowsKind.BATCHES
    return RowsKind.UNKNOWN


def engine_of(data: Any) -> Literal["dask", "ray", "spark"] | None:
    """Name of the engine that a dataset belongs to; None for anything else."""
    libraries = _libraries_of(data)
    if "dask" in libraries and hasattr(type(data), "to_delayed"):  # and no Bag
        return "dask" if hasattr(type(data), "ndim") else None
    if "ray" in libraries and hasattr(type(data), "map_batches"):
        return "ray"
    if "pyspark" in libraries and hasattr(type(data), "mapInArrow"):
        return "spark"
    return None


def is_in_memory(data: Any) -> bool:
    """Whether all rows are at hand, to be looked at whole and more than once."""
    kind = kind_of(data)
    others = (RowsKind.TENSOR, RowsKind.ARROW, RowsKind.COLUMN)
    return kind.is_validated or kind in others


def learned(rows: _Rows) -> _Rows:
    """The same array or frame, marked: its columns were learned from rows.

    Parts of arrays and of pandas frames keep the mark; polars has no place for one, so
    that of its frames only the whole one does.

    Examples
    --------
    >>> marked = learned(np.eye(3))
    >>> is_learned(marked[1:]), is_learned(np.asarray(marked))
    (True, False)
    """
    if isinstance(rows, np.ndarray):
        return rows.view(LearnedArray)  # type: ignore[return-value]
    if kind_of(rows) is RowsKind.PANDAS:
        rows.attrs[_LEARNED_MARK] = True  # type: ignore[attr-defined]
    else:
        setattr(rows, _LEARNED_MARK, True)
    return rows


def is_learned(data: Any) -> bool:
    """Whether the columns of an input are known to be learned from rows."""
    if isinstance(data, np.ndarray):
        return isinstance(data, LearnedArray)
    if isinstance(data, list | tuple):
        return any(isinstance(row, LearnedArray) for row in data)
    kind = kind_of(data)
    if kind is RowsKind.PANDAS:
        return _LEARNED_MARK in data.attrs
    return kind is RowsKind.POLARS and _LEARNED_MARK in vars(data)


def _kind_of_list(data: list[Any] | tuple[Any, ...]) -> RowsKind:
    """Paths, batches or rows, as the first of them is."""
    if not data:
        return RowsKind.LIST
    first = data[0]
    if isinstance(first, str | os.PathLike):
        return RowsKind.FILES
    if engine_of(first) is not None:
        return RowsKind.BATCHES
    if _kind_of_table(first) in _STREAMS or len(getattr(first, "shape", ())) >= 2:
        return RowsKind.BATCHES
    return RowsKind.LIST


def _libraries_of(data: Any) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(data).__mro__}


def _kind_of_table(data: Any) -> RowsKind | None:
    """What a table or tensor of some library is; None for anything else."""
    libraries = _libraries_of(data)
    if scipy.sparse.issparse(data):
        return RowsKind.SPARSE
    if "pandas" in libraries and hasattr(data, "iloc"):
        return RowsKind.PANDAS if hasattr(data, "columns") else RowsKind.COLUMN
    if "polars" in libraries and hasattr(data, "collect_schema"):
        is_lazy = hasattr(data, "collect_batches")
        return RowsKind.LAZY if is_lazy else RowsKind.POLARS
    if "torch" in libraries and hasattr(data, "detach"):
        return RowsKind.TENSOR
    if isinstance(data, pa.Table | pa.RecordBatch):
        return RowsKind.ARROW
    if "pyarrow" in libraries and hasattr(data, "scanner"):
        return RowsKind.DATASET
    if libraries & _QUERIES and hasattr(type(data), "select"):
        return RowsKind.QUERY  # whose shape would be computed by running it
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    if len(getattr(data, "shape", ())) == 1:
        return RowsKind.COLUMN
    is_frame = hasattr(data, "columns") and hasattr(data, "__array__")
    return RowsKind.FRAME if is_frame else RowsKind.ARROW_STREAM
