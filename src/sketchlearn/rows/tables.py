"""Tables and frames of all libraries, as pieces; none of the libraries is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.kinds import RowsKind, kind_of
from sketchlearn.rows.pieces import Piece, array_piece, schema_piece

__all__ = [
    "from_arrow",
    "from_column",
    "from_dataset",
    "from_frame",
    "from_pandas",
    "from_polars",
    "from_stream",
]

PANDAS_ROWS = 1 << 16
"""Rows of a pandas frame converted at once."""


def from_arrow(data: pa.Table | pa.RecordBatch) -> Piece:
    """Describe an Arrow table or record batch."""
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    source = f"an Arrow table of shape {table.shape}"
    return _arrow_piece(source, table.schema, table.to_batches, len(table))


def from_pandas(data: Any) -> Piece:
    """Describe a pandas frame."""
    source = f"a pandas {type(data).__name__} of shape {data.shape}"
    labels = list(data.columns)
    names = None if labels == list(range(len(labels))) else tuple(map(str, labels))

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[Any]:
        chosen = data.iloc[:, list(positions)]
        is_array = set(chosen.dtypes) in ({np.dtype("f4")}, {np.dtype("f8")})
        for start in range(0, len(data), PANDAS_ROWS):
            part = chosen.iloc[start : start + PANDAS_ROWS]
            if is_array:  # Arrow would look for missing values first
                yield part.to_numpy()
                continue
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


def from_polars(data: Any) -> Piece:
    """Describe a polars frame, lazy or not."""
    lazy = kind_of(data) is RowsKind.LAZY
    empty = data.collect_schema().to_frame()
    source = "a polars LazyFrame"
    if not lazy:
        source = f"a polars DataFrame of shape {data.shape}"
    head = from_stream(empty)
    names = head.names or ()

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        chosen = data.select([names[position] for position in positions])
        frames = [chosen]
        if lazy:
            frames = chosen.collect_batches(chunk_size=batch_rows, maintain_order=True)
        for frame in frames:
            yield from pa.RecordBatchReader.from_stream(frame)

    return Piece(source, names, head.types, read, None if lazy else len(data))


def from_frame(data: Any) -> Piece:
    """Describe a frame that knows the interface of Arrow."""
    source = f"a {type(data).__name__}"
    schema = _reader(data, source).schema
    return _arrow_piece(source, schema, lambda: _reader(data, source))


def from_dataset(data: Any) -> Piece:
    """Describe an Arrow dataset."""
    names = data.schema.names

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from data.scanner(
            columns=[names[position] for position in positions],
            batch_size=batch_rows,
            batch_readahead=2,
            fragment_readahead=1,
        ).to_batches()

    n_rows = data.count_rows() if _is_counted(data) else None
    return schema_piece("an Arrow dataset", data.schema, read, n_rows)


def from_stream(data: Any) -> Piece:
    """Describe an Arrow stream, which is read once."""
    source = f"an Arrow stream ({type(data).__name__})"
    reader = _reader(data, source)
    piece = _arrow_piece(source, reader.schema, lambda: reader)
    return dataclasses.replace(piece, once=True)


def from_column(data: Any) -> Piece:
    """Refuse a single column, and say what to do with it."""
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    source = f"a {library} {kind} of shape {data.shape}"
    return array_piece(source, data.shape, "", lambda i, j: None)


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

    return schema_piece(source, schema, read, n_rows)


def _reader(data: Any, source: str) -> Any:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as error:
        raise RowsError(
            f"{source} is not a table with columns of types Arrow knows. Pass a table "
            "or frame of numbers; Reshape your data if it is a single column."
        ) from error


def _is_counted(dataset: Any) -> bool:
    """Whether the files of a dataset say how many rows there are."""
    file_format = getattr(dataset, "format", None)
    is_filtered = getattr(dataset, "_scan_options", True)
    told = ("parquet", "arrow", "feather")
    return not is_filtered and getattr(file_format, "default_extname", "") in told


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
