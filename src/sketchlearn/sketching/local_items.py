"""Local items: rows of items read on this machine, and sketched by what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.items import OPEN_VOCABULARY, AbstractItemMap
from sketchlearn.rows.item_blocks import BLOCK_IDS, ItemBlock
from sketchlearn.rows.items import ItemRows, Keys
from sketchlearn.rows.open_items import ItemBatches
from sketchlearn.rows.vocabulary import Vocabulary
from sketchlearn.sketching.item_source import AbstractItemSource, require_items
from sketchlearn.sketching.passes import new_lineage
from sketchlearn.sketching.pooling.base import AbstractPooling, require_item_map
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.progress import with_progress
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.tally import StreamTally
from sketchlearn.sketching.threads import RowThreads

__all__ = ["LocalItems"]


@final
class LocalItems(AbstractItemSource):
    """Rows of items that this process reads.

    Parameters
    ----------
    batches : ItemBatches
        The rows, as :func:`~sketchlearn.open_items` opened them.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.CountMinFeatures(width=50, depth=2)
    >>> LocalItems(sl.open_items(["b", "a", "b"])).sketch(phi).count
    3
    """

    def __init__(self, batches: ItemBatches) -> None:
        self.batches = batches
        self.kind = ""  # what items are named by, once they are read

    @property
    @override
    def source(self) -> str:
        return self.batches.source

    @property
    @override
    def vocabulary(self) -> Vocabulary | None:
        return self.batches.vocabulary

    @property
    @override
    def is_repeatable(self) -> bool:
        return self.batches.is_repeatable

    @override
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        item_map, pool = require_item_map(feature_map), get_pooling(pooling)
        item_map.require_current()
        require_items(self.batches, item_map)
        known = self._known_to(item_map)
        count = 0
        with RowThreads(self.batches.n_jobs) as threads:
            workers = [_Worker(pool, item_map) for _ in range(threads.count)]
            numbered = _Numbered(self.batches, known)
            for n_rows in threads.map_parts(workers, with_progress(numbered)):
                count += n_rows
            rests = [worker.rest() for worker in workers]
        self.kind = numbered.kind
        totals = [total for total in rests if total is not None]
        total = reduce(pool.combine, totals)
        if numbered.is_learned:
            item_map = item_map.of_learned_columns()
        return Sketch(
            total,
            count,
            item_map.spec,
            pool.name,
            new_lineage(),
            item_map,
            item_map.columns,
        )

    def _known_to(self, item_map: AbstractItemMap) -> Vocabulary | None:
        """The vocabulary outside of which items are refused."""
        if self.batches.declared is None and item_map.n_features != OPEN_VOCABULARY:
            return Vocabulary(item_map.n_features)
        return self.batches.declared


@final
@dataclass(frozen=True)
class _Part:
    """A block of rows, and the number of the first of them."""

    block: ItemBlock
    first_row: int
    known: Vocabulary | None

    def __len__(self) -> int:
        return self.block.n_rows


@final
class _Numbered:
    """Blocks of opened items, with what is needed to hash them anywhere."""

    def __init__(self, batches: ItemBatches, known: Vocabulary | None) -> None:
        self.n_rows, self.progress = batches.n_rows, batches.progress
        self._batches, self._known = batches, known
        self.kind, self.is_learned = "", False

    def __iter__(self) -> Iterator[_Part]:
        row = 0
        for block in self._batches.blocks():
            self.is_learned |= block.is_learned
            self.kind = block.kind if len(block.ids) else self.kind
            yield _Part(block, row, self._known)
            row += block.n_rows


@final
class _Worker:
    """The total of the blocks that one thread is given.

    Sums of streams need to know only how often each item comes.
    """

    def __init__(self, pooling: AbstractPooling, item_map: AbstractItemMap) -> None:
        self._pooling, self._map = pooling, item_map
        self._tally = StreamTally() if pooling.is_linear else None
        self._total: Int128Array | None = None
        self._waiting: list[Keys] = []

    def __call__(self, part: _Part) -> int:
        """Add a block of rows; how many they are."""
        rows = part.block.items(part.known, self._map.row_recipe)
        if self._tally is None or not rows.is_stream or rows.values is not None:
            self._add(rows, part.first_row)
        elif not self._tally.add(rows):
            self._waiting.append(rows.keys)
            if sum(map(len, self._waiting)) >= BLOCK_IDS:
                self._add_waiting()
        return part.block.n_rows

    def _add_waiting(self) -> None:
        """Add the small blocks of a stream together: a total takes its time."""
        if self._waiting:
            keys = np.concatenate(self._waiting)
            self._add(ItemRows(keys, len(keys)), 0)
            self._waiting = []

    def _add(self, rows: ItemRows, first_row: int) -> None:
        if not rows.n_rows:
            return
        total = self._pooling.pool(self._map, rows, first_row)
        if self._total is not None:
            total = self._pooling.combine(self._total, total)
        self._total = total

    def rest(self) -> Int128Array | None:
        """The total of all blocks; None of none."""
        self._add_waiting()
        if self._tally is not None:
            self._add(self._tally.take(), 0)
        return self._total
