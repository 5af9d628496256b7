"""Sketching items: ids or sets of ids and a map of items, one pass, one sketch."""

from __future__ import annotations

from typing import Any

from sketchlearn.engines.open_source import item_source
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.open_items import open_items
from sketchlearn.sketching.pooling.base import require_item_map
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.sketch import Sketch

__all__ = ["sketch_items"]
__public__ = ["sketch_items"]


def sketch_items(
    data: Any,
    feature_map: AbstractFeatureMap,
    *,
    column: str | int | None = None,
    vocabulary: Any = None,
    pooling: str = "mean",
    progress: bool | None = None,
    n_jobs: int | None = None,
) -> Sketch:
    r"""One pass over rows of items: :math:`\frac1N \sum_i \sum_j x_{ij} a_j`, exactly.

    All or nothing: an error leaves nothing behind. The result is the same to the last
    bit for every order, batch size, partition and form of the rows. A row costs what it
    holds, and memory does not grow with the rows.

    Parameters
    ----------
    data : rows of items
        Ids, sets of ids, a column of a file or frame, a sparse or dense table of
        counts: see :func:`sketchlearn.open_items`. Of a Dask, Ray or Spark dataset
        the column is sketched by its workers.
    feature_map : AbstractFeatureMap
        A map of items: :class:`~sketchlearn.CountSketchFeatures`,
        :class:`~sketchlearn.CountMinFeatures`, :class:`~sketchlearn.BloomFeatures`,
        :class:`~sketchlearn.CounterFeatures` or :class:`~sketchlearn.TableFeatures`.
    column : str or int, optional
        The column of a file or table that holds the ids.
    vocabulary : int, ids, Vocabulary or None
        Items there are; an item that is not among them is refused. A map of as many
        items takes their positions in a list, and an open one their keys.
    pooling : str
        As of :func:`sketchlearn.sketch_rows`; ``"max"`` for a Bloom filter.
    progress : bool, optional
        Show a progress bar on stderr; by default only on a terminal, for long inputs.
    n_jobs : int, optional
        As of :func:`sketchlearn.sketch_rows`.

    Returns
    -------
    Sketch

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.CounterFeatures(3)
    >>> sketch = sl.sketch_items(["b", "a", "b"], phi, vocabulary=["a", "b", "c"])
    >>> (sketch.count * sketch.mean).tolist()
    [1.0, 2.0, 0.0]
    """
    get_pooling(pooling)  # what is unknown is refused before anything is opened
    require_item_map(feature_map)
    batches = open_items(
        data, column=column, vocabulary=vocabulary, progress=progress, n_jobs=n_jobs
    )
    return item_source(batches).sketch(feature_map, pooling=pooling)
