"""Rows of an engine: looked at and sketched by its workers, added up here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.engines.runner import run_task
from sketchlearn.engines.tasks import SampleTask, SketchTask, SurveyTask, unpack
from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.pieces import Dataset, Spans
from sketchlearn.rows.sources import refuse_empty
from sketchlearn.rows.survey import block_rows, plan_extremes, sample_spans
from sketchlearn.sketching.passes import new_run
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch, add_sketches
from sketchlearn.storage.sketches import loads

__all__ = ["EngineRows", "whole_of_parts"]


@final
class EngineRows(AbstractRowSource):
    """Rows of a Dask, Ray or Spark dataset.

    The order of the rows is that of the partitions, and in each of them its own; it
    matters only where a plan is read from the rows.

    Parameters
    ----------
    batches : Batches
        The columns, as :func:`~sketchlearn.open_rows` opened the dataset.
    """

    def __init__(self, batches: Batches) -> None:
        assert batches.dataset is not None, "others are LocalRows"
        self.batches = batches
        self._dataset: Dataset = batches.dataset

    @property
    @override
    def source(self) -> str:
        return self.batches.source

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
        return True

    @override
    def select(self, names: Sequence[str]) -> Self:
        return type(self)(self.batches.select(names))

    @override
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        feature_map.require_current()
        options, name = self.batches.options, get_pooling(pooling).name
        task = SketchTask(feature_map, name, options, new_run())
        parts = run_task(self._dataset, task, options.columns)
        return whole_of_parts(parts, feature_map, self.source)

    @override
    def extremes(self) -> NDArray[np.float64]:
        """Those of all rows, as one machine finds them that reads them in order."""
        options = self.batches.options
        task = SurveyTask(options, self.source)
        results = run_task(self._dataset, task, options.columns)
        tables = [unpack(result) for result in results]
        if not tables:
            refuse_empty(self.source)
        found = pa.concat_tables(tables)
        low, high = (
            np.stack([np.frombuffer(one) for one in found[name].to_pylist()])
            for name in ("low", "high")
        )
        some = self._sample(found["count"].to_pylist(), found["content"].to_pylist())
        return plan_extremes(low.min(axis=0) + 0.0, high.max(axis=0) + 0.0, some)

    def _sample(self, counts: list[int], contents: list[bytes]) -> NDArray[np.float64]:
        """Rows from all over: those of the same numbers as on one machine."""
        places = _places(counts, contents, self.n_features)
        spans: dict[bytes, Spans] = {}
        for content, span in places:
            spans.setdefault(content, []).append(span)
        task = SampleTask(self.batches.options, spans)
        found: dict[tuple[bytes, tuple[int, int]], bytes] = {}
        for result in run_task(self._dataset, task, task.options.columns):
            for one in unpack(result).to_pylist():
                span = one["start"], one["stop"]
                found[one["content"], span] = one["rows"]
        if not found.keys() >= set(places):
            raise RowsError(
                f"{self.source} has other rows each time it is computed (a random "
                "sample, or an order that changes), so that nothing can be planned "
                "from them. Keep its rows with persist(), cache() or materialize(), or "
                "declare bounds."
            )
        rows = b"".join(found[place] for place in places)
        return np.frombuffer(rows).reshape(-1, self.n_features)


def whole_of_parts(
    parts: Iterable[bytes], feature_map: AbstractFeatureMap, source: str
) -> Sketch:
    """The sketch of all rows from those of the partitions."""
    whole = add_sketches(map(loads, parts))
    if whole is None:
        refuse_empty(source)
    if "columns_origin" in whole.features.description:
        feature_map = feature_map.of_learned_columns()
    return whole.with_map(feature_map)


def _places(
    counts: list[int], contents: list[bytes], n_features: int
) -> list[tuple[bytes, tuple[int, int]]]:
    """Where the rows of a sample lie, by partition and rows inside of it."""
    ends = np.cumsum(counts).tolist()
    places = []
    for start, stop in sample_spans(ends[-1], block_rows(n_features)):
        for content, count, end in zip(contents, counts, ends, strict=True):
            first = end - count
            inside = max(start, first) - first, min(stop, end) - first
            if inside[0] < inside[1]:
                places.append((content, inside))
    return places
