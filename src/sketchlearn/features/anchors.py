"""Anchors of cells: what they may be, and how finely they are rounded."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.errors import FeatureMapError

__all__ = ["FARTHEST", "place_bits", "require_anchors"]

FARTHEST = 32.0
"""Coordinates are clipped to this magnitude where their products are sketched."""

_ANCHOR_BITS = 22
"""Anchors are whole numbers of this many bits."""


def require_anchors(
    anchors: ArrayLike, r: int, *, is_clipped: bool
) -> NDArray[np.float64]:
    """Anchors as an array, if there is a column for each of r coordinates."""
    places = np.array(anchors, np.float64)
    if places.ndim != 2 or places.shape[1] != r or not r:
        raise FeatureMapError(
            f"anchors must be of shape (n_cells, {r}), one column for each column "
            f"of basis; got shape {places.shape}."
        )
    if not np.isfinite(places).all():
        raise FeatureMapError("anchors must be finite.")
    if is_clipped and np.abs(places).max() > FARTHEST:
        raise FeatureMapError(
            f"coordinates are clipped to {FARTHEST:g} where their products are "
            "kept: anchors farther out are never the nearest. Clip them too."
        )
    return places


def place_bits(anchors: NDArray[np.float64]) -> int:
    """Bits of fractions of anchors, so that the farthest has 22 in all.

    Of the farthest rounded to as many digits: rounded anchors give the same bits.
    """
    mantissa, exponent = np.frexp(np.abs(anchors).max())
    farthest = np.ldexp(np.rint(np.ldexp(mantissa, _ANCHOR_BITS)), exponent)
    if not farthest:
        return _ANCHOR_BITS
    return min(max(2 * _ANCHOR_BITS - ceil_log2(float(farthest)), 0), 42)
