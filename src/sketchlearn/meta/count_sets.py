r"""Sets of rows of items, and what a network is to say of each: how often, or whether.

A set has N rows of zeros and ones; its target is the frequency :math:`y_j = \frac1N
\sum_i x_{ij}` of each item, or its membership :math:`[y_j > 0]`. The loss is the binary
cross entropy of the predictions, the score their mean square error (paper, data
streaming). Where the rows come from is one small class: a law of items, or a dataset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import ConfigError
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.sqnet import TrainableSQNet

__all__ = [
    "AbstractSets",
    "CountBatch",
    "CountProblem",
    "Goal",
    "RowSets",
    "SetGroup",
]

Goal = Literal["frequency", "membership"]

_LEAST_ERROR = 1e-12
"""Smaller errors count as this one: rounding, and no reason to prefer weights."""


@final
@dataclass(frozen=True, eq=False)
class SetGroup:
    """Sets with the same number of rows.

    Parameters
    ----------
    counts : int array of shape (sets, n_items)
        In how many rows of its set an item is.
    n_rows : int
        Rows of each set.
    rows : uint8 array of shape (sets, n_rows, n_items), optional
        The rows, where a network needs more than their counts.
    """

    counts: NDArray[np.integer]
    n_rows: int
    rows: NDArray[np.uint8] | None = None


@final
@dataclass(frozen=True, eq=False)
class CountBatch:
    """What goes into a network, and what is to come out of it.

    Parameters
    ----------
    inputs : tensor
        Means of the rows of each set (sets, n_items), or all rows (rows, n_items).
    target : tensor of shape (sets, n_items)
        Frequencies or memberships.
    sizes : sequence of pairs
        Number of sets and of rows of each, in the order of the rows.
    """

    inputs: Tensor
    target: Tensor
    sizes: Sequence[tuple[int, int]]


class AbstractSets(ABC):
    """Where sets of rows come from."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, *, with_rows: bool) -> list[SetGroup]:
        """Sets to train on; counts alone are enough for networks that are affine."""

    @abstractmethod
    def validation(self, *, with_rows: bool) -> Mapping[str, list[SetGroup]]:
        """Sets to judge by, always the same, under the names of their figures."""


@final
class CountProblem(AbstractProblem):
    """Frequencies or memberships of all items from the sketch of a set.

    Parameters
    ----------
    goal : {"frequency", "membership"}
        What is to be predicted.
    sets : AbstractSets
        Where sets come from.
    with_rows : bool
        Whether the network needs rows; counts are drawn in a fraction of the time.
    """

    def __init__(self, goal: Goal, sets: AbstractSets, *, with_rows: bool) -> None:
        self.goal, self.sets, self.with_rows = goal, sets, with_rows
        self._checked = {
            name: self._batch(groups)
            for name, groups in sets.validation(with_rows=with_rows).items()
        }

    @override
    def draw(self, rng: np.random.Generator) -> CountBatch:
        return self._batch(self.sets.draw(rng, with_rows=self.with_rows))

    @override
    def loss(self, model: nn.Module, batch: CountBatch) -> Tensor:
        found = self._predicted(model, batch)
        return nn.functional.binary_cross_entropy(found, batch.target.to(found))

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean square error on each kind of sets; their geometric mean decides.

        Errors of steep and of flat laws are orders of magnitude apart: a plain mean
        would be that of the flattest law.
        """
        errors = {}
        for name, batch in self._checked.items():
            found = self._predicted(model, batch)
            square = (found - batch.target.to(found)).square()
            errors[f"mse_{name}"] = float(square.mean())
        mean_log = np.mean(np.log(np.maximum(list(errors.values()), _LEAST_ERROR)))
        return {"score": float(np.exp(mean_log)), **errors}

    def _predicted(self, model: nn.Module, batch: CountBatch) -> Tensor:
        assert isinstance(model, TrainableSQNet)
        inputs = beside(model, batch.inputs).float()
        if self.with_rows:
            return model.decode(model.sketch_sets(inputs, batch.sizes))
        return model.decode(model.sketch_means(inputs))

    def _batch(self, groups: Sequence[SetGroup]) -> CountBatch:
        means = [group.counts / np.float32(group.n_rows) for group in groups]
        frequencies = np.concatenate(means).astype(np.float32)
        target = frequencies if self.goal == "frequency" else frequencies > 0
        inputs = frequencies
        if self.with_rows:
            flat = [_rows_of(g).reshape(-1, g.counts.shape[1]) for g in groups]
            inputs = np.concatenate(flat)
        sizes = [(len(group.counts), group.n_rows) for group in groups]
        return CountBatch(
            torch.from_numpy(inputs), torch.from_numpy(target).float(), sizes
        )


@final
class RowSets(AbstractSets):
    """Sets of rows drawn from one table of zeros and ones, for fine-tuning.

    The last part of the rows, in an order of the seed's, is held apart: validation sets
    are drawn from it alone.

    Parameters
    ----------
    rows : uint8 array of shape (n, n_items)
        Training rows of a dataset.
    n_items : int
        Items of the network; a narrower table is padded with items that never occur.
    set_rows : pair of int
        Fewest and most rows of a set.
    batch : int
        Sets of a batch, in groups of ``group`` sets with the same number of rows.
    held_apart : float
        Share of the rows that training never sees.
    seed : int
        Seed of that choice and of the validation sets.
    """

    def __init__(
        self,
        rows: NDArray[np.integer],
        n_items: int,
        *,
        set_rows: tuple[int, int] = (1, 100),
        batch: int = 500,
        group: int = 10,
        held_apart: float = 0.2,
        seed: int = 0,
    ) -> None:
        binary = np.asarray(rows)
        if binary.ndim != 2 or len(binary) < 2 or binary.shape[1] > n_items:
            raise ConfigError(
                "fine-tuning needs at least two rows of at most as many items as the "
                f"network has ({n_items}); got shape {binary.shape}."
            )
        if not ((binary == 0) | (binary == 1)).all():
            raise ConfigError("rows of items must hold zeros and ones only.")
        padded = np.zeros((len(binary), n_items), np.uint8)
        padded[:, : binary.shape[1]] = binary
        padded = padded[np.random.default_rng(seed).permutation(len(padded))]
        cut = min(max(round(len(padded) * (1 - held_apart)), 1), len(padded) - 1)
        self._training, self._apart = padded[:cut], padded[cut:]
        self._set_rows, self._seed = set_rows, seed
        self._batch, self._group = batch, group

    @override
    def draw(self, rng: np.random.Generator, *, with_rows: bool) -> list[SetGroup]:
        low, high = self._set_rows
        sizes = rng.integers(low, high + 1, size=max(self._batch // self._group, 1))
        return [self._sets(rng, self._training, self._group, int(n)) for n in sizes]

    @override
    def validation(self, *, with_rows: bool) -> dict[str, list[SetGroup]]:
        rng = np.random.default_rng([self._seed, 1])
        names = sorted(
            {max(self._set_rows[1] // 5, self._set_rows[0]), self._set_rows[1]}
        )
        return {f"{n}_rows": [self._sets(rng, self._apart, 100, n)] for n in names}

    def _sets(
        self,
        rng: np.random.Generator,
        rows: NDArray[np.uint8],
        n_sets: int,
        n_rows: int,
    ) -> SetGroup:
        chosen = rows[rng.integers(len(rows), size=(n_sets, n_rows))]
        return SetGroup(chosen.sum(axis=1, dtype=np.int64), n_rows, chosen)


def _rows_of(group: SetGroup) -> NDArray[np.uint8]:
    assert group.rows is not None
    return group.rows
