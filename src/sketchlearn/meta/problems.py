"""What a trainer needs to know of a problem: draw, loss, validate.

The trainer and the evolution search know no rows, no sketches and no tasks; they
only draw batches, lower a loss and compare scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sketchlearn.meta.backend import Tensor, nn

__all__ = ["AbstractProblem"]


class AbstractProblem(ABC):
    """Something a module can be trained for, on many datasets.

    All randomness of a training step is in the batch, so that ``loss`` is a function
    of weights and batch alone; training and validation use different *datasets*.
    """

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Any:
        """A batch of episodes, from training datasets only."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Scalar to lower, differentiable in the weights of ``model``."""

    @abstractmethod
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Figures on held-out datasets, always the same episodes.

        ``"score"`` is the figure that decides which weights are best: lower is better.
        Called in evaluation mode and without gradients.
        """
