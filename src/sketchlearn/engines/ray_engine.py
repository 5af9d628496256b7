"""Ray: a task for each block, streamed; results joined by tasks behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, final

import pyarrow as pa
from typing_extensions import override

from sketchlearn.engines.base import SECOND_STAGE, AbstractEngine, AbstractTask
from sketchlearn.errors import RowsError
from sketchlearn.rows.pieces import Dataset

__all__ = ["RayEngine"]

_ORDERING = Lock()

_JOINING_CPUS = 0
"""What a block takes, and Ray would do both in one task, of one result each; a part of
a core, and it would keep a whole one from the blocks."""


@final
class RayEngine(AbstractEngine):
    """Maps over the blocks of a Dataset; no block is kept, none is shuffled."""

    name = "ray"

    @override
    def run(
        self, dataset: Dataset, task: AbstractTask, columns: Sequence[str] | None
    ) -> Iterator[bytes]:
        data = dataset.data
        _require_all_blocks(data)
        if columns is not None and list(columns) != data.schema().names:
            data = data.select_columns(list(columns))
        block = _BlockTask(task, dataset.array_column)
        form = "pyarrow" if dataset.array_column is None else "numpy"
        results = data.map_batches(block, batch_size=None, batch_format=form)
        if task.is_joined:
            results = results.map_batches(
                _JoinTask(task),
                batch_size=SECOND_STAGE,
                batch_format="pyarrow",
                num_cpus=_JOINING_CPUS,
            )
        with _in_order(results, task.is_ordered):
            for row in results.iter_rows():
                yield row["result"]


@final
@dataclass(frozen=True)
class _BlockTask:
    """The results of one block: one, or none."""

    task: AbstractTask
    array_column: str | None
    __name__ = "sketchlearn"

    def __call__(self, block: Any) -> pa.Table:
        if self.array_column is not None:
            block = block[self.array_column]
        result = self.task([block], None)
        return _table([] if result is None else [result])


@final
@dataclass(frozen=True)
class _JoinTask:
    """One result for some."""

    task: AbstractTask
    __name__ = "sketchlearn"

    def __call__(self, results: pa.Table) -> pa.Table:
        some = results["result"].to_pylist()
        return _table([self.task.joined(some)] if some else [])


def _table(results: list[bytes]) -> pa.Table:
    return pa.table({"result": pa.array(results, pa.large_binary())})


def _require_all_blocks(data: Any) -> None:
    """Refuse a dataset that may lose blocks without a word."""
    allowed = getattr(data.context, "max_errored_blocks", 0)
    if allowed:
        raise RowsError(
            f"this Ray Dataset goes on without blocks that fail (max_errored_blocks="
            f"{allowed}): rows would be missing without a word. Nothing was added. Set "
            "ray.data.DataContext.get_current().max_errored_blocks = 0 before the "
            "Dataset is made."
        )


@contextmanager
def _in_order(data: Any, wanted: bool) -> Iterator[None]:
    """Ask for the results in the order of the blocks, while they are fetched.

    The setting is the dataset's, which other threads may use as well.
    """
    if not wanted:
        yield
        return
    options = data.context.execution_options
    with _ORDERING:
        before, options.preserve_order = options.preserve_order, True
        try:
            yield
        finally:
            options.preserve_order = before
