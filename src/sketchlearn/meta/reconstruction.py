r"""Rows of zeros and ones to be reconstructed, of datasets that are never seen twice.

An episode is a dataset with its columns in a random order and some of them negated,
rows for the condition, and fresh rows to reconstruct (paper, section Autoencoders: a
randomised binary MNIST). What reconstructs them is not known here beyond its module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.conditional_autoencoder import TrainableAutoencoder
from sketchlearn.meta.problems import AbstractStagedProblem, beside
from sketchlearn.meta.settings import require_settings
from sketchlearn.metrics import balanced_accuracy

__all__ = [
    "BinaryTables",
    "ReconstructionConfig",
    "ReconstructionEpisodes",
    "ReconstructionProblem",
]

Table: TypeAlias = NDArray[np.uint8]


@final
@dataclass(frozen=True)
class ReconstructionConfig:
    """How episodes of reconstruction are drawn."""

    randomize: bool = True
    """Whether each episode has its own order of columns, some of them negated."""

    negated: tuple[float, float] = (0.5, 0.5)
    """Share of negated columns, drawn for each episode between these two. The paper
    negates half of them; tables that nobody negates have a level of their own."""

    columns: tuple[int, int] | None = None
    """Columns of an episode, drawn between these two, the same one twice if the dataset
    has fewer, with padding at the end as in use. None for all columns of a dataset,
    at random places among the padding."""

    episodes: int = 1
    """Episodes of a batch."""

    n_rows: int = 1024
    """Rows to reconstruct in an episode."""

    support: Sequence[int] = (128,)
    """Rows for the condition, in each stage of the training."""

    held_out_rows: float = 0.1
    """Share of the rows that is kept for validation, where no dataset is."""

    validation_episodes: int = 8
    """Episodes of a validation."""

    def __post_init__(self) -> None:
        sizes = {"episodes": self.episodes, "n_rows": self.n_rows}
        sizes["validation_episodes"] = self.validation_episodes
        sizes["columns"] = min(self.columns or (1,))
        sizes |= {f"support[{i}]": n for i, n in enumerate(self.support)}
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                raise ConfigError(f"{name} must be a whole number >= 1; got {size!r}.")
        if not self.support or not 0 < self.held_out_rows < 1:
            raise ConfigError(
                "support needs a number of rows for each stage, and held_out_rows a "
                f"share between 0 and 1; got {self.support!r} and "
                f"{self.held_out_rows!r}."
            )
        ranges = {"negated": self.negated, "columns": self.columns or (1, 1)}
        for name, found in ranges.items():
            if len(found) != 2 or not 0 <= found[0] <= found[1]:
                raise ConfigError(
                    f"{name} must be the least and the most; got {found!r}."
                )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(fields, cls, "[problem]")
        return cls(**fields)


@final
@dataclass(frozen=True, eq=False)
class ReconstructionEpisodes:
    """Episodes of padded rows, as numbers a module can read."""

    support: Tensor
    """Rows for the condition, (episodes, n, n_features)."""

    query: Tensor
    """Rows to reconstruct, (episodes, n, n_features)."""

    actual: Tensor
    """1 for columns of the dataset and 0 for padding, (episodes, 1, n_features)."""


@final
@dataclass(frozen=True, eq=False)
class BinaryTables:
    """Rows to train on and rows to judge by.

    Parameters
    ----------
    training, held_out : sequences of uint8 arrays of 0 and 1
        One table for each dataset.
    n_features : int
        Width of padded rows.
    """

    training: Sequence[Table]
    held_out: Sequence[Table]
    n_features: int

    def __post_init__(self) -> None:
        for table in (*self.training, *self.held_out):
            if table.ndim != 2 or not len(table) or table.shape[1] > self.n_features:
                raise RowsError(
                    f"tables must have rows of at most {self.n_features} columns; got "
                    f"shape {table.shape}."
                )
        if not self.training or not self.held_out:
            raise RowsError("give rows to train on and rows to hold out; got none.")

    @classmethod
    def split(
        cls, tables: Sequence[Table], n_features: int, *, share: float, seed: int = 0
    ) -> Self:
        """Hold a random share of the rows of each table apart, one row at least.

        Examples
        --------
        >>> tables = BinaryTables.split([np.eye(10, dtype=np.uint8)], 12, share=0.2)
        >>> len(tables.training[0]), len(tables.held_out[0])
        (8, 2)
        """
        rng, parts = np.random.default_rng(seed), []
        for table in tables:
            if len(table) < 2:
                raise RowsError(f"a table of {len(table)} rows cannot be split.")
            count = min(max(1, round(share * len(table))), len(table) - 1)
            parts.append(np.split(table[rng.permutation(len(table))], [count]))
        return cls(
            [rest for _, rest in parts], [apart for apart, _ in parts], n_features
        )


@final
class ReconstructionProblem(AbstractStagedProblem):
    r"""Rows that come back from their codes, given rows of the same dataset.

    The reconstruction error (paper, eq. ae) is the binary cross entropy of the entries,
    averaged over the columns that are no padding: outputs are logits of ones.

    .. math::
        -\frac1d \sum_j x_j \log \hat p_j + (1 - x_j) \log (1 - \hat p_j)

    Parameters
    ----------
    tables : BinaryTables
        Where episodes come from.
    config : ReconstructionConfig
        How they are drawn.
    stage : int
        Which number of rows for the condition; validation always has the last.
    """

    def __init__(
        self, tables: BinaryTables, config: ReconstructionConfig, *, stage: int = 0
    ) -> None:
        self.tables, self.config, self.stage = tables, config, stage

    @override
    def at_stage(self, stage: int) -> ReconstructionProblem | None:
        if stage >= len(self.config.support):
            return None
        return ReconstructionProblem(self.tables, self.config, stage=stage)

    @override
    def draw(self, rng: np.random.Generator) -> ReconstructionEpisodes:
        chosen = rng.integers(len(self.tables.training), size=self.config.episodes)
        tables = [self.tables.training[int(index)] for index in chosen]
        return self._episodes(tables, self.config.support[self.stage], rng)

    @override
    def loss(self, model: nn.Module, batch: ReconstructionEpisodes) -> Tensor:
        return _cross_entropy(_logits(model, batch), batch)

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Cross entropy, which decides, and balanced accuracy on rows held out."""
        batch = beside(model, self._validation)
        logits = _logits(model, batch)
        share = (batch.support * batch.actual).sum((1, 2), keepdim=True) / (
            batch.actual.sum((1, 2), keepdim=True) * batch.support.shape[1]
        )
        actual = batch.actual.bool().expand_as(logits)
        ones = logits > torch.logit(share, eps=1e-6)
        accuracy = balanced_accuracy(
            batch.query[actual].cpu().numpy(), ones[actual].cpu().numpy()
        )
        score = float(_cross_entropy(logits, batch))
        return {"score": score, "balanced_accuracy": accuracy}

    @cached_property
    def _validation(self) -> ReconstructionEpisodes:
        held_out, count = self.tables.held_out, self.config.validation_episodes
        tables = [held_out[index % len(held_out)] for index in range(count)]
        return self._episodes(tables, self.config.support[-1], np.random.default_rng(0))

    def _episodes(
        self, tables: Sequence[Table], n_support: int, rng: np.random.Generator
    ) -> ReconstructionEpisodes:
        rows, actual = [], []
        for table in tables:
            chosen, places = self._columns(table.shape[1], rng)
            count = n_support + self.config.n_rows
            drawn = rng.choice(len(table), count, replace=count > len(table))
            padded = np.zeros((count, self.tables.n_features), np.float32)
            negated = self._negated(len(chosen), rng)
            padded[:, places] = table[drawn][:, chosen] ^ negated
            rows.append(padded)
            actual.append(np.isin(np.arange(self.tables.n_features), places))
        stacked = torch.from_numpy(np.stack(rows))
        mask = torch.from_numpy(np.stack(actual).astype(np.float32))
        support, query = stacked[:, :n_support], stacked[:, n_support:]
        return ReconstructionEpisodes(support, query, mask[:, None])

    def _columns(
        self, width: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which columns of a table an episode has, and where they stand."""
        if not self.config.randomize:
            return np.arange(width), np.arange(width)
        if self.config.columns is None:
            return np.arange(width), rng.permutation(self.tables.n_features)[:width]
        count = int(rng.integers(*self.config.columns, endpoint=True))
        again = rng.integers(width, size=max(count - width, 0))
        chosen = np.concatenate([rng.permutation(width)[:count], again])
        return chosen, rng.permutation(count)

    def _negated(self, width: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """1 for columns to negate."""
        if not self.config.randomize:
            return np.zeros(width, np.uint8)
        share = rng.uniform(*self.config.negated)
        return np.asarray(rng.random(width) < share, np.uint8)


def _logits(model: nn.Module, batch: ReconstructionEpisodes) -> Tensor:
    module = cast(TrainableAutoencoder, model)
    result: Tensor = module(batch.query, module.condition(batch.support))
    return result


def _cross_entropy(logits: Tensor, batch: ReconstructionEpisodes) -> Tensor:
    """Mean over episodes, rows and the columns that are no padding."""
    own = nn.functional.binary_cross_entropy_with_logits(
        logits, batch.query, reduction="none"
    )
    columns = batch.actual.sum(dim=-1)
    return ((own * batch.actual).sum(dim=-1) / columns).mean()
