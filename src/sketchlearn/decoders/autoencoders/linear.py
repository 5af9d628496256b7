r"""Codes by projection: principal components, and back.

.. math:: u = V^\top(x - \mu), \qquad \hat x = [\mu + V u > t]

The threshold comes from the moments
(:mod:`sketchlearn.decoders.autoencoders.thresholds`). This is the baseline that
whatever is learned has to beat from the same sketch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.classes import ClassChoice
from sketchlearn.decoders.autoencoders.directions import CodeDirections

__all__ = ["LinearAutoencoder"]


@final
@dataclass(frozen=True, eq=False)
class LinearAutoencoder(AbstractAutoencoder):
    """Principal components as an autoencoder of zeros and ones.

    Parameters
    ----------
    known : CodeDirections
        What the sketch says of the rows.

    Examples
    --------
    >>> from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
    >>> from sketchlearn.decoders.moments.moments import Moments
    >>> same = DenseCovariance(np.full((2, 2), 0.25))  # two features that are one
    >>> moments = Moments(8.0, np.array([0.5, 0.5]), same, np.zeros(2), 2)
    >>> coder = LinearAutoencoder(CodeDirections.of_moments(moments, 1))
    >>> coder.reconstruct(np.array([[0.0, 0.0], [1.0, 1.0]])).tolist()
    [[False, False], [True, True]]
    """

    known: CodeDirections

    @property
    @override
    def n_features(self) -> int:
        return len(self.known.spread)

    @property
    @override
    def mean(self) -> NDArray[np.floating]:
        return self.known.mean

    @property
    @override
    def n_codes(self) -> int:
        return len(self.known.variances) + self.n_weights

    @property
    @override
    def n_weights(self) -> int:
        return self._choice.n_weights

    @override
    def encode(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        weights = self._choice.weights(rows)
        away = rows - self._choice.blend(self.known.classes.means, weights)
        return self._choice.beside(away @ self.known.directions, weights)

    @override
    def decode(self, codes: NDArray[np.floating]) -> NDArray[np.floating]:
        numbers, weights = self._choice.split(codes)
        centre = self._choice.blend(self.known.classes.means, weights)
        found: NDArray[np.floating] = numbers @ self.known.directions.T + centre
        return 4 * (found - self.known.threshold)  # the slope of a logit at 0

    @property
    def _choice(self) -> ClassChoice:
        return ClassChoice(self.known.classes)
