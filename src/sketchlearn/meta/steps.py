"""Steps along gradients: a module, its optimizer and the running mean of its weights.

A step either changes the weights or, where loss or gradient is not finite, nothing at
all. How many steps there are, and at what rate, is not known here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from sketchlearn.errors import TrainingError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.problems import AbstractProblem, beside

__all__ = ["GradientSteps", "copy_state", "load_state"]

_OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}


@final
class GradientSteps:
    """A module that can take steps.

    Parameters
    ----------
    model : nn.Module
        Changed in place.
    problem : AbstractProblem
        Where batches and losses come from.
    config : TrainConfig
        Device, optimizer, clipping, accumulation and running mean.
    """

    def __init__(
        self, model: nn.Module, problem: AbstractProblem, config: TrainConfig
    ) -> None:
        self.model, self.problem, self._config = model, problem, config
        _move(model, config.device)
        self._weights = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = _OPTIMIZERS[config.optimizer](
            self._weights, lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.judged = model if config.ema is None else copy.deepcopy(model)
        """What is validated: the module, or the running mean of its weights."""

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Begin with other weights than the module's own."""
        for module in {self.model, self.judged}:
            load_state(module, weights)

    def step(self, rng: np.random.Generator, rate: float) -> float | None:
        """One step; its loss, or None if it was not finite and nothing changed."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        loss = self._backward(rng)
        most = self._config.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self._weights, most)
        if math.isfinite(loss) and math.isfinite(float(norm)):
            self._optimizer.step()
            self._update_average()
            return loss
        with torch.no_grad():  # batch norm has seen what is not finite
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return None

    def state_dict(self) -> dict[str, Any]:
        """All that a later run needs to go on with the same steps."""
        content = {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        if self.judged is not self.model:
            content["judged"] = self.judged.state_dict()
        return content

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Go back to where :meth:`state_dict` was."""
        load_state(self.model, content["model"])
        if self.judged is not self.model:
            load_state(self.judged, content["judged"])
        self._optimizer.load_state_dict(content["optimizer"])

    def _backward(self, rng: np.random.Generator) -> float:
        """Gradient of the mean loss of the step's batches; returns that loss."""
        self.model.train()
        self._optimizer.zero_grad()
        total, count = 0.0, self._config.accumulate
        for _ in range(count):
            batch = beside(self.model, self.problem.draw(rng))
            try:
                loss = self.problem.loss(self.model, batch) / count
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                return math.nan
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def _update_average(self) -> None:
        if self._config.ema is None:
            return
        with torch.no_grad():
            current = self.model.state_dict()
            for name, mean in self.judged.state_dict().items():
                if mean.is_floating_point():
                    mean.lerp_(current[name], 1 - self._config.ema)
                else:
                    mean.copy_(current[name])


def copy_state(model: nn.Module) -> dict[str, Tensor]:
    """Weights as they are now."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def load_state(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put weights into a module that has room for them."""
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise TrainingError(
            f"the weights do not fit this {type(model).__name__}: {error}. "
            "Build the module with the sizes of the run they come from."
        ) from error


def _move(model: nn.Module, device: str) -> None:
    try:
        model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise TrainingError(
            f"cannot train on device {device!r}: {error}. Set device to one that is "
            "there, such as 'cpu'."
        ) from error
