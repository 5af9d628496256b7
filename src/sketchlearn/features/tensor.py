"""Feature maps evaluated in torch float32: fast, and stable to the bit.

A row gets the same bits in every batch if blocks have a multiple of 64 rows and
products have at least 16 columns; that was measured, and every map tests it again at
run time.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import RowRangeError
from sketchlearn.exact import Int128Array
from sketchlearn.features.base import BLOCK_ROWS, AbstractFeatureMap, row_blocks
from sketchlearn.scaling import Scaling

__all__ = ["AbstractTensorFeatures", "scaled_float32", "stable_columns"]

if hasattr(os, "register_at_fork"):
    # The threads of a parent do not exist in its forked child, and waiting for them
    # would hang: a child computes with one thread.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class AbstractTensorFeatures(AbstractFeatureMap):
    """A map whose features are a float32 tensor, each rounded once to the lattice."""

    @abstractmethod
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        """Fresh features of a padded block, shape (n, sketch_size), float32."""

    @final
    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.floating]:
        with torch.no_grad():
            features = self.evaluate_tensor(rows, first_row)
        result: NDArray[np.floating] = features.numpy()
        return result

    @final
    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        # 512 integers of 44 bits add up to 2**53 at most: any order of a float64 sum
        # is exact, and scaling a float32 by a power of two is exact too.
        assert BLOCK_ROWS <= 512
        total = torch.zeros(self.sketch_size, dtype=torch.int64)
        sums = torch.zeros(self.sketch_size, dtype=torch.float64)
        with torch.no_grad():
            for start, block, count in row_blocks(rows):
                integers = self.evaluate_tensor(block, first_row + start)[:count]
                integers.mul_(2.0**self.frac_bits).round_()
                block_total = integers.sum(0, dtype=torch.float64)
                sums += block_total
                total += block_total.long()
        if not bool(torch.isfinite(sums).all()):
            raise RowRangeError(
                f"a feature of rows {first_row} to {first_row + len(rows) - 1} is not "
                "a number: some row is too large for this map. Nothing was added. "
                "Scale the rows (scaling=Scaling.from_bounds(low, high))."
            )
        return Int128Array.from_int64(total.numpy())


def stable_columns(matrix: NDArray[np.float32]) -> torch.Tensor:
    """The right factor of a stable product: zero columns up to a multiple of 16.

    Narrow float32 products give a row other bits at another place in its block;
    from 16 columns on they do not. The surplus columns of the product are to be cut.
    """
    missing = -matrix.shape[1] % 16
    return torch.from_numpy(np.pad(matrix, ((0, 0), (0, missing))))


def scaled_float32(
    rows: NDArray[np.floating], scaling: Scaling | None, first_row: int
) -> torch.Tensor:
    """Scale in float64, then round to float32, refusing what does not fit."""
    scaled = rows if scaling is None else scaling(rows)
    # torch wants writable memory; a float64 source is copied by the cast anyway.
    with np.errstate(over="ignore"):
        narrow = scaled.astype(np.float32, copy=not scaled.flags.writeable)
    limit = np.float32(2.0**60)
    if narrow.size and not max(narrow.max(), -narrow.min()) <= limit:
        inside = (np.abs(narrow) <= limit).all(axis=1)
        raise RowRangeError(
            f"row {first_row + int(np.argmin(inside))} is larger than 2**60 after "
            "scaling, beyond what float32 features resolve. Nothing was added. Pass "
            "scaling=Scaling.from_bounds(low, high) with the range of each column."
        )
    return torch.from_numpy(narrow)
