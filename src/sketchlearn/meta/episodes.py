"""Episodes of rows, for what is to be read off the rows of any dataset.

An episode draws a dataset, a support set of rows for the sketch and fresh rows for
the loss. What is to be learned is one small class; networks and training are not known
here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.datasets import MetaDataset, require_apart
from sketchlearn.meta.noise import simulate_release_noise
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.settings import require_settings

__all__ = ["AbstractRowTask", "EpisodeConfig", "Episodes", "RowProblem"]


class AbstractRowTask(ABC):
    """What is to be learned from the rows of a dataset.

    Rows have shape (episodes, n, n_features), predictions what the decoder gives.
    """

    @abstractmethod
    def target(self, rows: Tensor) -> Tensor:
        """What ``loss`` and ``metric`` compare with; may be the rows themselves."""

    @abstractmethod
    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Scalar to lower."""

    @abstractmethod
    def metric(self, prediction: Tensor, target: Tensor) -> Tensor:
        """What the user will measure, one figure per episode; lower is better."""


@final
@dataclass(frozen=True, kw_only=True)
class EpisodeConfig:
    """How episodes are drawn."""

    n_features: int
    """Features of an episode: chosen at random among those of the dataset."""

    min_rows: int = 64
    """Fewest rows of a support set."""

    max_rows: int = 1024
    """Most rows; the number is drawn log-uniformly for each batch."""

    episodes: int = 16
    """Episodes of a batch, each of a dataset drawn anew."""

    pad: bool = True
    """Narrow datasets are padded with zeros to ``n_features``, as in the paper. With
    False a batch is as wide as a dataset drawn for it, up to ``n_features``."""

    standardize: bool = True
    """Columns with mean 0 and variance 1 over their whole dataset."""

    fresh_rows: bool = True
    """The loss is taken on other rows than the sketch; with False on the same."""

    epsilon: float | None = None
    """Train with the noise of a release at this ε; None for no noise."""

    delta: float = 1e-6
    """δ of that release."""

    norm_bound: float = 1.0
    """S: features are clipped to this L2 norm when there is noise."""

    validation_episodes: int = 2
    """Episodes of each held-out dataset, of ``max_rows`` rows."""

    def __post_init__(self) -> None:
        for name in ("n_features", "min_rows", "episodes", "validation_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} must be at least 1; got {getattr(self, name)!r}."
                )
        if self.max_rows < self.min_rows:
            raise ConfigError(
                f"max_rows must be at least min_rows = {self.min_rows}; "
                f"got {self.max_rows}."
            )

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(settings, cls, "[problem]")
        return cls(**settings)


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """A batch: rows to sketch, rows for the loss, and the seed of its noise."""

    support: Tensor
    query: Tensor
    noise_seed: int


class _SketchModule(Protocol):
    """What DP-aware training asks of a module."""

    def features(self, rows: Tensor) -> Tensor: ...

    def decode(self, sketch: Tensor) -> Tensor: ...


@final
class RowProblem(AbstractProblem):
    """A task on episodes of rows: sketch some, predict, be judged on others.

    The module is called with support rows of shape (episodes, n, n_features). With
    noise, its ``features`` are clipped and summed here and its ``decode`` gets the
    noisy mean, so that it learns from sketches as a release shows them.

    Parameters
    ----------
    task : AbstractRowTask
        Target, loss and metric.
    datasets : sequence of MetaDataset
        Training datasets.
    config : EpisodeConfig
        How episodes are drawn.
    held_out : sequence of MetaDataset
        Datasets for validation, none of them a training dataset.
    """

    def __init__(
        self,
        task: AbstractRowTask,
        datasets: Sequence[MetaDataset],
        config: EpisodeConfig,
        *,
        held_out: Sequence[MetaDataset],
    ) -> None:
        require_apart(datasets, held_out)
        self.task, self.config = task, config
        self.datasets, self.held_out = tuple(datasets), tuple(held_out)

    @override
    def draw(self, rng: np.random.Generator) -> Episodes:
        config = self.config
        low, high = np.log(config.min_rows), np.log(config.max_rows + 1)
        n_rows = min(int(np.exp(rng.uniform(low, high))), config.max_rows)
        pool = self.datasets
        width = config.n_features
        if not config.pad:
            width = min(width, pool[rng.integers(len(pool))].n_features)
            pool = tuple(data for data in pool if data.n_features >= width)
        drawn = [pool[i] for i in rng.integers(len(pool), size=config.episodes)]
        return self._episodes(drawn, n_rows, width, rng)

    @override
    def loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        return self.task.loss(*self._judge(model, batch))

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        losses, scores = [], []
        for index, data in enumerate(self.held_out):
            rng = np.random.default_rng([index, 2**32])
            config = self.config
            width = config.n_features
            if not config.pad:
                width = min(width, data.n_features)
            repeated = [data] * config.validation_episodes
            batch = self._episodes(repeated, config.max_rows, width, rng)
            with torch.no_grad():
                prediction, target = self._judge(model, batch)
                losses.append(float(self.task.loss(prediction, target)))
                scores.append(float(self.task.metric(prediction, target).mean()))
        return {
            "score": float(np.mean(scores)),
            "validation_loss": float(np.mean(losses)),
        }

    def _episodes(
        self,
        datasets: Sequence[MetaDataset],
        n_rows: int,
        width: int,
        rng: np.random.Generator,
    ) -> Episodes:
        rows = np.zeros((2, len(datasets), n_rows, width), np.float32)
        for index, data in enumerate(datasets):
            n_columns = min(width, data.n_features)
            columns = rng.choice(data.n_features, n_columns, replace=False)
            both = _two_sets(data.n_rows, n_rows, rng)
            for part, chosen in enumerate(both):
                rows[part, index, :, :n_columns] = data.take(
                    chosen, columns, standardize=self.config.standardize
                )
        support, fresh = torch.from_numpy(rows)
        query = fresh if self.config.fresh_rows else support
        return Episodes(support, query, noise_seed=int(rng.integers(2**63)))

    def _judge(self, model: nn.Module, batch: Episodes) -> tuple[Tensor, Tensor]:
        """Prediction and target, on the device of the module."""
        batch = beside(model, batch)
        support, query = batch.support, batch.query
        if self.config.epsilon is None:
            return model(support), self.task.target(query)
        module = cast(_SketchModule, model)
        noisy = self._noisy_sketch(module.features(support), batch.noise_seed)
        return module.decode(noisy), self.task.target(query)

    def _noisy_sketch(self, features: Tensor, seed: int) -> Tensor:
        """Mean of clipped features, (episodes, n, m) → (episodes, m), with noise."""
        config = self.config
        assert config.epsilon is not None
        bound, n_rows = config.norm_bound, features.shape[1]
        norms = features.norm(dim=2, keepdim=True)
        bounded = features * (bound / norms.clamp_min(bound))
        return simulate_release_noise(
            bounded.sum(dim=1),
            features.new_full((len(features),), n_rows),
            norm_bound=bound,
            epsilon=config.epsilon,
            delta=config.delta,
            generator=torch.Generator(features.device).manual_seed(seed),
        )


def _two_sets(
    n_available: int, n_wanted: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of a support and a query set that share no row.

    A dataset with fewer than twice the wanted rows gives each set half of its rows,
    repeated as often as needed. One row alone has to serve both.
    """
    order = rng.permutation(n_available)
    half = max(1, min(n_wanted, n_available // 2))
    support, query = order[:half], order[-half:]
    return np.resize(support, n_wanted), np.resize(query, n_wanted)
