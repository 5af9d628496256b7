"""Datasets of engines: what is known of rows that are read where they are.

Their columns are, their rows are not: these come to the workers of the engine, who
sketch them (:mod:`sketchlearn.engines`). No engine is imported that is not there.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.kinds import engine_of
from sketchlearn.rows.pieces import Dataset, Piece, array_piece, schema_piece
from sketchlearn.rows.tables import from_pandas

__all__ = ["from_engine"]


def from_engine(data: Any, *, ids: bool = False) -> Piece:
    """Describe a DataFrame or Array of Dask, a Dataset of Ray, a DataFrame of Spark.

    Parameters
    ----------
    data : dataset
    ids : bool
        Whether a single column will do, which holds ids.
    """
    engine = engine_of(data)
    if engine == "dask" and hasattr(type(data), "chunks"):
        return _from_dask_array(data, ids)
    if engine == "dask":
        return _from_dask(data, ids)
    return _from_ray(data) if engine == "ray" else _from_spark(data)


def _from_dask_array(data: Any, ids: bool) -> Piece:
    source = f"a Dask Array of {data.npartitions} chunks"
    if data.ndim == 2 and isnan(data.shape[1]):
        raise RowsError(
            f"{source} has an unknown number of columns. Call "
            "array.compute_chunk_sizes() before."
        )
    dataset, kind = Dataset("dask", data), data.dtype.name
    if data.ndim == 1 and ids:
        return _read_elsewhere(Piece(source, None, (), _no_rows), source, dataset)
    piece = array_piece(source, (0, *data.shape[1:]), kind, _no_rows)
    return _read_elsewhere(piece, source, dataset)


def _from_dask(data: Any, ids: bool) -> Piece:
    source = f"a Dask {type(data).__name__} of {data.npartitions} partitions"
    if data.ndim == 1:
        if not ids:
            array_piece(source, (0,), "", _no_rows)  # says what to do
        data = data.to_frame(name="ids" if data.name is None else str(data.name))
    return _read_elsewhere(from_pandas(data._meta), source, Dataset("dask", data))


def _from_ray(data: Any) -> Piece:
    schema = data.schema()
    source = "a Ray Dataset"
    if schema is None:
        raise RowsError(f"0 rows in {source}; at least 1 is needed. Nothing was added.")
    base, names, types = schema.base_schema, list(schema.names), list(schema.types)
    width = getattr(types[0], "shape", ()) if len(names) == 1 else ()
    if len(width) == 1:  # rows of a column of arrays are the rows of a table
        kind = str(getattr(types[0], "value_type", pa.float64()))
        piece = array_piece(source, (0, *width), kind, _no_rows)
        return _read_elsewhere(piece, source, Dataset("ray", data, names[0]))
    if isinstance(base, pa.Schema):
        piece = schema_piece(source, base, _no_rows)
    else:
        kinds = tuple(map(str, types))
        piece = Piece(source, tuple(names), kinds, _no_rows)
    return _read_elsewhere(piece, source, Dataset("ray", data))


def _from_spark(data: Any) -> Piece:
    source = "a Spark DataFrame"
    types = importlib.import_module("pyspark.sql.pandas.types")
    try:
        schema = types.to_arrow_schema(data.schema)
    except Exception as error:  # a type that has none in Arrow
        raise RowsError(
            f"{source} has a column of a type that Arrow does not know. Select the "
            "columns of numbers: df.select('a', 'b')."
        ) from error
    piece = schema_piece(source, schema, _no_rows)
    return _read_elsewhere(piece, source, Dataset("spark", data))


def _read_elsewhere(piece: Piece, source: str, dataset: Dataset) -> Piece:
    """The description of rows that are not read here."""

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[Any]:
        raise RowsError(
            f"the rows of {source} stay where they are and are not read here. Pass it "
            "to fit or to sketch_rows; for transform and predict, map a function of "
            "the fitted estimator over it, or take rows out of it first."
        )

    return dataclasses.replace(
        piece, source=source, read=read, n_rows=None, dataset=dataset
    )


def _no_rows(*_: object) -> Any:
    """In the place of a reader of rows."""
