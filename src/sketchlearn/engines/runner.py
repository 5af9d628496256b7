"""Running a task on the engine that holds a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sketchlearn.engines.base import AbstractEngine, AbstractTask, told_by_workers
from sketchlearn.engines.dask_engine import DaskEngine
from sketchlearn.engines.ray_engine import RayEngine
from sketchlearn.engines.spark_engine import SparkEngine
from sketchlearn.rows.pieces import Dataset

__all__ = ["run_task"]

_ENGINES: tuple[AbstractEngine, ...] = (DaskEngine(), RayEngine(), SparkEngine())


def run_task(
    dataset: Dataset, task: AbstractTask, columns: Sequence[str | int] | None
) -> Iterator[bytes]:
    """Results of a task for the partitions of a dataset; errors are the workers'.

    Parameters
    ----------
    dataset : Dataset
    task : AbstractTask
    columns : sequence of str, or of int for data without names, optional
        All that the task reads.
    """
    engine = next(one for one in _ENGINES if one.name == dataset.engine)
    names = [name for name in columns or () if isinstance(name, str)]
    with told_by_workers():
        yield from engine.run(dataset, task, names or None)
