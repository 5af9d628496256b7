"""Local rows: batches read on this machine, looked at and sketched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import SAFE_ROWS, Int128Array
from sketchlearn.errors import RowRangeError, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.rows.survey import LARGEST, name_large_value, survey_rows
from sketchlearn.sketching.lineage import new_lineage
from sketchlearn.sketching.pooling.base import AbstractPooling
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.progress import with_progress
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.threads import RowThreads

__all__ = ["LocalRows", "open_row_source"]

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
    >>> rows = LocalRows(open_rows([[1.0, 5.0], [3.0, 4.0]]))
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
        found = survey_rows(
            self.batches, first_rows=limit, reading=with_progress(self.batches)
        )
        ends = np.stack([found.low, found.high])
        if np.abs(ends).max() > LARGEST:
            name_large_value(self.batches, first_rows=limit, source=self._source)
        quartiles = np.quantile(found.some, [0.25, 0.75], axis=0, method="nearest")
        return np.concatenate([ends, quartiles])

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
        total, count = Int128Array.zeros(feature_map.sketch_size), 0
        with RowThreads() as threads:
            for batch in with_progress(self.batches):
                for start in range(0, len(batch), SAFE_ROWS):
                    rows = batch[start : start + SAFE_ROWS]
                    parts = threads.map(
                        partial(_pool, pooling, feature_map, count), rows
                    )
                    part = reduce(pooling.combine, parts)
                    total = pooling.combine(total, part) if count else part
                    count += len(rows)
        if count == 0:
            raise RowsError(f"no rows to sketch in {self.source}. Nothing was added.")
        return Sketch(
            total,
            count,
            feature_map.spec,
            pooling.name,
            new_lineage(),
            feature_map,
            self.names or feature_map.columns,
        )


def open_row_source(data: Any, *, above: float | None = None) -> AbstractRowSource:
    """Rows as a source: those of an engine are one, and all others are local.

    Parameters
    ----------
    data : rows
        As for :func:`~sketchlearn.rows.open_rows.open_rows`.
    above : float, optional
        Make zeros and ones of local rows, as there.
    """
    if not isinstance(data, AbstractRowSource):
        return LocalRows(open_rows(data, above=above))
    if above is not None:
        raise RowsError(
            f"numbers of {data.source} are not made zeros and ones here. Make them "
            "where the rows are, and leave binarize=None."
        )
    return data


def _pool(
    pooling: AbstractPooling,
    feature_map: AbstractFeatureMap,
    seen: int,
    rows: NDArray[np.floating],
    first: int,
) -> Int128Array:
    return pooling.pool(feature_map, rows, seen + first)
