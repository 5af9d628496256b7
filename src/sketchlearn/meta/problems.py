"""What a trainer needs to know of a problem: draw, loss, validate.

The trainer and the evolution search know no rows, no sketches and no tasks; they
only draw batches, lower a loss and compare scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sketchlearn.meta.backend import Tensor, nn

__all__ = ["AbstractProblem", "AbstractStagedProblem"]


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


class AbstractStagedProblem(AbstractProblem):
    """A problem that becomes another one when training no longer gets better.

    The trainer keeps the number of the stage with the run; the problem itself never
    changes. Scores of all stages must be comparable: there is one best module.
    """

    @abstractmethod
    def at_stage(self, stage: int) -> AbstractProblem | None:
        """The problem of a stage, the first being 0; None after the last."""
