"""Opening rows: any supported input becomes batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sketchlearn.errors import RowsError
from sketchlearn.rows.batches import Batches, require_width
from sketchlearn.rows.columns import Columns
from sketchlearn.rows.options import row_options
from sketchlearn.rows.sources import open_source

__all__ = ["open_rows"]
__public__ = ["open_rows"]


def open_rows(
    data: Any,
    *,
    columns: Columns = None,
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
    header: bool | None = None,
    progress: bool | None = None,
    n_features: int | None = None,
    batch_rows: int | None = None,
    above: float | None = None,
    n_jobs: int | None = None,
) -> Batches:
    """Open any supported input as batches of rows, without reading it yet.

    Parameters
    ----------
    data : rows
        NumPy array, nested list, pandas or polars frame, polars LazyFrame, a query
        of DuckDB, ibis or Daft, Arrow table, reader or dataset, anything with
        ``__arrow_c_stream__``, SciPy sparse matrix, torch tensor; a generator or list
        of such batches; or a path, URL, glob, folder or list of these of Parquet, CSV,
        TSV, JSON Lines, Arrow (Feather) or ``.npy`` files, text also compressed
        (``.csv.gz``, ``.bz2``, ``.zst``, ``.lz4``). URLs other than ``file://`` are
        read through fsspec (``pip install 'sketchlearn[remote]'``). Numbers of text
        files are read as float64. A query is run anew for every reading. An iterator
        is opened only once; of those over lists, maps and zips, which Python does not
        let one watch, the last eight that were not read to their end are remembered.
    columns : sequence of str (or of int, for data without names), optional
        Columns to read, in this order; by default all of them but the index that
        pandas wrote beside a frame.
    encodings : mapping of column name to categories, optional
        Columns to replace, in place, by one 0/1 column per category, named
        ``"column=category"``.
    on_invalid : {"raise", "drop"}
        What to do with rows that hold NaN, infinities or missing values.
    header : bool, optional
        Whether the first line of CSV files holds the names of the columns; without
        one they are named f0, f1 and so on. By default it does, and a first line
        that may be a row (of numbers alone, or with a decimal) is refused.
    progress : bool, optional
        Show progress on stderr if that is a terminal, while the rows are sketched;
        by default for long inputs.
    n_features : int, optional
        Expected number of features; any other is an error.
    batch_rows : int, optional
        Rows in each batch but the last; by default about four million numbers, and
        from 2,048 (fewer of more than 65,536 numbers) to 32,768 rows.
    above : float, optional
        Make zeros and ones of all numbers: 1 above this one, else 0.
    n_jobs : int, optional
        Threads to sketch the rows with; -1 for one per core. By default as many as
        ``OMP_NUM_THREADS`` or ``threadpoolctl`` say. The sketch is the same.

    Returns
    -------
    Batches

    Raises
    ------
    RowsError
        If the input, now or while it is iterated, cannot be represented exactly.
    MissingFileError
        If a path, URL or glob matches no file.
    MissingExtraError
        If a package that reads such a URL is not installed.

    Examples
    --------
    >>> batches = open_rows([[1, 2], [3, 4], [5, 6]], batch_rows=2)
    >>> batches.n_features, batches.n_rows, [len(batch) for batch in batches]
    (2, 3, [2, 1])
    """
    if isinstance(data, Batches):
        given = [one is not None for one in (columns, encodings, header, n_jobs)]
        other = above is not None and above != data.above
        if any(given) or other or on_invalid != "raise":
            raise RowsError(
                "these rows are open already; pass columns, encodings, header, above, "
                "n_jobs and on_invalid where they are opened."
            )
        if n_features is not None:
            require_width(data.n_features, n_features, data.source)
        return data
    options = row_options(
        columns=columns,
        encodings=encodings,
        on_invalid=on_invalid,
        progress=progress,
        n_features=n_features,
        batch_rows=batch_rows,
        above=above,
        n_jobs=n_jobs,
    )
    return Batches(open_source(data, options.encodings, header=header), options)
