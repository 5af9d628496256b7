r"""Sets of rows of zeros and ones, and what is asked of them.

Sets are drawn from the Zipf law of the paper, or are rows of a dataset; a batch has
500 of them, as in the paper. What linear sketches need is how many rows of a set hold
each item; networks that are not linear see the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.counts.zipf import draw_zipf_counts
from sketchlearn.errors import ConfigError
from sketchlearn.experiments.protocol import mark_of, named_sets, printed_table
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import MetaDataset

__all__ = [
    "BATCH_SETS",
    "PAPER_COLUMNS",
    "FREQUENCIES",
    "MEMBERSHIPS",
    "N_ITEMS",
    "BinarySet",
    "CountTask",
    "SetBatch",
    "TrainingRows",
    "draw_zipf_batch",
    "load_binary_sets",
    "printed_errors",
]

N_ITEMS = 1000
"""Items of the Zipf sets."""

BATCH_SETS = 500
"""Sets of a batch."""

PAPER_COLUMNS = {
    "MNIST": "MNIST",
    "Fashion-MNIST": "Fashion-MNIST",
    "human-1000G": "human",
    "dogstrain15": "dogs",
    "KDD98-PVA": "KDD98",
    "heart": "heart",
    "quickdraw": "QuickDraw",
    "adult": "Adult",
    "bank-marketing": "Bank",
}
"""Datasets of the table, and how the paper's table calls them."""

Question = Literal["frequency", "membership"]


@final
@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a dataset that methods may learn from; equal only to itself."""

    rows: NDArray[np.uint8]


@final
@dataclass(frozen=True, eq=False)
class SetBatch:
    """Some sets of equally many rows.

    Examples
    --------
    >>> batch = SetBatch(np.array([[0, 2], [1, 1]]), 2)
    >>> batch.frequencies.tolist(), batch.presence.tolist()
    ([[0.0, 1.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 1.0]])
    """

    counts: NDArray[np.int64]
    """How many rows of a set hold an item, shape (n_sets, n_items)."""

    n_rows: int
    """Rows of each set."""

    picked: Callable[[int], NDArray[np.uint8]] | None = None
    """The rows of a set, where they are known."""

    training: TrainingRows | None = None
    """Other rows of the same dataset, where there are any."""

    @property
    def n_items(self) -> int:
        """Items of the vocabulary."""
        return len(self.counts[0])

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Share of the rows of a set that hold an item."""
        return self.counts / self.n_rows

    @property
    def presence(self) -> NDArray[np.float64]:
        """1 where some row of the set holds the item."""
        return (self.counts > 0).astype(np.float64)

    def first(self, n_sets: int | None) -> SetBatch:
        """Only so many sets; all of them for None."""
        return replace(self, counts=self.counts[:n_sets])

    def rows(self, rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
        """Rows of one set after the other, shape (n_rows, n_items).

        Rows that are not known are drawn: all choices that have these counts are
        equally likely, which is the law of independent items.
        """
        for number, counts in enumerate(self.counts):
            if self.picked is not None:
                yield self.picked(number)
                continue
            rows, left = np.zeros((self.n_rows, self.n_items), np.uint8), counts.copy()
            for row in range(self.n_rows):
                rows[row] = rng.random(self.n_items) * (self.n_rows - row) < left
                left -= rows[row]
            yield rows


@final
@dataclass(frozen=True, eq=False)
class CountTask:
    """What is asked of a sketch, and the Zipf sets at which the paper asks it."""

    name: Question
    truth: Callable[[SetBatch], NDArray[np.float64]]
    """The right answers, shape (n_sets, n_items)."""

    zipf_rows: tuple[int, ...]
    """Rows of the Zipf sets."""

    betas: tuple[float, ...]
    """Of the Zipf law, in the figure of all methods."""

    search_runs: int
    """Draws in the search for the best tables."""

    set_rows: tuple[int, ...]
    """Rows of the sets of datasets; the paper does not say how many it has, but that
    networks of membership are trained and tested with 10."""

    printed: str
    """Name of the paper's table of datasets."""

    def error(self, batch: SetBatch, answers: NDArray[np.float64]) -> float:
        """Mean square error over items and sets."""
        return float(np.square(answers - self.truth(batch)).mean())


FREQUENCIES = CountTask(
    name="frequency",
    truth=lambda batch: batch.frequencies,
    zipf_rows=(100, 20),
    betas=(1.0, 0.5),
    search_runs=5,
    set_rows=(20, 100),
    printed="frequency_mse",
)
MEMBERSHIPS = CountTask(
    name="membership",
    truth=lambda batch: batch.presence,
    zipf_rows=(10,),
    betas=(0.5,),
    search_runs=10,
    set_rows=(10, 20, 100),
    printed="membership_mse",
)


def draw_zipf_batch(
    n_rows: int,
    alpha: float,
    beta: float,
    *,
    seed: int,
    n_sets: int = BATCH_SETS,
    n_items: int = N_ITEMS,
) -> SetBatch:
    """Sets of a Zipf law, each with an order of items of its own."""
    rng = np.random.default_rng([seed, n_rows, round(1000 * alpha), round(1000 * beta)])
    drawn = draw_zipf_counts(rng, n_items, n_rows, alpha, beta, n_sets=n_sets)
    return SetBatch(drawn, n_rows)


@final
@dataclass(frozen=True, eq=False)
class BinarySet:
    """A dataset as zeros and ones, in two halves."""

    name: str
    training: NDArray[np.uint8]
    """Half of the rows, at random: for methods that learn from them."""

    rows: NDArray[np.uint8]
    """The other half, of which the sets are."""

    mark: str = ""
    """Whether the rows are simulated, or a stand-in for the paper's."""

    split: str = "test"
    """Whether weights may have been learned from it: then it is "train"."""

    @property
    def n_items(self) -> int:
        """Columns."""
        return len(self.rows[0])

    def draw(
        self, n_rows: int, n_sets: int, *, seed: int, training: bool = False
    ) -> SetBatch:
        """Sets of different rows, of the second half or of the training rows."""
        table = self.training if training else self.rows
        if len(table) < n_rows:
            raise ConfigError(
                f"{self.name} has {len(table)} rows in a half: no sets of {n_rows}."
            )
        rng = np.random.default_rng([seed, n_rows, int(training)])
        chosen = [rng.choice(len(table), n_rows, replace=False) for _ in range(n_sets)]
        counts = np.array([table[rows].sum(axis=0, dtype=np.int64) for rows in chosen])
        return SetBatch(
            counts, n_rows, lambda number: table[chosen[number]], self._learned_from
        )

    @cached_property
    def _learned_from(self) -> TrainingRows:
        return TrainingRows(self.training)


def load_binary_sets(
    folder: str | os.PathLike[str], names: Collection[str] | None = None
) -> list[BinarySet]:
    """Those of the paper's datasets that a folder has, in the paper's order.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these of :data:`PAPER_COLUMNS`; all by default.
    """
    found = named_sets(folder, PAPER_COLUMNS, names)
    return [_halves(data, split) for data, split in found]


def _halves(data: MetaDataset, split: str) -> BinarySet:
    table = binary_rows(data)
    order = np.random.default_rng(0).permutation(len(table))
    middle = len(table) // 2
    training, rows = table[order[:middle]], table[order[middle:]]
    return BinarySet(data.name, training, rows, mark_of(data), split)


def printed_errors(task: CountTask) -> dict[str, dict[str, float]]:
    """What the paper prints, by its methods and our names of datasets."""
    return printed_table(task.printed, PAPER_COLUMNS)
