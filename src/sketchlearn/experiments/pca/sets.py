"""The paper's test sets for PCA and ridge, and how an estimate is judged on them.

196 features at random, in the order of the dataset, standardised (paper, appendix
Experimental details); features that never vary are left out, which the metrics count as
padding with zeros. Nothing is trained or chosen here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.experiments.protocol import (
    N_FEATURES,
    random_features,
    read_printed,
    select_test_sets,
    shuffled_features,
)
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.metrics import (
    leading_components,
    log_relative_error,
    pca_log_relative_error,
    ridge_log_relative_error,
    ridge_mean_squared_error,
)

__all__ = [
    "Estimate",
    "EvaluationSet",
    "load_sets",
    "printed_errors",
]


@final
@dataclass(frozen=True, eq=False)
class Estimate:
    """What a method makes of a sketch.

    Parameters
    ----------
    second_moment : array of shape (d, d)
        Estimate of E[xxᵀ]; larger than the truth if it is one of padded rows.
    coef : array of shape (d - 1,), optional
        Ridge coefficients of the target on the other features; by default those that
        follow from ``second_moment``.
    """

    second_moment: NDArray[np.float64]
    coef: NDArray[np.float64] | None = None


@final
@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """One dataset as the experiment sees it.

    Examples
    --------
    >>> rows = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> data = EvaluationSet("two", rows)
    >>> data.pca_lre(Estimate(data.second_moment))
    0.0
    """

    name: str
    """Name in its collection."""

    rows: NDArray[np.float64]
    """Standardised rows, shape (n, d): features that vary."""

    labels: NDArray[Any] | None = None
    """Class of each row."""

    real: bool = True
    """False for simulated data and stand-ins."""

    target: int = 0
    """Which feature ridge regression predicts from the others."""

    @property
    def n_features(self) -> int:
        """d, at most 196."""
        return int(self.rows.shape[1])

    @cached_property
    def second_moment(self) -> NDArray[np.float64]:
        """R = E[xxᵀ], shape (d, d)."""
        moment: NDArray[np.float64] = self.rows.T @ self.rows / len(self.rows)
        return moment

    @cached_property
    def components(self) -> NDArray[np.float64]:
        """Exact principal components, shape (d, d)."""
        return leading_components(self.second_moment)

    @cached_property
    def few_rows(self) -> NDArray[np.float64]:
        r"""As many rows as features, with the same R as all rows: :math:`\sqrt{dR}`.

        A quadratic sketch is a function of R, so theirs is that of the whole set.
        """
        values, vectors = np.linalg.eigh(self.second_moment)
        scale = np.sqrt(np.maximum(values, 0.0) * self.n_features)
        root: NDArray[np.float64] = (vectors * scale) @ vectors.T
        return root

    def padded(self, size: int) -> NDArray[np.float64]:
        """R of rows padded with zeros, shape (size, size)."""
        return np.pad(self.second_moment, (0, size - self.n_features))

    def pca_lre(self, estimate: Estimate) -> float:
        """Log relative error of the principal components of an estimate."""
        found = leading_components(estimate.second_moment)
        return pca_log_relative_error(self.padded(len(found)), found, N_FEATURES)

    def ridge_lre(self, estimate: Estimate) -> float:
        """Log relative error of the target's regression on the other features."""
        if estimate.coef is None:
            found = estimate.second_moment
            first = np.argsort(np.arange(len(found)) != self.target, kind="stable")
            truth, found = (
                moment[np.ix_(first, first)]
                for moment in (self.padded(len(found)), found)
            )
            return ridge_log_relative_error(truth, found)
        inputs, target = self.regression
        errors = [
            ridge_mean_squared_error(inputs, target, coef)
            for coef in (estimate.coef, self._exact_coef)
        ]
        return log_relative_error(*errors)

    @property
    def regression(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The other features, shape (n, d - 1), and the target, shape (n,)."""
        others = np.delete(self.rows, self.target, axis=1)
        return others, self.rows[:, self.target]

    @cached_property
    def _exact_coef(self) -> NDArray[np.float64]:
        cross = np.delete(self.second_moment[self.target], self.target)
        among = np.delete(self.second_moment, self.target, axis=0)
        among = np.delete(among, self.target, axis=1)
        penalty = np.linalg.norm(among) * np.eye(len(among))
        return np.asarray(np.linalg.solve(among + penalty, cross), np.float64)


def load_sets(
    folder: str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    shuffled: bool = False,
) -> list[EvaluationSet]:
    """Test sets of a folder, by name.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these; all by default.
    shuffled : bool
        Put the features in random order: what is left of the paper's network if
        neighbours are not alike.
    """
    return [_standardised(data, shuffled) for data in select_test_sets(folder, names)]


def printed_errors(sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """LRE of the paper's SQNet as printed, against its own largest sketch.

    By dataset and sketch size, for the sizes that the paper has.
    """
    table = read_printed("pca_reconstruction_error")
    places = {
        size: place for place, size in enumerate(table["sketch_sizes"]) if size in sizes
    }
    return {
        name: {size: math.log(row[place] / row[-1]) for size, place in places.items()}
        for name, row in table["rows"].items()
    }


def _standardised(data: MetaDataset, shuffled: bool) -> EvaluationSet:
    drawn = shuffled_features(data)
    features = drawn if shuffled else random_features(data)
    rows = data.take(np.arange(data.n_rows), features).astype(np.float64)
    varies = rows.std(axis=0) > 0
    if varies.sum() < 2:
        raise RowsError(f"test set {data.name!r} has fewer than 2 features that vary.")
    kept = features[varies]
    # The target is random in either order: the first one of a dataset is often odd.
    target = drawn[np.isin(drawn, kept)][0]
    place = int(np.flatnonzero(kept == target)[0])
    return EvaluationSet(data.name, rows[:, varies], data.labels, data.real, place)
