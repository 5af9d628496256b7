"""Files: tables and arrays on disk or behind URLs, read piece by piece out of core.

This module streams the columns it is asked for; what a value means, and whether it may
become a feature, is decided in :mod:`sketchlearn.rows.values`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.csv_files import csv_piece
from sketchlearn.rows.data_file import DataFile, blaming
from sketchlearn.rows.json_lines import json_lines_piece
from sketchlearn.rows.parquet import parquet_piece
from sketchlearn.rows.pieces import Piece, array_piece, guarded, schema_piece

__all__ = ["file_piece"]


def file_piece(
    file: DataFile,
    encoded: Mapping[str, pa.DataType],
    header: bool | None = None,
    ids: str | int | None = None,
) -> Piece:
    """Open one file by its suffix.

    Parameters
    ----------
    file : DataFile
        An existing file.
    encoded : mapping of column name to Arrow type
        Types in which to read columns of text files that will be one-hot encoded.
    header : bool, optional
        Whether a text file begins with names; refused where the file does not tell.
    ids : str or int, optional
        Column of text files that holds ids: integers or text, and no decimals.
    """
    if header is not None and file.format != "CSV":
        raise RowsError(f"header is for CSV files; {file.text!r} is none.")
    return replace(_piece(file, encoded, header, ids), is_file=True)


def _piece(
    file: DataFile,
    encoded: Mapping[str, pa.DataType],
    header: bool | None,
    ids: str | int | None,
) -> Piece:
    if file.format == "Parquet":
        return parquet_piece(file)
    if file.format == "CSV":
        return csv_piece(file, encoded, header, ids)
    if file.format == "JSON Lines":
        return json_lines_piece(file, encoded, ids)
    return _arrow_piece(file) if file.format == "Arrow" else _npy_piece(file)


def _arrow_piece(file: DataFile) -> Piece:
    @contextmanager
    def start(mapped: bool, **options: Any) -> Iterator[Any]:
        chosen = pa.ipc.IpcReadOptions(**options)
        with ExitStack() as stack:
            source = stack.enter_context(file.open(mapped=mapped))
            try:
                opened = pa.ipc.open_file(source, options=chosen)
            except pa.ArrowInvalid:
                source.seek(0)
                opened = pa.ipc.open_stream(source, options=chosen)
            yield stack.enter_context(opened)

    with blaming(file), start(mapped=True) as opened:
        schema = opened.schema
        indexed = hasattr(opened, "get_batch")
        # Far away, counting would fetch the whole file.
        is_counted = indexed and not file.is_remote
        n_rows = opened.count_rows() if is_counted else None
        # One batch is mapped, as it may not fit; many are read and freed in turn.
        mapped = indexed and opened.num_record_batches == 1

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [schema.names[position] for position in positions]
        with ExitStack() as stack:
            with blaming(file):
                opened = stack.enter_context(
                    start(mapped, included_fields=list(positions))
                )
            for batch in guarded(_batches(opened), partial(blaming, file)):
                yield batch.select(names)

    with blaming(file):  # a damaged name cannot be decoded
        return schema_piece(repr(file.text), schema, read, n_rows)


def _batches(opened: Any) -> Iterator[pa.RecordBatch]:
    if not hasattr(opened, "get_batch"):
        return iter(opened)
    return (opened.get_batch(i) for i in range(opened.num_record_batches))


def _npy_piece(file: DataFile) -> Piece:
    source = repr(file.text)
    if file.is_remote:
        raise RowsError(
            f"cannot read {source}: .npy files are mapped into memory, which takes a "
            "file on this machine. Copy it here, or write it as Parquet."
        )
    try:
        array = np.load(file.address, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header raises errors of many kinds
        raise RowsError(
            f"cannot read {source} as NumPy: it is damaged, or holds objects "
            "instead of numbers. Save it again with numpy.save(path, float_array)."
        ) from error
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{source} is not one array; save it with numpy.save.")

    def take(start: int, stop: int) -> Any:
        return np.asarray(array[start:stop])

    return array_piece(source, array.shape, array.dtype.name, take)
