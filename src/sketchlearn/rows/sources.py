"""Sources: what an input is made of, and how often it can be read.

An input is a stream of pieces. Arrays, frames and files start it anew as often as one
likes; an iterator or an Arrow reader is opened once, and a second opening, which would
begin somewhere in the middle, is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, NoReturn, final
from weakref import WeakValueDictionary

import pyarrow as pa
import scipy.sparse

from sketchlearn.errors import NoRowsError, RowsError
from sketchlearn.rows import arrays, queries, tables
from sketchlearn.rows.datasets import from_engine
from sketchlearn.rows.files import file_piece
from sketchlearn.rows.kinds import RowsKind, is_learned, kind_of
from sketchlearn.rows.paths import find_files
from sketchlearn.rows.pieces import Dataset, Piece

__all__ = [
    "Delivered",
    "Source",
    "claim_stream",
    "open_source",
    "owned",
    "refuse_empty",
    "require_here",
]

_READERS: dict[RowsKind, Callable[[Any], Piece]] = {
    RowsKind.ARRAY: arrays.from_array,
    RowsKind.LIST: arrays.from_list,
    RowsKind.SPARSE: arrays.from_sparse,
    RowsKind.PANDAS: tables.from_pandas,
    RowsKind.POLARS: tables.from_polars,
    RowsKind.LAZY: tables.from_polars,
    RowsKind.FRAME: tables.from_frame,
    RowsKind.TENSOR: arrays.from_tensor,
    RowsKind.ARROW: tables.from_arrow,
    RowsKind.COLUMN: tables.from_column,
    RowsKind.DATASET: tables.from_dataset,
    RowsKind.QUERY: queries.from_query,
    RowsKind.ARROW_STREAM: tables.from_stream,
    RowsKind.ENGINE: from_engine,
}

_OPENED: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Iterators that were opened, by identity."""

_HELD: dict[int, Any] = {}
"""Those among them that cannot be referred to weakly, oldest first. They are held until
they are read to their end: another one cannot take their identity meanwhile."""

_MOST_HELD = 8

_CLAIMING = Lock()


@final
class Source:
    """An input: a stream of pieces, and whether it can be streamed only once.

    Parameters
    ----------
    text : str
        Short description for messages.
    start : callable
        Begins the stream of pieces.
    once : bool
        Whether it can begin only once.
    n_rows : int or None
        Number of rows, if it is known without reading.

    Attributes
    ----------
    first : Piece
        The first piece, which the stream yields too.
    """

    def __init__(
        self,
        text: str,
        start: Callable[[], Iterator[Piece]],
        *,
        once: bool = False,
        n_rows: int | None = None,
    ) -> None:
        self.text, self.once, self.n_rows = text, once, n_rows
        self._start = start
        self._begun: Iterator[Piece] | None = None

    def open(self) -> None:
        """Look at the first piece."""
        pieces = self._start()
        first = next(pieces, None)
        if first is None:
            refuse_empty(self.text)
        self.first = first
        self._begun = itertools.chain([first], pieces) if self.once else None

    def pieces(self) -> Iterator[Piece]:
        """All pieces from the first one on."""
        if not self.once:
            return self._start()
        if self._begun is None:
            raise RowsError(
                f"{self.text} was already read and cannot be read twice. Open it "
                "again, or pass an array, a frame or files."
            )
        pieces, self._begun = self._begun, None
        return pieces

    @property
    def is_spent(self) -> bool:
        """Whether its only stream has been handed out."""
        return self.once and self._begun is None


def open_source(
    data: Any,
    encodings: Mapping[str, pa.Array],
    *,
    header: bool | None = None,
    ids: str | int | None = None,
) -> Source:
    """Tell what an input is, and open its first piece.

    Parameters
    ----------
    data, header
        As in :func:`sketchlearn.rows.open_rows.open_rows`.
    encodings : mapping of column name to Arrow array
        Categories of the columns to one-hot encode.
    ids : str or int, optional
        Column that holds ids, which text files show as integers or text.
    """
    source = _describe(data, encodings, header, ids)
    items = data if isinstance(data, list | tuple) else [data]
    for item in items if source.once else []:
        if isinstance(item, Iterator | pa.RecordBatchReader):
            claim_stream(item)
    source.open()
    return source


def refuse_empty(source: str, dropped: int = 0) -> NoReturn:
    """Say that there are no rows, or none left."""
    if dropped:
        raise NoRowsError(
            f"0 rows are left of {source}: all {dropped} contain NaN or infinity, and "
            "on_invalid='drop' leaves them out. Nothing was added."
        )
    raise NoRowsError(f"0 rows in {source}; at least 1 is needed. Nothing was added.")


def claim_stream(stream: Any) -> None:
    """Refuse an iterator that was opened before: its first rows are gone."""
    with _CLAIMING:
        if id(stream) in _OPENED or id(stream) in _HELD:
            raise RowsError(
                f"this {type(stream).__name__} was opened before and cannot be read "
                "twice: its first rows would be missing. Make a new one, or pass an "
                "array, a frame, a list of batches or files."
            )
        try:
            _OPENED[id(stream)] = stream
        except TypeError:  # map, zip, and iterators over lists
            _HELD[id(stream)] = stream
            while len(_HELD) > _MOST_HELD:
                del _HELD[next(iter(_HELD))]


def require_here(dataset: Dataset | None, number: int, source: str) -> None:
    """Refuse a batch whose rows are with an engine."""
    if dataset is not None:
        raise RowsError(
            f"batch {number} is {source}: datasets of an engine are not read one after "
            "the other. Nothing was added. Put them together in the engine first "
            "(concat, union), or sketch each and merge the sketches."
        )


@final
class Delivered(Iterator[Any]):
    """Batches that nobody fills again: each is in memory of its own."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)

    def __next__(self) -> Any:
        return next(self._batches)


def owned(batch: Any, batches: Any) -> Any:
    """A batch in memory of its own: who makes batches may fill one array again."""
    if isinstance(batches, list | tuple | Delivered):
        return batch
    copy = getattr(batch, "clone" if hasattr(batch, "detach") else "copy", None)
    is_mutable = hasattr(batch, "__array__") or scipy.sparse.issparse(batch)
    return copy() if is_mutable and callable(copy) else batch


def _describe(
    data: Any,
    encodings: Mapping[str, pa.Array],
    header: bool | None,
    ids: str | int | None,
) -> Source:
    kind = kind_of(data)
    if kind is RowsKind.FILES:
        return _file_source(data, encodings, header, ids)
    if header is not None:
        raise RowsError("header is for CSV files; leave it out for other data.")
    if kind in (RowsKind.BATCHES, RowsKind.ITERATOR):
        return _batch_source(data)
    piece = _to_piece(data) or _refuse_kind(data)
    pieces = [piece]
    return Source(
        piece.source, lambda: iter(pieces), once=piece.once, n_rows=piece.n_rows
    )


def _to_piece(data: Any) -> Piece | None:
    """Describe one array or table; None if it is neither."""
    describe = _READERS.get(kind_of(data))
    if describe is None:
        return None
    return dataclasses.replace(describe(data), is_learned=is_learned(data))


def _file_source(
    data: Any,
    encodings: Mapping[str, pa.Array],
    header: bool | None,
    ids: str | int | None,
) -> Source:
    files, text = find_files(data)
    encoded = {name: _text_type(known.type) for name, known in encodings.items()}

    def pieces() -> Iterator[Piece]:
        return (file_piece(file, encoded, header, ids) for file in files)

    n_rows: int | None = None
    if not any(file.is_text for file in files):
        opened = list(pieces())
        counts = [piece.n_rows for piece in opened]
        known = [count for count in counts if count is not None]
        n_rows = sum(known) if len(known) == len(counts) else None
        if all(file.is_remote for file in files):  # where every look takes its time
            return Source(text, lambda: iter(opened), n_rows=n_rows)
    return Source(text, pieces, n_rows=n_rows)


def _text_type(kind: pa.DataType) -> pa.DataType:
    """Type in which text files hold categories of a type."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return pa.float64() if number else kind


def _batch_source(data: Iterable[Any]) -> Source:
    once = kind_of(data).is_read_once
    if isinstance(data, list | tuple):
        once = any(kind_of(batch).is_read_once for batch in data)

    def pieces() -> Iterator[Piece]:
        for number, batch in enumerate(data):
            own = owned(batch, data)
            try:
                piece = _to_piece(own) or _refuse_kind(own)
            except RowsError as error:
                raise RowsError(f"batch {number}: {error}") from error
            require_here(piece.dataset, number, piece.source)
            source = f"batch {number} ({piece.source})"
            yield dataclasses.replace(piece, source=source)
        _HELD.pop(id(data), None)  # opened again it has no rows, which is refused

    return Source(f"a {type(data).__name__} of batches", pieces, once=once)


def _refuse_kind(data: Any) -> NoReturn:
    if isinstance(data, Mapping):
        raise RowsError(
            "a dict is not a table of rows. Pass pandas.DataFrame(data), or an array."
        )
    raise RowsError(
        f"cannot read rows from a {type(data).__name__}. Pass a NumPy array, a nested "
        "list, a pandas or polars frame, an Arrow table, a DuckDB, ibis or Daft query, "
        "a SciPy sparse matrix, a torch tensor, a generator of such batches, a path, "
        "URL, glob or folder of Parquet, CSV, JSON Lines, Arrow or .npy files, or a "
        "dataset of Dask, Ray or Spark."
    )
