r"""Which class a row is likely to be of, where the sketch knows classes.

A row is weighed between classes by Bayes' rule with independent features,

.. math:: w_c(x) \propto p_c \exp\Big(\frac1T \sum_j
    x_j \ln \mu_{cj} + (1 - x_j) \ln(1 - \mu_{cj})\Big),

tempered, since features are not independent. The weights are part of the code: what
comes back needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import softmax

from sketchlearn.decoders.autoencoders.directions import ClassMeans
from sketchlearn.rows.values import Floats

__all__ = ["ClassChoice"]

_LEAST_SHARE = 1e-2
"""Means of classes are kept this far from 0 and 1: a row with one odd entry still has
a class."""


@final
@dataclass(frozen=True, eq=False)
class ClassChoice:
    """Weights of classes beside the numbers of a code; nothing where there is one.

    Parameters
    ----------
    classes : ClassMeans
        Of the sketch.
    temperature : float
        T; one would be as sure as independent features are.

    Examples
    --------
    >>> known = ClassMeans(np.array([[0.9, 0.9], [0.1, 0.1]]), np.array([0.5, 0.5]))
    >>> ClassChoice(known).weights(np.array([[1.0, 1.0]])).round(2)
    array([[0.9, 0.1]])
    """

    classes: ClassMeans
    temperature: float = 2.0

    @property
    def n_weights(self) -> int:
        """Weights in a code."""
        return len(self.classes.shares) if len(self.classes.shares) > 1 else 0

    def weights(self, rows: Floats) -> Floats:
        """Weight of each class: (n, d) → (n, n_weights)."""
        if not self.n_weights:
            return np.empty((len(rows), 0), rows.dtype)
        mean = np.clip(self.classes.means, _LEAST_SHARE, 1 - _LEAST_SHARE)
        odds, nothing = np.log(mean / (1 - mean)), np.log1p(-mean).sum(axis=1)
        logs = (rows @ odds.T + nothing) / self.temperature
        found: Floats = softmax(logs + np.log(self.classes.shares), axis=1)
        return found.astype(rows.dtype)

    def blend(self, values: Floats, weights: Floats) -> Floats:
        """Means of what classes have, by weight: (n_classes, d) → (n or 1, d)."""
        if not self.n_weights:
            return values
        blended: Floats = weights @ values.astype(weights.dtype)
        return blended

    def beside(self, numbers: Floats, weights: Floats) -> Floats:
        """A code of numbers and weights."""
        return np.concatenate([numbers, weights], axis=1)

    def split(self, codes: Floats) -> tuple[Floats, Floats]:
        """Numbers and weights of a code."""
        cut = codes.shape[1] - self.n_weights
        return codes[:, :cut], codes[:, cut:]
