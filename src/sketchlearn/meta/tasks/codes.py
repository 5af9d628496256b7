"""Searched codes: loadings, biases and steps that serve any dataset of zeros and ones.

What is lowered is the share of entries that come back wrong, ones and zeros weighed
alike, made smooth; what is judged is the balanced accuracy of held-out datasets at
three sketches: all second moments, five numbers a feature, and 64 rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.autoencoders.code_network import CodeNetwork, CodeSpec
from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.code_episodes import (
    CodeEpisode,
    EpisodeLaw,
    binary_tables,
    draw_episode,
    known_of_rows,
)
from sketchlearn.meta.codes import TrainableCodes
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.settings import require_at_least, require_settings
from sketchlearn.meta.tasks.base import Task
from sketchlearn.metrics import balanced_accuracy

__all__ = ["CodeConfig", "CodeProblem"]

CHECKED_CODES = 50
"""Numbers of a code in the validation, or a quarter of the features if that is less."""

_LAST_STEPS = 4
"""Steps of the search at the end that the loss is a mean of."""


@final
@dataclass(frozen=True, kw_only=True)
class CodeConfig:
    """How many episodes there are, and what a step is lowered by."""

    episodes: int = 1500
    """Made before the training; a step takes some of them."""

    batch: int = 4
    """Episodes of a step."""

    sharpness: float = 0.5
    """Logits within about this much of 0 count as undecided in the loss."""

    checked_rows: int = 400
    """Rows of each held-out dataset that are reconstructed."""

    max_features: int = 1000
    """Most columns of an episode."""

    def __post_init__(self) -> None:
        sizes = {"episodes": self.episodes, "batch": self.batch}
        require_at_least(1, **sizes, max_features=self.max_features)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(settings, cls, "[problem]")
        return cls(**settings)


@final
class CodeProblem(AbstractProblem):
    """Rows of zeros and ones from codes, whatever the dataset.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Their rows are made zeros and ones, and all episodes are made, now.
    config : CodeConfig
        How.
    seed : int
        Of the episodes.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        config: CodeConfig,
        seed: int = 0,
    ) -> None:
        self.config = config
        law, rng = (
            EpisodeLaw(max_features=config.max_features),
            np.random.default_rng(seed),
        )
        tables = list(binary_tables(training).values())
        checked = binary_tables(held_out)
        if not tables or not checked:
            raise ConfigError(
                "codes are learned from datasets of at least a dozen columns of zeros "
                "and ones, in training and held out; take wider ones."
            )
        self._episodes = [
            draw_episode(tables, law, rng) for _ in range(config.episodes)
        ]
        self._cases = [
            case
            for name, rows in checked.items()
            for case in _cases(name, rows, config.checked_rows)
        ]

    @override
    def draw(self, rng: np.random.Generator) -> list[CodeEpisode]:
        chosen = rng.integers(len(self._episodes), size=self.config.batch)
        return [self._episodes[int(number)] for number in chosen]

    @override
    def loss(self, model: nn.Module, batch: list[CodeEpisode]) -> Tensor:
        return torch.stack([self._loss(model, one) for one in batch]).mean()

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Percent of entries that come back wrong, at each kind of sketch."""
        assert isinstance(model, TrainableCodes)
        network, errors = model.freeze(), dict[str, list[float]]()
        for kind, known, rows in self._cases:
            found = network.adapted(known).reconstruct(rows)
            error = 100 * (1 - balanced_accuracy(rows, found))
            errors.setdefault(f"error_{kind}", []).append(error)
        means = {kind: float(np.mean(values)) for kind, values in errors.items()}
        return {"score": float(np.mean(list(means.values()))), **means}

    def _loss(self, model: nn.Module, episode: CodeEpisode) -> Tensor:
        """Weighted share of entries on the wrong side, smooth."""
        rows = beside(model, torch.from_numpy(episode.rows)).float()
        share = episode.known.ones
        signs = torch.where(rows > 0.5, 0.5 / share, -0.5 / (1 - share))
        last = model(episode.known, rows)[-_LAST_STEPS:]
        wrong = [
            (signs.abs() * torch.sigmoid(-signs.sign() * one / self.config.sharpness))
            for one in last
        ]
        return torch.stack(wrong).mean()


CodeCase = tuple[str, CodeDirections, NDArray[np.float32]]


def _cases(name: str, rows: NDArray[np.uint8], n_checked: int) -> list[CodeCase]:
    """Three sketches of half of the rows, and some of the others: always the same."""
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    half, d = len(rows) // 2, rows.shape[1]
    inside, outside = shuffled[:half][:4000], shuffled[half:][:n_checked]
    k = min(CHECKED_CODES, max(d // 4, 1))
    query = outside.astype(np.float32)
    return [
        ("full", known_of_rows(inside, k), query),
        ("small", known_of_rows(inside, k, sketch_size=5 * d), query),
        ("rows", known_of_rows(inside[:64], k), query),
    ]


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableCodes, CodeProblem]:
    settings = CodeConfig.from_dict(config.problem)
    spec = CodeSpec.from_dict(config.model)
    start = CodeNetwork.initial(spec, config.train.seed)
    problem = CodeProblem(training, held_out, settings, config.train.seed)
    return TrainableCodes(start), problem


TASK = Task("codes", _build)
