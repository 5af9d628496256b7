r"""What a sketch of items says of their counts, whichever way it is decoded.

All items of a vocabulary can be decoded together (:mod:`.joint`), which uses that
the numbers of the sketch must be explained by all of them; or each alone by the tables
it was hashed into (:mod:`.classical`), which promises without knowing the other items.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Literal, Self, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.classical import (
    CountBounds,
    Presence,
    decode_bloom,
    decode_count_min,
    decode_count_sketch,
)
from sketchlearn.decoders.counts.gaussian import GaussianCounts
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.joint import CountPosterior, decode_counts
from sketchlearn.decoders.counts.linear import decode_linear
from sketchlearn.errors import FeatureMapError, RemovalError
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.features.joint_counts import JointCountFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.rows.items import Keys
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CountReading", "Counts", "TableAnswer"]

Counts = CountPosterior | GaussianCounts
"""What is known of the counts of all items."""

TableAnswer = Literal["min", "median", "mean"]

_PHANTOMS, _PHANTOM_SEED = 4096, 12
"""Items that are looked up to see how far answers are off."""


@final
@dataclass(frozen=True, eq=False)
class CountReading:
    """A sketch of items, ready to be asked.

    Parameters
    ----------
    item_map : AbstractItemMap
        What was sketched.
    pooled : array of shape (sketch_size,)
        Mean features, or what else rows were pooled to.
    count : int
        Rows, at least 1.
    noise_variance : float
        Of the noise on each number of ``mean``: 0 for an exact sketch.
    pooling : str
        How rows became one vector.
    """

    item_map: AbstractItemMap
    pooled: NDArray[np.float64]
    count: int
    noise_variance: float
    pooling: str

    @classmethod
    def read(cls, sketch: Sketch | PrivateSketch) -> Self:
        """What a sketch of items says."""
        item_map = sketch.feature_map
        if not isinstance(item_map, AbstractItemMap):
            raise FeatureMapError(
                f"this is a sketch of {type(item_map).__name__}, and not of items. "
                "Sketch ids with the map of plan(), or with sketch_items."
            )
        count = max(round(sketch.count), 1)
        if isinstance(sketch, Sketch):
            if (sketch.pooled[: item_map.counted] < 0).any():
                raise RemovalError(
                    "this sketch holds items fewer than no times: rows were taken out "
                    "of it that it never had. Forget only what was added."
                )
            return cls(item_map, sketch.pooled, count, 0.0, sketch.pooling)
        if item_map.kind == BloomFeatures.kind:
            raise FeatureMapError(
                "the noise of a release is in every bucket of a Bloom filter: it says "
                "nothing of its items. Release a sketch for decoder='joint'."
            )
        noise = (sketch.noise_std / sketch.count) ** 2
        return cls(item_map, sketch.mean, count, noise, sketch.pooling)

    @property
    def totals(self) -> NDArray[np.float64]:
        """Summed features."""
        return self.pooled * (self.count if self.pooling == "mean" else 1)

    @property
    def items_in_a_row(self) -> float | None:
        """Mean number of items of a row, where the sketch shows it.

        A release's noise is in it, shared by all items, and small for each of them.
        """
        shown = self.item_map.counted
        if not shown:
            return None
        return max(float(self.totals[:shown].sum()), 1.0) / self.count

    def decode(
        self,
        keys: Keys,
        prior: ItemPrior | None = None,
        *,
        all_there: bool = False,
        once: bool = False,
    ) -> Decoding[Any]:
        """Counts of items that are all there are, decoded together.

        With a prior from training rows, by the best linear estimate. Counters are read.

        Parameters
        ----------
        keys : array of uint64
            What the map knows the items by.
        prior : ItemPrior, optional
            Of training rows.
        all_there : bool
            Whether every item is known to be there at least once.
        once : bool
            Whether no row holds an item twice.
        """
        if self.pooling not in ("mean", "sum") or self.is_bloom:
            raise FeatureMapError(
                "a Bloom filter knows which items are there, and not how often: decode "
                "it as one, or count with CountSketchFeatures."
            )
        columns, mean = self.item_map.columns_of(keys), self.totals / self.count
        noise = self.noise_variance
        held = 1 if once else self.item_map.row_items or ceil(self.item_map.value_bound)
        largest = self.count * held
        if self._has_counters and not noise:
            exact = np.rint(columns @ self.totals)
            return Decoding(GaussianCounts(exact, np.zeros(len(exact)), float("inf")))
        if prior is not None:
            return decode_linear(
                prior,
                columns,
                mean,
                self.count,
                noise_variance=noise,
                largest=largest,
            )
        return decode_counts(
            columns,
            mean,
            self.count,
            noise_variance=noise,
            smallest=int(all_there),
            largest=largest,
            total=self.items_in_a_row,
        )

    def look_up(
        self, keys: Keys, answer: TableAnswer, confidence: float
    ) -> CountBounds:
        """Counts of items, each from the tables it was hashed into.

        How far answers are off is read from the sketch itself: items that nobody ever
        added are looked up, and their answers are errors, drawn as those of any item
        are, with a release's noise in them.
        """
        found = self._answers(self.item_map.columns_of(keys), answer, confidence)
        if self._has_counters and not self.noise_variance:
            return found
        errors = self._phantom_errors(answer)
        left = (1 - confidence) / 2
        if answer == "min" and not self.noise_variance:  # never below the true count
            least, most = 0.0, float(np.quantile(errors, confidence))
        else:
            least, most = np.quantile(errors, [left, 1 - left])
        lower = np.maximum(found.estimates - most, 0.0)
        upper = np.maximum(found.estimates - least, 0.0)
        counts = np.maximum(found.estimates, 0.0)
        return CountBounds(counts, lower, upper, confidence)

    def guarantee(
        self, keys: Keys, answer: TableAnswer, confidence: float
    ) -> CountBounds:
        """The same with bounds that are proved; those of a release's noise are added.

        Half of what may fail is left for the noise.
        """
        failure = (1 - confidence) / (2 if self.noise_variance else 1)
        columns = self.item_map.columns_of(keys)
        found = self._answers(columns, answer, 1 - failure)
        reach = self.count * sqrt(self.noise_variance)
        if reach:
            depth = max(columns[:1].nnz, 1)
            reach *= float(ndtri(1 - failure / (2 * depth)))
        lower = np.maximum(found.lower - reach, 0.0)
        counts = np.maximum(found.estimates, 0.0)
        return CountBounds(counts, lower, found.upper + reach, confidence)

    def _phantom_errors(self, answer: TableAnswer) -> NDArray[np.float64]:
        """What the tables answer for items that are not there."""
        keys = Draws(_PHANTOM_SEED).words(_PHANTOMS)
        if self._has_counters:
            noise = self.count * sqrt(self.noise_variance)
            return np.asarray(noise * ndtri((np.arange(_PHANTOMS) + 0.5) / _PHANTOMS))
        columns = self.item_map.with_open_vocabulary().columns_of(keys)
        return self._answers(columns, answer, 0.5).estimates

    @property
    def _has_counters(self) -> bool:
        return self.item_map.kind == CounterFeatures.kind

    def _answers(
        self, columns: sp.csr_array, answer: TableAnswer, confidence: float
    ) -> CountBounds:
        match self.item_map, answer:
            case CounterFeatures(), _:
                exact = np.asarray(columns @ self.totals)
                return CountBounds(exact, exact, exact, confidence)
            case CountMinFeatures(width=width), "min":
                return decode_count_min(
                    columns, self.totals, width=width, confidence=confidence
                )
            case CountSketchFeatures() | JointCountFeatures(), "median" | "mean":
                counted = self.item_map.counted  # tables without signs have a bias
                return decode_count_sketch(
                    columns[:, counted:],
                    self.totals[counted:],
                    width=self.item_map.width,
                    confidence=confidence,
                    combine=answer,
                )
        raise FeatureMapError(
            f"{type(self.item_map).__name__} has no tables to take the {answer} of: "
            "the minimum is for CountMinFeatures, median and mean for "
            "CountSketchFeatures and JointCountFeatures."
        )

    def find(self, keys: Keys) -> Presence:
        """Which items a Bloom filter has seen."""
        match self.item_map:
            case BloomFeatures(width=width):
                columns = self.item_map.columns_of(keys)
                return decode_bloom(columns, self.pooled, width=width)
        raise FeatureMapError(
            f"this is a sketch of {type(self.item_map).__name__}, and no Bloom filter."
        )

    @property
    def is_bloom(self) -> bool:
        """Whether the sketch is a Bloom filter."""
        return self.item_map.kind == BloomFeatures.kind
