"""Rows of an engine with their classes, sketched class by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.engines.engine_rows import EngineRows, whole_of_parts
from sketchlearn.engines.runner import run_task
from sketchlearn.engines.tasks import LabelTask, unpack
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.sketching.labelled_rows import AbstractLabelledRows, ClassMaps
from sketchlearn.sketching.passes import new_run
from sketchlearn.sketching.sketch import Sketch

__all__ = ["EngineLabelledRows"]


@final
@dataclass(frozen=True, eq=False)
class EngineLabelledRows(AbstractLabelledRows):
    """Rows of a Dask, Ray or Spark dataset, with the class in a last column.

    Parameters
    ----------
    batches : Batches
        Features, and the class, a whole number, in the last column.
    left_out : frozenset
        Classes whose rows are passed over.
    names : tuple of str, optional
        Of the features.
    """

    batches: Batches
    left_out: frozenset[Any] = frozenset()
    names: tuple[str, ...] | None = None
    classes: None = None

    @override
    def without(self, labels: Iterable[Any]) -> Self:
        return replace(self, left_out=self.left_out | frozenset(labels))

    @override
    def extremes(self) -> NDArray[np.float64]:
        return EngineRows(self.batches).extremes()[:, :-1]

    @override
    def labels(self) -> set[Any]:
        found = self._run(None)
        return {label for table in found for label in table["label"].to_pylist()}

    @override
    def sketches(self, maps: ClassMaps) -> dict[Any, Sketch]:
        parts: dict[Any, list[bytes]] = {}
        for table in self._run(maps):
            for one in table.to_pylist():
                parts.setdefault(one["label"], []).append(one["part"])
        source = self.batches.source
        return {
            label: whole_of_parts(some, _map_of(maps, label), source)
            for label, some in sorted(parts.items())
        }

    def _run(self, maps: ClassMaps | None) -> Iterable[Any]:
        dataset, options = self.batches.dataset, self.batches.options
        assert dataset is not None, "others are LabelledRows"
        task = LabelTask(maps, options, self.left_out, self.names, new_run())
        return map(unpack, run_task(dataset, task, options.columns))


def _map_of(maps: ClassMaps, label: Any) -> AbstractFeatureMap:
    return maps if isinstance(maps, AbstractFeatureMap) else maps[label]
