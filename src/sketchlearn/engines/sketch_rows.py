"""Sketching rows: any input and a feature map, one pass, one sketch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from scipy.sparse import issparse

from sketchlearn.engines.open_source import item_source, row_source
from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap, require_feature_map
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.rows.batches import require_width
from sketchlearn.rows.item_blocks import is_counts
from sketchlearn.rows.open_items import ItemBatches, open_items
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.row_source import AbstractRowSource
from sketchlearn.sketching.sketch import Sketch

__all__ = ["sketch_rows"]
__public__ = ["sketch_rows"]


def sketch_rows(
    data: Any,
    feature_map: AbstractFeatureMap,
    *,
    pooling: str = "mean",
    columns: Sequence[str] | None = None,
    encodings: Mapping[str, Sequence[Any]] | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
    progress: bool | None = None,
    n_jobs: int | None = None,
) -> Sketch:
    r"""One pass over the rows: :math:`\Phi(x) = \frac1N \sum_i \varphi(x_i)`, exactly.

    All or nothing: an error leaves nothing behind. The result is the same to the
    last bit for every order, batch size and partition of the rows, on every machine.

    Parameters
    ----------
    data : rows
        Array, list, frame, Arrow table, sparse matrix, tensor, generator of batches,
        query, or path, URL or glob of files: see :func:`sketchlearn.open_rows`. What
        :func:`~sketchlearn.open_items` opened, too, and a sparse matrix of counts
        stays sparse where the map takes items. A Dask DataFrame or Array, Ray Dataset
        or Spark DataFrame is sketched by its workers; only their sums come here.
    feature_map : AbstractFeatureMap
        The features φ.
    pooling : str
        ``"mean"`` (the paper's), ``"sum"``, ``"max"``, ``"min"``, ``"p-norm:P"``,
        ``"log-sum-exp"`` or ``"soft-min"``.
    columns : sequence of str, optional
        Columns to read, in this order; all of them by default.
    encodings : mapping, optional
        Categories of non-numeric columns, to be one-hot encoded.
    on_invalid : {"raise", "drop"}
        What to do with rows that hold NaN or infinities.
    progress : bool, optional
        Show a progress bar on stderr; by default only on a terminal, for long inputs.
    n_jobs : int, optional
        Threads on this machine; -1 for one per core. By default as many as
        ``OMP_NUM_THREADS`` or ``threadpoolctl`` say.

    Returns
    -------
    Sketch

    References
    ----------
    Paper, eq. sketch-net.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.MomentFeatures(n_features=1, order="mean")
    >>> sl.sketch_rows([[1.0], [2.0], [6.0]], phi).mean
    array([3.])
    """
    require_feature_map(feature_map)
    get_pooling(pooling)  # one that is unknown is refused before anything is opened
    given = columns is not None or encodings is not None or on_invalid != "raise"
    if isinstance(data, ItemBatches) or (
        not given and isinstance(feature_map, AbstractItemMap) and is_counts(data)
    ):
        batches = open_items(data, progress=progress, n_jobs=n_jobs)
        return item_source(batches).sketch(feature_map, pooling=pooling)
    if issparse(data) and data.ndim == 2 and not given:  # before a row is written out
        source = f"a sparse matrix of shape {data.shape}"
        require_width(data.shape[1], feature_map.n_features, source)
    rows: AbstractRowSource = data
    if not isinstance(data, AbstractRowSource):
        opened = open_rows(
            data,
            columns=columns,
            encodings=encodings,
            on_invalid=on_invalid,
            progress=progress,
            n_jobs=n_jobs,
        )
        rows = row_source(opened)
    elif given:
        raise RowsError(
            f"{data.source} is open already; pass columns, encodings and on_invalid "
            "where it is opened."
        )
    aligned = rows.aligned(feature_map.columns).of_width(feature_map.n_features)
    return aligned.sketch(feature_map, pooling=pooling)
