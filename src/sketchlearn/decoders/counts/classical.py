r"""Counts of items as Count-Min, Count-Sketch and Bloom filters read them: alone.

Each of ``depth`` tables has ``width`` buckets and answers for an item by the bucket it
falls into; the answers are put together by their minimum, median or mean. What other
items put into the same bucket is the error, and hashing makes it rare that it is large:
the bounds are guarantees over the draw of the hash, which must not depend on the items.
Nothing is assumed of how counts are spread; decoding all items together
(:mod:`sketchlearn.decoders.counts`) needs that, and gets much closer.

Functions here take the columns of the items that are asked for (``columns_of`` of a
map), so that an open vocabulary costs no more than the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log1p, sqrt
from typing import Any, Literal, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sketchlearn.decoders.counts.table_sizes import require_share, table_failure
from sketchlearn.errors import FeatureMapError

__all__ = [
    "CountBounds",
    "Presence",
    "decode_bloom",
    "decode_count_min",
    "decode_count_sketch",
]

_READ_AT_ONCE = 2**22
"""Answers that a median is taken of at once."""


@final
@dataclass(frozen=True, eq=False)
class CountBounds:
    """Counts of items, and where the true ones are.

    Of sketches of shape (..., sketch_size), arrays have the shape (..., n_items).
    """

    estimates: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    """Infinite where so few buckets promise nothing."""

    confidence: float
    """Probability, over the draw of the hash, that the count of an item that was chosen
    without looking at the hash is within its bounds."""


@final
@dataclass(frozen=True, eq=False)
class Presence:
    """Which items a Bloom filter has seen; arrays as in :class:`CountBounds`."""

    present: NDArray[np.bool_]
    """False is certain."""

    false_positive_rate: NDArray[np.float64]
    """Probability that an item that was never added is called present, shape (...)."""

    n_items: NDArray[np.float64]
    """How many different items fill the tables so; infinite if no bucket is free."""


def decode_count_min(
    columns: sp.csr_array,
    totals: NDArray[Any],
    *,
    width: int,
    confidence: float | None = None,
) -> CountBounds:
    r"""Minimum over the tables: never below the true count.

    With :math:`N` events in all (what rows hold, added up), the bucket of an item holds
    :math:`N / w` of others in expectation, so that Markov's inequality in each of
    :math:`D` independent tables gives

    .. math::
        a \le \hat a \quad\text{always, and}\quad
        P\Big(\hat a > a + \frac{N}{w\,\delta^{1/D}}\Big) \le \delta .

    At :math:`\delta = e^{-D}` the excess is :math:`eN/w`, as Cormode and Muthukrishnan
    state it.

    Parameters
    ----------
    columns : sparse array of shape (n_items, sketch_size)
        Of the items asked for, from ``columns_of`` of a ``CountMinFeatures``.
    totals : array of shape (..., sketch_size)
        Exact sums over rows, ``sketch.mean * sketch.count``; counts are never negative.
    width : int
        Buckets of a table.
    confidence : float, optional
        :math:`1 - \delta`; by default :math:`1 - e^{-D}`.

    References
    ----------
    Cormode and Muthukrishnan, J. Algorithms 55 (2005), Theorem 1.

    Examples
    --------
    >>> columns = sp.csr_array([[1, 0, 1, 0], [1, 0, 0, 1]])
    >>> found = decode_count_min(columns, np.array([7, 0, 5, 2]), width=2)
    >>> found.estimates, found.upper
    (array([5., 2.]), array([5., 2.]))
    """
    depth = _depth_of(columns, totals, width)
    failure = _failure(confidence, depth)
    tables = _answers(columns, totals, depth)
    smallest = next(tables)
    for answers in tables:
        np.minimum(smallest, answers, out=smallest)
    estimates = smallest.astype(np.float64)
    events = totals[..., :width].sum(axis=-1, keepdims=True)
    excess = events / (width * failure ** (1 / depth))
    lower = np.maximum(estimates - excess, 0.0)
    return CountBounds(estimates, lower, estimates, 1 - failure)


def decode_count_sketch(
    columns: sp.csr_array,
    totals: NDArray[Any],
    *,
    width: int,
    confidence: float | None = None,
    combine: Literal["median", "mean"] = "median",
) -> CountBounds:
    r"""Median or mean over the tables of signed buckets: no bias.

    An answer has the variance :math:`(F_2 - a^2)/w` with :math:`F_2 = \sum_j a_j^2`. By
    Chebyshev's inequality a table errs by more than :math:`t` with probability at most
    :math:`p = F_2/(w t^2)`, and the median only if half of the tables do:

    .. math::
        P(|\hat a - a| > t) \le P\big(\mathrm{Bin}(D, p) \ge \lceil D/2 \rceil\big);

    for the mean, it is at most :math:`F_2/(w D t^2)`. :math:`F_2` is bounded from the
    tables as well (their sums of squares are estimates of it with a variance of at most
    :math:`2F_2^2/w`): half of the probability to fail goes there. Tables too narrow to
    bound it have infinite bounds.

    Parameters
    ----------
    columns, totals, width, confidence
        As for :func:`decode_count_min`; from a ``CountSketchFeatures``.
    combine : {"median", "mean"}
        The mean is what the paper uses; one heavy item in the bucket spoils it.

    References
    ----------
    Charikar, Chen and Farach-Colton, Theor. Comput. Sci. 312 (2004); Alon, Matias and
    Szegedy, J. Comput. Syst. Sci. 58 (1999), for :math:`F_2`.

    Examples
    --------
    >>> columns = sp.csr_array([[1, 0, -1, 0], [-1, 0, 0, 1]])
    >>> decode_count_sketch(columns, np.array([3, 0, -5, 2]), width=2).estimates
    array([ 4. , -0.5])
    """
    depth = _depth_of(columns, totals, width)
    failure = _failure(confidence, depth)
    if combine == "mean":
        estimates = np.asarray(columns @ totals.T).T / depth
        share = failure * depth / 2
    else:
        estimates = _median(columns, totals, depth)
        share = table_failure(failure / 2, depth)
    energy = _energy_bound(totals.reshape(*totals.shape[:-1], depth, width), failure)
    margin = np.sqrt(energy / (width * share))[..., None]
    lower, upper = np.maximum(estimates - margin, 0.0), estimates + margin
    return CountBounds(estimates, lower, upper, 1 - failure)


def decode_bloom(columns: sp.csr_array, cells: NDArray[Any], *, width: int) -> Presence:
    r"""An item is present if its bucket is taken in every table.

    With a share :math:`f_t` of taken buckets in table :math:`t`, an absent item is
    called present with probability :math:`\prod_t f_t`.

    Parameters
    ----------
    columns, width
        As for :func:`decode_count_min`; from a ``BloomFeatures``.
    cells : array of shape (..., sketch_size)
        Bits of a sketch pooled by max, or counts of one pooled by mean or sum (which
        can forget): a bucket is taken where it is above 0.

    References
    ----------
    Bloom, Commun. ACM 13 (1970); Kirsch and Mitzenmacher (2006) for separate tables.

    Examples
    --------
    >>> columns = sp.csr_array([[1, 0, 1, 0], [1, 0, 0, 1]])
    >>> found = decode_bloom(columns, np.array([1, 0, 1, 0]), width=2)
    >>> found.present, float(found.false_positive_rate)
    (array([ True, False]), 0.25)
    """
    depth = _depth_of(columns, cells, width)
    taken = cells > 0
    present = np.ones((*cells.shape[:-1], columns.shape[0]), np.bool_)
    for answers in _answers(abs(columns), taken, depth):
        present &= answers
    fill = taken.reshape(*cells.shape[:-1], depth, width).mean(axis=-1)
    free = 1 - np.asarray(fill.mean(axis=-1))
    n_items = np.full(free.shape, np.inf)
    if width > 1:
        # A bucket stays free of n items with probability (1 - 1/w)^n.
        np.log(free, out=n_items, where=free > 0)
        n_items = np.where(free > 0, n_items / log1p(-1 / width), np.inf)
    n_items[free == 1] = 0.0
    return Presence(present, np.asarray(fill.prod(axis=-1)), n_items)


def _failure(confidence: float | None, depth: int) -> float:
    if confidence is None:
        return exp(-depth)
    return 1 - require_share("confidence", confidence)


def _depth_of(columns: sp.csr_array, totals: NDArray[Any], width: int) -> int:
    """Tables of a sketch, if the columns are those of such a sketch."""
    n_items, size = columns.shape
    depth = size // width if width > 0 else 0
    fits = depth * width == size == totals.shape[-1]
    if not fits or columns.nnz != n_items * depth:
        raise FeatureMapError(
            f"columns of shape {columns.shape} with {columns.nnz} entries are not "
            f"those of tables of {width} buckets and a sketch of "
            f"{totals.shape[-1]} numbers; take them from columns_of of its map."
        )
    return depth


def _answers(
    columns: sp.csr_array, totals: NDArray[Any], depth: int
) -> Iterator[NDArray[Any]]:
    """What each table says of the items, shape (..., n_items)."""
    buckets = columns.indices.reshape(-1, depth)
    signs = columns.data.reshape(-1, depth)
    signed = (signs != 1).any()
    for table in range(depth):
        answers = np.take(totals, buckets[:, table], axis=-1)
        yield answers * signs[:, table] if signed else answers


def _median(
    columns: sp.csr_array, totals: NDArray[Any], depth: int
) -> NDArray[np.float64]:
    """Median over tables, of some sketches at a time."""
    flat = totals.reshape(-1, totals.shape[-1])
    found = np.empty((len(flat), columns.shape[0]))
    step = max(1, _READ_AT_ONCE // max(1, columns.nnz))
    for first in range(0, len(flat), step):
        part = slice(first, first + step)
        answers = np.stack(list(_answers(columns, flat[part], depth)), axis=-1)
        found[part] = np.median(answers, axis=-1)
    return found.reshape(*totals.shape[:-1], columns.shape[0])


def _energy_bound(tables: NDArray[Any], failure: float) -> NDArray[np.float64]:
    """Sum of squared counts, not exceeded but with probability ``failure / 2``."""
    depth, width = tables.shape[-2:]
    share = table_failure(failure / 2, depth)
    missed = sqrt(2 / width * (1 - share) / share)  # Cantelli's inequality
    squares = np.square(tables.astype(np.float64)).sum(axis=-1)
    found = np.median(squares, axis=-1)
    return found / (1 - missed) if missed < 1 else np.full_like(found, np.inf)
