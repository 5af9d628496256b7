r"""Every way to get frequencies, or who was there, from m numbers.

All methods have one interface: sketches of a batch of sets in, an answer for each item
of each set out. Methods of hashed tables are a kind of map, a width and a depth, and a
decoder of (columns, sums, rows of a set). No row holds an item twice, so that all
answers are cut to [0, 1], which the errors that the paper prints of Count-Min show too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import nnls

from sketchlearn.decoders.counts.classical import (
    decode_bloom,
    decode_count_min,
    decode_count_sketch,
)
from sketchlearn.experiments.counts.sets import Question, SetBatch
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)

__all__ = [
    "COUNT_METHODS",
    "FIXED_DEPTH",
    "SEARCHED",
    "Answers",
    "CountMethod",
    "Table",
    "count_method",
    "fixed_table",
    "hashed_answers",
    "methods_of",
]

FIXED_DEPTH = 5
"""Tables of the paper's fixed sketches: 5 of width 20 at 100 numbers."""

Decode = Callable[[sp.csr_array, NDArray[np.int64], int, int], NDArray[np.float64]]
"""From the columns of all items, sums over the rows of each set (n_sets, m), the rows
of a set and the width of a table: an answer for each item, (n_sets, n_items)."""


@final
@dataclass(frozen=True, order=True)
class Table:
    """Sizes of a hashed sketch."""

    width: int
    depth: int

    @property
    def size(self) -> int:
        """Numbers."""
        return self.width * self.depth


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a method says of a batch, and what its sketches weigh."""

    values: NDArray[np.float64]
    """Shape (n_sets, n_items)."""

    numbers: int
    """Of one sketch."""

    bits: int
    """Of one number: as many as hold every one of the batch, or 32 for a float."""

    @property
    def n_bytes(self) -> int:
        """Of one sketch."""
        return -(-self.numbers * self.bits // 8)


@final
@dataclass(frozen=True, eq=False)
class CountMethod:
    """One line of the tables."""

    name: str
    """What the command line calls it."""

    answer: Callable[[SetBatch, int], Answers]
    """Sketches a batch, with a seed, and decodes it."""

    is_slow: bool = False
    """Whether it takes so long for a set that a part of a batch has to do."""


@final
@dataclass(frozen=True, eq=False)
class _Recipe:
    """How a method of hashed tables works."""

    label: str
    asks: tuple[Question, ...]
    kind: str = ""
    """Of its map; none if it sees no more than the number of events."""

    decode: Decode | None = None
    is_tuned: bool = False
    """Whether width and depth come from a search."""

    is_slow: bool = False


_MAPS: Mapping[str, Any] = {
    "count-min": CountMinFeatures,
    "count-sketch": CountSketchFeatures,
    "bloom": BloomFeatures,
}


def _count_min(
    columns: sp.csr_array, sums: NDArray[np.int64], n_rows: int, width: int
) -> NDArray[np.float64]:
    return decode_count_min(columns, sums, width=width).estimates / n_rows


def _count_sketch(
    columns: sp.csr_array,
    sums: NDArray[np.int64],
    n_rows: int,
    width: int,
    *,
    combine: Any,
) -> NDArray[np.float64]:
    found = decode_count_sketch(columns, sums, width=width, combine=combine)
    return found.estimates / n_rows


def _bloom(
    columns: sp.csr_array, sums: NDArray[np.int64], n_rows: int, width: int
) -> NDArray[np.float64]:
    return decode_bloom(columns, sums, width=width).present.astype(np.float64)


def _nnls(
    columns: sp.csr_array, sums: NDArray[np.int64], n_rows: int, width: int
) -> NDArray[np.float64]:
    matrix = columns.T.toarray().astype(np.float64)
    return np.stack([nnls(matrix, z / n_rows)[0] for z in sums])


_MEAN, _MEDIAN = (partial(_count_sketch, combine=how) for how in ("mean", "median"))
_COUNTS: tuple[Question, ...] = ("frequency",)
_BOTH: tuple[Question, ...] = ("frequency", "membership")
_SIGHT: tuple[Question, ...] = ("membership",)

_RECIPES: Mapping[str, _Recipe] = {
    "zeros": _Recipe("all 0s", _BOTH),
    "mean": _Recipe("the mean for all", _BOTH),
    "cm": _Recipe("Count-Min, optimal", _COUNTS, "count-min", _count_min, True),
    "cm-fixed": _Recipe("Count-Min, D = 5", _COUNTS, "count-min", _count_min),
    "cs": _Recipe("Count-Sketch, mean, optimal", _COUNTS, "count-sketch", _MEAN, True),
    "cs-fixed": _Recipe("Count-Sketch, mean, D = 5", _COUNTS, "count-sketch", _MEAN),
    "cs-median": _Recipe(
        "Count-Sketch, median, optimal", _COUNTS, "count-sketch", _MEDIAN, True
    ),
    "cs-median-fixed": _Recipe(
        "Count-Sketch, median, D = 5", _COUNTS, "count-sketch", _MEDIAN
    ),
    "bloom": _Recipe("Bloom filter, optimal", _SIGHT, "bloom", _bloom, True),
    "bloom-fixed": _Recipe("Bloom filter, D = 5", _SIGHT, "bloom", _bloom),
    "nnls": _Recipe(
        "non-negative least squares", _COUNTS, "count-sketch", _nnls, is_slow=True
    ),
}

COUNT_METHODS: dict[str, str] = {name: one.label for name, one in _RECIPES.items()}
"""Labels of all methods by name."""

SEARCHED = tuple(name for name, one in _RECIPES.items() if one.is_tuned)
"""Methods whose table comes from a search."""


def methods_of(question: Question) -> tuple[str, ...]:
    """Names of the methods that answer a question."""
    return tuple(name for name, one in _RECIPES.items() if question in one.asks)


def fixed_table(size: int) -> Table:
    """Five tables in ``size`` numbers.

    Examples
    --------
    >>> fixed_table(100)
    Table(width=20, depth=5)
    """
    return Table(size // FIXED_DEPTH, FIXED_DEPTH)


def count_method(name: str, table: Table, question: Question) -> CountMethod:
    """A method by its name, one of :data:`COUNT_METHODS`.

    Examples
    --------
    >>> batch = SetBatch(np.array([[4, 0, 2]]), 4)
    >>> method = count_method("cm", Table(50, 3), "frequency")
    >>> method.answer(batch, 0).values
    array([[1. , 0. , 0.5]])
    """
    recipe = _RECIPES[name]
    if recipe.decode is None:
        answer = partial(_constant, is_mean=name == "mean", question=question)
        return CountMethod(name, answer)
    answer = partial(
        hashed_answers, kind=recipe.kind, decode=recipe.decode, table=table
    )
    return CountMethod(name, answer, recipe.is_slow)


def hashed_answers(
    batch: SetBatch, seed: int, *, kind: str, decode: Decode, table: Table
) -> Answers:
    """Sketch each set of a batch into hashed tables, and decode all of them."""
    phi = _MAPS[kind](batch.n_items, width=table.width, depth=table.depth, seed=seed)
    columns = phi.columns_of(np.arange(batch.n_items, dtype=np.uint64))
    sums = (batch.counts @ columns).astype(np.int32)
    if kind == "bloom":
        sums = np.minimum(sums, 1)
    bits = int(np.abs(sums).max()).bit_length() + int(sums.min() < 0)
    answers = decode(columns, sums, batch.n_rows, table.width)
    return Answers(answers.clip(0.0, 1.0), table.size, max(bits, 1))


def _constant(
    batch: SetBatch, seed: int, *, is_mean: bool, question: Question
) -> Answers:
    """Zero, or the mean of the right answers of each set, for all of its items."""
    if not is_mean:
        return Answers(np.zeros(batch.counts.shape), 0, 0)
    counted = question == "frequency"
    truth = batch.counts / batch.n_rows if counted else batch.presence
    means = np.broadcast_to(truth.mean(axis=1, keepdims=True), truth.shape)
    return Answers(means, 1, int(batch.counts.sum(axis=1).max()).bit_length())
