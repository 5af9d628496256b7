"""Item sources: all that is ever asked of rows of items, wherever they are."""

from __future__ import annotations

from abc import abstractmethod

from sketchlearn.errors import FeatureMapMismatch
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.items import OPEN_VOCABULARY, AbstractItemMap
from sketchlearn.rows.batches import require_width
from sketchlearn.rows.kinds import OpenedRows
from sketchlearn.rows.open_items import ItemBatches
from sketchlearn.rows.vocabulary import Vocabulary
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractItemSource", "require_items"]


class AbstractItemSource(OpenedRows):
    """Rows of items that can be sketched."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Short description of the input, for messages."""

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary | None:
        """The items: as declared, or as found by sketching; None while open."""

    @abstractmethod
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        """The sketch of all rows: an error leaves nothing behind.

        A map of an open vocabulary takes the keys of items. One of a declared size
        takes positions in the vocabulary that was listed for the rows.
        """


def require_items(batches: ItemBatches, item_map: AbstractItemMap) -> None:
    """Refuse rows of another number of items than a map takes.

    Raises
    ------
    FeatureMapMismatch, RowsError
        If the rows have another number of items than the map.
    """
    n_items = batches.n_items
    if item_map.n_features == OPEN_VOCABULARY or n_items is None:
        return
    if batches.declared is None:
        require_width(n_items, item_map.n_features, batches.source)
    elif n_items != item_map.n_features:
        raise FeatureMapMismatch(
            f"the map has {item_map.n_features} items, and the vocabulary of "
            f"{batches.source} has {n_items}. Nothing was added. Give both the same."
        )
