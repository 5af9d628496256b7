"""Counts of items in datasets: what laws of frequencies are learned from.

A table of zeros and ones gives sets of its rows; a table with columns of few different
values gives a stream of their combinations as well. Episodes are counts alone: how many
items were in how many of N rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.rows.binary_columns import MOST_CATEGORIES

__all__ = ["CountTable", "ItemCounts", "count_tables"]

_FEWEST_ITEMS = 16
"""Tables of fewer items show no law."""

_JOINED = 4
"""Columns of few values whose combinations are the items of a stream."""


@final
@dataclass(frozen=True, eq=False)
class ItemCounts:
    """One episode: the count of each item in ``n_rows`` rows."""

    counts: NDArray[np.int64]
    n_rows: int


@final
@dataclass(frozen=True, eq=False)
class CountTable:
    """A dataset that counts can be drawn from.

    Parameters
    ----------
    name : str
        Of the dataset.
    rows : uint8 array of shape (n, n_items), optional
        Rows of zeros and ones.
    stream : array of shape (n,), optional
        An item for each row, instead.
    """

    name: str
    rows: NDArray[np.uint8] | None = None
    stream: NDArray[np.int64] | None = None

    def draw(self, rng: np.random.Generator, sizes: Sequence[int]) -> ItemCounts:
        """Counts in so many random rows, of a random part of the items."""
        n = len(self.rows) if self.rows is not None else len(_known(self.stream))
        allowed = [size for size in sizes if size <= n] or [n]
        n_rows = int(rng.choice(allowed))
        chosen = rng.permutation(n)[:n_rows]
        if self.rows is not None:
            counts = self.rows[chosen].sum(axis=0, dtype=np.int64)
        else:
            counts = np.bincount(_known(self.stream)[chosen], minlength=self.n_items)
        n_kept = int(rng.integers(min(_FEWEST_ITEMS, len(counts)), len(counts) + 1))
        return ItemCounts(counts[rng.permutation(len(counts))[:n_kept]], n_rows)

    @property
    def n_items(self) -> int:
        """Items there are."""
        if self.rows is not None:
            return int(self.rows.shape[1])
        return int(_known(self.stream).max()) + 1


def count_tables(datasets: Sequence[MetaDataset]) -> list[CountTable]:
    """Tables and streams of datasets, as far as they show a law."""
    return [table for data in datasets for table in _tables(data)]


def _tables(data: MetaDataset) -> Iterator[CountTable]:
    rows = binary_rows(data)
    if rows.shape[1] >= _FEWEST_ITEMS:
        yield CountTable(data.name, rows=rows)
    if data.kind not in ("", "tabular"):
        return
    values = [np.unique(column, return_inverse=True) for column in data.rows.T]
    few = [codes for found, codes in values if 2 < len(found) <= 3 * MOST_CATEGORIES]
    if len(few) < 2:
        return
    joined = np.stack(few[:_JOINED], axis=1)
    stream = np.unique(joined, axis=0, return_inverse=True)[1].ravel()
    if int(stream.max()) + 1 >= _FEWEST_ITEMS:
        yield CountTable(f"{data.name}, joined", stream=stream)


def _known(stream: NDArray[np.int64] | None) -> NDArray[np.int64]:
    assert stream is not None
    return stream
