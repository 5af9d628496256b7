"""How wide and deep hashed tables must be to keep a promise."""

from __future__ import annotations

from math import ceil, e, log, log1p
from typing import Literal, get_args

import numpy as np
from scipy.special import betaincinv

from sketchlearn.errors import FeatureMapError

__all__ = ["require_share", "suggest_size", "table_failure"]
__public__ = ["suggest_size"]

Kind = Literal["count-min", "count-sketch", "bloom"]

_MOST_TABLES = 127
"""What DataSketches allows; 1 - exp(-127) is a certainty."""


def suggest_size(
    error: float,
    confidence: float | None = None,
    *,
    kind: Kind = "count-min",
    n_items: int | None = None,
) -> tuple[int, int]:
    r"""Width and depth of the smallest table that keeps a promise.

    =============  ===============================================================
    kind           promise
    =============  ===============================================================
    count-min      :math:`a \le \hat a \le a + \text{error} \sum_j a_j`
    count-sketch   :math:`|\hat a - a| \le \text{error} \sqrt{\sum_j a_j^2}`
    bloom          an absent item is called present with probability ``error``
    =============  ===============================================================

    The first two hold for each item with probability ``confidence``; a Bloom filter of
    ``n_items`` different items never misses one, so that there is nothing else to ask.

    Parameters
    ----------
    error : float
        Between 0 and 1; relative to all events, to the norm of the counts, or the
        false positive rate.
    confidence : float
        Between 0 and 1; of Count-Min and Count-Sketch.
    kind : {"count-min", "count-sketch", "bloom"}
        Which map.
    n_items : int
        Different items a Bloom filter is to hold.

    Returns
    -------
    width, depth : int
        For ``CountMinFeatures(width=width, depth=depth)`` and its likes. Count-Min as
        in Apache DataSketches: :math:`\lceil e/\text{error} \rceil` and
        :math:`\lceil \ln 1/(1 - \text{confidence}) \rceil`.

    Examples
    --------
    >>> suggest_size(0.01, 0.99)
    (272, 5)
    >>> suggest_size(0.01, kind="bloom", n_items=1000)
    (1371, 7)
    """
    if kind not in get_args(Kind):
        raise FeatureMapError(
            f"there is no kind {kind!r}; kinds are {', '.join(get_args(Kind))}."
        )
    require_share("error", error)
    if kind == "bloom":
        return _bloom_size(error, confidence, n_items)
    if n_items is not None:
        raise FeatureMapError(f"n_items is for a Bloom filter; {kind} does not ask it.")
    if confidence is None:
        raise FeatureMapError(f"{kind} needs a confidence, such as 0.99.")
    failure = 1 - require_share("confidence", confidence)
    if kind == "count-min":
        return ceil(e / error), min(max(ceil(-log(failure)), 1), _MOST_TABLES)
    sizes = [
        (ceil(1 / (table_failure(failure, depth) * error**2)), depth)
        for depth in range(1, _MOST_TABLES + 1, 2)
    ]
    return min(sizes, key=lambda size: size[0] * size[1])


def _bloom_size(
    error: float, confidence: float | None, n_items: int | None
) -> tuple[int, int]:
    """Tables of least size that are filled so far that the rate is ``error``."""
    if confidence is not None:
        raise FeatureMapError(
            "a Bloom filter has no confidence: error is its false positive rate."
        )
    if n_items is None or n_items < 1:
        raise FeatureMapError(
            "a Bloom filter needs n_items, how many different items it is to hold."
        )
    sizes = []
    for depth in range(1, _MOST_TABLES + 1):
        fill = error ** (1 / depth)
        # A bucket stays free with probability (1 - 1/w)^n, to be at least 1 - fill.
        sizes.append((ceil(-1 / np.expm1(log1p(-fill) / n_items)), depth))
    return min(sizes, key=lambda size: size[0] * size[1])


def table_failure(failure: float, depth: int) -> float:
    """How often one table may fail so that half of them rarely do.

    The p at which a binomial of ``depth`` trials reaches half of them with probability
    ``failure``: the quantile of a beta distribution.
    """
    half = (depth + 1) // 2
    return float(betaincinv(half, depth - half + 1, failure))


def require_share(name: str, value: float) -> float:
    """Refuse what is not between 0 and 1."""
    if not 0 < value < 1:
        raise FeatureMapError(f"{name} must be between 0 and 1; got {value!r}.")
    return value
