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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from typing_extensions import override

from sketchlearn.arithmetic.draws import hash_keys
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.cost import allow_bytes
from sketchlearn.features.fields import SIZE, Field, is_whole, require_fields
from sketchlearn.features.table import TableFeatures
from sketchlearn.files.container import MAX_BYTES
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import frozen_tensors
from sketchlearn.rows.kinds import learned

__all__ = ["MOST_ROWS", "PackedCounters", "place_digits"]
__public__ = ["PackedCounters"]

Array = NDArray[np.float64]

MOST_ROWS = 2**24
"""Bases up to it are whole in the float32 of a file."""

_NUMBER_BITS = 32
"""Bits of a number: as many as a float32 has."""


@final
@dataclass(frozen=True, eq=False)
class PackedCounters(AbstractLearned):
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

    weights_kind: ClassVar = "packed-counters"

    prior: ItemPrior
    order: NDArray[np.int64]
    bases: NDArray[np.int64]
    misses: Array
    rest: Array
    sketch_size: int
    max_rows: int

    def __post_init__(self) -> None:
        shape = self.prior.n_items, self.sketch_size
        TableFeatures.require_affordable({"table": shape})

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
        try:
            root = cholesky(covariance[np.ix_(order, order)], lower=True)
        except LinAlgError as error:
            raise FeatureMapError(
                "the covariance of these counters is not positive definite: their file "
                "is forged or damaged. Plan them again with pack_counters."
            ) from error
        cross = covariance[np.ix_(order, self.uncounted)]
        others = solve_triangular(root, cross, lower=True).T
        scale = np.diag(root)
        return root / scale, others / scale

    @cached_property
    def uncounted(self) -> NDArray[np.int64]:
        """Items that have no counter."""
        return np.setdiff1d(np.arange(self.prior.n_items), self.order)

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        arrays = {"order": self.order, "bases": self.bases, "misses": self.misses}
        arrays["rest"] = self.rest
        tensors = {name: array.astype(np.float32) for name, array in arrays.items()}
        spec = {
            **self.prior.to_spec(),
            "sketch_size": self.sketch_size,
            "max_rows": self.max_rows,
        }
        tensors |= self.prior.to_tensors()
        return Weights(self.weights_kind, spec, tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        rows = Field("a whole number from 1 to 2**24", is_whole(1, MOST_ROWS + 1))
        fields = {**ItemPrior.spec_fields, "sketch_size": SIZE, "max_rows": rows}
        require_fields(weights.spec, fields, "the spec of packed counters")
        own = ItemPrior.shapes_of(weights.tensors)
        size = (np.size(weights.tensors.get("order", 0)),)
        counted = {"order": size, "bases": size, "misses": size, "rest": own["mean"]}
        kept = frozen_tensors(weights.tensors, [*own.items(), *counted.items()])
        spec = dict(weights.spec)
        sizes = {name: spec.pop(name) for name in ("sketch_size", "max_rows")}
        part = Weights(ItemPrior.weights_kind, spec, {name: kept[name] for name in own})
        with allow_bytes(MAX_BYTES):
            packed = cls(
                ItemPrior.from_weights(part),
                order=kept["order"].astype(np.int64),
                bases=kept["bases"].astype(np.int64),
                misses=kept["misses"].astype(np.float64),
                rest=kept["rest"].astype(np.float64),
                **sizes,
            )
        packed._require_sound()
        return packed

    def _require_sound(self) -> None:
        """Refuse counters that no plan has."""
        items = np.unique(self.order)
        sound = len(items) == len(self.order) > 0 and items[0] >= 0
        sound = sound and items[-1] < self.prior.n_items
        sound = sound and 2 <= self.bases.min() <= self.bases.max() <= self.max_rows + 1
        sound = sound and self.misses.min() >= 0 <= self.rest.min()
        if not sound or self.digits[0].min() < 0:
            raise FeatureMapError(
                "packed counters count different items of their prior, in digits of 2 "
                "to max_rows + 1 that all find room, and miss by variances."
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
