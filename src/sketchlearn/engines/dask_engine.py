"""Dask: a task for each partition, results joined by a tree of tasks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, final

from typing_extensions import override

from sketchlearn.engines.base import SECOND_STAGE, AbstractEngine, AbstractTask
from sketchlearn.rows.pieces import Dataset

__all__ = ["DaskEngine"]


@final
class DaskEngine(AbstractEngine):
    """Runs on the scheduler in force: a client's cluster, processes or threads."""

    name = "dask"

    @override
    def run(
        self, dataset: Dataset, task: AbstractTask, columns: Sequence[str] | None
    ) -> Iterator[bytes]:
        dask = importlib.import_module("dask")
        # One key for all: a task may hold a learned map of many megabytes.
        shared = dask.delayed(task, traverse=False)
        results: list[Any] = [
            dask.delayed(_run, pure=False)(shared, part, number)
            for number, part in enumerate(_partitions(dataset.data, columns))
        ]
        while len(results) > SECOND_STAGE and task.is_joined:
            starts = range(0, len(results), SECOND_STAGE)
            groups = [results[at : at + SECOND_STAGE] for at in starts]
            results = [dask.delayed(_join, pure=False)(shared, some) for some in groups]
        yield from filter(None, dask.compute(*results))


def _partitions(data: Any, columns: Sequence[str] | None) -> list[Any]:
    """The partitions of a frame, or blocks of whole rows of an array."""
    if hasattr(type(data), "chunks"):
        whole = data.rechunk({1: -1}) if data.ndim == 2 else data
        return list(whole.to_delayed().ravel())
    labels = {str(label): label for label in data.columns}
    chosen = data if columns is None else data[[labels[name] for name in columns]]
    return list(chosen.to_delayed())


def _run(task: AbstractTask, part: Any, number: int) -> bytes | None:
    return task([part], number)


def _join(task: AbstractTask, results: list[bytes | None]) -> bytes | None:
    some = [result for result in results if result is not None]
    return task.joined(some) if some else None
