"""Opening items: ids, sets of ids and tables of counts become rows of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from typing_extensions import override

from sketchlearn.errors import RowsError
from sketchlearn.rows.item_blocks import ItemBlock
from sketchlearn.rows.item_sources import ItemSource, describe_items
from sketchlearn.rows.items import ItemRows
from sketchlearn.rows.kinds import OpenedRows
from sketchlearn.rows.options import check_jobs
from sketchlearn.rows.pieces import Dataset
from sketchlearn.rows.sources import refuse_empty
from sketchlearn.rows.vocabulary import Vocabulary, VocabularyFit

__all__ = ["ItemBatches", "open_items"]
__public__ = ["open_items"]


@final
class ItemBatches(OpenedRows):
    """Rows of items of one input, some at a time.

    Made by :func:`open_items`. Iterating gives
    :class:`~sketchlearn.rows.items.ItemRows`.

    Attributes
    ----------
    source : str
        Short description of the input.
    n_rows : int or None
        Number of rows, if it is known without reading.
    n_items : int or None
        Number of items: of the vocabulary, or of the columns of a table; None if open.
    progress : bool or None
        Whether progress is to be shown while they are sketched.
    n_jobs : int or None
        Threads to sketch them with.
    """

    def __init__(
        self,
        source: ItemSource,
        vocabulary: Vocabulary | None,
        *,
        fit: bool = False,
        progress: bool | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.source, self.n_rows = source.text, source.n_rows
        self.progress, self.n_jobs = progress, n_jobs
        self._source, self._vocabulary, self._fit = source, vocabulary, fit
        self._is_spent = False
        self.n_items = source.n_items
        if vocabulary is not None:
            self.n_items = len(vocabulary)
            if source.n_items not in (None, self.n_items):
                raise RowsError(
                    f"{source.text} has {source.n_items} columns, and the vocabulary "
                    f"{self.n_items} items. Nothing was added. Declare one item for "
                    "each column, in their order."
                )
        if self.n_rows == 0:
            refuse_empty(self.source)

    @property
    @override
    def is_repeatable(self) -> bool:
        return not self._source.once

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary: as declared, or found by a whole pass; None while open."""
        return self._vocabulary

    @property
    def dataset(self) -> Dataset | None:
        """The dataset of an engine whose rows these are: they are not read here."""
        return self._source.dataset

    @property
    def column(self) -> str | int | None:
        """The column of ids of that dataset, if it has others."""
        return self._source.column

    @property
    def collects(self) -> bool:
        """Whether the items that are read become the vocabulary."""
        return self._fit

    def __iter__(self) -> Iterator[ItemRows]:
        for block in self.blocks():
            yield block.items(self.declared)

    @property
    def declared(self) -> Vocabulary | None:
        """The vocabulary that was declared where the rows were opened."""
        return None if self._fit else self._vocabulary

    def blocks(self) -> Iterator[ItemBlock]:
        """The rows as they were given; ``block.items(...)`` hashes them."""
        if self._source.once and self._is_spent:
            raise RowsError(
                f"{self.source} was already read and cannot be read twice. Open it "
                "again, or pass a list, an array, a frame or files."
            )
        self._is_spent = True
        return self._checked_blocks()

    def _checked_blocks(self) -> Iterator[ItemBlock]:
        fit = VocabularyFit() if self._fit else None
        kind, width, n_rows = "", self._source.n_items, 0
        for block in self._source.start(0):
            if len(block.ids):
                if kind not in ("", block.kind):
                    _refuse_kinds(block, kind)
                kind = block.kind
            n_rows += block.n_rows
            if fit is not None and width is None:
                fit.add(block.ids)
            if block.n_rows:
                yield block
        if not n_rows:
            refuse_empty(self.source)
        if fit is not None:
            self._vocabulary = fit.vocabulary() if width is None else Vocabulary(width)


def _refuse_kinds(block: ItemBlock, before: str) -> None:
    raise RowsError(
        f"items are named by {block.kind} from {block.place.of(0)} on, and by {before} "
        "before. Nothing was added. Give all of them in one way."
    )


def open_items(
    data: Any,
    *,
    column: str | int | None = None,
    vocabulary: Any = None,
    header: bool | None = None,
    progress: bool | None = None,
    n_jobs: int | None = None,
) -> ItemBatches:
    """Open ids, sets of ids or a table of counts as rows of items.

    Parameters
    ----------
    data : rows of items
        A stream of ids, one item a row: a list, tuple, NumPy array, Series, Arrow
        array, or a generator of ids. Rows of several items: a list or a generator of
        sets, lists or tuples of ids, or a column of lists; an id that a list has twice
        counts twice. With ``column``: a path, URL, glob, folder or list
        of these of Parquet, CSV, JSON Lines or Arrow files, a frame, an Arrow table,
        reader or dataset, a polars LazyFrame, a query of DuckDB, ibis or Daft,
        anything with ``__arrow_c_stream__``. Counts of items: a SciPy sparse matrix,
        a 2-D array, or a table without ``column`` (one with a single column holds
        ids). A generator of arrays, columns or tables, each of which is a batch, or a
        list of tables. A single text is a path, and a list of texts are ids where no
        ``column`` is named.
    column : str, or int for data without names
        The column of ids, or of lists of ids. Only it is read. Of a text file, ids are
        integers if its first rows are, and texts otherwise.
    vocabulary : int, ids, Vocabulary, "fit" or None
        How many items there are, whose ids are 0, 1, 2 and so on; or a list of their
        ids, of a table one for each column; ``"fit"`` collects those that are read.
        By default any id is an item.
    header : bool, optional
        As in :func:`~sketchlearn.open_rows`.
    progress : bool, optional
        Show progress on stderr if that is a terminal, while the rows are sketched.
    n_jobs : int, optional
        As in :func:`~sketchlearn.open_rows`.

    Returns
    -------
    ItemBatches

    Raises
    ------
    RowsError
        If, now or while they are read, an id is missing, of another kind or not in the
        vocabulary, or a count is negative or not whole.
    MissingFileError
        If a path, URL or glob matches no file.

    Examples
    --------
    >>> for rows in open_items(["b", "a", "b"]):
    ...     rows.n_rows, rows.is_stream
    (3, True)
    >>> baskets = open_items([{"milk", "tea"}, set()], vocabulary=["milk", "tea"])
    >>> baskets.n_items, [rows.row_sizes.tolist() for rows in baskets]
    (2, [[2, 0]])
    """
    if isinstance(data, ItemBatches):
        if (column, vocabulary, header, n_jobs) != (None, None, None, None):
            raise RowsError(
                "these items are open already; pass column, vocabulary, header and "
                "n_jobs where they are opened."
            )
        return data
    fit = isinstance(vocabulary, str)
    if fit and vocabulary != "fit":
        raise RowsError(
            "vocabulary must be a number, a list of ids, 'fit' or None; got a text."
        )
    known: Vocabulary | None = None
    if isinstance(vocabulary, Vocabulary):
        known = vocabulary
    elif vocabulary is not None and not fit:
        known = Vocabulary(vocabulary)
    source = describe_items(data, column, header)
    jobs = check_jobs(n_jobs)
    return ItemBatches(source, known, fit=fit, progress=progress, n_jobs=jobs)
