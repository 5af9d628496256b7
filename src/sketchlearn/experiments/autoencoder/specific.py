"""Dataset-specific autoencoders: trained with all rows that others only sketch.

They are the ceiling of what a sketch can give. Each is trained once and used again
wherever the experiment asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.experiments.autoencoder.sets import Bits, Labels, ReconstructionSet
from sketchlearn.meta.config import TrainConfig

__all__ = ["SpecificAutoencoders", "SpecificMethod", "specific_config"]


def specific_config(seconds: float) -> TrainConfig:
    """How an autoencoder of one dataset is trained for some seconds.

    The paper's RAdam at 1e-4 needs hours. Of RAdam at 1e-3 and Adam at 3e-4, 5e-4, 1e-3
    and 3e-3, this one coded held-out rows of letters1 and hapmapsim30 best, which are
    not in the table.
    """
    return TrainConfig(
        seconds=seconds,
        optimizer="adam",
        learning_rate=1e-3,
        schedule="cosine",
        clip_norm=1.0,
        validate_every=50,
    )


@final
@dataclass(frozen=True, eq=False)
class SpecificMethod:
    """A trained autoencoder, for rows of any width.

    Columns that it was not trained with are not seen and come back as zeros; columns
    that rows lack are zeros.
    """

    autoencoder: AbstractAutoencoder

    def reconstruct(
        self, rows: Bits, labels: Labels | None = None
    ) -> NDArray[np.bool_]:
        """Which entries come back as ones."""
        own, width = self.autoencoder.n_features, rows.shape[1]
        found = self.autoencoder.reconstruct(_of_width(rows, own).astype(np.float64))
        return np.asarray(_of_width(found, width), np.bool_)


@final
@dataclass(frozen=True, eq=False)
class SpecificAutoencoders:
    """Trains an autoencoder for each set and code when it is first asked for."""

    config: TrainConfig
    """How long to train, and how."""

    say: Callable[[str], object] = lambda text: None
    """Receives lines of progress."""

    trained: dict[tuple[str, int], SpecificMethod] = field(default_factory=dict)
    """By set and numbers of the code."""

    def of(self, data: ReconstructionSet, n_components: int) -> SpecificMethod:
        """The autoencoder of a set; trained only once."""
        key = data.name, n_components
        if key not in self.trained:
            self.say(f"training an autoencoder of {data.name}, {n_components} codes")
            # Training needs torch, which nothing else here does.
            training = importlib.import_module("sketchlearn.meta.specific_autoencoder")
            autoencoder = training.train_specific(
                data.training, n_components, self.config, seed=0
            )
            self.trained[key] = SpecificMethod(autoencoder)
        return self.trained[key]


def _of_width(rows: NDArray[np.generic], width: int) -> NDArray[np.generic]:
    """Rows with fewer columns, or with columns of zeros added."""
    missing = max(0, width - rows.shape[1])
    return np.pad(rows[:, :width], ((0, 0), (0, missing)))
