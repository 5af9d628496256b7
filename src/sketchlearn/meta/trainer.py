"""Training by gradients: any module, any problem, exact resumption.

A step is a function of weights, optimizer state, seed and step number; nothing else
is random. So a run that was killed and resumed ends with the weights of one that was
not. What is trained, and on what, is not known here.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np

from sketchlearn.errors import TrainingError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.checkpoint import (
    CHECKPOINT_NAME,
    RunState,
    best_weights,
    read_checkpoint,
    require_same_settings,
    write_checkpoint,
)
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.interrupt import catch_interrupt
from sketchlearn.meta.problems import AbstractProblem, AbstractStagedProblem
from sketchlearn.meta.progress import Reporter, draw_losses
from sketchlearn.meta.steps import GradientSteps, copy_state, load_state

__all__ = ["TrainResult", "train"]

MAX_SKIPPED = 25
"""Steps in a row without a finite loss or gradient after which training fails."""

Stop = Literal["steps", "time", "patience", "interrupt"]


@final
@dataclass(frozen=True)
class TrainResult:
    """How a training went; the module itself carries the best weights."""

    best_score: float
    """Lowest validation score, infinite if there was none."""

    best_step: int
    """Number of steps after which it was reached."""

    steps: int
    """Steps done, over all resumptions."""

    seconds: float
    """Time spent, over all resumptions."""

    stopped: Stop
    """Why training ended: steps, time or patience used up, or Ctrl-C."""

    skipped: int
    """Steps left out because loss or gradient was not finite."""

    history: tuple[Mapping[str, float], ...]
    """One record per validation: step, seconds, mean training loss since the last
    record, learning rate, score and the problem's other figures."""


def train(
    model: nn.Module,
    problem: AbstractProblem,
    config: TrainConfig,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    start_from: str | os.PathLike[str] | Mapping[str, Tensor] | None = None,
) -> TrainResult:
    r"""Train a module in place and leave the weights that validated best in it.

    Each step lowers the mean loss of freshly drawn batches (paper, eq. meta-loss):

    .. math::
        \mathcal{L}^M(\omega \mid x) = \mathcal{L}((\psi \circ \Phi)_\omega(x) \mid x).

    Ctrl-C ends the run after the current step, with a checkpoint; a second Ctrl-C
    ends it at once. A step without finite loss and gradient is skipped and counted.
    A problem with stages goes on to the next one when patience is used up, and the
    run ends only after the last.

    Parameters
    ----------
    model : nn.Module
        What to train; left in evaluation mode.
    problem : AbstractProblem
        Where batches, losses and scores come from.
    config : TrainConfig
        How long and how fast.
    folder : path, optional
        Keeps the checkpoint, ``log.jsonl`` and ``loss.png``; created if need be.
    resume : bool
        Go on from the checkpoint in ``folder`` if there is one. With False a folder
        that has one is refused.
    start_from : path or mapping, optional
        Fine-tune these weights: the best of a checkpoint, or a state dictionary such
        as ``TrainableSQNet.thaw(net).state_dict()``. A resumed run ignores it.

    Examples
    --------
    >>> class Halve(AbstractProblem):
    ...     def draw(self, rng):
    ...         return torch.as_tensor(rng.normal(size=(8, 1)), dtype=torch.float32)
    ...     def loss(self, model, batch):
    ...         return ((model(batch) - batch / 2) ** 2).mean()
    ...     def validate(self, model):
    ...         return {"score": float(self.loss(model, torch.ones(1, 1)))}
    >>> model = nn.Linear(1, 1)
    >>> result = train(model, Halve(), TrainConfig(steps=300, learning_rate=0.05))
    >>> result.stopped, result.best_score < 1e-4
    ('steps', True)
    """
    run = _Run(model, problem, config, None if folder is None else Path(folder))
    if run.has_checkpoint and not resume:
        raise TrainingError(
            f"{str(folder)!r} has the checkpoint of a run already; resume it, or "
            "choose another folder."
        )
    if run.has_checkpoint:
        run.resume()
    elif start_from is not None:
        run.steps.start_from(best_weights(start_from))
        run.best = copy_state(model)
    cuda = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with catch_interrupt() as asked, torch.random.fork_rng(list(cuda)):
        stopped = run.go(asked)
    return run.finish(stopped)


@final
class _Run:
    """One training under way."""

    def __init__(
        self,
        model: nn.Module,
        problem: AbstractProblem,
        config: TrainConfig,
        folder: Path | None,
    ) -> None:
        self.problem, self.config = problem, config
        self.folder, self.state = folder, RunState()
        self.steps = GradientSteps(model, problem, config)
        self.best = copy_state(model)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.reporter = Reporter(folder)
        self.clock = self.checkpointed_at = time.monotonic()
        self.first_step, self.first_seconds = 0, 0.0

    @property
    def has_checkpoint(self) -> bool:
        return self.folder is not None and (self.folder / CHECKPOINT_NAME).exists()

    def resume(self) -> None:
        """Go back to where the checkpoint was written."""
        assert self.folder is not None
        content = read_checkpoint(self.folder / CHECKPOINT_NAME)
        require_same_settings(content["config"], self.config)
        self.steps.load_state_dict(content)
        self.best = content["best"]
        self.state = RunState(**content["state"])
        self._enter(self.state.stage)
        self.first_step, self.first_seconds = self.state.step, self.state.seconds

    def go(self, asked: threading.Event) -> Stop:
        """Train until there is a reason to stop."""
        state, config = self.state, self.config
        event = "resume" if state.history else "start"
        self.reporter.record(event, step=state.step, config=asdict(config))
        self.clock = self.checkpointed_at = time.monotonic()
        if not state.history:
            self._validate()
        while (stopped := self._reason_to_stop(asked)) is None:
            self._step()
            if state.step % config.validate_every == 0:
                self._validate()
            if (
                time.monotonic() - self.checkpointed_at
                >= config.checkpoint_every_seconds
            ):
                self._write_checkpoint()
            self._show()
        return stopped

    def finish(self, stopped: Stop) -> TrainResult:
        """Last validation, checkpoint and picture; best weights into the module."""
        state = self.state
        if stopped != "interrupt" and state.history[-1]["step"] != state.step:
            self._validate()
        self._write_checkpoint()
        self.reporter.close()
        self.reporter.record(
            "stop", reason=stopped, step=state.step, best_score=state.best_score
        )
        if self.folder is not None and draw_losses(state.history, self.folder) is None:
            self.reporter.record("note", text="no loss.png: matplotlib is missing")
        load_state(self.steps.model, self.best)
        self.steps.model.eval()
        return TrainResult(
            best_score=state.best_score,
            best_step=state.best_step,
            steps=state.step,
            seconds=state.seconds,
            stopped=stopped,
            skipped=state.skipped,
            history=tuple(state.history),
        )

    def _reason_to_stop(self, asked: threading.Event) -> Stop | None:
        state, config = self.state, self.config
        if asked.is_set():
            return "interrupt"
        if config.steps is not None and state.step >= config.steps:
            return "steps"
        if config.seconds is not None and state.seconds >= config.seconds:
            return "time"
        if config.patience is not None and state.stale >= config.patience:
            return "patience"
        return None

    def _step(self) -> None:
        state, config = self.state, self.config
        rng = np.random.default_rng([config.seed, state.step])
        torch.manual_seed(int(rng.integers(2**63)))
        rate = config.rate_at(self._done(), state.step)
        loss = self.steps.step(rng, rate)
        state.step += 1
        if loss is None:
            self._skip()
        else:
            state.loss_sum += loss
            state.loss_count += 1
            state.skipped_in_a_row = 0
        self._tick()

    def _skip(self) -> None:
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        self.reporter.record("skipped", step=state.step)
        if state.skipped_in_a_row >= MAX_SKIPPED:
            raise TrainingError(
                f"loss or gradient was not finite in {MAX_SKIPPED} steps in a row, "
                f"the last one step {state.step}. Lower learning_rate, set clip_norm, "
                "or look for rows that are not finite."
            )

    def _validate(self) -> None:
        state = self.state
        judged = self.steps.judged.eval()
        with torch.no_grad():
            figures = self.problem.validate(judged)
        self._tick()
        record = {
            **figures,
            "step": state.step,
            "seconds": state.seconds,
            "loss": state.mean_loss(math.nan),
            "learning_rate": self.config.rate_at(self._done(), state.step),
        }
        state.loss_sum, state.loss_count = 0.0, 0
        state.history.append(record)
        self.reporter.record("validation", **record)
        if figures["score"] < state.best_score:
            state.best_score, state.best_step = figures["score"], state.step
            state.stale, self.best = 0, copy_state(judged)
        else:
            state.stale += 1
            self._advance()

    def _advance(self) -> None:
        """On to the next stage, if patience with this one is used up."""
        state, patience = self.state, self.config.patience
        if patience is None or state.stale < patience:
            return
        if self._enter(state.stage + 1):
            state.stage, state.stale = state.stage + 1, 0
            self.reporter.record("stage", stage=state.stage, step=state.step)

    def _enter(self, stage: int) -> bool:
        """Draw batches of another stage; False if the problem has no such stage."""
        problem = self.problem
        if not isinstance(problem, AbstractStagedProblem):
            return False
        found = problem.at_stage(stage)
        self.steps.problem = found or self.steps.problem
        return found is not None

    def _write_checkpoint(self) -> None:
        if self.folder is None:
            return
        content = {
            "config": asdict(self.config),
            "state": asdict(self.state),
            "best": self.best,
            **self.steps.state_dict(),
        }
        write_checkpoint(self.folder, content)
        self.checkpointed_at = time.monotonic()

    def _tick(self) -> None:
        now = time.monotonic()
        self.state.seconds += now - self.clock
        self.clock = now

    def _done(self) -> float:
        """Fraction of the run that is over."""
        state, config = self.state, self.config
        parts = [(state.step, config.steps), (state.seconds, config.seconds)]
        return max(done / whole if whole else 0.0 for done, whole in parts)

    def _show(self) -> None:
        state = self.state
        spent = max(state.seconds - self.first_seconds, 1e-9)
        self.reporter.show(
            step=state.step,
            done=self._done(),
            seconds=state.seconds,
            rate=(state.step - self.first_step) / spent,
            loss=state.mean_loss(state.history[-1]["loss"]),
        )
