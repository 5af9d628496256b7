"""Local rows: batches read on this machine, looked at and sketched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import SAFE_ROWS, Int128Array
from sketchlearn.errors import RowRangeError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.chunks import RowPart
from sketchlearn.rows.sources import refuse_empty
from sketchlearn.rows.survey import (
    LARGEST,
    name_large_value,
    plan_extremes,
    survey_rows,
)
from sketchlearn.sketching.passes import new_lineage
from sketchlearn.sketching.pooling.base import AbstractPooling
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.progress import with_progress
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.threads import RowThreads

__all__ = ["LocalRows"]

PLANNING_ROWS = 65_536
"""Without declared bounds, scales are read from so many first rows of an iterator."""

_PLANNED_FROM = (
    "Its scales were read from the rows that were fitted first (of an iterator, from "
    f"its first {PLANNING_ROWS:,}): with bounds, or an array or files that hold all "
    "rows, this does not happen."
)


@final
class LocalRows(AbstractRowSource):
    """Rows that this process reads.

    Parameters
    ----------
    batches : Batches
        The rows.
    source : str, optional
        Another description of them for messages, where they were put together.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> rows = LocalRows(sl.open_rows([[1.0, 5.0], [3.0, 4.0]]))
    >>> rows.extremes()[:2].tolist(), rows.sketch(sl.MomentFeatures(2)).count
    ([[1.0, 4.0], [3.0, 5.0]], 2)
    """

    def __init__(self, batches: Batches, *, source: str | None = None) -> None:
        self.batches = batches
        self._source = batches.source if source is None else source

    @property
    @override
    def source(self) -> str:
        return self._source

    @property
    @override
    def n_features(self) -> int:
        return self.batches.n_features

    @property
    @override
    def names(self) -> tuple[str, ...] | None:
        return self.batches.names

    @property
    @override
    def is_repeatable(self) -> bool:
        return self.batches.is_repeatable

    @override
    def select(self, names: Sequence[str]) -> Self:
        return type(self)(self.batches.select(names), source=self._source)

    @override
    def extremes(self) -> NDArray[np.float64]:
        """Those of all rows, or of the first ones of an iterator."""
        limit = max(64, min(PLANNING_ROWS, 2**26 // self.n_features))
        with RowThreads(self.batches.n_jobs) as threads:
            parts = with_progress(_Parts(self.batches, threads.count))
            read = threads.stream(RowPart.floats, parts)
            found = survey_rows(self.batches, first_rows=limit, reading=read)
        if np.abs([found.low, found.high]).max() > LARGEST:
            name_large_value(self.batches, first_rows=limit, source=self._source)
        return plan_extremes(found.low, found.high, found.some)

    @override
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        try:
            return self._sketch(feature_map, get_pooling(pooling))
        except RowRangeError as error:
            if feature_map.origin == "declared":
                raise
            raise RowRangeError(f"{error} {_PLANNED_FROM}") from error

    def _sketch(
        self, feature_map: AbstractFeatureMap, pooling: AbstractPooling
    ) -> Sketch:
        feature_map.require_current()
        total: Int128Array | None = None
        count = read = 0
        work = partial(_pool, pooling, feature_map)
        with RowThreads(self.batches.n_jobs) as threads:
            parts = with_progress(_Parts(self.batches, threads.count))
            for part, n_rows, n_read in threads.stream(work, parts):
                if part is not None:
                    total = part if total is None else pooling.combine(total, part)
                count, read = count + n_rows, read + n_read
        if total is None:
            refuse_empty(self.source, dropped=read)
        if self.batches.is_learned:
            feature_map = feature_map.of_learned_columns()
        return Sketch(
            total,
            count,
            feature_map.spec,
            pooling.name,
            new_lineage(),
            feature_map,
            self.names or feature_map.columns,
        )


@final
class _Parts:
    """The rows of batches as threads get them."""

    def __init__(self, batches: Batches, n_threads: int) -> None:
        self.n_rows, self.progress = batches.n_rows, batches.progress
        self._batches, self._n_threads = batches, n_threads

    def __iter__(self) -> Iterator[RowPart]:
        return self._batches.parts(self._n_threads)


def _pool(
    pooling: AbstractPooling, feature_map: AbstractFeatureMap, part: RowPart
) -> tuple[Int128Array | None, int, int]:
    """The total of some rows, how many they are, and how many were read."""
    rows = part.floats()
    totals = [
        pooling.pool(
            feature_map, rows[start : start + SAFE_ROWS], part.first_row + start
        )
        for start in range(0, len(rows), SAFE_ROWS)
    ]
    total = reduce(pooling.combine, totals) if totals else None
    return total, len(rows), len(part)
