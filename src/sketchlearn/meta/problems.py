"""What a trainer needs to know of a problem: draw, loss, validate.

The trainer and the evolution search know no rows, no sketches and no tasks; they
only draw batches, lower a loss and compare scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from sketchlearn.meta.backend import Tensor, nn, torch

__all__ = ["AbstractProblem", "AbstractStagedProblem", "beside", "device_of"]

Batch = TypeVar("Batch")


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
        """Scalar to lower, differentiable in the weights of ``model``.

        The trainer has put the tensors of the batch on the device of the module.
        """

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


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a module are; the CPU for one without any."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def beside(model: nn.Module, batch: Batch) -> Batch:
    """A batch with its tensors on the device of a module.

    Tensors are found in tuples, lists, mappings and frozen dataclasses; all else stays
    as it is.

    Examples
    --------
    >>> beside(nn.Linear(1, 1, device="meta"), (torch.ones(2), "name"))[0].device
    device(type='meta')
    """
    moved: Batch = _moved(batch, device_of(model))
    return moved


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, dict):
        return {name: _moved(value, device) for name, value in part.items()}
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_moved(value, device) for value in part))
    if isinstance(part, list | tuple):
        return type(part)(_moved(value, device) for value in part)
    if is_dataclass(part) and not isinstance(part, type):
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        tensors = {n: v.to(device) for n, v in values.items() if isinstance(v, Tensor)}
        return replace(part, **tensors) if tensors else part
    return part
