"""Tasks: what workers make of the rows of a partition.

Results are sketches as bytes, or small Arrow tables; no worker is asked to unpickle
what another one wrote. A partition is sketched in one thread: the engine has given a
core to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from sketchlearn.engines.base import AbstractTask
from sketchlearn.errors import NoRowsError, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.open_items import open_items
from sketchlearn.rows.options import RowOptions
from sketchlearn.rows.pieces import Spans
from sketchlearn.rows.sources import open_source
from sketchlearn.rows.survey import require_moderate_rows
from sketchlearn.rows.vocabulary import Vocabulary
from sketchlearn.sketching.labelled_rows import ClassMaps, LabelledRows
from sketchlearn.sketching.lineage import Lineage
from sketchlearn.sketching.local_items import LocalItems
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.passes import part_of_run
from sketchlearn.sketching.sketch import Sketch, add_sketches
from sketchlearn.storage.sketches import dumps, loads

__all__ = [
    "ItemTask",
    "LabelTask",
    "SampleTask",
    "SketchTask",
    "SurveyTask",
    "add_parts",
    "one_kind",
    "pack",
    "unpack",
]


def pack(**columns: Any) -> bytes:
    """A small table as bytes: arrays by name, all of one length."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpack(data: bytes) -> pa.Table:
    """Undo :func:`pack`."""
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        return reader.read_all()


def add_parts(parts: Iterable[bytes]) -> bytes:
    """The sum of some parts of a run, as one larger part."""
    whole = add_sketches(map(loads, parts), are_all=False)
    assert whole is not None, "there is a part"
    return dumps(whole)


@final
@dataclass(frozen=True)
class SketchTask(AbstractTask):
    """The sketch of a partition.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
    pooling : str
    options : RowOptions
        Which columns, and what to do with invalid rows.
    run : str
        The run of which each sketch is a part.
    """

    feature_map: AbstractFeatureMap
    pooling: str
    options: RowOptions
    run: str
    is_joined = True

    @override
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        rows = open_partition(batches, self.options)
        if rows is None:
            return None
        phi = self.feature_map
        aligned = LocalRows(rows).aligned(phi.columns).of_width(phi.n_features)
        sketch = aligned.sketch(phi, pooling=self.pooling)
        return _part(sketch, self.run, partition)

    @override
    def joined(self, results: Iterable[bytes]) -> bytes:
        return add_parts(results)


@final
@dataclass(frozen=True)
class LabelTask(AbstractTask):
    """The sketch of each class of a partition, or without maps its classes.

    Parameters
    ----------
    maps : feature maps, or None
    options : RowOptions
        The last column holds the class.
    left_out : frozenset
        Classes to pass over.
    names : tuple of str, optional
        Of the features.
    run : str
        The run of which those of the classes are made.
    """

    maps: ClassMaps | None
    options: RowOptions
    left_out: frozenset[Any]
    names: tuple[str, ...] | None
    run: str

    @override
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        opened = open_partition(batches, self.options)
        if opened is None:
            return None
        rows = LabelledRows(opened, None, self.left_out, self.names)
        if self.maps is None:
            return pack(label=pa.array(sorted(rows.labels()), pa.int64()))
        found = rows.sketches(self.maps)
        labels = sorted(found)
        parts = [_part(found[c], self.run_of(c), partition) for c in labels]
        return pack(label=pa.array(labels, pa.int64()), part=pa.array(parts))

    def run_of(self, label: int) -> str:
        """The run of a class: a row is in one of them."""
        return hashlib.sha256(f"{self.run}/{label}".encode()).hexdigest()[:32]


@final
@dataclass(frozen=True)
class SurveyTask(AbstractTask):
    """How many rows a partition has, their range, and by what to know it again."""

    options: RowOptions
    source: str
    is_ordered = True

    @override
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        rows = open_partition(batches, self.options)
        if rows is None:
            return None
        count, content = 0, hashlib.sha256()
        low = np.full(rows.n_features, np.inf)
        high = -low
        for batch in rows:
            require_moderate_rows(batch, count, rows.names, self.source)
            np.minimum(low, batch.min(axis=0), out=low)
            np.maximum(high, batch.max(axis=0), out=high)
            content.update(batch.data)
            count += len(batch)
        return pack(
            count=[count],
            content=[content.digest()],
            low=[low.tobytes()],
            high=[high.tobytes()],
        )


@final
@dataclass(frozen=True)
class SampleTask(AbstractTask):
    """Some rows of those partitions that hold them.

    Parameters
    ----------
    options : RowOptions
    spans : mapping of bytes to list of (start, stop)
        Rows of each partition, which is known by its content: engines need not say
        which one a worker has got, and may give others the second time.
    """

    options: RowOptions
    spans: Mapping[bytes, Spans]

    @override
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        rows = open_partition(batches, self.options)
        if rows is None:
            return None
        wanted = sorted({span for spans in self.spans.values() for span in spans})
        found: dict[tuple[int, int], list[bytes]] = {span: [] for span in wanted}
        row, content = 0, hashlib.sha256()
        for batch in rows:
            content.update(batch.data)
            for start, stop in wanted:
                part = batch[max(start - row, 0) : max(stop - row, 0)]
                found[start, stop].append(part.astype(np.float64).tobytes())
            row += len(batch)
        mine = self.spans.get(content.digest())
        if mine is None:
            return None
        return pack(
            content=[content.digest()] * len(mine),
            start=[start for start, _ in mine],
            stop=[stop for _, stop in mine],
            rows=[b"".join(found[span]) for span in mine],
        )


@final
@dataclass(frozen=True)
class ItemTask(AbstractTask):
    """The sketch of a partition of items, and what else is learned of them.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
    pooling : str
    column : str, int or None
        The column of ids.
    vocabulary : Vocabulary, "fit" or None
        As declared.
    run : str
        The run of which each sketch is a part.
    """

    feature_map: AbstractFeatureMap
    pooling: str
    column: str | int | None
    vocabulary: Vocabulary | str | None
    run: str

    @property
    def is_ordered(self) -> bool:  # type: ignore[override]
        """Items are listed in the order in which they come."""
        return isinstance(self.vocabulary, str)

    @property
    def is_joined(self) -> bool:  # type: ignore[override]
        """What is not listed needs no order."""
        return not self.is_ordered

    @override
    def result_of(self, batches: Iterator[Any], partition: int | None) -> bytes | None:
        items = LocalItems(
            open_items(
                batches,
                column=self.column,
                vocabulary=self.vocabulary,
                progress=False,
                n_jobs=1,
            )
        )
        try:
            sketch = items.sketch(self.feature_map, pooling=self.pooling)
        except NoRowsError:
            return None
        listed = items.vocabulary if self.is_ordered else None
        part = _part(sketch, self.run, partition)
        return _packed_items(part, items.kind, listed)

    @override
    def joined(self, results: Iterable[bytes]) -> bytes:
        tables = [unpack(result) for result in results]
        part = add_parts(table["part"][0].as_py() for table in tables)
        return _packed_items(part, one_kind(tables), None)


def open_partition(batches: Iterator[Any], options: RowOptions) -> Batches | None:
    """The rows of a partition; None if it has none."""
    alone = replace(options, n_jobs=1, progress=False)
    try:
        rows = Batches(open_source(batches, options.encodings), alone)
        rows.peek(1)
    except NoRowsError:
        return None
    return rows


def _part(sketch: Sketch, run: str, partition: int | None) -> bytes:
    """A sketch as a part of a run."""
    return dumps(replace(sketch, lineage=Lineage.of([part_of_run(run, partition)])))


def one_kind(tables: Iterable[pa.Table]) -> str:
    """What the items of all partitions are named by: integers, texts or neither."""
    kinds = {table["kind"][0].as_py() for table in tables} - {""}
    if len(kinds) > 1:
        raise RowsError(
            f"items are named by {' and by '.join(sorted(kinds))} in different "
            "partitions. Nothing was added. Give all of them in one way."
        )
    return kinds.pop() if kinds else ""


def _packed_items(part: bytes, kind: str, found: Vocabulary | None) -> bytes:
    """A part, what its items are named by, and those that were found.

    They are listed, or only counted where they are the columns of a table.
    """
    is_listed = found is not None and found.is_listed
    items = found.declared if found is not None and is_listed else pa.nulls(1)
    width = None if found is None or is_listed else len(found)
    return pack(
        part=[part],
        kind=[kind],
        width=pa.array([width], pa.int64()),
        items=pa.array([items.to_pylist()], pa.list_(items.type)),
    )
