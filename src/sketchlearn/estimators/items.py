"""What the estimators of items share: ids in, a sketch, a vocabulary to decode."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.packed import decode_packed
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.decoders.counts.reading import CountReading, Counts
from sketchlearn.engines.open_source import item_source
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    FeatureMapMismatch,
    OpenVocabularyError,
    RemovalError,
    RowsError,
)
from sketchlearn.estimators.base import AbstractSketchEstimator, require_sketch
from sketchlearn.estimators.parameters import seed_of
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.items import OPEN_VOCABULARY, AbstractItemMap
from sketchlearn.features.table import TableFeatures
from sketchlearn.plans.items import (
    CountKind,
    count_advice,
    plan_items,
    plan_with_prior,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.ids import Place, ids_of, listed_ids
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import SUMS, ItemKey, KeyRecipe
from sketchlearn.rows.open_items import ItemBatches, open_items
from sketchlearn.rows.vocabulary import Item, Vocabulary
from sketchlearn.sketching.item_source import AbstractItemSource
from sketchlearn.sketching.lineage import Lineage
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractItemEstimator"]


_NOT_IN_FILES = (CounterFeatures.kind, TableFeatures.kind)
"""Maps whose description may not suffice to build them again."""


class AbstractItemEstimator(AbstractSketchEstimator):
    """An estimator of how many rows hold each item."""

    vocabulary: Any
    sketch_size: int
    depth: int | None
    row_items: int | None
    column: str | int | None
    prior: ItemPrior | PackedCounters | None
    decoder: str
    random_state: int
    key: ItemKey | None
    reads_items = True
    """Rows are opened by ``open_items``, and not as numbers."""

    _found: Vocabulary | None = None
    """Items collected while rows were read."""

    _runs: Lineage = Lineage()
    """The passes over rows whose items were all collected."""

    @property
    @abstractmethod
    def _kind(self) -> CountKind:
        """The tables that the decoder reads."""

    @property
    def _pooling(self) -> str:
        return "mean"

    def plan(self) -> AbstractFeatureMap:
        """The feature map parties must use to sketch for ``fit_sketch``.

        Returns
        -------
        AbstractFeatureMap
            For :func:`sketchlearn.sketch_items`. It depends on the parameters alone.
        """
        self._check_parameters()
        if self.prior is not None:
            return plan_with_prior(
                self.prior, self.sketch_size, row_items=self.row_items
            )
        if self.key is not None and not isinstance(self.key, ItemKey):
            raise FeatureMapError(
                f"key must be an ItemKey, which is shown nowhere; got a "
                f"{type(self.key).__name__}. Write key=ItemKey(secret)."
            )
        return self._planned(KeyRecipe.under(self.key))

    def _planned(self, recipe: KeyRecipe) -> AbstractFeatureMap:
        return plan_items(
            self._declared(),
            self.sketch_size,
            kind=self._kind,
            depth=self.depth,
            row_items=self.row_items,
            seed=seed_of(self.random_state),
            recipe=recipe,
        )

    def fit_sketch(self, sketch: Sketch | PrivateSketch) -> Self:
        """Take a sketch of items; it is decoded when it is first asked.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Of a map from :meth:`plan`, or another map of items.

        Returns
        -------
        self
        """
        self._check_parameters()
        require_sketch(sketch)
        sketch = self._with_plan(sketch)
        reading = CountReading.read(sketch)
        vocabulary = self._declared() or self._known_of(sketch) or _implied(reading)
        self._check_prior(vocabulary)
        if vocabulary is not None and vocabulary.is_listed:
            vocabulary.keys(reading.item_map.row_recipe)  # refuses two of one key
        if vocabulary is not None and not _fits(reading, vocabulary):
            raise FeatureMapMismatch(
                f"the sketch is of a vocabulary of {reading.item_map.n_features} "
                f"items, and the estimator has one of {len(vocabulary)}. Give the one "
                "that was sketched."
            )
        self.sketch_, self._reading = sketch, reading
        self.vocabulary_ = vocabulary
        runs = (isinstance(sketch, Sketch) and sketch.lineage) or Lineage()
        found = vocabulary if vocabulary is self._found else None
        listed = found is not None and found.is_listed  # and no width of a table
        self._all_there = listed and runs == self._runs
        held = reading.items_in_a_row if isinstance(sketch, Sketch) else None
        # Then no item is there more often than there are rows.
        self._is_once = held is not None and round(held * sketch.count) <= sketch.count
        self.n_samples_seen_ = sketch.count
        self._posterior: Counts | None = None
        return self

    @override
    def _sketch_new(self, X: Any, y: Any) -> Sketch:
        self._found, self._runs = None, Lineage()
        rows: AbstractItemSource = self._open(X, y, reset=True)
        sketch = rows.sketch(self.plan(), pooling=self._pooling)
        self._keep(rows, sketch)
        return sketch

    @override
    def _open(self, X: Any, y: Any, *, reset: bool) -> Any:
        if isinstance(X, ItemBatches):
            if _is_fitted(self.vocabulary) != X.collects:
                raise RowsError(
                    "open_items and the estimator must both be given vocabulary='fit' "
                    "to collect items, or none of them. Nothing was read."
                )
            return item_source(X)
        opened = open_items(X, column=self.column, vocabulary=self.vocabulary)
        return item_source(opened)

    @override
    def _keep(self, rows: Any, sketch: Sketch) -> None:
        self._keep_found(rows.vocabulary, sketch.lineage)

    @override
    def _require_known(self, rows: Any) -> None:
        if _is_fitted(self.vocabulary) and self._found is not None:
            strange = int((self._found.find(rows.vocabulary.ids) < 0).sum())
            if strange:
                raise RemovalError(
                    f"{strange} of the items of {rows.source} were never added. "
                    "Nothing was forgotten."
                )

    @override
    def _adopt(self, other: Self) -> None:
        mine, theirs = self.vocabulary_, other.vocabulary_
        same = mine is theirs if mine is None or theirs is None else mine.equals(theirs)
        both_found = _is_fitted(self.vocabulary) and other._found is not None
        if not both_found and not same:
            raise FeatureMapMismatch(
                "these estimators have different vocabularies. Nothing was merged. "
                "Merge their sketches, and decode them with all of the items: "
                "FrequencyEstimator(items).fit_sketch(a.sketch_ + b.sketch_)."
            )
        self._keep_found(other._found, other._runs)

    def _keep_found(self, found: Vocabulary | None, runs: Lineage | None) -> None:
        """Add items that were found in some runs to those found before."""
        if _is_fitted(self.vocabulary) and found is not None:
            self._found = found if self._found is None else self._found.joined(found)
            self._runs |= runs or Lineage()

    def _with_plan(self, sketch: Sketch | PrivateSketch) -> Sketch | PrivateSketch:
        """The sketch with its map, where the file has not all of it and the plan has.

        Counters of listed items, tables of a prior, and the key of a hash.
        """
        if sketch.source_map is None and sketch.features.kind in _NOT_IN_FILES:
            plan = self.plan()
            if plan.spec.fingerprint != sketch.features.fingerprint:
                plan = plan if self.prior else self._planned(SUMS)  # of an older file
            if plan.spec.fingerprint == sketch.features.fingerprint:
                return sketch.with_map(plan)
        item_map = sketch.feature_map
        if isinstance(item_map, AbstractItemMap):
            recipe = item_map.recipe
            is_hashed = recipe.is_secret or item_map.row_recipe is not None
            if is_hashed and (self.key is not None or not recipe.is_at_hand):
                return sketch.with_map(item_map.with_key(self.key))
        return sketch

    def _known_of(self, sketch: Sketch | PrivateSketch) -> Vocabulary | None:
        """The items that were found, if they are those of this sketch.

        Not of a release: which items there are is not for free.
        """
        if not isinstance(sketch, Sketch):
            return None
        if sketch.lineage is None:  # nobody knows
            return self._found
        return self._found if sketch.lineage.added <= self._runs else None

    @override
    def _warn_of_late(self, whole: Sketch) -> None:
        """Every item has room in the sketch, whenever it comes."""

    @override
    def _plan(self, rows: NDArray[np.floating]) -> AbstractFeatureMap:
        return self.plan()

    def _declared(self) -> Vocabulary | None:
        if self.vocabulary is None or _is_fitted(self.vocabulary):
            return None
        if isinstance(self.vocabulary, Vocabulary):
            return self.vocabulary
        return Vocabulary(self.vocabulary)

    def _known(self) -> Vocabulary:
        """The vocabulary, or what to do to have one."""
        check_is_fitted(self, "sketch_")
        if self.vocabulary_ is None:
            raise OpenVocabularyError(
                "the vocabulary of this sketch is open: it can be asked for items that "
                "are named, with query(items). To list all items, declare them or pass "
                "vocabulary='fit' to collect them while they are read."
            )
        return self.vocabulary_

    def _asked(self, items: Any) -> tuple[list[Item], Keys]:
        """Items that are asked for, and their keys."""
        if isinstance(items, str | bytes | int):
            raise RowsError(
                f"query takes a list of items; got a single {type(items).__name__}. "
                "Write query([item])."
            )
        named = listed_ids(items)
        ids = ids_of(named, Place("the items that were asked for"))
        return named, ids.keys(self._reading.item_map.recipe)

    def _decoded(self) -> Counts:
        """Counts of all items, decoded together once."""
        if self._posterior is None:
            decoding = self._decode()
            for sentence in count_advice(self._reading, decoding):
                warnings.warn(sentence, ConvergenceWarning, stacklevel=4)
            self._posterior = decoding.params
        return self._posterior

    def _decode(self) -> Decoding[Any]:
        if isinstance(self.prior, PackedCounters):
            return decode_packed(self.prior, self.sketch_)
        return self._reading.decode(
            self._all_keys(),
            self.prior,
            all_there=self._all_there,
            once=self._is_once,
        )

    def _check_prior(self, vocabulary: Vocabulary | None) -> None:
        """Refuse a prior of other items than those that were sketched."""
        if self.prior is None:
            return
        if self.decoder != "joint":
            raise FeatureMapError(
                f"a prior is for decoder='joint'; got decoder={self.decoder!r}."
            )
        n_items = _prior_items(self.prior)
        if vocabulary is None or len(vocabulary) != n_items:
            known = "an open one" if vocabulary is None else f"{len(vocabulary)}"
            raise FeatureMapMismatch(
                f"the prior was learned from rows of {n_items} items, and the "
                f"vocabulary has {known}. Declare the items of the training rows."
            )

    def _all_keys(self) -> Keys:
        """What the map knows all items of the vocabulary by."""
        return self._known().keys(self._reading.item_map.row_recipe)

    def _positions(self, items: Any) -> NDArray[np.int64]:
        return self._known().positions_of(items)

    @override
    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.no_validation = True
        tags.input_tags.positive_only = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _prior_items(prior: ItemPrior | PackedCounters) -> int:
    return prior.prior.n_items if isinstance(prior, PackedCounters) else prior.n_items


def _is_fitted(vocabulary: Any) -> bool:
    return isinstance(vocabulary, str) and vocabulary == "fit"


def _implied(reading: CountReading) -> Vocabulary | None:
    """The vocabulary that a map of declared size stands for."""
    n_items = reading.item_map.n_features
    return None if n_items == OPEN_VOCABULARY else Vocabulary(n_items)


def _fits(reading: CountReading, vocabulary: Vocabulary) -> bool:
    return reading.item_map.n_features in (OPEN_VOCABULARY, len(vocabulary))
