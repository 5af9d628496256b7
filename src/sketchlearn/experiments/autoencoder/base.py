"""What a method is: rows in, a way to reconstruct other rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.experiments.autoencoder.sets import Bits, Labels
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractMethod", "AbstractSketchMethod", "FittedMethod"]


@final
@dataclass(frozen=True, eq=False)
class FittedMethod:
    """What a method made of the rows it was shown."""

    reconstruct: Callable[[Bits, Labels | None], NDArray[np.generic]]
    """From rows, and their classes or None, to which entries come back as ones."""


class AbstractMethod(ABC):
    """One line of the tables."""

    @abstractmethod
    def fit(self, rows: Bits, labels: Labels) -> FittedMethod:
        """Sketch rows and decode the sketch."""


class AbstractSketchMethod(AbstractMethod):
    """A method of one sketch, which can be merged and subtracted before decoding."""

    @abstractmethod
    def sketch(self, rows: Bits) -> Sketch:
        """All that is kept of rows."""

    @abstractmethod
    def decode(self, sketch: Sketch, n_features: int) -> FittedMethod:
        """An autoencoder of rows of so many columns."""

    @override
    def fit(self, rows: Bits, labels: Labels) -> FittedMethod:
        return self.decode(self.sketch(rows), rows.shape[1])
