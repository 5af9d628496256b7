"""Spark: ``mapInArrow`` over the partitions; results come back as an Arrow table.

No RDD and no accumulator is needed, so that it works through Spark Connect, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
from typing_extensions import override

from sketchlearn.engines.base import AbstractEngine, AbstractTask
from sketchlearn.rows.pieces import Dataset

__all__ = ["SparkEngine", "spark_partition"]

_SCHEMA = pa.schema([("result", pa.binary())])
_COLUMNS = "result binary"


@final
class SparkEngine(AbstractEngine):
    """Maps over the partitions of a DataFrame."""

    name = "spark"

    @override
    def run(
        self, dataset: Dataset, task: AbstractTask, columns: Sequence[str] | None
    ) -> Iterator[bytes]:
        data = dataset.data
        names = tuple(data.columns if columns is None else columns)
        results = _numbered(data, names).mapInArrow(
            _PartitionTask(task, names), _COLUMNS
        )
        if task.is_joined:
            joined = results.hint("rebalance")  # as few partitions as the bytes need
            results = joined.mapInArrow(_JoinTask(task), _COLUMNS)
        yield from results.toArrow()["result"].to_pylist()


@final
@dataclass(frozen=True)
class _PartitionTask:
    """The results of one partition: one, or none."""

    task: AbstractTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (batch.rename_columns(list(self.names)) for batch in batches)
        result = self.task(named, spark_partition())
        if result is not None:
            yield _batch(result)


@final
@dataclass(frozen=True)
class _JoinTask:
    """One result for those that came to one partition."""

    task: AbstractTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some = [one for batch in batches for one in batch["result"].to_pylist()]
        if some:
            yield _batch(self.task.joined(some))


def spark_partition() -> int | None:
    """Number of the partition that this worker of Spark has; None elsewhere."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    return None if context is None else int(context.partitionId())


def _batch(result: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], schema=_SCHEMA)


def _numbered(data: Any, names: Sequence[str]) -> Any:
    """Some columns, under numbers.

    Spark does not tell names that differ in case, and does not find those with a dot.
    """
    numbers = [f"c{i}" for i in range(len(data.columns))]
    places = [data.columns.index(name) for name in names]
    return data.toDF(*numbers).select([numbers[place] for place in places])
