"""Sketching by hand on any engine: a function of a partition, and the sum of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import pyarrow as pa

from sketchlearn.engines.spark_engine import spark_partition
from sketchlearn.engines.tasks import SketchTask
from sketchlearn.errors import NoRowsError, PrivacyError, RowsError
from sketchlearn.features.base import AbstractFeatureMap, require_feature_map
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.kinds import RowsKind, kind_of
from sketchlearn.rows.options import row_options
from sketchlearn.sketching.passes import new_run
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.sketch import Sketch, add_sketches
from sketchlearn.storage.sketches import loads

__all__ = ["PartialSketch", "merge", "partial_sketch"]
__public__ = ["merge", "partial_sketch"]

_OF_BATCHES = (RowsKind.ITERATOR, RowsKind.BATCHES)


@final
@dataclass(frozen=True)
class PartialSketch:
    """The sketch of a partition as bytes; made by :func:`partial_sketch`.

    Called with an iterator of Arrow record batches (or with one table, frame or
    array), it yields one record batch of one row, or none if there are no rows. The
    number of the partition names the part: two of one number are never added. Spark
    tells it; elsewhere give it, where a partition may be tried or delivered twice.

    Parameters
    ----------
    task : SketchTask
        What is done with the rows.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of what it yields: a column ``sketch`` of bytes.
    """

    task: SketchTask

    schema: ClassVar[pa.Schema] = pa.schema([("sketch", pa.binary())])
    __name__: ClassVar[str] = "partial_sketch"

    def __call__(self, batches: Any, partition: int | None = None) -> Iterator[Any]:
        """One row with the sketch, or none."""
        is_stream = kind_of(batches) in _OF_BATCHES
        number = spark_partition() if partition is None else partition
        part = self.task(batches if is_stream else [batches], number)
        if part is not None:
            column = pa.array([part], pa.binary())
            one = pa.RecordBatch.from_arrays([column], schema=self.schema)
            yield one if is_stream else pa.Table.from_batches([one])


def partial_sketch(
    feature_map: AbstractFeatureMap,
    *,
    columns: Sequence[str] | None = None,
    pooling: str = "mean",
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
) -> PartialSketch:
    """A function that sketches one partition of rows, for any engine to run.

    It can be pickled, takes an iterator of Arrow record batches and yields at most one
    row of bytes; :func:`merge` adds these up. :func:`~sketchlearn.sketch_rows` and all
    estimators do both for Dask, Ray and Spark by themselves. Make one for each job: its
    parts belong together, and no part of a job is added twice.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        The features φ.
    columns : sequence of str, optional
        Columns to read, in this order; by default those of the plan, or all.
    pooling, encodings, on_invalid
        As in :func:`~sketchlearn.sketch_rows`.

    Returns
    -------
    PartialSketch
        ``spark_frame.mapInArrow(partial, "sketch binary").toArrow()``, or
        ``ray_dataset.map_batches(partial, batch_format="pyarrow", batch_size=None)``.

    Examples
    --------
    >>> import pyarrow as pa, sketchlearn as sl
    >>> partial = sl.partial_sketch(sl.MomentFeatures(1, order="mean"))
    >>> tables = [pa.table({"a": [1.0, 2.0]}), pa.table({"a": [6.0]})]
    >>> parts = [row["sketch"][0] for table in tables for row in partial(table)]
    >>> whole = sl.merge(part.as_py() for part in parts)
    >>> whole.count, whole.mean, len(whole.lineage)
    (3, array([3.]), 1)
    """
    require_feature_map(feature_map).require_current()
    options = row_options(columns=columns, encodings=encodings, on_invalid=on_invalid)
    name = get_pooling(pooling).name
    return PartialSketch(SketchTask(feature_map, name, options, new_run()))


def merge(
    parts: Iterable[Sketch | bytes] | pa.Table, *, complete: bool = True
) -> Sketch:
    """Add up sketches of different rows: any number of them, one after the other.

    The same as ``a + b + c``; but the parts of one job are taken to be all of it, so
    that however many they are the result has one run, which is never added twice.

    Parameters
    ----------
    parts : iterable of Sketch or bytes, or Arrow table
        Sketches, or what :func:`~sketchlearn.dumps` or :func:`partial_sketch` made of
        them; of a table, the only column. Tables, and rows of one value as engines
        give them back, may stand in the iterable, too.
    complete : bool
        Whether these are all parts of their jobs. With False they become a larger
        part, to be merged with the others later.

    Returns
    -------
    Sketch

    Raises
    ------
    NoRowsError
        If there is no part.
    PrivacyError
        If a part, or a run, comes twice.
    FeatureMapMismatch
        If they are of different maps.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.MomentFeatures(1, order="mean")
    >>> a, b = (sl.sketch_rows([[x]], phi) for x in (1.0, 3.0))
    >>> sl.merge([a, sl.dumps(b)]) == a + b
    True
    """
    whole = add_sketches(map(_sketch_of, _each(parts)), are_all=complete)
    if whole is None:
        raise NoRowsError(
            "no part to merge: all partitions were empty, or there were none."
        )
    return whole


def _each(parts: Any) -> Iterable[Any]:
    if isinstance(parts, pa.Table | pa.RecordBatch):
        if parts.num_columns != 1:
            raise RowsError(
                f"a table of parts has one column; this one has {parts.num_columns}."
            )
        parts = parts.column(0)
    if isinstance(parts, pa.Array | pa.ChunkedArray):
        return (part.as_py() for part in parts)
    if isinstance(parts, Iterable) and not isinstance(parts, bytes | bytearray | str):
        return (one for part in parts for one in _ones(part))
    raise RowsError(
        f"merge takes a list of sketches or of their bytes; got a "
        f"{type(parts).__name__}. For one sketch, write merge([sketch])."
    )


def _ones(part: Any) -> Iterable[Any]:
    """The parts in a table, a row or a scalar; anything else is one itself."""
    if isinstance(part, pa.Table | pa.RecordBatch):
        return _each(part)
    if isinstance(part, pa.Scalar):
        return [part.as_py()]
    if isinstance(part, Mapping) and len(part) == 1:
        return list(part.values())
    if isinstance(part, tuple) and len(part) == 1:  # a row of Spark is one
        return list(part)
    return [part]


def _sketch_of(part: Any) -> Sketch:
    found = loads(bytes(part)) if isinstance(part, bytes | bytearray) else part
    if isinstance(found, PrivateSketch):
        raise PrivacyError(
            "released sketches are merged with merge_disjoint(a, b), which states that "
            "no person is in both."
        )
    if not isinstance(found, Sketch):
        raise RowsError(
            f"merge adds up sketches, or the bytes of dumps and partial_sketch; got a "
            f"{type(found).__name__}."
        )
    return found
