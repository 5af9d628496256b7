"""Files: tables and arrays on disk, read piece by piece out of core.

This module streams the columns it is asked for; what a value means, and whether it may
become a feature, is decided in :mod:`sketchlearn.rows.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.csv_files import csv_piece
from sketchlearn.rows.parquet import parquet_piece
from sketchlearn.rows.paths import blaming, format_of
from sketchlearn.rows.pieces import Piece, array_piece, guarded, schema_piece

__all__ = ["file_piece"]


def file_piece(
    path: Path,
    encoded: Mapping[str, pa.DataType],
    header: bool | None = None,
    ids: str | int | None = None,
) -> Piece:
    """Open one file by its suffix.

    Parameters
    ----------
    path : Path
        An existing file.
    encoded : mapping of column name to Arrow type
        Types in which to read columns of text files that will be one-hot encoded.
    header : bool, optional
        Whether a text file begins with names; refused where the file does not tell.
    ids : str or int, optional
        Column of text files that holds ids: integers or text, and no decimals.
    """
    kind = format_of(path)
    if header is not None and kind != "CSV":
        raise RowsError(f"header is for CSV files; {str(path)!r} is none.")
    if kind == "Parquet":
        return parquet_piece(path)
    if kind == "CSV":
        return csv_piece(path, encoded, header, ids)
    return _arrow_piece(path) if kind == "Arrow" else _npy_piece(path)


def _arrow_piece(path: Path) -> Piece:
    def start(source: Callable[[str], Any], **options: Any) -> Any:
        chosen = pa.ipc.IpcReadOptions(**options)
        try:
            return pa.ipc.open_file(source(str(path)), options=chosen)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(source(str(path)), options=chosen)

    with blaming(path), start(pa.memory_map) as file:
        schema = file.schema
        indexed = hasattr(file, "get_batch")
        n_rows = file.count_rows() if indexed else None
        # One batch is mapped, as it may not fit; many are read and freed in turn.
        source = pa.OSFile
        if indexed and file.num_record_batches == 1:
            source = pa.memory_map

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [schema.names[position] for position in positions]
        with blaming(path):
            file = start(source, included_fields=list(positions))
        if indexed:
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            batches = iter(file)
        with file:
            for batch in guarded(batches, partial(blaming, path)):
                yield batch.select(names)

    with blaming(path):  # a damaged name cannot be decoded
        return schema_piece(repr(str(path)), schema, read, n_rows)


def _npy_piece(path: Path) -> Piece:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header raises errors of many kinds
        raise RowsError(
            f"cannot read {str(path)!r} as NumPy: it is damaged, or holds objects "
            "instead of numbers. Save it again with numpy.save(path, float_array)."
        ) from error
    source = f"{str(path)!r}"
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{source} is not one array; save it with numpy.save.")

    def take(start: int, stop: int) -> Any:
        return np.asarray(array[start:stop])

    return array_piece(source, array.shape, array.dtype.name, take)
