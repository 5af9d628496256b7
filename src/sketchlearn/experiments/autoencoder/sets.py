"""Datasets of zeros and ones in two halves: one is sketched, the other reconstructed.

Thresholds and categories are learned from the first half alone. How rows are coded is
not known here, only how a reconstruction is judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.experiments.protocol import mark_of, named_sets, printed_table
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.metrics import balanced_accuracy
from sketchlearn.rows.binary_columns import KEPT_COLUMNS, BinaryColumns

__all__ = [
    "AVERAGE_COLUMN",
    "CODE_NUMBERS",
    "FLIPPED",
    "LETTERS",
    "Bits",
    "Labels",
    "ReconstructionSet",
    "flip_columns",
    "load_reconstruction_sets",
    "printed_accuracies",
]

Bits = NDArray[np.uint8]
Labels = NDArray[np.int64]
Reconstruct = Callable[[Bits, Labels | None], NDArray[np.generic]]

CODE_NUMBERS = 50
"""Numbers of a code, as in the paper."""

LETTERS = {
    "MNIST": "M",
    "human-1000G": "H",
    "dogstrain15": "D",
    "KDD98-PVA": "K",
    "quickdraw": "QD",
    "adult": "A",
    "bank-marketing": "B",
}
"""Datasets of the table in its order, and how the paper's rows call them."""

FLIPPED = "human-1000G, flipped"
"""The human set again, with zeros and ones exchanged in half of its columns."""

AVERAGE_COLUMN = "average"
"""How the paper's table calls its last column."""

_HUMAN = "human-1000G"
_PRINTED = {
    "MNIST": "MNIST",
    _HUMAN: "human",
    "dogstrain15": "dogs",
    "KDD98-PVA": "KDD98",
    "quickdraw": "QuickDraw",
    "adult": "Adult",
    "bank-marketing": "Bank",
}
_OTHER_ROWS = {_HUMAN: "other SNPs", "quickdraw": "other classes"}
"""Real rows of the right kind that are not those of the paper."""

_NARROW = 200
"""Sets of fewer columns than this are narrow."""


@final
@dataclass(frozen=True, eq=False)
class ReconstructionSet:
    """A dataset as the experiment sees it.

    Examples
    --------
    >>> bits = np.array([[0, 1], [1, 1]], np.uint8)
    >>> data = ReconstructionSet("two", bits, np.array([0, 1]), bits, np.array([0, 1]))
    >>> data.accuracy(lambda rows, labels: np.ones(rows.shape, bool))
    50.0
    """

    name: str
    """Name in its collection."""

    training: Bits
    """Half of the rows, at random: what is sketched, and what is trained with."""

    training_labels: Labels
    """Class of each of them; all 0 where there are none."""

    rows: Bits
    """Of the other half, at random: what is reconstructed."""

    labels: Labels
    """Class of each of them."""

    mark: str = ""
    """Why the rows are not those of the paper's set, if they are not."""

    @property
    def n_features(self) -> int:
        """Columns."""
        return len(self.rows[0])

    @property
    def n_codes(self) -> int:
        """Numbers of a code as in the paper, and never more than columns."""
        return min(CODE_NUMBERS, self.n_features)

    @property
    def narrow_codes(self) -> int | None:
        """Numbers of a code that is small beside a narrow set; None of a wide one."""
        return max(1, self.n_features // 4) if self.n_features < _NARROW else None

    @property
    def is_comparable(self) -> bool:
        """Whether the paper's coding of its columns is known: not of the human set."""
        return not self.name.startswith(_HUMAN)

    @property
    def letter(self) -> str:
        """Short name, as in the paper."""
        return "H flipped" if self.name == FLIPPED else LETTERS.get(self.name, "?")

    def accuracy(
        self,
        reconstruct: Reconstruct,
        *,
        n_rows: int | None = None,
        with_labels: bool = False,
    ) -> float:
        """Balanced accuracy of the reconstruction, in percent.

        Parameters
        ----------
        reconstruct : callable
            From rows, and their classes or None, to which entries come back as ones.
        n_rows : int, optional
            Only so many rows; all by default.
        with_labels : bool
            Whether the class of each row is told.
        """
        rows, labels = self.rows[:n_rows], self.labels[:n_rows]
        found = reconstruct(rows, labels if with_labels else None)
        return 100 * balanced_accuracy(rows, found)

    def sketched_rows(self, n_rows: int | None, seed: int) -> tuple[Bits, Labels]:
        """Some of the training rows, drawn with a seed, and their classes."""
        if n_rows is None or n_rows >= len(self.training):
            return self.training, self.training_labels
        rng = np.random.default_rng([seed, n_rows])
        chosen = rng.choice(len(self.training), n_rows, replace=False)
        return self.training[chosen], self.training_labels[chosen]


def flip_columns(data: ReconstructionSet, name: str) -> ReconstructionSet:
    """The same set with zeros and ones exchanged in a random half of its columns.

    Which allele of a SNP is a one is a convention; where it is the rarer one, rows are
    nearly empty, and their mean alone says most of what there is to know.
    """
    flips = np.random.default_rng(0).integers(2, size=data.n_features, dtype=np.uint8)
    return replace(
        data, name=name, training=data.training ^ flips, rows=data.rows ^ flips
    )


def load_reconstruction_sets(
    folder: str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    test_rows: int | None = None,
) -> list[ReconstructionSet]:
    """Those of the paper's datasets that a folder has, the human one twice.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these of :data:`LETTERS`; all by default.
    test_rows : int, optional
        Most rows to reconstruct of each.
    """
    sets = []
    for data, _ in named_sets(folder, LETTERS, names):
        found = _halves(data, test_rows)
        sets.append(found)
        if data.name == _HUMAN:
            sets.append(flip_columns(found, FLIPPED))
    return sets


def printed_accuracies() -> dict[str, dict[str, float]]:
    """What the paper prints, by its rows and our names of datasets.

    The paper does not say how it codes alleles: its one human column stands beside both
    of ours.
    """
    found = printed_table("autoencoder_balanced_accuracy", _PRINTED)
    return {
        row: {**values, FLIPPED: values[_HUMAN]} if _HUMAN in values else values
        for row, values in found.items()
    }


def _halves(data: MetaDataset, test_rows: int | None) -> ReconstructionSet:
    order = np.random.default_rng(0).permutation(data.n_rows)
    first, second = np.split(order, [data.n_rows // 2])
    second = second[:test_rows]
    columns = BinaryColumns.learn(data.rows[first], n_columns=KEPT_COLUMNS)
    labels = _labels(data.labels, data.n_rows)
    return ReconstructionSet(
        data.name,
        columns.apply(data.rows[first]),
        labels[first],
        columns.apply(data.rows[second]),
        labels[second],
        mark_of(data) or _OTHER_ROWS.get(data.name, ""),
    )


def _labels(labels: NDArray[Any] | None, n_rows: int) -> Labels:
    """Classes as whole numbers from 0 on."""
    if labels is None:
        return np.zeros(n_rows, np.int64)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
