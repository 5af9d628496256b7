"""Set membership from one small sketch."""

from __future__ import annotations

from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.errors import RowsError
from sketchlearn.estimators.item_answers import ItemMembership
from sketchlearn.estimators.items import AbstractItemEstimator
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    RANDOM_STATE,
    Constraints,
    one_of,
)
from sketchlearn.plans.items import CountKind
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import ItemKey

__all__ = ["MembershipEstimator"]
__public__ = ["MembershipEstimator"]

MemberDecoder = Literal["joint", "bloom", "counting-bloom"]


@final
class MembershipEstimator(AbstractItemEstimator):
    """Which items are there at all, from one small sketch.

    Parameters are those of :class:`~sketchlearn.FrequencyEstimator`, but for the
    decoder.

    Parameters
    ----------
    vocabulary : int, list of ids, "fit" or None
        The items there are. None leaves the vocabulary open, which a Bloom filter can
        answer for.
    sketch_size : int
        Most numbers in the sketch; bits, of a Bloom filter.
    decoder : {"joint", "bloom", "counting-bloom"}
        ``"joint"`` decodes the counts of all items together, and gives the probability
        that each is not zero. ``"bloom"`` is a Bloom filter: one bit for each number,
        merged by OR, never wrong about an item that is there, and unable to forget.
        ``"counting-bloom"`` counts rows instead of bits, and forgets.
    depth, row_items, column, prior, random_state, key
        As for :class:`~sketchlearn.FrequencyEstimator`.

    Attributes
    ----------
    membership_ : array of shape (n_items,)
        Probability that at least one row holds the item. A Bloom filter's 0 is
        certain; in place of 1 it gives the chance that a positive is true, if half of
        the items were there.
    vocabulary_, n_samples_seen_, sketch_
        As for :class:`~sketchlearn.FrequencyEstimator`.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> fitted = sl.MembershipEstimator(vocabulary=5).fit([[0, 3], [3]])
    >>> fitted.membership_.round(2), fitted.contains([3, 4])
    (array([1., 0., 0., 1., 0.]), array([ True, False]))
    """

    command = "membership"
    command_output = ("membership_",)

    _parameter_constraints: Constraints = {
        "vocabulary": "no_validation",
        "sketch_size": [AT_LEAST_ONE],
        "decoder": one_of("joint", "bloom", "counting-bloom"),
        "depth": [AT_LEAST_ONE, None],
        "row_items": [AT_LEAST_ONE, None],
        "column": "no_validation",
        "prior": [ItemPrior, PackedCounters, None],
        "random_state": RANDOM_STATE,
        "key": "no_validation",
    }

    def __init__(
        self,
        vocabulary: Any = None,
        *,
        sketch_size: int = 2000,
        decoder: MemberDecoder = "joint",
        depth: int | None = None,
        row_items: int | None = None,
        column: str | int | None = None,
        prior: ItemPrior | PackedCounters | None = None,
        random_state: int = 0,
        key: ItemKey | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.sketch_size = sketch_size
        self.decoder = decoder
        self.depth = depth
        self.row_items = row_items
        self.column = column
        self.prior = prior
        self.random_state = random_state
        self.key = key

    @property
    def membership_(self) -> NDArray[np.float64]:
        """Probability that at least one row holds each item of the vocabulary."""
        self._known()
        if self._is_bloom:
            return self._found_in_filter(self._all_keys())
        return self._decoded().presence

    def query(self, items: Any) -> ItemMembership:
        """Probability that items are there.

        Parameters
        ----------
        items : list, array or Series of ids
            Of the vocabulary; any ids, of a Bloom filter of an open vocabulary.

        Returns
        -------
        ItemMembership
        """
        check_is_fitted(self, "sketch_")
        named, keys = self._asked(items)
        if self.vocabulary_ is None:
            if not self._is_bloom:
                raise RowsError(
                    "items are decoded together with all others, and the vocabulary of "
                    "this sketch is open. Declare it, or use decoder='bloom'."
                )
            return ItemMembership(named, self._found_in_filter(keys))
        return ItemMembership(named, self.membership_[self._positions(named)])

    def contains(self, items: Any) -> NDArray[np.bool_]:
        """Whether it is more likely than not that each item is there."""
        return self.query(items).present

    def _found_in_filter(self, keys: Keys) -> NDArray[np.float64]:
        found = self._reading.find(keys)
        sure = 1 / (1 + found.false_positive_rate)
        return np.where(found.present, sure, 0.0)

    @property
    def _is_bloom(self) -> bool:
        return self._reading.is_bloom

    @property
    @override
    def _kind(self) -> CountKind:
        return "joint-counts" if self.decoder == "joint" else "bloom"

    @property
    @override
    def _pooling(self) -> str:
        return "max" if self.decoder == "bloom" else "mean"
