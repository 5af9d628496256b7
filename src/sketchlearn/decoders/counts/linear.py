r"""Linear decoding with a prior of items: the closed form that fine-tuning rivals.

A sketch of :math:`N` rows holds :math:`z = A^\top y + \xi`, where :math:`y` are the
frequencies of items, of mean :math:`\mu` and covariance :math:`\Sigma/N`, and
:math:`\xi` is the noise of a release. The best linear estimate is

.. math:: \hat y = \mu + \tfrac1N \Sigma A
    \big(\tfrac1N A^\top\Sigma A + \operatorname{Var}\xi\big)^{-1} (z - A^\top\mu).

It works with every table :math:`A`, Count-Sketch included; of all tables with as many
columns, principal directions of :math:`\Sigma` leave the least error.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.gaussian import GaussianCounts
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.rows.kinds import learned

__all__ = ["decode_linear", "principal_table"]

Array = NDArray[np.float64]

_UNIT_ENTRY = 2**11
"""Table entries of a direction of length one: totals of 100 rows stay within float32's
whole numbers, and rounding moves a direction by less than a thousandth."""

_FLAT = 1e-12
"""Directions of relative variance below it are those of rounding errors."""


def principal_table(prior: ItemPrior, sketch_size: int) -> NDArray[np.int64]:
    r"""Principal directions of the items as a table of whole numbers.

    Parameters
    ----------
    prior : ItemPrior
        Of the training rows.
    sketch_size : int
        How many directions.

    Returns
    -------
    int64 array of shape (n_items, at most sketch_size)
        For :class:`sketchlearn.TableFeatures`. A vocabulary no larger than the sketch
        gets a counter for each item: then counts are exact.

    Examples
    --------
    >>> rows = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 25)
    >>> table = principal_table(ItemPrior.from_rows(rows), 1)
    >>> bool(abs(table[0, 0] - table[1, 0]) < 9), bool(table[0, 0] * table[2, 0] < 0)
    (True, True)
    """
    d, m = prior.n_items, sketch_size
    if d <= m:
        return np.eye(d, dtype=np.int64)
    _, vectors = eigh(prior.covariance, subset_by_index=(d - m, d - 1))
    table: NDArray[np.int64] = np.rint(vectors[:, ::-1] * _UNIT_ENTRY).astype(np.int64)
    return learned(table)


def decode_linear(
    prior: ItemPrior,
    columns: sp.sparray | NDArray[np.number],
    z: ArrayLike,
    count: int,
    *,
    noise_variance: float | Array = 0.0,
    largest: float | None = None,
) -> Decoding[GaussianCounts]:
    """Best linear estimate of all counts, with its variance.

    Parameters
    ----------
    prior : ItemPrior
        Of the training rows.
    columns : array or sparse array of shape (n_items, sketch_size)
        Feature vector of each item: ``feature_map.columns_of(keys)``.
    z : array of shape (sketch_size,)
        ``sketch.mean``, possibly released with noise.
    count : int
        Number of rows, ``sketch.count``.
    noise_variance : float or array of shape (sketch_size,)
        Variance of the noise in each number of ``z``.
    largest : float, optional
        Largest count an item can have; ``count`` by default.

    Returns
    -------
    Decoding of GaussianCounts

    Examples
    --------
    >>> rows = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 25)
    >>> prior, first = ItemPrior.from_rows(rows), np.array([[1], [0], [0]])
    >>> decode_linear(prior, first, np.array([0.75]), 8).params.mean.round(1)
    array([6., 6., 1.])
    """
    dense = sp.csr_array(columns).toarray() if sp.issparse(columns) else columns
    A = np.array(dense, np.float64)
    lengths = np.maximum(np.linalg.norm(A, axis=0), 1.0)
    A /= lengths  # unit columns: packed ones differ by factors of 2**32
    noise = np.broadcast_to(np.asarray(noise_variance, np.float64), lengths.shape)
    spread = prior.spread_of(count) / count**2
    seen = prior.covariance @ A * spread  # (d, m)
    values, vectors = np.linalg.eigh(A.T @ seen + np.diag(noise / lengths**2))
    known = values > _FLAT * max(float(values[-1]), 1e-300)
    basis = vectors[:, known] / np.sqrt(values[known])
    gain = seen @ basis
    surprise = np.asarray(z, np.float64) / lengths - A.T @ prior.mean
    estimate = prior.mean + gain @ (basis.T @ surprise)
    variance = spread * np.diag(prior.covariance) - (gain**2).sum(axis=1)
    most = count if largest is None else largest
    return Decoding(GaussianCounts(estimate * count, variance * count**2, most))
