"""Pieces: one array, table or file, described by its columns and streamed on demand.

What kind an input is of is told in :mod:`sketchlearn.rows.kinds`, and what a value
means in :mod:`sketchlearn.rows.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError

__all__ = [
    "Dataset",
    "Index",
    "Piece",
    "Reader",
    "Spans",
    "array_piece",
    "guarded",
    "index_columns",
    "schema_piece",
]

WIDEST = 2**24
"""Most numbers of a row: each is written out, and has a type and a place."""

Reader = Callable[[Sequence[int], int], Iterator[Any]]
Spans = list[tuple[int, int]]


@final
@dataclass(frozen=True)
class Piece:
    """One array, table or file, not read yet.

    Parameters
    ----------
    source : str
        Short description for messages.
    names : tuple of str, or None
        Column names; None if the columns have positions only.
    types : tuple of str
        Name of the type of each column, Arrow's or NumPy's.
    read : callable
        ``read(positions, batch_rows)`` streams these columns, in this order, as
        NumPy arrays or Arrow record batches.
    n_rows : int or None
        Number of rows, if it is known without reading.
    once : bool
        Whether it can be read only once.
    index : Index, optional
        What the file itself says of its rows.
    left_out : frozenset of str
        Columns that are read only where they are asked for.
    dataset : Dataset, optional
        The dataset of an engine, whose workers read the rows.
    is_file : bool
        Whether any thread may read it.
    cuts : tuple of callable
        Readers of its parts, in their order, where they can be read apart.
    is_learned : bool
        Whether its columns were learned from rows.
    """

    source: str
    names: tuple[str, ...] | None
    types: tuple[str, ...]
    read: Reader
    n_rows: int | None = None
    once: bool = False
    index: Index | None = None
    left_out: frozenset[str] = frozenset()
    dataset: Dataset | None = None
    is_file: bool = False
    cuts: tuple[Reader, ...] = ()
    is_learned: bool = False

    @property
    def readers(self) -> tuple[Reader, ...]:
        """What reads the whole piece, one after the other."""
        return self.cuts or (self.read,)

    @property
    def usual_names(self) -> tuple[str, ...] | None:
        """Names of the columns that are read where none is asked for."""
        if self.names is None:
            return None
        return tuple(name for name in self.names if name not in self.left_out)


@final
@dataclass(frozen=True)
class Index:
    """What a file knows of its rows without reading all of them.

    Parameters
    ----------
    extremes : callable
        ``extremes(positions)`` gives the least and the largest value of each of these
        columns, shape (2, n), or None where the file does not say.
    take : callable
        ``take(positions, spans, batch_rows)`` streams the rows in these spans (start,
        stop), in increasing order, as pairs of the number of a row and a batch.
    """

    extremes: Callable[[Sequence[int]], NDArray[np.float64] | None]
    take: Callable[[Sequence[int], Spans, int], Iterator[tuple[int, Any]]]


@final
@dataclass(frozen=True)
class Dataset:
    """Rows that an engine holds.

    Parameters
    ----------
    engine : {"dask", "ray", "spark"}
        Which one.
    data : object
        Its own object.
    array_column : str, optional
        The only column, where its values are arrays and make the rows.
    """

    engine: str
    data: Any
    array_column: str | None = None


def array_piece(
    source: str, shape: Sequence[int], dtype: str, take: Callable[[int, int], Any]
) -> Piece:
    """Describe an array whose rows ``start`` to ``stop`` are ``take(start, stop)``."""
    if len(shape) == 1:
        raise RowsError(
            f"expected a 2-D array of rows, got 1-D: {source}. Reshape your data: "
            "array.reshape(-1, 1) if it is one feature of many rows, "
            "array.reshape(1, -1) if it is one row."
        )
    if len(shape) != 2:
        raise RowsError(
            f"expected a 2-D array of rows, got {len(shape)}-D: {source}. "
            "Reshape your data to (rows, features)."
        )
    n_rows, n_columns = map(int, shape)
    if n_columns > WIDEST:
        raise RowsError(
            f"rows of {source} have {n_columns} features, more than the 2**24 that are "
            "written out of a row. Select columns, or sketch items with sketch_items."
        )

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[Any]:
        chosen = None if list(positions) == list(range(n_columns)) else list(positions)
        for start in range(0, n_rows, batch_rows):
            chunk = take(start, min(start + batch_rows, n_rows))
            yield chunk if chosen is None else chunk[:, chosen]

    return Piece(source, None, (dtype,) * n_columns, read, n_rows)


def schema_piece(
    source: str, schema: pa.Schema, read: Reader, n_rows: int | None = None
) -> Piece:
    """Describe a table whose columns are those of an Arrow schema."""
    types, index = tuple(map(str, schema.types)), index_columns(schema)
    return Piece(source, tuple(schema.names), types, read, n_rows, left_out=index)


def guarded(
    batches: Iterator[Any], blaming: Callable[[], AbstractContextManager[None]]
) -> Iterator[Any]:
    """The same batches, with errors of their reader told by ``blaming``."""
    while True:
        with blaming():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def index_columns(schema: pa.Schema) -> frozenset[str]:
    """Columns that hold the index of a pandas frame, which is none of its columns.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"a": [1.0]}, index=["x"])
    >>> index_columns(pa.Schema.from_pandas(frame))
    frozenset({'__index_level_0__'})
    """
    try:
        listed = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):  # written by somebody else
        return frozenset()
    return frozenset(name for name in listed if isinstance(name, str))
