"""Arrays, nested lists, sparse matrices and tensors, as pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sketchlearn.errors import RowsError
from sketchlearn.rows.pieces import Piece, array_piece

__all__ = ["from_array", "from_list", "from_sparse", "from_tensor"]


def from_array(data: Any) -> Piece:
    """Describe an array, or what NumPy makes one of."""
    array = data if hasattr(data, "shape") and hasattr(data, "dtype") else None
    array = np.asarray(data) if array is None else array
    if np.ma.is_masked(array):
        raise RowsError(
            "a masked array with masked values. Leave those rows out with "
            "open_rows(array.filled(numpy.nan), on_invalid='drop')."
        )

    def take(start: int, stop: int) -> Any:
        return np.asarray(array[start:stop])

    source = f"an array of shape {tuple(array.shape)}"
    return array_piece(source, array.shape, np.dtype(array.dtype).name, take)


def from_list(data: Sequence[Any]) -> Piece:
    """Describe a list of rows, each a list of numbers."""
    if not len(data):
        raise RowsError("0 rows in an empty list; at least 1 is needed.")
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RowsError(
            f"a list of {len(data)} rows is not a table of numbers: rows differ in "
            "length or kind. Give every row the same number of features."
        ) from error
    source = f"a list of shape {array.shape}"
    # A whole number among decimals was rounded without notice if it is this large.
    if array.dtype == np.float64 and (np.abs(array) >= 2**53).any():
        exact = np.asarray(data, object)
        rounded = (exact != array) & ~np.isnan(array)
        if rounded.any():
            row = int(np.argwhere(rounded)[0][0])
            raise RowsError(
                f"row {row} of {source}: a whole number cannot be represented exactly "
                "as float64. Pass float(value) to accept rounding."
            )
    return array_piece(source, array.shape, array.dtype.name, lambda i, j: array[i:j])


def from_sparse(data: Any) -> Piece:
    """Describe a SciPy sparse matrix, made dense batch by batch."""
    source = f"a sparse matrix of shape {data.shape}"
    if data.ndim != 2:
        return array_piece(source, data.shape, data.dtype.name, lambda i, j: None)
    rows = data.tocsr()

    def take(start: int, stop: int) -> Any:
        return rows[start:stop].toarray()

    return array_piece(source, data.shape, data.dtype.name, take)


def from_tensor(data: Any) -> Piece:
    """Describe a torch tensor, on any device."""
    source = f"a tensor of shape {tuple(data.shape)}"
    if str(data.layout) != "torch.strided":
        raise RowsError(f"{source} is sparse; pass tensor.to_dense().")
    kind = str(data.dtype).removeprefix("torch.")
    short = kind.startswith(("bfloat16", "float8"))  # NumPy lacks these

    def take(start: int, stop: int) -> Any:
        part = data.detach()[start:stop]
        return (part.float() if short else part).cpu().resolve_neg().numpy()

    return array_piece(source, data.shape, "float32" if short else kind, take)
