"""Sources of items: what an input of ids, sets or tables is, and its blocks of rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.columns import find_positions, lay_out_columns
from sketchlearn.rows.datasets import from_engine
from sketchlearn.rows.ids import Place, arrow_of
from sketchlearn.rows.item_blocks import (
    BLOCK_IDS,
    ROW_TYPES,
    ItemBlock,
    blocks_of_arrow,
    blocks_of_dense,
    blocks_of_ids,
    blocks_of_rows,
    blocks_of_sparse,
)
from sketchlearn.rows.kinds import RowsKind, kind_of
from sketchlearn.rows.options import row_options
from sketchlearn.rows.pieces import Dataset
from sketchlearn.rows.sources import (
    Source,
    claim_stream,
    open_source,
    owned,
    require_here,
)

__all__ = ["ItemSource", "describe_items"]

_TABLE_KINDS = {
    RowsKind.PANDAS,
    RowsKind.POLARS,
    RowsKind.FRAME,
    RowsKind.ARROW,
    RowsKind.LAZY,
    RowsKind.DATASET,
    RowsKind.QUERY,
    RowsKind.ARROW_STREAM,
}

_ALL_COLUMNS = row_options()

_SINGLE_IDS = (str, bytes, int, np.integer)

Column = str | int | None


@final
@dataclass(frozen=True)
class ItemSource:
    """An input of rows of items, not read yet.

    Parameters
    ----------
    text : str
        Short description for messages.
    start : callable
        ``start(row)`` begins its blocks, of which the first has this row.
    once : bool
        Whether it can begin only once.
    n_rows : int or None
        Number of rows, if it is known without reading.
    n_items : int or None
        Number of items, where rows are written out.
    dataset : Dataset, optional
        The dataset of an engine, whose workers read the rows.
    column : str, int or None
        Its column of ids.
    """

    text: str
    start: Callable[[int], Iterator[ItemBlock]]
    once: bool = False
    n_rows: int | None = None
    n_items: int | None = None
    dataset: Dataset | None = None
    column: Column = None


def describe_items(data: Any, column: Column, header: bool | None) -> ItemSource:
    """Tell what an input is; see :func:`sketchlearn.rows.open_items.open_items`."""
    kind = kind_of(data)
    is_column = isinstance(data, pa.Array | pa.ChunkedArray)
    is_named = column is not None  # then texts are not ids, but files
    is_files = kind is RowsKind.FILES and (is_named or not _is_list_of_text(data))
    if is_files or (kind in _TABLE_KINDS and not is_column):
        return _table(data, column, header, is_files)
    if header is not None:
        raise RowsError("header is for CSV files; leave it out for other data.")
    if kind is RowsKind.ENGINE:
        return _engine(data, column)
    if kind in (RowsKind.BATCHES, RowsKind.ITERATOR):
        return _batches(data, column)
    if column is not None:
        raise RowsError(
            f"column is for files and tables; a {type(data).__name__} has none."
        )
    if isinstance(data, list | tuple):
        return _list(data, f"a {type(data).__name__} of {len(data)}")
    if kind is RowsKind.SPARSE:
        return _sparse(data)
    if is_column or kind in (RowsKind.ARRAY, RowsKind.COLUMN, RowsKind.TENSOR):
        return _array(data, is_column or kind is RowsKind.COLUMN)
    if isinstance(data, Batches):
        return _dense(data)
    return _refuse(data)


def _is_list_of_text(data: Any) -> bool:
    return isinstance(data, list | tuple) and isinstance(data[0], str)


def _list(data: Any, text: str) -> ItemSource:
    """Ids, or rows, as the first that is not missing is."""
    first = next((one for one in data if one is not None), None)
    is_ids = isinstance(first, str | bytes) or not hasattr(first, "__len__")
    if isinstance(first, Mapping):
        _refuse(first)
    if not is_ids and not isinstance(first, ROW_TYPES):
        raise RowsError(
            f"{text} of type {type(first).__name__} may be rows of items or batches of "
            "ids. Nothing was added. Give rows as lists or sets (array.tolist()), and "
            "batches one after the other (iter(data)) or as one array."
        )
    blocks = blocks_of_ids if is_ids else blocks_of_rows
    text = f"{text} {'ids' if is_ids else 'rows'}"
    return ItemSource(
        text, lambda row: blocks(data, Place(text, row)), n_rows=len(data)
    )


def _array(data: Any, is_column: bool, text: str | None = None) -> ItemSource:
    """A column of ids; or of two dimensions, a table."""
    shape = tuple(getattr(data, "shape", None) or (len(data),))
    if not is_column and len(shape) == 2:
        return _dense(Batches(open_source(data, {}), _ALL_COLUMNS))
    if len(shape) != 1:
        raise RowsError(
            f"ids are a 1-D array, and counts of items a 2-D one; got {len(shape)}-D."
        )
    about = f"a {'column' if is_column else type(data).__name__} of {shape[0]}"
    about = text or about
    if str(getattr(data, "dtype", "")) == "object":
        cells = [one.tolist() if hasattr(one, "tolist") else one for one in data]
        return _list(cells, about)

    def start(row: int) -> Iterator[ItemBlock]:
        place = Place(about, row)
        if isinstance(data, np.ndarray):
            return blocks_of_ids(data, place)
        return blocks_of_arrow(arrow_of(data, place), place)

    return ItemSource(about, start, n_rows=shape[0])


def _sparse(data: Any) -> ItemSource:
    text = f"a sparse matrix of shape {data.shape}"
    if data.ndim != 2:
        raise RowsError(f"expected rows by items, got {data.ndim}-D: {text}.")
    return ItemSource(
        text,
        lambda row: blocks_of_sparse(data, Place(text, row)),
        n_rows=int(data.shape[0]),
        n_items=int(data.shape[1]),
    )


def _dense(batches: Batches) -> ItemSource:
    def start(row: int) -> Iterator[ItemBlock]:
        for batch in batches:
            for block in blocks_of_dense(batch, Place(batches.source, row)):
                yield replace(block, is_learned=batches.is_learned)
            row += len(batch)

    return ItemSource(
        batches.source,
        start,
        once=not batches.is_repeatable,
        n_rows=batches.n_rows,
        n_items=batches.n_features,
    )


def _table(
    data: Any, column: Column, header: bool | None, is_files: bool
) -> ItemSource:
    """A column of files or of a frame; without its name, all of them as counts."""
    source = open_source(data, {}, header=header, ids=column)
    if column is None:
        names = source.first.usual_names
        if len(names if names is not None else source.first.types) != 1:
            return _counts(source)
        column = names[0] if names else 0
        if is_files:  # where the type of ids is chosen by name
            source = open_source(data, {}, header=header, ids=column)
    chosen: Any = [column]
    (position,) = find_positions(source.first, chosen)
    if kind_of(data) is RowsKind.PANDAS:  # whose objects Arrow may not know
        text = f"column {column!r} of {source.text}"
        return _array(data.iloc[:, position], is_column=True, text=text)

    def start(row: int) -> Iterator[ItemBlock]:
        for piece in source.pieces():
            position = find_positions(piece, chosen)
            place = Place(f"column {chosen[0]!r} of {piece.source}", row)
            for batch in piece.read(position, BLOCK_IDS):
                is_array = isinstance(batch, np.ndarray)
                ids = pa.array(batch[:, 0]) if is_array else batch.column(0)
                yield from blocks_of_arrow(ids, place)
                place = replace(place, row=place.row + len(ids))
            row = place.row

    return ItemSource(source.text, start, once=source.once, n_rows=source.n_rows)


def _engine(data: Any, column: Column) -> ItemSource:
    """A column of ids of a dataset of an engine; without its name, counts."""
    piece = from_engine(data, ids=True)
    if column is None and len(piece.types) == 1 and piece.names is not None:
        (column,) = piece.names
    n_items = None
    if column is not None:
        chosen: Any = [column]
        find_positions(piece, chosen)
    elif piece.names is not None or piece.types:
        n_items = len(lay_out_columns(piece, None, {}).positions)
    return ItemSource(
        piece.source,
        lambda row: piece.read([], 0),
        n_items=n_items,
        dataset=piece.dataset,
        column=column,
    )


def _counts(source: Source) -> ItemSource:
    try:
        return _dense(Batches(source, _ALL_COLUMNS))
    except RowsError as error:
        raise RowsError(
            f"{error} If one column holds ids, name it: open_items(data, column=...)."
        ) from error


def _batches(data: Iterable[Any], column: Column) -> ItemSource:
    """Batches of any of these; or ids, or rows of ids, one after the other.

    The type of what comes tells which: the same as in a list.
    """
    once = kind_of(data).is_read_once
    text = f"a {type(data).__name__} of batches"
    if once:
        claim_stream(data)

    def start(row: int) -> Iterator[ItemBlock]:
        batches = iter(data)
        for number, batch in enumerate(batches):
            if column is None and isinstance(batch, _SINGLE_IDS + ROW_TYPES):
                rest = itertools.chain([batch], batches)
                yield from _one_by_one(rest, f"a {type(data).__name__}", row)
                return
            own = owned(batch, data)
            try:
                if kind_of(own) in (RowsKind.BATCHES, RowsKind.ITERATOR):
                    _refuse(own)
                part = describe_items(own, column, None)
            except RowsError as error:
                raise RowsError(f"batch {number}: {error}") from error
            require_here(part.dataset, number, part.text)
            for block in part.start(row):
                yield block
                row += block.n_rows

    return ItemSource(text, start, once=once)


def _one_by_one(rows: Iterator[Any], text: str, row: int) -> Iterator[ItemBlock]:
    """Blocks of single ids, or of rows that hold so many together."""
    part: list[Any] = []
    held = 0
    for one in rows:
        is_row = isinstance(one, ROW_TYPES)
        part.append(list(one) if is_row else one)  # who makes rows may reuse one
        held += 1 + (len(one) if is_row else 0)
        if held >= BLOCK_IDS:
            yield from _list(part, text).start(row)
            row, part, held = row + len(part), [], 0
    if part:
        yield from _list(part, text).start(row)


def _refuse(data: Any) -> NoReturn:
    if isinstance(data, Mapping):
        raise RowsError(
            "a dict is no list of items. Pass list(data) for its keys, or a sparse "
            "matrix for counts of them."
        )
    if isinstance(data, os.PathLike | bytes) or not isinstance(data, Iterable):
        what = type(data).__name__
    else:
        what = f"{type(data).__name__} of this kind"
    raise RowsError(
        f"cannot read items from a {what}. Pass a list or array of ids, a list of "
        "sets of ids, a column of a frame or an Arrow array, a path with column=..., "
        "a sparse matrix or a table of counts, or a generator of such batches."
    )
