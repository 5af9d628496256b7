r"""Several counters in one number: the plan of a sketch that is read as whole numbers.

A count of up to :math:`N` rows is a small whole number, and a number of a sketch is an
exact one of 32 bits: it has room for several counters side by side, with the weights
:math:`1,\; b_1,\; b_1 b_2, \dots` of a number whose digits have bases :math:`b_i`. With
:math:`b_i = N + 1` a digit *is* the count. A smaller base keeps the count modulo
:math:`b_i`, which suffices where training rows tell the rest: counts are read one after
another, each predicted from those before it, and of all counts with the right remainder
the one nearest to the prediction is taken. A base of several standard deviations of
what the prediction misses makes mistakes rare, and one number of the sketch is a
checksum that finds them.

Such a sketch is linear in the rows like any other: it merges and forgets exactly. It
holds up to ``max_rows`` rows, and the noise of a release destroys it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from sketchlearn.arithmetic.draws import hash_keys
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.files.weights import Weights
from sketchlearn.rows.kinds import learned

__all__ = ["PackedCounters", "place_digits"]
__public__ = ["PackedCounters"]

Array = NDArray[np.float64]

_NUMBER_BITS = 32
"""Bits of a number: as many as a float32 has."""


@final
@dataclass(frozen=True, eq=False)
class PackedCounters:
    """Which items are counted, in which digit of which number.

    Parameters
    ----------
    prior : ItemPrior
        Of the training rows: it predicts counts from those read before, and the counts
        of items that have no counter.
    order : int64 array of shape (n_counted,)
        Items that have a counter, in the order in which they are read.
    bases : int64 array of shape (n_counted,)
        Base of the digit of each.
    misses : array of shape (n_counted,)
        Variance of what its prediction from the counts before it misses in one row.
    rest : array of shape (n_items,)
        Variance of what the counters leave open of each item in one row; 0 for those
        that have one.
    sketch_size, max_rows : int
        Numbers of the sketch, the last of which is the checksum, and the most rows.
    """

    prior: ItemPrior
    order: NDArray[np.int64]
    bases: NDArray[np.int64]
    misses: Array
    rest: Array
    sketch_size: int
    max_rows: int

    @property
    def n_bytes(self) -> int:
        """Bytes that hold all the decoder reads: totals modulo :attr:`capacities`."""
        return self.sketch_size * _NUMBER_BITS // 8

    @property
    def wraps(self) -> bool:
        """Whether some counter holds a remainder only."""
        return bool((self.bases <= self.max_rows).any())

    @cached_property
    def digits(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number that holds the counter of each item of ``order``, and its weight."""
        numbers, weights, _ = place_digits(self.bases, self.sketch_size - 1)
        return numbers, weights

    @cached_property
    def capacities(self) -> NDArray[np.int64]:
        """Product of the bases of each number, at most 2**32; 2**32 for the checksum.

        A total matters modulo its capacity alone.
        """
        room = place_digits(self.bases, self.sketch_size - 1)[2]
        return np.append(room, np.int64(1 << _NUMBER_BITS))

    @cached_property
    def checks(self) -> NDArray[np.int64]:
        """Weights in the checksum, of the items of ``order``."""
        words = hash_keys(self.order.astype(np.uint64), _NUMBER_BITS)
        return (words >> np.uint64(64 - _NUMBER_BITS)).astype(np.int64) | 1

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """The map, shape (n_items, sketch_size), for :class:`TableFeatures`."""
        table = np.zeros((self.prior.n_items, self.sketch_size), np.int64)
        numbers, weights = self.digits
        table[self.order, numbers] = weights
        table[self.order, -1] = self.checks
        return learned(table)

    @cached_property
    def predictors(self) -> tuple[Array, Array]:
        """What surprises in earlier counts add to later ones, and to items without.

        Shapes (n_counted, n_counted), lower triangular with ones on its diagonal, and
        (n_items - n_counted, n_counted).
        """
        covariance, order = self.prior.covariance, self.order
        root = cholesky(covariance[np.ix_(order, order)], lower=True)
        cross = covariance[np.ix_(order, self.uncounted)]
        others = solve_triangular(root, cross, lower=True).T
        scale = np.diag(root)
        return root / scale, others / scale

    @cached_property
    def uncounted(self) -> NDArray[np.int64]:
        """Items that have no counter."""
        return np.setdiff1d(np.arange(self.prior.n_items), self.order)

    def to_weights(self) -> Weights:
        """As weights, for :func:`sketchlearn.files.weights.save_weights`."""
        arrays = {"order": self.order, "bases": self.bases, "misses": self.misses}
        arrays["rest"] = self.rest
        tensors = {name: array.astype(np.float32) for name, array in arrays.items()}
        spec = {
            **self.prior.to_spec(),
            "sketch_size": self.sketch_size,
            "max_rows": self.max_rows,
        }
        return Weights("packed-counters", spec, {**self.prior.to_tensors(), **tensors})

    @staticmethod
    def from_weights(weights: Weights) -> PackedCounters:
        """Read back what :meth:`to_weights` wrote."""
        tensors, spec = weights.tensors, weights.spec
        return PackedCounters(
            ItemPrior.from_tensors(tensors, spec),
            tensors["order"].astype(np.int64),
            tensors["bases"].astype(np.int64),
            tensors["misses"].astype(np.float64),
            tensors["rest"].astype(np.float64),
            spec["sketch_size"],
            spec["max_rows"],
        )


def place_digits(
    bases: NDArray[np.int64], n_numbers: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Put digits into numbers: each into the first that has room for its base.

    Returns
    -------
    numbers : int64 array of shape (n_digits,)
        Number of each digit, -1 where there is room in none.
    weights : int64 array of shape (n_digits,)
        Product of the bases before it in its number.
    capacities : int64 array of shape (n_numbers,)
        Product of all bases of a number, at most 2**32.

    Examples
    --------
    >>> place_digits(np.array([2**20, 2**16, 2**12, 2**30]), 2)[:2]
    (array([ 0,  1,  0, -1]), array([      1,       1, 1048576,       0]))
    """
    room = np.ones(n_numbers, np.int64)
    numbers = np.full(len(bases), -1)
    weights = np.zeros(len(bases), np.int64)
    for i, base in enumerate(bases):
        fits = room <= (1 << _NUMBER_BITS) // base
        if fits.any():
            numbers[i] = number = int(fits.argmax())
            weights[i] = room[number]
            room[number] *= base
    return numbers, weights, room
