"""Blocks of rows: as many at once as stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK_ROWS", "CACHED", "row_blocks"]

BLOCK_ROWS = 512
"""Rows evaluated at once: their features stay in the processor's cache."""

CACHED = 2**16
"""Numbers that stay in the cache."""

_Float = TypeVar("_Float", bound=np.floating[Any])


def row_blocks(
    rows: NDArray[_Float], size: int = BLOCK_ROWS
) -> Iterator[tuple[int, NDArray[_Float]]]:
    """Cut rows into blocks: (first row, block)."""
    for start in range(0, len(rows), size):
        yield start, rows[start : start + size]
