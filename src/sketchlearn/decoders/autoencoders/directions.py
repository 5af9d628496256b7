r"""What a sketch says of rows of zeros and ones that are to be encoded.

Means of the features, the directions in which rows vary most around them, and how much
of it is known. With classes, the means are those of each class and the directions those
within classes: :math:`C - \sum_c p_c (\mu_c - \mu)(\mu_c - \mu)^\top`, exact, since
sketches of classes add up. What becomes of it is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.autoencoders.thresholds import (
    balanced_threshold,
    share_of_ones,
)
from sketchlearn.decoders.moments.covariance.base import AbstractCovariance
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import DENSE_FEATURES
from sketchlearn.decoders.moments.moments import Moments

__all__ = ["ClassMeans", "CodeDirections"]

Array: TypeAlias = NDArray[np.float64]

_NO_VARIANCE = 1e-12
"""Variances below are none."""


@final
@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means and shares of classes, the largest knowledge of a row's own class.

    Parameters
    ----------
    means : array of shape (n_classes, d)
    shares : array of shape (n_classes,)
        Of the rows; they add up to one.
    """

    means: Array
    shares: Array

    @property
    def mean(self) -> Array:
        """Of all rows."""
        return np.asarray(self.shares @ self.means)


@final
@dataclass(frozen=True, eq=False)
class CodeDirections:
    """Means, directions and what is known of both.

    Parameters
    ----------
    count : float
        Rows in the sketch.
    classes : ClassMeans
        One class where rows have none.
    directions : array of shape (d, k)
        Orthonormal columns, the largest variance first.
    variances : array of shape (k,)
        Along them.
    spread : array of shape (d,)
        Variances of the features.
    n_seen : int
        Directions the sketch saw; others are a guess, or noise.

    Examples
    --------
    >>> known = DenseCovariance(np.diag([0.25, 0.16]))
    >>> moments = Moments(8.0, np.array([0.5, 0.2]), known, np.zeros(2), 2)
    >>> CodeDirections.of_moments(moments, 1).explained
    array([1., 0.])
    """

    count: float
    classes: ClassMeans
    directions: Array
    variances: Array
    spread: Array
    n_seen: int

    @classmethod
    def of_moments(
        cls, moments: Moments, n_components: int, classes: ClassMeans | None = None
    ) -> Self:
        """The leading directions of rows with these moments, within classes if any.

        Of more than ``DENSE_FEATURES`` features, directions are those of all rows.
        """
        structure, found = moments.structure, classes
        if found is None:
            found = ClassMeans(np.clip(moments.mean, 0.0, 1.0)[None], np.ones(1))
        elif len(moments.mean) <= DENSE_FEATURES:
            structure = _within(structure, found)
        values, vectors = structure.largest(n_components)
        return cls(
            count=max(float(moments.count), 1.0),
            classes=found,
            directions=vectors,
            variances=np.maximum(values, 0.0),
            spread=np.maximum(structure.variances, 0.0),
            n_seen=moments.n_directions,
        )

    @property
    def mean(self) -> Array:
        """Of all rows, in 0..1."""
        return self.classes.mean

    @cached_property
    def explained(self) -> Array:
        """Share of each feature's variance along the directions."""
        along = (np.square(self.directions) * self.variances).sum(axis=1)
        positive = self.spread > _NO_VARIANCE
        share = np.where(positive, along / np.where(positive, self.spread, 1.0), 0.0)
        return np.clip(share, 0.0, 1.0)

    @cached_property
    def threshold(self) -> float:
        """From where on a linear reconstruction is a one."""
        return balanced_threshold(self.mean, self.explained)

    @property
    def ones(self) -> float:
        """Share of ones among all entries."""
        return share_of_ones(self.mean)

    def component_inputs(self) -> Array:
        """What is said of each direction to a network, shape (k, 7)."""
        k, d, n = len(self.variances), len(self.spread), self.count
        total = max(float(self.spread.sum()), _NO_VARIANCE)
        along = max(float(self.variances.sum()), _NO_VARIANCE)
        rest = max(total - along, 1e-6 * total) / d
        edge = rest * (1 + np.sqrt(d / n)) ** 2
        places = np.arange(k)
        return np.stack(
            [
                _log(
                    self.variances * k / max(float(self.variances.sum()), _NO_VARIANCE)
                ),
                _log(self.variances * d / total),
                _log(self.variances / edge),
                places / k,
                places < self.n_seen,
                np.full(k, np.log(n) / 10),
                np.full(k, k / d),
            ],
            axis=1,
        )

    def feature_inputs(self) -> Array:
        """What is said of each feature to a network, shape (d, 8)."""
        d, mean = len(self.spread), self.mean
        one = np.ones(d)
        return np.stack(
            [
                2 * mean - 1,
                4 * (mean - self.threshold),
                4 * self.spread,
                self.explained,
                one * (2 * self.ones - 1),
                one * np.log(self.count) / 10,
                one * np.log(d) / 10,
                one * len(self.variances) / d,
            ],
            axis=1,
        )


def _within(structure: AbstractCovariance, classes: ClassMeans) -> DenseCovariance:
    """The covariance within classes."""
    away = (classes.means - classes.mean) * np.sqrt(classes.shares)[:, None]
    return DenseCovariance(structure.dense - away.T @ away)


def _log(values: Array) -> Array:
    """Natural logarithms, cut to -7..7."""
    return np.clip(np.log(np.maximum(values, 1e-9)), -7.0, 7.0)
