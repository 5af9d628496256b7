"""Where rows are sketched: on this machine, or by the engine that holds them."""

from __future__ import annotations

from typing import Any

from sketchlearn.engines.engine_items import EngineItems
from sketchlearn.engines.engine_labels import EngineLabelledRows
from sketchlearn.engines.engine_rows import EngineRows
from sketchlearn.errors import RowsError
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.open_items import ItemBatches
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.item_source import AbstractItemSource
from sketchlearn.sketching.labelled_rows import AbstractLabelledRows, LabelledRows
from sketchlearn.sketching.local_items import LocalItems
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource

__all__ = ["item_source", "labelled_source", "open_row_source", "row_source"]


def open_row_source(data: Any, *, above: float | None = None) -> AbstractRowSource:
    """Open rows, wherever they are, to be looked at and sketched.

    Parameters
    ----------
    data : rows
        As for :func:`~sketchlearn.open_rows`, or a source of your own.
    above : float, optional
        Make zeros and ones of the rows, as there.
    """
    if not isinstance(data, AbstractRowSource):
        return row_source(open_rows(data, above=above))
    if above is not None:
        raise RowsError(
            f"numbers of {data.source} are not made zeros and ones here. Make them "
            "where the rows are, and leave binarize=None."
        )
    return data


def row_source(batches: Batches) -> AbstractRowSource:
    """Opened rows as a source."""
    return LocalRows(batches) if batches.dataset is None else EngineRows(batches)


def labelled_source(
    batches: Batches, *, names: tuple[str, ...] | None = None
) -> AbstractLabelledRows:
    """Opened rows whose last column is a class."""
    if batches.dataset is None:
        return LabelledRows(batches, names=names)
    return EngineLabelledRows(batches, names=names)


def item_source(batches: ItemBatches) -> AbstractItemSource:
    """Opened items as a source."""
    return LocalItems(batches) if batches.dataset is None else EngineItems(batches)
