r"""What training rows say of items: how often they are held, and which together.

Counts of :math:`N` rows like the training rows have mean :math:`N\mu` and covariance
:math:`N\Sigma`. Rows are often fewer than items, so correlations are shrunk, by as much
as makes rows that were left out most likely. Nothing is known here of sketches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.fields import Field, is_whole, require_fields
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import frozen_tensors

__all__ = [
    "ItemPrior",
    "ItemPriorTuning",
    "RowMoments",
    "choose_shrinkage",
    "fold_moments",
    "sum_moments",
]
__public__ = ["ItemPrior"]

Array = NDArray[np.float64]

_MOST_ITEMS = 8192
"""A covariance of more items would take more than half a gigabyte."""


@final
@dataclass(frozen=True)
class ItemPriorTuning:
    """Hand-chosen numbers of a prior learned from rows."""

    n_folds: int = 5
    """Rows are left out a fifth at a time: the other four are nearly all of them."""

    shrinkages: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    """Shares of correlations that may be taken away; never none, so that the
    covariance has an inverse."""

    unseen: float = 0.5
    """Times an item is taken to be seen beyond what it was (Jeffreys' prior)."""


@final
@dataclass(frozen=True, eq=False)
class RowMoments:
    """Sums over rows: how many, of each item, and of products of two items."""

    count: int
    totals: Array
    products: Array

    def __add__(self, other: RowMoments) -> RowMoments:
        totals, products = self.totals + other.totals, self.products + other.products
        return RowMoments(self.count + other.count, totals, products)

    def __sub__(self, other: RowMoments) -> RowMoments:
        totals, products = self.totals - other.totals, self.products - other.products
        return RowMoments(self.count - other.count, totals, products)

    def mean(self, tuning: ItemPriorTuning) -> Array:
        """How often a row holds each item; an item never seen is not impossible."""
        result: Array = (self.totals + tuning.unseen) / (self.count + 1)
        return result

    def scatter(self, mean: Array) -> Array:
        """Mean of products of what is left of two items after ``mean``."""
        own = self.totals / self.count
        result: Array = self.products / self.count - np.outer(own, own)
        return result + np.outer(own - mean, own - mean)

    def shrunk(self, shrinkage: float, tuning: ItemPriorTuning) -> Array:
        """The covariance with smaller correlations, and no item that never varies."""
        covariance = self.scatter(self.totals / self.count)
        floor = tuning.unseen / self.count
        variances = np.maximum(np.diag(covariance), floor)
        covariance *= 1 - shrinkage
        np.fill_diagonal(covariance, variances)
        return covariance


@final
@dataclass(frozen=True, eq=False)
class ItemPrior(AbstractLearned):
    r"""Mean and covariance of the items of one row, learned from training rows.

    Parameters
    ----------
    mean : array of shape (n_items,)
        How often a row holds each item, :math:`\mu`.
    covariance : array of shape (n_items, n_items)
        :math:`\Sigma`, positive definite.
    n_rows : int
        From how many rows they were learned.
    shrinkage : float
        Share of the correlations that was taken away.

    Notes
    -----
    Numbers are those of float32, so that a saved prior is the same prior. They are a
    trace of the training rows: where these must stay private, so must the prior.

    Examples
    --------
    >>> rows = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 25)
    >>> prior = ItemPrior.from_rows(rows)
    >>> prior.mean.round(2), prior.covariance[0].round(2)
    (array([0.5 , 0.5 , 0.25]), array([ 0.25,  0.25, -0.12]))
    """

    weights_kind: ClassVar = "item-prior"
    spec_fields: ClassVar[Mapping[str, Field]] = {
        "n_rows": Field("a whole number from 1 to 2**53", is_whole(1, 2**53)),
        "shrinkage": Field(
            "a number from 0 to 1",
            lambda value: type(value) in (int, float) and 0 <= value <= 1,
        ),
    }

    mean: Array
    covariance: Array
    n_rows: int
    shrinkage: float = 0.0

    @property
    def n_items(self) -> int:
        """Size of the vocabulary."""
        return len(self.mean)

    @staticmethod
    def from_rows(
        rows: ArrayLike | sp.sparray, *, tuning: ItemPriorTuning | None = None
    ) -> ItemPrior:
        """Learn from rows of zeros and ones (or counts), dense or sparse.

        Parameters
        ----------
        rows : array or sparse array of shape (n_rows, n_items)
            At least ten rows.
        tuning : ItemPriorTuning, optional
            Hand-chosen numbers.
        """
        tuning = tuning or ItemPriorTuning()
        return ItemPrior.from_folds(fold_moments(rows, tuning), tuning)

    @staticmethod
    def from_folds(folds: Sequence[RowMoments], tuning: ItemPriorTuning) -> ItemPrior:
        """Learn from sums over parts of the rows (:func:`fold_moments`)."""
        whole = sum_moments(folds)
        shrinkage = choose_shrinkage(folds, tuning)
        covariance = whole.shrunk(shrinkage, tuning)
        return ItemPrior(
            whole.mean(tuning).astype(np.float32).astype(np.float64),
            covariance.astype(np.float32).astype(np.float64),
            whole.count,
            shrinkage,
        )

    def spread_of(self, count: int) -> float:
        r"""Factor between :math:`\Sigma` and the covariance of counts of so many rows.

        :math:`N(1 + N/n)`: counts vary by :math:`N\Sigma`, and the mean of the
        :math:`n` training rows is itself uncertain by :math:`\Sigma / n`.
        """
        return count * (1 + count / self.n_rows)

    def to_tensors(self) -> dict[str, NDArray[np.float32]]:
        """Mean and covariance as a file holds them."""
        return {
            "mean": self.mean.astype(np.float32),
            "covariance": self.covariance.astype(np.float32),
        }

    def to_spec(self) -> dict[str, Any]:
        """What a file holds beside them."""
        return {"n_rows": self.n_rows, "shrinkage": self.shrinkage}

    @staticmethod
    def shapes_of(tensors: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """Shapes of a mean and a covariance of as many items as tensors speak of."""
        n_items = np.size(tensors.get("mean", 0))
        if not 0 < n_items <= _MOST_ITEMS:
            raise FeatureMapError(
                f"a prior of items holds 1 to {_MOST_ITEMS} items; got {n_items}."
            )
        return {"mean": (n_items,), "covariance": (n_items, n_items)}

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        return Weights(self.weights_kind, self.to_spec(), self.to_tensors(), card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        require_fields(weights.spec, cls.spec_fields, "the spec of a prior of items")
        kept = frozen_tensors(weights.tensors, cls.shapes_of(weights.tensors).items())
        mean, covariance = (array.astype(np.float64) for array in kept.values())
        least = min(mean.min(), np.diag(covariance).min())
        if least < 0 or not np.array_equal(covariance, covariance.T):
            raise FeatureMapError(
                "a prior of items has means that are not negative and a symmetric "
                "covariance."
            )
        return cls(mean, covariance, **weights.spec)


def fold_moments(
    rows: ArrayLike | sp.sparray, tuning: ItemPriorTuning
) -> list[RowMoments]:
    """Sums over every fifth row, starting at the first, the second, and so on."""
    table: Any = sp.csr_array(rows) if sp.issparse(rows) else np.asarray(rows)
    _require_rows(table, tuning)
    return [_moments(table[k :: tuning.n_folds]) for k in range(tuning.n_folds)]


def choose_shrinkage(folds: Sequence[RowMoments], tuning: ItemPriorTuning) -> float:
    r"""The shrinkage under which rows left out are most likely, as if Gaussian.

    With :math:`D` the variances and :math:`C` the correlations without their diagonal,
    all shrinkages share the eigenvectors of :math:`I + (1-\lambda)\,C`.
    """
    whole, kept = sum_moments(folds), 1 - np.array(tuning.shrinkages)
    misfit = np.zeros(len(kept))
    for fold in folds:
        rest = whole - fold
        covariance = rest.shrunk(0.0, tuning)
        scale = 1 / np.sqrt(np.diag(covariance))
        np.fill_diagonal(covariance, 0.0)
        values, vectors = np.linalg.eigh(covariance * scale[:, None] * scale)
        seen = fold.scatter(rest.mean(tuning)) * scale[:, None] * scale
        power = np.einsum("ij,ij->j", vectors, seen @ vectors)
        scales = np.maximum(1 + kept[:, None] * values, 1e-9)
        misfit += fold.count * (np.log(scales) + power / scales).sum(axis=1)
    return tuning.shrinkages[int(misfit.argmin())]


def sum_moments(folds: Sequence[RowMoments]) -> RowMoments:
    """Sums over the rows of all folds."""
    whole = folds[0]
    for fold in folds[1:]:
        whole = whole + fold
    return whole


def _moments(rows: Any, block: int = 4096) -> RowMoments:
    """Sums over rows, so many at a time written out as numbers."""
    count, n_items = rows.shape
    totals, products = np.zeros(n_items), np.zeros((n_items, n_items))
    for first in range(0, count, block):
        part = rows[first : first + block]
        dense = (part.toarray() if sp.issparse(part) else part).astype(np.float64)
        totals += dense.sum(axis=0)
        products += dense.T @ dense
    return RowMoments(count, totals, products)


def _require_rows(table: Any, tuning: ItemPriorTuning) -> None:
    """Refuse what is no table of counts, or too small or too wide to learn from."""
    if table.ndim != 2 or not table.shape[1] or table.dtype.kind not in "biuf":
        raise RowsError(
            "training rows must be a table of numbers, one column for each item; got "
            f"{table.dtype} of shape {table.shape}."
        )
    least = 2 * tuning.n_folds
    if table.shape[0] < least:
        raise RowsError(
            f"a prior of items needs at least {least} training rows; got "
            f"{table.shape[0]}. Decode without a prior, or give more rows."
        )
    if table.shape[1] > _MOST_ITEMS:
        raise RowsError(
            f"a prior of items holds at most {_MOST_ITEMS} items; got "
            f"{table.shape[1]}. Keep the most frequent ones, or decode without a prior."
        )
    values = table.data if sp.issparse(table) else table
    if values.size and not (values.min() >= 0 and np.isfinite(values.max())):
        raise RowsError("training rows must hold counts: finite numbers from 0 up.")
