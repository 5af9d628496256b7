r"""What the sketches of classes support: a mixture each, or one covariance for all.

A mixture of Gaussians per class misleads where features are nothing like Gaussians:
rare levels of one-hot columns, rows far out, columns that are constant in one class.
Second moments show all three. What they support in any case is a linear rule, with
the covariance :math:`W = \sum_c \pi_c C_c` that all classes share,

.. math:: \log P(c \mid x) = \log \pi_c + (x - \tfrac12 \mu_c)^\top W^{-1} \mu_c
    + \text{const},

means taken about that of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.density.blur import blurred_moments
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.components import (
    NARROWEST,
    least_deviations,
    rounding_steps,
)
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.mixture_choice import mixture_decoder
from sketchlearn.decoders.density.reading import holds_only_moments, read_sketch
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["ClassMoments", "ClassTuning", "LinearRule", "class_decoder"]

_FEWEST_ROWS = 5
"""Rows a component must have on average, and as many as features if "full"."""

_DRAWS = 2**15
"""Rows that the accuracy of a linear rule is estimated with, all classes together."""

_LEANS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""What is added to the logarithm of the largest class, in turn."""

_TWO_VALUES = 1e-6
"""Relative error of moments up to which a feature has two values only."""

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class ClassTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    far: float = 16.0
    """Deviations that the planned range reaches from the mean of a feature. On training
    tables (planned from the rows) mixtures were up to 0.18 less accurate than a linear
    rule from 18 on, and mostly more accurate below."""

    rare: float = 0.05
    """Share of the rows with the rarer of two values: on all eight training tables with
    rarer ones the linear rule was better, by 0.03 to 0.29; on others with columns of
    zeros and ones mixtures were better or as good."""

    still: float = 1e-3
    """Variance of a feature in one class, as a share of that within all: where it was
    less, mixtures lost up to 0.28 on eight of nine training tables."""

    gain: float = 0.05
    """Accuracy that the linear rule must gain on the largest class, of what that leaves
    to gain, or it leans to it: scores have longer tails than Gaussians. With none, four
    of 199 tables of heavy tails were told worse than by their largest class."""


@final
@dataclass(frozen=True, eq=False)
class LinearRule:
    """Logarithms of the probabilities of classes, up to a constant for each row.

    Parameters
    ----------
    coef : array of shape (n_classes, d)
    intercept : array of shape (n_classes,)
        At the center.
    center : array of shape (d,)
        The mean of all rows.
    """

    coef: Array
    intercept: Array
    center: Array

    def __call__(self, rows: NDArray[np.floating]) -> Array:
        """One column for each class."""
        return np.asarray((rows - self.center) @ self.coef.T + self.intercept)


@final
@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Moments of the rows of each class.

    Parameters
    ----------
    classes : tuple of Moments
    priors : array of shape (n_classes,)
        Shares of the rows.
    scaling : Scaling
        Planned range of the features.
    steps : array of shape (d,)
        What rows were rounded to.
    """

    classes: tuple[Moments, ...]
    priors: Array
    scaling: Scaling
    steps: Array

    @classmethod
    def read(
        cls, sketches: Sequence[Sketch | PrivateSketch], priors: Array
    ) -> ClassMoments:
        """Read the moments in one sketch for each class."""
        decoder = NystromDecoder(rounds_rows=False)
        found = (blurred_moments(decoder.decode(one).params) for one in sketches)
        part, _ = second_moment_part(sketches[0].feature_map)
        scaling = part.scaling or Scaling.identity(part.n_features)
        steps, _ = rounding_steps([one.feature_map for one in sketches])
        return cls(tuple(found), priors, scaling, steps)

    @property
    def means(self) -> Array:
        """Of each class, shape (n_classes, d)."""
        return np.stack([one.mean for one in self.classes])

    @property
    def variances(self) -> Array:
        """Of each class, shape (n_classes, d)."""
        found = np.stack([one.structure.variances for one in self.classes])
        return np.maximum(found, 0.0)

    @property
    def _noise(self) -> Array:
        """Deviation of the noise of releases on the variances, shape (d,)."""
        return self.priors @ np.stack(
            [
                np.zeros(len(one.mean))
                if one.noise is None
                else one.noise.of_variances(one.mean)
                for one in self.classes
            ]
        )

    def unlike_gaussians(
        self, tuning: ClassTuning | None = None
    ) -> dict[str, NDArray[np.intp]]:
        """Features that mixtures of Gaussians do not describe, by what they are like.

        Examples
        --------
        >>> import sketchlearn as sl
        >>> rows = np.random.default_rng(0).normal(size=(500, 3))
        >>> rows[:, 1] = np.arange(500) < 10
        >>> known = ClassMoments.read(
        ...     [sl.CompressiveGaussianMixture().sketch(rows)], np.ones(1))
        >>> {why: which.tolist() for why, which in known.unlike_gaussians().items()}
        {'one of two values is rare': [1]}
        """
        tuning, within = tuning or ClassTuning(), self.priors @ self.variances
        mean = self.priors @ self.means
        total = within + self.priors @ (self.means - mean) ** 2
        width, middle = 1 / self.scaling.factor, mean - self.scaling.shift
        varies = total > self.steps**2
        spread = np.sqrt(np.where(varies, total, 1.0)) / width
        error = 3 * self._noise
        ones = np.abs(total + mean**2 - mean) <= _TWO_VALUES * np.abs(mean) + error
        ends = np.abs(total + middle**2 - width**2) <= _TWO_VALUES * width**2 + error
        apart = np.where(ends, 2 * width, 1.0)
        rare = (ones | ends) & (total < tuning.rare * (1 - tuning.rare) * apart**2)
        far = (1 + np.abs(middle) / width) / spread > tuning.far
        seen = within > NARROWEST * total
        still = seen & (self.variances.min(axis=0) < tuning.still * within)
        found = {
            "one of two values is rare": rare & varies,
            "a few rows lie far from all others": far & varies & ~rare,
            "a class has hardly any variance": still & varies & ~rare & ~far,
        }
        return {why: np.flatnonzero(at) for why, at in found.items() if at.any()}

    def linear_rule(
        self, *, shrinkage: float, seed: int, tuning: ClassTuning | None = None
    ) -> LinearRule:
        """The rule of the shared covariance, or of the priors where it is no better.

        Parameters
        ----------
        shrinkage : float
            Share of the variances that is added to them; more where rows are few.
        seed : int
            Of the rows that the accuracy is estimated with.
        tuning : ClassTuning, optional
        """
        priors, center = self.priors, self.priors @ self.means
        away = self.means - center
        shared = sum(
            prior * one.covariance
            for prior, one in zip(priors, self.classes, strict=True)
        )
        own = np.maximum(np.diag(shared), 0.0)
        floor = least_deviations(self.steps) ** 2
        deviations = np.sqrt(own + np.maximum(NARROWEST * (priors @ away**2), floor))
        count = sum(one.count for one in self.classes)
        ridge = max(shrinkage, len(center) / count)
        unit = away / deviations
        matrix = shared / deviations / deviations[:, None]
        coef = np.linalg.solve(matrix + ridge * np.eye(len(center)), unit.T).T
        logs = np.log(np.maximum(priors, 1e-300))
        intercept = logs - np.vecdot(coef, unit) / 2
        rule = LinearRule(coef / deviations, intercept, center)
        least = (tuning or ClassTuning()).gain * (1 - float(priors.max()))
        return self._cautious(rule, least, np.random.default_rng([seed, 5]))

    def _cautious(
        self, rule: LinearRule, least: float, rng: np.random.Generator
    ) -> LinearRule:
        """The rule, leaning to the largest class until it is better than that class.

        Scores of the rows of each class are taken for Gaussian, with the mean and
        covariance that they have.
        """
        scores = []
        for one in self.classes:
            spread = rule.coef @ one.covariance @ rule.coef.T
            values, vectors = np.linalg.eigh((spread + spread.T) / 2)
            roots = vectors * np.sqrt(np.maximum(values, 0.0))
            n_rows = max(_DRAWS // len(self.classes), 32)
            drawn = rng.standard_normal((n_rows, len(values))) @ roots.T
            scores.append(rule(one.mean[None]) + drawn)
        largest = np.arange(len(scores)) == self.priors.argmax()
        for lean in _LEANS:
            named = [(score + lean * largest).argmax(axis=1) for score in scores]
            told = [(one == label).mean() for label, one in enumerate(named)]
            others = [1 - largest[one].mean() for one in named]
            gain = self.priors @ told - self.priors.max()
            if gain >= min(least, self.priors @ others):
                return replace(rule, intercept=rule.intercept + lean * largest)
        logs = np.log(np.maximum(self.priors, 1e-300))
        return replace(rule, coef=np.zeros_like(rule.coef), intercept=logs)


def class_decoder(
    sketch: Sketch | PrivateSketch,
    n_components: int,
    *,
    shape: Literal["diag", "full"],
    shrinkage: float,
    seed: int,
) -> tuple[int, AbstractDecoder[Density]]:
    """How many components the class gets, fewer where rows are few, and their decoder.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of the rows of one class.
    n_components : int
        Components it may have.
    shape : {"diag", "full"}
        Of their covariances.
    shrinkage : float
        Share of the variances that is added to them afterwards.
    seed : int
    """
    each = sketch.feature_map.n_features if shape == "full" else 0
    size = max(1, min(n_components, int(sketch.count) // max(_FEWEST_ROWS, each)))
    if holds_only_moments(sketch.feature_map):
        size = 1
    reading = read_sketch(sketch)
    if reading.cells is None or not reading.cells.has_second_moments:
        return size, mixture_decoder(reading, size, shape=shape, seed=seed)
    # Classes are no mixtures of Gaussians: refining helped on no real table.
    least = max(shrinkage, NARROWEST)
    return size, CellMixtureDecoder(
        size, shape=shape, least_variance=least, n_rounds=0, seed=seed
    )
