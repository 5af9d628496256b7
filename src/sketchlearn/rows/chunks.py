"""Chunks: rows as they were read, and what makes floats of them.

Reading is the work of one thread, and turning what was read into numbers may be that of
another: a chunk goes from the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sketchlearn.errors import RowsError
from sketchlearn.rows.columns import ColumnLayout
from sketchlearn.rows.options import RowOptions
from sketchlearn.rows.values import Floats, Location, to_floats

__all__ = ["Chunk", "RowPart", "grouped", "slices"]


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a piece, not looked at yet.

    Parameters
    ----------
    rows : NumPy array or Arrow record batch
        The columns of the layout, in its order.
    layout : ColumnLayout
        What each column is.
    where : Location
        Place of the rows in the input, for messages.
    options : RowOptions
        What was said of the rows where they were opened.
    is_last : bool
        Whether the input is known to end with these rows.
    """

    rows: Any
    layout: ColumnLayout
    where: Location
    options: RowOptions
    is_last: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def floats(self) -> Floats:
        """The features, all of them finite; fewer rows where some are left out."""
        block = to_floats(self.rows, self.layout, self.where)
        if self.options.order is not None:
            block = np.ascontiguousarray(block[:, self.options.order])
        block = self._finite(block)
        above = self.options.above
        if above is None:
            return block
        return (block > np.float64(above)).astype(np.float32)

    def _finite(self, block: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()
        if np.isfinite(total):
            return block
        bad = ~np.isfinite(block).all(axis=1)  # a sum of finite values may overflow
        count = int(bad.sum())
        if count == 0:
            return block
        if self.options.on_invalid == "drop":
            return block[~bad]
        more = "" if self.is_last else "at least "
        rows = "1 row contains" if count == 1 else f"{count} rows contain"
        has_categories = any(known is not None for known in self.layout.categories)
        category = ", or a missing category" if has_categories else ""
        raise RowsError(
            f"{more}{rows} NaN or infinity{category} (first: row "
            f"{self.where.row + int(bad.argmax())} of the input, in "
            f"{self.where.source}). Nothing was added. Leave such rows out with "
            "open_rows(data, on_invalid='drop'), or impute the missing values first."
        )


@final
@dataclass(frozen=True, eq=False)
class RowPart:
    """Consecutive rows for one thread to work on.

    Parameters
    ----------
    chunks : tuple of Chunk or of float arrays
        At least one.
    first_row : int
        Number of the first of them.
    """

    chunks: tuple[Chunk | Floats, ...]
    first_row: int

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def floats(self) -> Floats:
        """The features of all rows, as one array."""
        found = [c.floats() if isinstance(c, Chunk) else c for c in self.chunks]
        return found[0] if len(found) == 1 else np.concatenate(found)


def grouped(chunks: Iterable[Chunk | Floats], part_rows: int) -> Iterator[RowPart]:
    """Chunks put together until they have about as many rows.

    Parameters
    ----------
    chunks : iterable
        Of at most so many rows each.
    part_rows : int
    """
    held: list[Chunk | Floats] = []
    row = n_rows = 0
    for chunk in chunks:
        if held and n_rows + len(chunk) > part_rows:
            yield RowPart(tuple(held), row)
            row, held, n_rows = row + n_rows, [], 0
        held.append(chunk)
        n_rows += len(chunk)
    if held:
        yield RowPart(tuple(held), row)


def slices(rows: Any, size: int) -> Iterator[Any]:
    """Consecutive rows of an array or record batch, at most so many at once."""
    if len(rows) <= size:
        yield rows
        return
    is_array = isinstance(rows, np.ndarray)
    for start in range(0, len(rows), size):
        yield rows[start : start + size] if is_array else rows.slice(start, size)
