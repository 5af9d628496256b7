"""Opening rows: any supported input becomes batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sketchlearn.errors import RowsError
from sketchlearn.rows.batches import Batches, require_width
from sketchlearn.rows.columns import Columns, check_columns, check_encodings
from sketchlearn.rows.options import RowOptions
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
) -> Batches:
    """Open any supported input as batches of rows, without reading it yet.

    Parameters
    ----------
    data : rows
        NumPy array, nested list, pandas or polars frame, polars LazyFrame, Arrow
        table, reader or dataset, anything with ``__arrow_c_stream__``, SciPy sparse
        matrix, torch tensor; a generator or list of such batches; or a path, glob,
        folder or list of paths of Parquet, CSV, Arrow (Feather) or ``.npy`` files.
        Numbers of a CSV file are read as float64. An iterator is opened only once;
        of those over lists, maps and zips, which Python does not let one watch, the
        last eight that were not read to their end are remembered.
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
        from 2,048 to 32,768 rows.
    above : float, optional
        Make zeros and ones of all numbers: 1 above this one, else 0.

    Returns
    -------
    Batches

    Raises
    ------
    RowsError
        If the input, now or while it is iterated, cannot be represented exactly.
    MissingFileError
        If a path or glob matches no file.

    Examples
    --------
    >>> batches = open_rows([[1, 2], [3, 4], [5, 6]], batch_rows=2)
    >>> batches.n_features, batches.n_rows, [len(batch) for batch in batches]
    (2, 3, [2, 1])
    """
    if isinstance(data, Batches):
        given = [one is not None for one in (columns, encodings, header)]
        other = above is not None and above != data.above
        if any(given) or other or on_invalid != "raise":
            raise RowsError(
                "these rows are open already; pass columns, encodings, header, above "
                "and on_invalid where they are opened."
            )
        if n_features is not None:
            require_width(data.n_features, n_features, data.source)
        return data
    if on_invalid not in ("raise", "drop"):
        raise RowsError(f"on_invalid must be 'raise' or 'drop'; got {on_invalid!r}.")
    if batch_rows is not None and batch_rows < 1:
        raise RowsError(f"batch_rows must be at least 1; got {batch_rows}.")
    known = check_encodings(encodings)
    options = RowOptions(
        columns=check_columns(columns),
        is_whole=columns is None,
        encodings=known,
        on_invalid=on_invalid,
        progress=progress,
        n_features=n_features,
        batch_rows=batch_rows,
        above=above,
    )
    return Batches(open_source(data, known, header=header), options)
