"""Blocks of rows of items: some rows as they were given, not yet hashed.

A list, a column, a sparse or a dense table is cut into blocks of bounded size; each
becomes :class:`~sketchlearn.rows.items.ItemRows` by itself, in whatever thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NoReturn, final

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.ids import Ids, Place, ids_of
from sketchlearn.rows.items import ItemRows, Keys
from sketchlearn.rows.keys import SIPHASH, KeyRecipe, integer_keys
from sketchlearn.rows.texts import Texts
from sketchlearn.rows.vocabulary import Vocabulary, refuse_unknown

__all__ = [
    "BLOCK_IDS",
    "ROW_TYPES",
    "ItemBlock",
    "blocks_of_arrow",
    "blocks_of_dense",
    "blocks_of_ids",
    "blocks_of_rows",
    "blocks_of_sparse",
    "is_counts",
]

BLOCK_IDS = 2**18
"""Ids that are converted and hashed together."""

ROW_TYPES = (list, tuple, set, frozenset, range)
"""What holds the ids of one row; arrays and columns hold those of many rows."""

_BLOCK_OBJECTS = 2**15
"""Python objects converted together: looked at twice, they stay in the cache."""

LEAST_REFUSED_COUNT = 2**32
"""Counts of an item in a row are below it, so that totals of a block are exact."""


@final
@dataclass(frozen=True, eq=False)
class ItemBlock:
    """Some rows and the ids of the items they hold.

    Parameters
    ----------
    ids : Ids
        Items of the first row, then of the second, and so on; positions in the
        vocabulary if ``is_table``.
    n_rows : int
    place : Place
        Where the rows are, for messages.
    starts, values : int64 array, or None
        As of :class:`~sketchlearn.rows.items.ItemRows`.
    is_table : bool
        Whether the rows were written out, with a number for each item.
    is_learned : bool
        Whether the columns of the table were learned from rows.
    """

    ids: Ids
    n_rows: int
    place: Place
    starts: NDArray[np.int64] | None = None
    values: NDArray[np.int64] | None = None
    is_table: bool = False
    is_learned: bool = False

    @property
    def kind(self) -> str:
        """What items are named by."""
        if self.is_table:
            return "counts"
        return "texts" if isinstance(self.ids.values, Texts) else "integers"

    def items(
        self,
        vocabulary: Vocabulary | None = None,
        recipe: KeyRecipe | None = SIPHASH,
    ) -> ItemRows:
        """The rows by the keys of their items, which the vocabulary has, if any.

        Without a recipe the keys are positions in the vocabulary.
        """
        keys, codes = self._keys(vocabulary, recipe)
        if codes is not None and (
            self.starts is not None or len(keys) > 4 * len(codes)
        ):
            keys, codes = keys[codes], None
        if codes is None:
            return ItemRows(keys, self.n_rows, self.starts, self.values)
        times = np.bincount(codes, minlength=len(keys))
        held = np.flatnonzero(times)  # a stream, by how many rows hold each item
        return ItemRows(keys[held], self.n_rows, None, times[held])

    def _keys(
        self, vocabulary: Vocabulary | None, recipe: KeyRecipe | None
    ) -> tuple[Keys, NDArray[np.int64] | None]:
        """Keys of some items, and which of them each id is; one for each if None."""
        ids, known = self.ids, vocabulary
        if known is not None:
            if self.is_table and known.is_listed:
                assert isinstance(ids.values, np.ndarray)
                return known.keys(recipe), integer_keys(ids.values).view(np.int64)
            found = known.find(ids)
            each = found if ids.codes is None else found[ids.codes]
            if (each < 0).any():
                place = replace(self.place, starts=self.starts)
                refuse_unknown(place, int(np.argmax(each < 0)))
            if known.is_listed:
                return known.keys(recipe), each
        return ids.listed_keys(recipe or SIPHASH), ids.codes


def blocks_of_ids(
    data: Sequence[Any] | NDArray[Any], place: Place
) -> Iterator[ItemBlock]:
    """A list, tuple or array of ids: rows of one item each."""
    size = BLOCK_IDS if isinstance(data, np.ndarray) else _BLOCK_OBJECTS
    for first in range(0, len(data), size):
        here = replace(place, row=place.row + first)
        ids = ids_of(data[first : first + size], here)
        yield ItemBlock(ids, len(ids), here)


def blocks_of_rows(data: Sequence[Any], place: Place) -> Iterator[ItemBlock]:
    """A list of rows, each a set, list or tuple of ids."""
    size = BLOCK_IDS // 8
    for first in range(0, len(data), size):
        part = data[first : first + size]
        for position, row in enumerate(part):
            if not isinstance(row, ROW_TYPES):
                _refuse_row(place, place.row + first + position, row)
        starts = np.zeros(len(part) + 1, np.int64)
        np.cumsum([len(row) for row in part], out=starts[1:])
        here = Place(place.source, place.row + first, starts)
        ids = ids_of(list(chain.from_iterable(part)), here)
        yield ItemBlock(ids, len(part), here, starts)


def _refuse_row(place: Place, number: int, row: Any) -> NoReturn:
    what = "is missing" if row is None else f"is a {type(row).__name__}"
    raise RowsError(
        f"row {number} of the input ({place.source}) {what}, and others are lists or "
        "sets of ids. Nothing was added. Give every row as a list or set of its ids; "
        "one that holds nothing is an empty one."
    )


def blocks_of_arrow(column: pa.Array, place: Place) -> Iterator[ItemBlock]:
    """A column of ids, or of lists of ids."""
    kind = column.type
    if not pa.types.is_nested(kind):
        ids = ids_of(column, place)
        for first in range(0, len(ids), BLOCK_IDS):
            part = ids.part(first, first + BLOCK_IDS)
            yield ItemBlock(part, len(part), replace(place, row=place.row + first))
        return
    compute = importlib.import_module("pyarrow.compute")
    try:
        lengths = compute.list_value_length(column)
    except (pa.ArrowException, NotImplementedError) as error:
        raise RowsError(
            f"ids of {place.source} have the type {kind}. Nothing was added. Pass a "
            "column of ids, or of lists of ids."
        ) from error
    if lengths.null_count:
        missing = lengths.is_null().to_numpy(zero_copy_only=False)
        _refuse_row(place, place.row + int(missing.argmax()), None)
    size = BLOCK_IDS // 8
    for first in range(0, len(column), size):
        part = column.slice(first, size)
        starts = np.zeros(len(part) + 1, np.int64)
        np.cumsum(lengths.slice(first, size).to_numpy(), out=starts[1:])
        here = Place(place.source, place.row + first, starts)
        yield ItemBlock(ids_of(part.flatten(), here), len(part), here, starts)


def blocks_of_sparse(matrix: Any, place: Place) -> Iterator[ItemBlock]:
    """A SciPy sparse matrix, rows by items: how often each row holds each item."""
    rows = matrix.tocsr()
    row = 0
    while row < rows.shape[0]:
        most = int(rows.indptr[row]) + BLOCK_IDS
        until = int(np.searchsorted(rows.indptr, most, side="right")) - 1
        stop = min(max(row + 1, until), row + BLOCK_IDS)
        starts = rows.indptr[row : stop + 1].astype(np.int64)
        inside = slice(int(starts[0]), int(starts[-1]))
        columns, times = rows.indices[inside], rows.data[inside]
        owners = np.repeat(np.arange(stop - row), np.diff(starts))
        here = replace(place, row=place.row + row)
        yield _counted(owners, columns, times, stop - row, here)
        row = stop


def is_counts(data: Any) -> bool:
    """Whether this is a sparse matrix of whole numbers from 0 on."""
    if not scipy.sparse.issparse(data) or data.ndim != 2 or not all(data.shape):
        return False
    times = data.tocsr().data
    return times.dtype.kind == "b" or bool(_are_counts(times).all())


def blocks_of_dense(batch: NDArray[Any], place: Place) -> Iterator[ItemBlock]:
    """A dense table of numbers, rows by items."""
    owners, columns = np.nonzero(batch)
    yield _counted(owners, columns, batch[owners, columns], len(batch), place)


def _counted(
    owners: NDArray[np.int64],
    columns: NDArray[np.integer],
    times: NDArray[Any],
    n_rows: int,
    place: Place,
) -> ItemBlock:
    """Rows by the counts they hold, which were written out."""
    if times.dtype.kind == "b":
        values = times.astype(np.int64)
    else:
        good = _are_counts(times)
        if not good.all():
            row = place.row + int(owners[np.argmin(good)])
            _refuse_count(place, row, times[np.argmin(good)])
        values = times.astype(np.int64)
    held = values > 0
    if not held.all():
        owners, columns, values = owners[held], columns[held], values[held]
    starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=n_rows), out=starts[1:])
    here = replace(place, starts=starts)
    once = not len(values) or int(values.max()) == 1
    ids = Ids(columns.astype(np.int64, copy=False))
    return ItemBlock(ids, n_rows, here, starts, None if once else values, is_table=True)


def _are_counts(times: NDArray[Any]) -> NDArray[np.bool_]:
    if times.dtype.kind not in "iuf":
        return np.zeros(len(times), np.bool_)
    with np.errstate(invalid="ignore"):
        good: NDArray[np.bool_] = (times >= 0) & (times < LEAST_REFUSED_COUNT)
        good &= times == np.floor(times)
    return good


def _refuse_count(place: Place, row: int, value: Any) -> NoReturn:
    what, said = "a count that is no whole number", ""
    if value != value:
        what = "NaN where a count should be"
    elif value < 0:
        what, said = "a negative count", "Negative values in data: "
    elif value >= LEAST_REFUSED_COUNT:
        what = "a count of 2**32 or more"
    raise RowsError(
        f"{said}row {row} of the input ({place.source}) holds {what}. Nothing was "
        "added. Counts are whole numbers from 0 on."
    )
