"""Queries: tables of DuckDB, ibis and Daft, run anew whenever they are read.

Each library selects the columns itself, so that it computes no others, and streams the
result. None of them is imported here: who passes a query has done that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import pyarrow as pa

from sketchlearn.errors import RowsError, SketchlearnError
from sketchlearn.rows.pieces import Piece, guarded, schema_piece

__all__ = ["from_query"]


@final
@dataclass(frozen=True)
class _Library:
    """How a library is asked for the schema of a query, for columns and for rows."""

    title: str
    schema: Callable[[Any], pa.Schema]
    select: Callable[[Any, Sequence[str]], Any]
    read: Callable[[Any, int], Iterator[pa.RecordBatch]]


def from_query(data: Any) -> Piece:
    """Describe a query of DuckDB, ibis or Daft."""
    modules = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    library = next(_LIBRARIES[name] for name in modules if name in _LIBRARIES)
    source = f"a query of {library.title}"
    with _running(source):
        schema = library.schema(data)

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [schema.names[position] for position in positions]
        with _running(source):
            batches = library.read(library.select(data, names), batch_rows)
        yield from guarded(batches, partial(_running, source))

    return schema_piece(source, schema, read)


@contextmanager
def _running(source: str) -> Iterator[None]:
    """Turn errors of a library, which may repeat values, into one that does not."""
    try:
        yield
    except SketchlearnError:
        raise
    except Exception as error:  # each library has its own
        raise RowsError(
            f"{source} cannot be run ({type(error).__name__}). Nothing was added. Its "
            "connection must be open while rows are read, and used by nothing else "
            "meanwhile; run the query by itself to see what else is wrong."
        ) from error


def _duckdb_schema(query: Any) -> pa.Schema:
    return _duckdb_reader(query.limit(0), 1).schema


def _duckdb_select(query: Any, names: Sequence[str]) -> Any:
    column = importlib.import_module("duckdb").ColumnExpression
    return query.select(*map(column, names))


def _duckdb_read(query: Any, batch_rows: int) -> Iterator[pa.RecordBatch]:
    with _duckdb_reader(query, batch_rows) as reader:
        yield from reader


def _duckdb_reader(query: Any, batch_rows: int) -> Any:
    is_new = hasattr(query, "to_arrow_reader")
    start = query.to_arrow_reader if is_new else query.fetch_record_batch
    return start(batch_rows)


def _ibis_read(query: Any, batch_rows: int) -> Iterator[pa.RecordBatch]:
    connection = getattr(query.get_backend(), "con", None)
    if "duckdb" in type(connection).__module__ and not hasattr(
        connection, "fetch_record_batch"
    ):  # ibis 12 asks DuckDB 2 for it: the whole result is all there is
        yield from query.to_pyarrow().to_batches(batch_rows)
        return
    with query.to_pyarrow_batches(chunk_size=batch_rows) as reader:
        yield from reader


_DUCKDB = _Library("DuckDB", _duckdb_schema, _duckdb_select, _duckdb_read)
_LIBRARIES = {
    "duckdb": _DUCKDB,
    "_duckdb": _DUCKDB,
    "ibis": _Library(
        "ibis",
        lambda query: query.schema().to_pyarrow(),
        lambda query, names: query.select(*names),
        _ibis_read,
    ),
    "daft": _Library(
        "Daft",
        lambda query: query.schema().to_pyarrow_schema(),
        lambda query, names: query.select(*names),
        lambda query, batch_rows: query.to_arrow_iter(),
    ),
}
"""By the module of their objects."""
