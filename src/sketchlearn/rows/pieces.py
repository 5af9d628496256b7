"""Pieces: one array or table, described by its columns and streamed on demand.

What kind an input is of is told in :mod:`sketchlearn.rows.kinds`, and what a value
means in :mod:`sketchlearn.rows.columns`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.kinds import RowsKind, kind_of

__all__ = [
    "Index",
    "Piece",
    "Reader",
    "Spans",
    "array_piece",
    "guarded",
    "index_columns",
    "to_piece",
]

PANDAS_ROWS = 1 << 16
"""Rows of a pandas frame converted at once."""

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
    """

    source: str
    names: tuple[str, ...] | None
    types: tuple[str, ...]
    read: Reader
    n_rows: int | None = None
    once: bool = False
    index: Index | None = None
    left_out: frozenset[str] = frozenset()

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


def to_piece(data: Any) -> Piece | None:
    """Describe one array or table; None if it is neither."""
    describe = _PIECES.get(kind_of(data))
    return None if describe is None else describe(data)


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

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[Any]:
        chosen = None if list(positions) == list(range(n_columns)) else list(positions)
        for start in range(0, n_rows, batch_rows):
            chunk = take(start, min(start + batch_rows, n_rows))
            yield chunk if chosen is None else chunk[:, chosen]

    return Piece(source, None, (dtype,) * n_columns, read, n_rows)


def _array_piece(data: Any) -> Piece:
    array = data if hasattr(data, "shape") and hasattr(data, "dtype") else None
    array = np.asarray(data) if array is None else array
    if np.ma.is_masked(array):
        raise RowsError(
            "a masked array with masked values. Leave those rows out with "
            "open_rows(array.filled(numpy.nan), on_invalid='drop')."
        )

    def take(start: int, stop: int) -> Any:
        return np.asarray(array[start:stop])

    source = f"an array of shape {tuple(array.shape)}"
    return array_piece(source, array.shape, np.dtype(array.dtype).name, take)


def _list_piece(data: Sequence[Any]) -> Piece:
    if not len(data):
        raise RowsError("0 rows in an empty list; at least 1 is needed.")
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RowsError(
            f"a list of {len(data)} rows is not a table of numbers: rows differ in "
            "length or kind. Give every row the same number of features."
        ) from error
    source = f"a list of shape {array.shape}"
    # A whole number among decimals was rounded without notice if it is this large.
    if array.dtype == np.float64 and (np.abs(array) >= 2**53).any():
        exact = np.asarray(data, object)
        rounded = (exact != array) & ~np.isnan(array)
        if rounded.any():
            row = int(np.argwhere(rounded)[0][0])
            raise RowsError(
                f"row {row} of {source}: a whole number cannot be represented exactly "
                "as float64. Pass float(value) to accept rounding."
            )
    return array_piece(source, array.shape, array.dtype.name, lambda i, j: array[i:j])


def _sparse_piece(data: Any) -> Piece:
    source = f"a sparse matrix of shape {data.shape}"
    if data.ndim != 2:
        return array_piece(source, data.shape, data.dtype.name, lambda i, j: None)
    rows = data.tocsr()

    def take(start: int, stop: int) -> Any:
        return rows[start:stop].toarray()

    return array_piece(source, data.shape, data.dtype.name, take)


def _tensor_piece(data: Any) -> Piece:
    source = f"a tensor of shape {tuple(data.shape)}"
    if str(data.layout) != "torch.strided":
        raise RowsError(f"{source} is sparse; pass tensor.to_dense().")
    kind = str(data.dtype).removeprefix("torch.")
    short = kind.startswith(("bfloat16", "float8"))  # NumPy lacks these

    def take(start: int, stop: int) -> Any:
        part = data.detach()[start:stop]
        return (part.float() if short else part).cpu().resolve_neg().numpy()

    return array_piece(source, data.shape, "float32" if short else kind, take)


def _table_piece(data: pa.Table | pa.RecordBatch) -> Piece:
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    source = f"an Arrow table of shape {table.shape}"
    return _arrow_piece(source, table.schema, table.to_batches, len(table))


def _arrow_piece(
    source: str,
    schema: pa.Schema,
    start: Callable[[], Iterable[pa.RecordBatch]],
    n_rows: int | None = None,
) -> Piece:
    """Describe a table whose record batches are ``start()``."""

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in start():
            yield batch.select(list(positions))

    types, index = tuple(map(str, schema.types)), index_columns(schema)
    return Piece(source, tuple(schema.names), types, read, n_rows, left_out=index)


def _stream_piece(data: Any) -> Piece:
    source = f"an Arrow stream ({type(data).__name__})"
    reader = _reader(data, source)
    piece = _arrow_piece(source, reader.schema, lambda: reader)
    return dataclasses.replace(piece, once=True)


def _frame_piece(data: Any) -> Piece:
    source = f"a {type(data).__name__}"
    schema = _reader(data, source).schema
    return _arrow_piece(source, schema, lambda: _reader(data, source))


def _reader(data: Any, source: str) -> Any:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as error:
        raise RowsError(
            f"{source} is not a table with columns of types Arrow knows. Pass a table "
            "or frame of numbers; Reshape your data if it is a single column."
        ) from error


def _dataset_piece(data: Any) -> Piece:
    names = data.schema.names

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from data.scanner(
            columns=[names[position] for position in positions],
            batch_size=batch_rows,
            batch_readahead=2,
            fragment_readahead=1,
        ).to_batches()

    types, index = tuple(map(str, data.schema.types)), index_columns(data.schema)
    return Piece("an Arrow dataset", tuple(names), types, read, left_out=index)


def _column_piece(data: Any) -> Piece:
    """Refuse a single column, and say what to do with it."""
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    source = f"a {library} {kind} of shape {data.shape}"
    return array_piece(source, data.shape, "", lambda i, j: None)


def _polars_piece(data: Any) -> Piece:
    lazy = kind_of(data) is RowsKind.LAZY
    empty = data.collect_schema().to_frame()
    source = "a polars LazyFrame"
    if not lazy:
        source = f"a polars DataFrame of shape {data.shape}"
    head = _stream_piece(empty)
    names = head.names or ()

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        chosen = data.select([names[position] for position in positions])
        frames = [chosen]
        if lazy:
            frames = chosen.collect_batches(chunk_size=batch_rows, maintain_order=True)
        for frame in frames:
            yield from pa.RecordBatchReader.from_stream(frame)

    return Piece(source, names, head.types, read, None if lazy else len(data))


def _pandas_piece(data: Any) -> Piece:
    source = f"a pandas {type(data).__name__} of shape {data.shape}"
    labels = list(data.columns)
    names = None if labels == list(range(len(labels))) else tuple(map(str, labels))

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        chosen = data.iloc[:, list(positions)]
        for start in range(0, len(data), PANDAS_ROWS):
            part = chosen.iloc[start : start + PANDAS_ROWS]
            try:
                yield pa.RecordBatch.from_pandas(part, preserve_index=False)
            except (pa.ArrowException, TypeError) as error:
                raise RowsError(
                    f"{source} has a column of mixed or unknown types. Cast its "
                    "columns with astype, or select others with open_rows(data, "
                    "columns=[...])."
                ) from error

    types = tuple(_pandas_type(data, i, kind) for i, kind in enumerate(data.dtypes))
    return Piece(source, names, types, read, len(data))


def _pandas_type(data: Any, position: int, kind: Any) -> str:
    if isinstance(kind, np.dtype) and kind.isnative and kind.kind in "biu":
        return kind.name
    if str(kind) in ("object", "float16", "float32", "float64"):
        return str(kind)
    try:
        column = data.iloc[:0, [position]]
        return str(pa.Schema.from_pandas(column, preserve_index=False).types[0])
    except (pa.ArrowException, TypeError):
        return str(kind)


_PIECES: dict[RowsKind, Callable[[Any], Piece]] = {
    RowsKind.ARRAY: _array_piece,
    RowsKind.LIST: _list_piece,
    RowsKind.SPARSE: _sparse_piece,
    RowsKind.PANDAS: _pandas_piece,
    RowsKind.POLARS: _polars_piece,
    RowsKind.LAZY: _polars_piece,
    RowsKind.FRAME: _frame_piece,
    RowsKind.TENSOR: _tensor_piece,
    RowsKind.ARROW: _table_piece,
    RowsKind.COLUMN: _column_piece,
    RowsKind.DATASET: _dataset_piece,
    RowsKind.ARROW_STREAM: _stream_piece,
}
