"""Plans for items: which map counts them, for how they will be decoded."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, Literal, get_args

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.joint import best_depth
from sketchlearn.decoders.counts.linear import principal_table
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.decoders.counts.reading import CountReading
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.features.joint_counts import JointCountFeatures
from sketchlearn.features.table import TableFeatures
from sketchlearn.rows.keys import SIPHASH, KeyRecipe
from sketchlearn.rows.vocabulary import Vocabulary

__all__ = ["CountKind", "count_advice", "plan_items", "plan_with_prior"]

CountKind = Literal["joint-counts", "count-sketch", "count-min", "bloom"]

_NOISE_STDS = 3.0
"""Standard deviations of a release's noise that a count must have to be seen."""

_HARDLY_KNOWN = 0.9
"""Share of the variance of counts that may stay open without a word."""

_KNOWN = 0.01
"""Variance of a count, a whole number, that is as good as known."""

_ITEM_TABLES: dict[str, Callable[..., AbstractItemMap]] = {
    "joint-counts": JointCountFeatures,
    "count-sketch": CountSketchFeatures,
    "count-min": CountMinFeatures,
    "bloom": BloomFeatures,
}


def plan_items(
    vocabulary: Vocabulary | None,
    sketch_size: int,
    *,
    kind: CountKind = "joint-counts",
    depth: int | None = None,
    row_items: int | None = None,
    seed: int = 0,
    recipe: KeyRecipe = SIPHASH,
) -> AbstractItemMap:
    """A map of items into at most ``sketch_size`` numbers.

    A declared vocabulary that fits into the sketch gets a counter for each item, and
    is counted exactly. Others are hashed; a list of items by their keys, so that the
    sketch does not depend on the list.

    Parameters
    ----------
    vocabulary : Vocabulary or None
        Items there are; None for an open one.
    sketch_size : int
        Most numbers.
    kind : {"joint-counts", "count-sketch", "count-min", "bloom"}
        The tables that items are hashed into.
    depth : int, optional
        Tables; by default as many as joint decoding reads best.
    row_items : int, optional
        No row holds more items.
    seed : int
        Of the hash.
    recipe : KeyRecipe
        How items become keys.

    Examples
    --------
    >>> plan_items(Vocabulary(1000), 100)
    JointCountFeatures(n_features=1000, width=20, depth=5, seed=0, value_bound=1024.0)
    >>> plan_items(Vocabulary(["a", "b"]), 100).sketch_size
    2
    """
    if kind not in get_args(CountKind):
        raise FeatureMapError(
            f"kind must be one of {', '.join(get_args(CountKind))}; got {kind!r}."
        )
    size = require_positive_int("sketch_size", sketch_size)
    options: dict[str, Any] = {} if row_items is None else {"row_items": row_items}
    hashed = {"key": recipe.key, "key_recipe": recipe.name}
    if vocabulary is not None and len(vocabulary) <= size and kind != "bloom":
        if vocabulary.is_listed:
            keys = vocabulary.keys(recipe)
            origin = "data" if vocabulary.is_learned else "declared"
            return CounterFeatures.of_keys(keys, origin=origin, **options, **hashed)
        return CounterFeatures(len(vocabulary), **options)
    tables = best_depth(size) if depth is None else depth
    tables = require_positive_int("depth", tables)
    if tables > size:
        raise FeatureMapError(
            f"{tables} tables need at least {tables} numbers, and sketch_size is "
            f"{size}."
        )
    if kind == "joint-counts" and tables < JointCountFeatures.fewest_tables:
        kind = "count-sketch"
    if vocabulary is not None and not vocabulary.is_listed:
        options["n_features"] = len(vocabulary)
    options |= {"width": size // tables, "depth": tables, "seed": seed}
    return _ITEM_TABLES[kind](**options, **hashed)


def plan_with_prior(
    prior: ItemPrior | PackedCounters, sketch_size: int, *, row_items: int | None = None
) -> AbstractItemMap:
    """A table for rows like those that the prior was learned from.

    Principal directions for an :class:`ItemPrior`; packed counters have their table.
    """
    if isinstance(prior, PackedCounters):
        table = prior.table
    else:
        table = principal_table(prior, sketch_size)
    return TableFeatures(table, row_items=row_items, origin="data")


def count_advice(reading: CountReading, decoding: Decoding[Any]) -> list[str]:
    """What to say of counts that cannot be trusted."""
    found, said = decoding.params, []
    noise = reading.count * sqrt(reading.noise_variance)
    if noise and found.mean.max(initial=0.0) < _NOISE_STDS * noise:
        said.append(
            f"no count stands out of the noise of this release (standard deviation "
            f"{noise:.3g} on each number). Release more rows or with a larger epsilon."
        )
    if not decoding.converged:
        said.append(
            "the counts of all items could not be decoded together: they explain the "
            "sketch badly. Is every item in the vocabulary? Declare all of them, or "
            "use a larger sketch_size."
        )
    left = float(found.variance.mean())
    spread = float(found.mean.var()) + left
    if left > max(_HARDLY_KNOWN * spread, _KNOWN):
        said.append(
            f"this sketch leaves {100 * left / spread:.0f}% of the variance of the "
            f"counts open: {reading.item_map.sketch_size} numbers are too few for "
            f"{len(found.mean)} items of such counts. Use a larger sketch_size; a "
            f"declared vocabulary is counted exactly in {len(found.mean)} numbers."
        )
    return said
