"""Counts: totals of maps that count items, as the small whole numbers they are.

A total is kept in steps of its lattice; of rows of whole items it is a multiple of
:math:`2^k` steps, and the multiples are what files hold and tables give the bytes of.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.registry import described_counting
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.sketching.pooling.by_name import get_pooling

__all__ = ["COUNTED_VERSION", "counts_of", "unit_bits"]

COUNTED_VERSION = 2
"""Version of the maps whose totals are counts; those of version 1 were floats."""


def counts_of(
    total: Int128Array, features: FeatureSpec, pooling: str
) -> NDArray[np.int64] | None:
    """The counts of a sketch, or None where its total is no counts.

    That is a total of a map that counts items, summed or an extreme, all of whose
    numbers are whole and fit in 64 bits.
    """
    if features.version != COUNTED_VERSION:
        return None
    bits = unit_bits(features, pooling)
    if bits is None or not described_counting(features.description):
        return None
    return total.in_units(bits)


def unit_bits(features: FeatureSpec, pooling: str) -> int | None:
    """One is ``2**unit_bits`` lattice steps; None where features are transformed."""
    how = get_pooling(pooling)
    if how.removable and not how.is_linear:
        return None
    return max(0, how.frac_bits(features))
