"""Items of an engine: sketched by its workers, added up here."""

from __future__ import annotations

from typing import Any, final

from typing_extensions import override

from sketchlearn.engines.engine_rows import whole_of_parts
from sketchlearn.engines.runner import run_task
from sketchlearn.engines.tasks import ItemTask, one_kind, unpack
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.ids import Place, ids_of
from sketchlearn.rows.open_items import ItemBatches
from sketchlearn.rows.vocabulary import Vocabulary, VocabularyFit
from sketchlearn.sketching.item_source import AbstractItemSource, require_items
from sketchlearn.sketching.passes import new_run
from sketchlearn.sketching.pooling.base import require_item_map
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.sketch import Sketch

__all__ = ["EngineItems"]


@final
class EngineItems(AbstractItemSource):
    """Rows of items of a Dask, Ray or Spark dataset.

    Parameters
    ----------
    batches : ItemBatches
        The rows, as :func:`~sketchlearn.open_items` opened the dataset.
    """

    def __init__(self, batches: ItemBatches) -> None:
        self.batches = batches
        self._found: Vocabulary | None = None

    @property
    @override
    def source(self) -> str:
        return self.batches.source

    @property
    @override
    def vocabulary(self) -> Vocabulary | None:
        return self._found if self.batches.collects else self.batches.vocabulary

    @property
    @override
    def is_repeatable(self) -> bool:
        return True

    @override
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        item_map, pool = require_item_map(feature_map), get_pooling(pooling)
        item_map.require_current()
        require_items(self.batches, item_map)
        dataset, column = self.batches.dataset, self.batches.column
        assert dataset is not None, "others are LocalItems"
        declared = "fit" if self.batches.collects else self.batches.declared
        task = ItemTask(item_map, pool.name, column, declared, new_run())
        columns = None if column is None else [column]
        tables = [unpack(one) for one in run_task(dataset, task, columns)]
        one_kind(tables)
        parts = (table["part"][0].as_py() for table in tables)
        sketch = whole_of_parts(parts, item_map, self.source)
        self._found = _all_items(tables) if self.batches.collects else None
        return sketch


def _all_items(tables: list[Any]) -> Vocabulary | None:
    """The items of all partitions, in their order."""
    found = VocabularyFit()
    for table in tables:
        width = table["width"][0].as_py()
        if width is not None:  # the columns of a table, the same in all of them
            return Vocabulary(width)
        found.add(ids_of(table["items"][0].values, Place("the items of a partition")))
    return found.vocabulary()
