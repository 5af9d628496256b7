"""The interface of an autoencoder of zeros and ones: rows to codes, and back.

Where its numbers come from (a sketch, networks, training) is not known here. What comes
back is a logit for each entry of a row: it is a one where the logit is above 0, so that
every threshold was chosen before, from the sketch and never from the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

__all__ = ["AbstractAutoencoder"]


class AbstractAutoencoder(ABC):
    """Codes of rows of zeros and ones."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Entries of a row."""

    @property
    @abstractmethod
    def mean(self) -> NDArray[np.floating]:
        """Share of ones of each feature, as far as it is known."""

    @property
    @abstractmethod
    def n_codes(self) -> int:
        """Numbers of a code, with the weights of classes where there are classes."""

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """Weights of classes at the end of a code."""

    @abstractmethod
    def encode(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Codes of rows: (n, n_features) → (n, n_codes)."""

    @abstractmethod
    def decode(self, codes: NDArray[np.floating]) -> NDArray[np.floating]:
        """Logits of entries, ones above 0: (n, n_codes) → (n, n_features)."""

    def reconstruct(self, rows: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Which entries come back as ones."""
        return np.asarray(self.decode(self.encode(rows)) > 0)
