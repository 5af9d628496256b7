"""Training without gradients: Nevergrad's NGOpt over weights and settings.

One worker and a continuous space, where NGOpt is known to work; choices such as an
activation are tried one after the other, each with its share of the budget. A search
is a function of its settings and of what it measured: one that was killed asks for the
same candidates again and reads what it had measured from its record.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import ConfigError, import_extra
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.interrupt import catch_interrupt
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.search_record import SearchRecord
from sketchlearn.meta.search_space import SearchSpace, Setting

__all__ = ["EvolveResult", "evolve"]

_WORST = 1e20
"""What NGOpt is told of a loss that is not finite; it warns of larger numbers."""

Configure = Callable[[nn.Module, Mapping[str, Setting]], None]


@final
@dataclass(frozen=True)
class EvolveResult:
    """How a search went; the module carries the best weights and settings."""

    best_score: float
    """Lowest validation score, the starting weights included."""

    settings: Mapping[str, Setting]
    """Choices and scalars that reached it."""

    evaluations: int
    """Losses evaluated, over all combinations of choices and all resumptions."""

    seconds: float
    """Time spent, over all resumptions."""

    history: tuple[Mapping[str, Any], ...]
    """One record per validation."""

    tried: tuple[Mapping[str, Any], ...] = ()
    """Every combination of choices with its own best score: what lost, and by how
    much."""

    is_interrupted: bool = False
    """Whether Ctrl-C ended it before its time."""


def evolve(
    model: nn.Module,
    problem: AbstractProblem,
    config: TrainConfig,
    *,
    space: SearchSpace | None = None,
    configure: Configure | None = None,
    about: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
) -> EvolveResult:
    r"""Search weights (and settings) that lower the loss, by evaluations alone.

    Of the configuration it uses ``steps`` (evaluations), ``seconds``,
    ``validate_every``, ``accumulate`` (batches per evaluation) and ``seed``. All
    candidates of a search meet the same batches, so that they can be compared; which
    candidate is kept is decided on held-out datasets. Ctrl-C ends the search with the
    best that was validated.

    Parameters
    ----------
    model : nn.Module
        Searched in place, from its own weights; left in evaluation mode.
    problem : AbstractProblem
        Where batches, losses and scores come from.
    config : TrainConfig
        How long; at least one of ``steps`` and ``seconds``.
    space : SearchSpace, optional
        Settings to search beside the weights.
    configure : callable, optional
        ``configure(model, settings)`` applies settings to the module, whatever was
        applied before; needed when ``space`` has any. It may set weights too, from
        which the search then moves.
    about : mapping, optional
        What module and problem were made from, of JSON's types. A record in ``folder``
        that was made from anything else is refused.
    folder : path, optional
        Keeps ``search.jsonl``, from which a search that was ended goes on.
    resume : bool
        Go on from the record in ``folder`` if there is one. With False a folder that
        has one is refused.

    Examples
    --------
    >>> class Halve(AbstractProblem):
    ...     def draw(self, rng):
    ...         return torch.as_tensor(rng.normal(size=(8, 1)), dtype=torch.float32)
    ...     def loss(self, model, batch):
    ...         return (model(batch) - batch / 2).abs().mean()
    ...     def validate(self, model):
    ...         return {"score": float(self.loss(model, torch.ones(1, 1)))}
    >>> model = nn.Linear(1, 1, bias=False)
    >>> result = evolve(model, Halve(), TrainConfig(steps=60, validate_every=10))
    >>> result.evaluations, result.best_score < 0.01
    (60, True)
    """
    space = space or SearchSpace()
    if (space.choices or space.log_scalars) and configure is None:
        raise ConfigError("space has settings; give configure(model, settings) too.")
    settings = {**_settings(config, space), **(about or {})}
    record = SearchRecord(folder, settings, resume=resume)
    search = _Search(model, problem, config, space, configure or _configure_nothing)
    cells = list(space.cells())
    share = replace(
        config,
        steps=None if config.steps is None else max(1, config.steps // len(cells)),
        seconds=None if config.seconds is None else config.seconds / len(cells),
    )
    with catch_interrupt() as asked, _forgiving_surrogate():
        for cell in cells:
            if not asked.is_set():
                search.run(cell, share, record, asked)
    search.restore_best()
    return EvolveResult(
        best_score=search.best_score,
        settings=search.best_settings,
        evaluations=search.evaluations,
        seconds=record.seconds,
        history=tuple(search.history),
        tried=tuple(search.tried),
        is_interrupted=asked.is_set(),
    )


def _settings(config: TrainConfig, space: SearchSpace) -> dict[str, Any]:
    """All that the candidates depend on, but for the module and the problem."""
    used = ("steps", "seconds", "validate_every", "accumulate", "seed")
    version = import_extra("nevergrad", "train").__version__
    return {
        **{name: getattr(config, name) for name in used},
        "space": asdict(space),
        "nevergrad": version,
    }


@final
class _Search:
    """The searches of all cells, and the best candidate so far."""

    def __init__(
        self,
        model: nn.Module,
        problem: AbstractProblem,
        config: TrainConfig,
        space: SearchSpace,
        configure: Configure,
    ) -> None:
        self.model, self.problem, self.config = model, problem, config
        self.space, self.configure = space, configure
        self.nevergrad = import_extra("nevergrad", "train")
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.start = nn.utils.parameters_to_vector(self.weights).detach().clone()
        self.best_score, self.evaluations = math.inf, 0
        self.best_settings: dict[str, Setting] = {}
        self.best_weights: Tensor = self.start
        self.history: list[dict[str, Any]] = []
        self.tried: list[dict[str, Any]] = []

    @cached_property
    def batches(self) -> list[Any]:
        """What every candidate is tried on."""
        rng = np.random.default_rng(self.config.seed)
        drawn = [self.problem.draw(rng) for _ in range(self.config.accumulate)]
        return beside(self.model, drawn)

    def run(
        self,
        cell: dict[str, Setting],
        share: TrainConfig,
        record: SearchRecord,
        asked: threading.Event,
    ) -> None:
        """Search one combination of choices, until asked to stop."""
        optimizer, first = self._optimizer(share), record.seconds
        self.tried.append({**cell, "score": math.inf})
        self._judge(np.zeros(self._size), cell, record)
        for evaluation in itertools.count(1):
            candidate = optimizer.ask()
            optimizer.tell(candidate, self._loss(candidate.value, cell, record))
            self.evaluations += 1
            if asked.is_set():
                return
            spent = record.seconds - first
            over = evaluation == share.steps or spent >= (share.seconds or math.inf)
            if over or evaluation % share.validate_every == 0:
                self._judge(optimizer.provide_recommendation().value, cell, record)
            if over:
                return

    def restore_best(self) -> None:
        """Put the best weights and settings into the module."""
        self.configure(self.model, self.best_settings)
        nn.utils.vector_to_parameters(self.best_weights, self.weights)
        self.model.eval()

    def _optimizer(self, share: TrainConfig) -> Any:
        array = self.nevergrad.p.Array(init=np.zeros(self._size))
        array.random_state.seed(share.seed % 2**32)
        budget = share.steps or 10 * self._size
        return self.nevergrad.optimizers.NGOpt(array, budget=budget, num_workers=1)

    def _apply(
        self, point: NDArray[np.float64], cell: dict[str, Setting]
    ) -> dict[str, Setting]:
        n_scalars = len(self.space.log_scalars)
        settings = {**cell, **self.space.scalars_at(point[:n_scalars])}
        nn.utils.vector_to_parameters(self.start.clone(), self.weights)
        self.configure(self.model, settings)
        if self.space.weight_scale:
            first = nn.utils.parameters_to_vector(self.weights)
            change = torch.as_tensor(point[n_scalars:]).to(first)
            moved = first + self.space.weight_scale * change
            nn.utils.vector_to_parameters(moved, self.weights)
        self.model.eval()
        return settings

    @property
    def _size(self) -> int:
        """Numbers that are searched."""
        n_weights = len(self.start) if self.space.weight_scale else 0
        return len(self.space.log_scalars) + n_weights

    def _loss(
        self,
        point: NDArray[np.float64],
        cell: dict[str, Setting],
        record: SearchRecord,
    ) -> float:
        def measure() -> dict[str, float]:
            self._apply(point, cell)
            with torch.no_grad():
                losses = [float(self.problem.loss(self.model, b)) for b in self.batches]
            return {"loss": float(np.mean(losses))}

        mean = record.recall("evaluation", measure)["loss"]
        return mean if math.isfinite(mean) else _WORST

    def _judge(
        self,
        point: NDArray[np.float64],
        cell: dict[str, Setting],
        record: SearchRecord,
    ) -> None:
        """Validate a candidate and keep it if it is the best."""
        settings = self._apply(point, cell)

        def measure() -> dict[str, float]:
            with torch.no_grad():
                return self.problem.validate(self.model)

        figures = record.recall("validation", measure)
        self.history.append({"evaluations": self.evaluations, **settings, **figures})
        score = figures["score"]
        if score < self.tried[-1]["score"]:
            self.tried[-1]["score"] = score
        if score < self.best_score or len(self.history) == 1:
            self.best_score, self.best_settings = score, settings
            vector = nn.utils.parameters_to_vector(self.weights)
            self.best_weights = vector.detach().clone()


def _configure_nothing(model: nn.Module, settings: Mapping[str, Setting]) -> None:
    """For a search over weights alone."""


@contextmanager
def _forgiving_surrogate() -> Iterator[None]:
    """Let NGOpt go on without its surrogate model where that does not work.

    In nevergrad 1.0.12 the model, used once there are more evaluations than about half
    the squared dimension, raises a TypeError with NumPy 2.4. NGOpt has a way to go on
    without a model, but only knows its own error.
    """
    library: Any = import_extra("nevergrad.optimization.optimizerlib", "train")
    learn = library.learn_on_k_best

    def learn_or_give_up(*arguments: Any) -> Any:
        try:
            return learn(*arguments)
        except TypeError as error:
            raise library.MetaModelFailure(str(error)) from error

    library.learn_on_k_best = learn_or_give_up
    try:
        yield
    finally:
        library.learn_on_k_best = learn
