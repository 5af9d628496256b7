"""Item frequencies from one small sketch."""

from __future__ import annotations

from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.decoders.counts.reading import TableAnswer
from sketchlearn.decoders.counts.table_sizes import require_share
from sketchlearn.estimators.item_answers import ItemCounts
from sketchlearn.estimators.items import AbstractItemEstimator
from sketchlearn.estimators.parameters import (
    AT_LEAST_ONE,
    RANDOM_STATE,
    Constraints,
    one_of,
)
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.plans.items import CountKind
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import ItemKey

__all__ = ["FrequencyEstimator"]
__public__ = ["FrequencyEstimator"]

CountDecoder = Literal["joint", "count-min", "count-sketch", "count-sketch-mean"]

Found = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Counts, and the ends of their intervals."""

_ANSWERS: dict[str, TableAnswer] = {
    "joint": "median",
    "count-min": "min",
    "count-sketch": "median",
    "count-sketch-mean": "mean",
}


@final
class FrequencyEstimator(AbstractItemEstimator):
    """How often each item is there, from one small sketch.

    Rows name the items they hold: a stream of ids, sets of ids, a column of files, a
    sparse or dense table of counts. A row costs what it holds. All items of the
    vocabulary are decoded together from a Count-Sketch: whole numbers of a law that
    is inferred from the sketch itself, with error bars.

    Parameters
    ----------
    vocabulary : int, list of ids, "fit" or None
        The items there are: how many, whose ids are 0, 1, 2 and so on; their ids;
        ``"fit"`` collects them while rows are read, in memory that grows with the
        different items; None leaves the vocabulary open, and only items that are named
        can be asked for. A sketch of an open vocabulary can be decoded with a list of
        items later on.
    sketch_size : int
        Most numbers in the sketch. A declared vocabulary that fits in is counted
        exactly.
    decoder : {"joint", "count-min", "count-sketch", "count-sketch-mean"}
        ``"joint"`` decodes all items together. The others are the classical answers,
        each item from its own buckets, with bounds that assume nothing: minimum of a
        Count-Min, median or mean of a Count-Sketch. An open vocabulary is asked by the
        median.
    depth : int, optional
        Tables that items are hashed into; by default 5.
    row_items : int, optional
        No row holds more items, 1 for ids: needed to release the sketch.
    column : str or int, optional
        The column of ids, or of lists of ids, in files and tables.
    prior : ItemPrior or PackedCounters, optional
        What training rows of the same items say: from :meth:`ItemPrior.from_rows
        <sketchlearn.ItemPrior.from_rows>` (decoded by the best linear estimate) or
        :func:`~sketchlearn.pack_counters` (counters packed into the numbers of the
        sketch, for at most so many rows, without a release's noise).
    random_state : int
        Seed of the hash; the same on every party that is to merge. None is 0.
    key : ItemKey, optional
        A secret under which items are hashed, where somebody may choose ids in order
        to have them taken for others; needed again to ask a sketch from a file, or
        to add to it.

    Attributes
    ----------
    counts_ : array of shape (n_items,)
        Expected count of each item of the vocabulary.
    frequencies_ : array of shape (n_items,)
        Counts over the number of rows, within [0, 1] where rows are sets.
    vocabulary_ : Vocabulary or None
        The items.
    n_samples_seen_ : int
        Rows that were sketched.
    sketch_ : Sketch or PrivateSketch
        All that is kept of them.

    References
    ----------
    Paper, section on data streaming; Charikar et al. (2004), Cormode and Muthukrishnan
    (2005) for the classical decoders.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> words = "the cat and the dog and the bird".split()
    >>> fitted = sl.FrequencyEstimator(vocabulary="fit", sketch_size=100).fit(words)
    >>> fitted.top(2).items, fitted.query(["dog"]).counts.round(2)
    (['the', 'and'], array([1.]))
    """

    command = "frequency"
    command_output = ("counts_",)

    _parameter_constraints: Constraints = {
        "vocabulary": "no_validation",
        "sketch_size": [AT_LEAST_ONE],
        "decoder": one_of(*_ANSWERS),
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
        decoder: CountDecoder = "joint",
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
    def counts_(self) -> NDArray[np.float64]:
        """Expected count of each item of the vocabulary."""
        if self.decoder == "joint":
            return self._decoded().mean
        return self._counted(self._all_keys(), 0.5)[0]

    @property
    def frequencies_(self) -> NDArray[np.float64]:
        """Expected share of rows that hold each item of the vocabulary."""
        return self.counts_ / self._reading.count

    def query(
        self, items: Any, *, confidence: float = 0.95, guaranteed: bool = False
    ) -> ItemCounts:
        """Counts of some items, with error bars.

        Parameters
        ----------
        items : list, array or Series of ids
            Of the vocabulary, or any ids where it is open.
        confidence : float
            Probability of each interval: of the posterior for ``"joint"``; over the
            draw of the hash for the classical decoders and open vocabularies, where
            it is read off the answers for items that are not there.
        guaranteed : bool
            Of the classical decoders and open vocabularies, intervals that are proved
            for any counts, and much wider.

        Returns
        -------
        ItemCounts
        """
        check_is_fitted(self, "sketch_")
        share = require_share("confidence", confidence)
        named, keys = self._asked(items)
        if self.vocabulary_ is not None:
            positions = self._positions(named)
            if self.decoder == "joint" and not guaranteed:
                return self._posterior_counts(named, positions, share)
            keys = self._all_keys()[positions]
        found = self._counted(keys, share, guaranteed=guaranteed)
        return self._item_counts(named, found, share)

    def top(self, n: int = 10, *, confidence: float = 0.95) -> ItemCounts:
        """The most frequent items, with error bars.

        Parameters
        ----------
        n : int
            How many.
        confidence : float
            As for :meth:`query`.

        Returns
        -------
        ItemCounts
        """
        n_wanted = require_positive_int("n", n)
        share = require_share("confidence", confidence)
        known = self._known()
        order = np.argsort(-self.counts_, kind="stable")[:n_wanted]
        named = known.take(order)
        if self.decoder == "joint":
            return self._posterior_counts(named, order, share)
        found = self._counted(self._all_keys()[order], share)
        return self._item_counts(named, found, share)

    def _posterior_counts(
        self, named: list[Any], positions: NDArray[np.int64], share: float
    ) -> ItemCounts:
        chosen = self._decoded().take(positions)
        return self._item_counts(named, (chosen.mean, *chosen.interval(share)), share)

    def _item_counts(
        self,
        named: list[Any],
        found: Found,
        share: float,
    ) -> ItemCounts:
        counts, low, high = found
        return ItemCounts(named, counts, low, high, share, self._reading.count)

    def _counted(self, keys: Keys, share: float, *, guaranteed: bool = False) -> Found:
        read = self._reading.guarantee if guaranteed else self._reading.look_up
        found = read(keys, _ANSWERS[self.decoder], share)
        return found.estimates, found.lower, found.upper

    @property
    @override
    def _kind(self) -> CountKind:
        match self.decoder:
            case "count-min":
                return "count-min"
            case "joint":
                return "joint-counts"
        return "count-sketch"
