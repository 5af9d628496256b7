"""Tables of zeros and ones: what the streaming experiments count.

Numbers become 1 above the middle of an image's range or above a column's median,
genotypes are binary already, and categories become one column each. What is learned
from the table is never asked again: the same dataset always gives the same columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchlearn.meta.datasets import MetaDataset

__all__ = ["KEPT_COLUMNS", "MOST_CATEGORIES", "binary_rows"]

KEPT_COLUMNS = 1000
"""Columns kept at random of wider tables, as in the paper."""

MOST_CATEGORIES = 10
"""A column of so few different values is one of categories."""

_DARKEST = 127
"""Pixels above are 1. 8-bit tables without such a number are no images."""


def binary_rows(
    data: MetaDataset, *, n_columns: int = KEPT_COLUMNS, seed: int = 0
) -> NDArray[np.uint8]:
    """All rows of a dataset as zeros and ones.

    Parameters
    ----------
    data : MetaDataset
        Images (8-bit), genotypes (0 and 1), or a table of numbers and categories.
    n_columns : int
        Most columns to keep; a wider table keeps a random choice, in order.
    seed : int
        Seed of the choice.

    Returns
    -------
    uint8 array of shape (n_rows, at most n_columns)

    Examples
    --------
    >>> data = MetaDataset.from_arrays("three", [[0, 1.5], [2, 2.5], [1, 9.0]])
    >>> binary_rows(data)
    array([[1, 0, 0, 1, 0, 0],
           [0, 0, 1, 0, 1, 0],
           [0, 1, 0, 0, 0, 1]], dtype=uint8)
    """
    rows = data.rows
    if rows.dtype == np.uint8 and rows.max() > _DARKEST:
        binary = (rows > _DARKEST).astype(np.uint8)
    elif rows.dtype.itemsize == 1 and rows.min() >= 0 and rows.max() <= 1:
        binary = rows.astype(np.uint8)
    else:
        columns = [_binary_columns(column) for column in rows.T]
        binary = np.concatenate(columns, axis=1)
    if binary.shape[1] <= n_columns:
        return binary
    chosen = np.random.default_rng(seed).permutation(binary.shape[1])[:n_columns]
    return binary[:, np.sort(chosen)]


def _binary_columns(column: NDArray[np.floating]) -> NDArray[np.uint8]:
    """One column for each of few categories, or one of whether above the median."""
    values = np.unique(column)
    if 2 < len(values) <= MOST_CATEGORIES:
        return np.asarray(column[:, None] == values, np.uint8)
    threshold = values[0] if len(values) == 2 else np.median(column)
    return np.asarray(column[:, None] > threshold, np.uint8)
