r"""Planning packed counters: which items of training rows get one, and how wide.

Items are counted in the order of a pivoted Cholesky factorisation of their covariance:
next comes the item that those before it leave most uncertain. How much a prediction
misses is measured on training rows that were left out of learning it. What a plan is
used for stands in :mod:`sketchlearn.decoders.counts.packing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, lapack, solve_triangular

from sketchlearn.decoders.counts.item_prior import (
    ItemPrior,
    ItemPriorTuning,
    RowMoments,
    fold_moments,
    sum_moments,
)
from sketchlearn.decoders.counts.packing import MOST_ROWS, PackedCounters, place_digits
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.table import TableFeatures

__all__ = ["PackingTuning", "pack_counters"]
__public__ = ["pack_counters"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

_PACKING_ROUNDS = 4
"""Items that find no room are taken from the plan, which makes others less
predictable, so it is made again; in the last round it is cut instead."""


@final
@dataclass(frozen=True)
class PackingTuning:
    """Hand-chosen numbers of the plan."""

    spreads: tuple[float, ...] = (inf, 16.0, 12.0, 10.0, 9.0, 8.0, 7.5, 7.0, 6.5)
    """Standard deviations a base covers; the first under which all items find room is
    taken, else the last. Infinite is a counter that never wraps. At 8 (4 to each side)
    one set in fifty needs repair, at 6.5 one in five, and nearly all are repaired; at
    5.5 a third are not."""

    anchors: float = 0.3
    """First items that never wrap, over the numbers of the sketch: others are predicted
    from them, so that sets whose rows are all of one kind are read as well. With none,
    sets of 100 similar images could not be read; more of them crowd out others."""


def pack_counters(
    rows: ArrayLike | sp.sparray,
    *,
    sketch_size: int,
    max_rows: int,
    wrap: bool = True,
    tuning: PackingTuning | None = None,
) -> PackedCounters:
    """Plan a sketch of packed counters from training rows.

    Parameters
    ----------
    rows : array or sparse array of shape (n_rows, n_items)
        Training rows of zeros and ones.
    sketch_size : int
        Numbers of the sketch, of 32 bits each; at least 2.
    max_rows : int
        Most rows a sketch will hold; for fewer rows there is room for more items.
    wrap : bool
        Whether counters may hold remainders. Without, those that there is room for
        are right whatever the rows are, even unlike the training rows.
    tuning : PackingTuning, optional
        Hand-chosen numbers.

    Returns
    -------
    PackedCounters
        Its ``table`` is the map: ``TableFeatures(packed.table, origin="data")``.

    Notes
    -----
    Counters shine where sets are small: a count of 20 rows fits into few bits. From
    ``max_rows`` near the number of training rows on, a prediction misses by what was
    not learned rather than by chance; then :func:`decode_linear` is about as good.
    Items that training rows never hold come last, with a base of 2 where there is
    room; those without a counter are predicted to be absent, with the variance of
    something never seen.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((100, 50)) < 0.3
    >>> packed = pack_counters(rows, sketch_size=9, max_rows=20)
    >>> packed.table.shape, packed.n_bytes, len(packed.order), packed.wraps
    ((50, 9), 36, 50, False)
    """
    _require_sizes(rows, sketch_size, max_rows)
    tuning = tuning or PackingTuning()
    spreads = tuning.spreads if wrap else (inf,)
    n_anchors = round(tuning.anchors * sketch_size)
    learning = ItemPriorTuning()
    folds = fold_moments(rows, learning)
    prior = ItemPrior.from_folds(folds, learning)
    held_out = _HeldOut(folds, prior.shrinkage, learning)
    order = _pivots(prior.covariance)
    for attempt in range(_PACKING_ROUNDS):
        variances = held_out.misses(order) * prior.spread_of(max_rows)
        variances[:n_anchors] = inf
        bases, placed = _widest(variances, spreads, sketch_size - 1, max_rows)
        if placed.all():
            break
        last = attempt == _PACKING_ROUNDS - 1
        kept = slice(int(placed.argmin())) if last else placed
        order, bases = order[kept], bases[kept]
    misses, rest = (
        array.astype(np.float32).astype(np.float64)
        for array in (held_out.misses(order), held_out.rest(order))
    )
    return PackedCounters(prior, order, bases, misses, rest, sketch_size, max_rows)


def _widest(
    variances: Array, spreads: Sequence[float], n_numbers: int, max_rows: int
) -> tuple[Whole, NDArray[np.bool_]]:
    """Bases of the first spread under which all find room, and which do."""
    for spread in spreads:
        wide = np.ceil(spread * np.sqrt(variances) + 1)
        bases = np.clip(wide, 2, max_rows + 1).astype(np.int64)
        placed = place_digits(bases, n_numbers)[0] >= 0
        if placed.all():
            break
    return bases, placed


@final
class _HeldOut:
    """How much predictions miss in rows that they were not learned from."""

    def __init__(
        self, folds: Sequence[RowMoments], shrinkage: float, tuning: ItemPriorTuning
    ) -> None:
        whole = sum_moments(folds)
        self.unseen, self.pairs = tuning.unseen / whole.count, []
        for fold in folds:
            rest = whole - fold
            learned = rest.shrunk(shrinkage, tuning)
            self.pairs.append((learned, fold.scatter(rest.mean(tuning))))

    def misses(self, order: Whole) -> Array:
        """Variance of each item of ``order`` around its prediction from those before.

        What no row showed has the variance of something never seen.
        """
        found, own = [], []
        for learned, seen in self.pairs:
            root = cholesky(learned[np.ix_(order, order)], lower=True)
            own.append(np.diag(root) ** 2)
            inverse = solve_triangular(root, np.eye(len(order)), lower=True)
            weights = inverse.T * np.diag(root)
            found.append(_quadratic(weights, seen[np.ix_(order, order)]))
        floor = np.minimum(np.mean(own, axis=0), self.unseen)
        result: Array = np.maximum(np.mean(found, axis=0), floor)
        return result

    def rest(self, order: Whole) -> Array:
        """Variance of each item around its prediction from all of ``order``."""
        n_items = len(self.pairs[0][0])
        result = np.zeros(n_items)
        others = np.setdiff1d(np.arange(n_items), order)
        if not len(others):
            return result
        for learned, seen in self.pairs:
            root = cholesky(learned[np.ix_(order, order)], lower=True)
            half = solve_triangular(root, learned[np.ix_(order, others)], lower=True)
            gain = solve_triangular(root, half, lower=True, trans="T")
            own = np.diag(seen)[others] + _quadratic(gain, seen[np.ix_(order, order)])
            cross = np.einsum("ij,ij->j", gain, seen[np.ix_(order, others)])
            left = np.diag(learned)[others] - (half**2).sum(axis=0)
            floor = np.minimum(left, self.unseen)
            result[others] += np.maximum(own - 2 * cross, floor) / len(self.pairs)
        return result


def _quadratic(weights: Array, matrix: Array) -> Array:
    """Of each column w of ``weights``: w' M w."""
    result: Array = np.einsum("ij,ij->j", weights, matrix @ weights)
    return result


def _pivots(covariance: Array) -> Whole:
    """Items, each the one most uncertain given all before it."""
    _, pivots, _, _ = lapack.dpstrf(covariance, lower=1, tol=0.0)
    return np.asarray(pivots, np.int64) - 1


def _require_sizes(
    rows: ArrayLike | sp.sparray, sketch_size: int, max_rows: int
) -> None:
    """Refuse rows that are no sets, and sizes without room."""
    if require_positive_int("sketch_size", sketch_size) < 2:
        raise FeatureMapError(
            f"packed counters need a sketch_size of at least 2, one number of which is "
            f"a checksum; got {sketch_size}."
        )
    if not isinstance(max_rows, int | np.integer) or not 1 <= max_rows <= MOST_ROWS:
        raise FeatureMapError(
            f"max_rows must be a number of rows from 1 to 2**24; got {max_rows}."
        )
    n_items = np.shape(rows)[-1] if np.ndim(rows) == 2 or sp.issparse(rows) else 1
    TableFeatures.require_affordable({"table": (n_items, sketch_size)})
    values = sp.csr_array(rows).data if sp.issparse(rows) else np.asarray(rows)
    if not np.isin(values, (0, 1)).all():
        raise RowsError(
            "packed counters are planned from rows of zeros and ones (whether a row "
            "holds an item); these hold other numbers. Use decode_linear for bags."
        )
