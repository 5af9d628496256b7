r"""What a method is: sketches of a batch of sets in, an answer for each item out.

Methods of hashed tables are a kind of map, a width and a depth, and a decoder of
(columns, sums, rows of a set). No row holds an item twice, so that all answers are cut
to [0, 1], which the errors that the paper prints of Count-Min show too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sketchlearn.experiments.counts.sets import Question, SetBatch
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.joint_counts import JointCountFeatures

__all__ = [
    "Answers",
    "CountMethod",
    "Decode",
    "Table",
    "bits_of",
    "constant_answers",
    "exact_answers",
    "hashed_answers",
    "hashed_sums",
    "short_error",
]

Decode = Callable[[sp.csr_array, NDArray[np.int32], int, int], NDArray[np.float64]]
"""From the columns of all items, sums over the rows of each set (n_sets, m), the rows
of a set and the width of a table: an answer for each item, (n_sets, n_items)."""


_ROUNDING_ERROR = 1e-15

_MAPS: Mapping[str, Any] = {
    "count-min": CountMinFeatures,
    "count-sketch": CountSketchFeatures,
    "joint-counts": JointCountFeatures,
    "bloom": BloomFeatures,
}


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


def hashed_sums(
    batch: SetBatch, seed: int, *, kind: str, table: Table
) -> tuple[sp.csr_array, NDArray[np.int32]]:
    """Columns of all items, and the sketch of each set as sums over its rows."""
    phi = _MAPS[kind](batch.n_items, width=table.width, depth=table.depth, seed=seed)
    columns = phi.columns_of(np.arange(batch.n_items, dtype=np.uint64))
    sums = (batch.counts @ columns).astype(np.int32)
    return columns, np.minimum(sums, 1) if kind == "bloom" else sums


def hashed_answers(
    batch: SetBatch, seed: int, *, kind: str, decode: Decode, table: Table
) -> Answers:
    """Sketch each set of a batch into hashed tables, and decode all of them."""
    columns, sums = hashed_sums(batch, seed, kind=kind, table=table)
    answers = decode(columns, sums, batch.n_rows, table.width)
    return Answers(answers.clip(0.0, 1.0), table.size, bits_of(sums))


def exact_answers(batch: SetBatch, question: Question) -> Answers:
    """A counter for each item: for sets that are narrower than the sketch."""
    phi = CounterFeatures(batch.n_items)
    columns = phi.columns_of(np.arange(batch.n_items, dtype=np.uint64))
    sums = batch.counts @ columns
    shares = sums / batch.n_rows
    answers = shares if question == "frequency" else (shares > 0).astype(np.float64)
    return Answers(answers, batch.n_items, bits_of(sums))


def constant_answers(
    batch: SetBatch, seed: int, *, is_mean: bool, question: Question
) -> Answers:
    """Zero, or the mean of the right answers of each set, for all of its items."""
    if not is_mean:
        return Answers(np.zeros(batch.counts.shape), 0, 0)
    truth = batch.frequencies if question == "frequency" else batch.presence
    means = np.broadcast_to(truth.mean(axis=1, keepdims=True), truth.shape)
    return Answers(means, 1, int(batch.counts.sum(axis=1).max()).bit_length())


def bits_of(sums: NDArray[Any]) -> int:
    """Bits that hold every number of some sketches.

    Examples
    --------
    >>> bits_of(np.array([0, 7])), bits_of(np.array([-7, 7])), bits_of(np.array([0]))
    (3, 4, 1)
    """
    largest = int(np.abs(sums).max())
    return max(largest.bit_length() + int(sums.min() < 0), 1)


def short_error(value: float) -> str:
    """Two digits; errors of rounding are 0.

    Examples
    --------
    >>> short_error(0.00123), short_error(1e-30)
    ('1.2e-03', '0')
    """
    return "0" if value < _ROUNDING_ERROR else f"{value:.1e}"
