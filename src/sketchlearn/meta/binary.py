"""Tables of zeros and ones: what the streaming experiments count.

Numbers become 1 above the middle of an image's range or above a column's median,
genotypes are binary already, and categories become one column each
(:mod:`sketchlearn.rows.binary_columns`). The same dataset always gives the same
columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.rows.binary_columns import KEPT_COLUMNS, BinaryColumns

__all__ = ["binary_rows"]


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
    learned = BinaryColumns.learn(data.rows, n_columns=n_columns, seed=seed)
    return learned.apply(data.rows)
