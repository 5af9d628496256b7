r"""Laws of item frequencies, learned from the counts of many datasets.

With :math:`P_k(x \mid \mu)` the law of counts of shape k where its mean is
:math:`\mu`, the loss of an episode with counts :math:`x_1, \dots, x_d` is

.. math:: -\frac1d \log \sum_k \pi_k \prod_j P_k(x_j \mid \bar x),

what joint decoding must know before it has seen a single item. Shapes begin with those
of single datasets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from typing_extensions import override

from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.learned_laws import LearnedLaws, relative_odds
from sketchlearn.decoders.counts.prior import binomial_laws
from sketchlearn.errors import ConfigError
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.count_tables import CountTable, ItemCounts, count_tables
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.problems import AbstractProblem, beside
from sketchlearn.meta.settings import require_at_least, require_settings
from sketchlearn.meta.tasks.base import Task

__all__ = ["TASK", "CountLawProblem", "TrainableLaws"]

_PLACES = np.arange(-14.0, 7.0, 0.12)
"""Log-odds of frequencies at which laws of counts are written out."""

_NEVER_MET = 1e-12
"""Of a law that is not met: its logarithm must be finite."""

_HALVINGS = 24
"""Steps that find where a law has a mean: to 24 / 2**24 of log-odds."""

_BLUR = 0.4
"""Width in log-odds by which frequencies of a dataset are blurred at first."""


@final
class TrainableLaws(nn.Module):
    """Shapes of laws of frequencies, with gradients.

    Parameters
    ----------
    shapes : array of shape (K, G)
        First probabilities.
    absent : array of shape (K,)
        First shares of items that never occur.
    """

    def __init__(
        self, shapes: NDArray[np.float64], absent: NDArray[np.float64]
    ) -> None:
        super().__init__()
        start = torch.from_numpy(np.log(shapes + 1e-6)).float()
        self.shapes = nn.Parameter(start)
        share = torch.from_numpy(logit(np.clip(absent, 0.01, 0.99))).float()
        self.absent = nn.Parameter(share)
        self.weights = nn.Parameter(torch.zeros(len(shapes)))

    def log_laws(self, mean: float, binomial: Tensor) -> Tensor:
        """Log law of counts of each shape where its mean frequency is ``mean``.

        Parameters
        ----------
        mean : float
            Mean frequency of all items.
        binomial : tensor of shape (P, B)
            Law of the bins at each log-odds.

        Returns
        -------
        tensor of shape (K, B)
        """
        shapes = torch.softmax(self.shapes, dim=1)
        absent = torch.sigmoid(self.absent)
        with torch.no_grad():
            places = self._places_of(mean, shapes, absent)
        laws = (1 - absent)[:, None] * (_moved(shapes, places) @ binomial)
        first = nn.functional.one_hot(torch.tensor(0), binomial.shape[1]).to(laws)
        return (laws + absent[:, None] * first + 1e-12).log()

    def _places_of(self, mean: float, shapes: Tensor, absent: Tensor) -> Tensor:
        """Place of each law that gives it a mean frequency."""
        frequency = torch.sigmoid(torch.from_numpy(_PLACES)).to(shapes)
        low = shapes.new_full((len(shapes),), float(_PLACES[0]) - 6.0)
        high = shapes.new_full((len(shapes),), float(_PLACES[-1]) + 6.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = (1 - absent) * (_moved(shapes, middle) @ frequency) < mean
            low, high = (
                torch.where(below, middle, low),
                torch.where(below, high, middle),
            )
        return (low + high) / 2

    def freeze(self) -> LearnedLaws:
        """What the laws are now."""
        with torch.no_grad():
            found = (
                torch.softmax(self.shapes, dim=1),
                torch.sigmoid(self.absent),
                torch.softmax(self.weights, dim=0),
            )
        return LearnedLaws(*(part.double().cpu().numpy() for part in found))

    @classmethod
    def thaw(cls, frozen: LearnedLaws) -> Self:
        """Laws to train on from where frozen ones are."""
        model = cls(frozen.shapes, frozen.absent)
        least = _NEVER_MET
        starts = {
            "shapes": np.log(np.maximum(frozen.shapes, least)),
            "absent": logit(np.clip(frozen.absent, least, 1 - least)),
            "weights": np.log(np.maximum(frozen.weights, least)),
        }
        model.load_state_dict({n: torch.from_numpy(a) for n, a in starts.items()})
        return model

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Tensors and model card as one value, to be saved."""
        return self.freeze().to_weights(card)


def _moved(shapes: Tensor, places: Tensor) -> Tensor:
    """Probability of each of the log-odds, of laws at some places: (K, P)."""
    n_odds = shapes.shape[1]
    grid = relative_odds(n_odds)
    step = float(grid[1] - grid[0])
    from_place = torch.from_numpy(_PLACES).to(places) - places[:, None]
    at = (from_place - float(grid[0])) / step
    left = at.floor().clamp(0, n_odds - 2)
    part = (at - left).clamp(0, 1)
    inside = ((at >= 0) & (at <= n_odds - 1)).float()
    index = left.long()
    density = (1 - part) * shapes.gather(1, index) + part * shapes.gather(1, index + 1)
    density = density * inside + 1e-9
    return density / density.sum(dim=1, keepdim=True)


@final
class CountLawProblem(AbstractProblem):
    """How probable the counts of datasets are under learned laws.

    Parameters
    ----------
    training, held_out : sequences of MetaDataset
        Their tables are made binary now.
    sizes : sequence of int
        How many rows an episode may have.
    episodes : int
        Episodes of a batch.
    checked : int
        Episodes of each held-out table.
    """

    def __init__(
        self,
        training: Sequence[MetaDataset],
        held_out: Sequence[MetaDataset],
        *,
        sizes: Sequence[int] = (10, 20, 50, 100, 300, 1000, 5000),
        episodes: int = 16,
        checked: int = 8,
    ) -> None:
        self.training = count_tables(training)
        if not self.training:
            raise ConfigError("none of the datasets has enough items to learn laws of.")
        self._sizes, self._episodes = tuple(sizes), episodes
        rng = np.random.default_rng(0)
        self._checked = [
            table.draw(rng, self._sizes)
            for table in count_tables(held_out)
            for _ in range(checked)
        ]

    @override
    def draw(self, rng: np.random.Generator) -> list[ItemCounts]:
        chosen = rng.integers(len(self.training), size=self._episodes)
        return [self.training[index].draw(rng, self._sizes) for index in chosen]

    @override
    def loss(self, model: nn.Module, batch: list[ItemCounts]) -> Tensor:
        assert isinstance(model, TrainableLaws)
        return torch.stack([_surprise(model, one) for one in batch]).mean()

    @override
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Nats of an item of held-out datasets."""
        return {"score": self.loss(model, self._checked).item()}


def _surprise(model: TrainableLaws, one: ItemCounts) -> Tensor:
    """Minus the log likelihood of the counts, of an item."""
    grid, binomial = _binomial(one.n_rows)
    bins = np.searchsorted(grid.tops, one.counts)
    times = torch.from_numpy(np.bincount(bins, minlength=grid.n_bins))
    times, binomial = beside(model, (times.float(), binomial))
    mean = max(float(one.counts.mean()), 0.5 / len(one.counts)) / one.n_rows
    laws = model.log_laws(min(mean, 0.999), binomial)
    weights = torch.log_softmax(model.weights, dim=0)
    return -torch.logsumexp(weights + laws @ times, dim=0) / len(one.counts)


@lru_cache(maxsize=64)
def _binomial(n_rows: int) -> tuple[CountGrid, Tensor]:
    grid = CountGrid.up_to(n_rows)
    return grid, torch.from_numpy(binomial_laws(grid, _PLACES)[1:-1]).float()


def _first_laws(
    tables: Sequence[CountTable], n_laws: int, n_odds: int, seed: int
) -> TrainableLaws:
    """Laws of the frequencies of some datasets, as different as can be."""
    rng, grid = np.random.default_rng(seed), relative_odds(n_odds)
    found, absent = [], []
    for table in tables:
        one = table.draw(rng, [5000])
        p = one.counts[one.counts > 0] / one.n_rows
        absent.append(1 - len(p) / len(one.counts))
        odds = logit(np.clip(p, 1e-6, 1 - 1e-6)) if len(p) else np.zeros(1)
        gaps = (grid - (odds - np.median(odds))[:, None]) / _BLUR
        density = np.exp(-0.5 * gaps**2).sum(axis=0) + 1e-6
        found.append(density / density.sum())
    laws = np.array(found)
    chosen = [int(rng.integers(len(laws)))]
    while len(chosen) < n_laws:  # the one that is farthest from those chosen
        apart = np.abs(laws[:, None] - laws[chosen]).sum(axis=2).min(axis=1)
        chosen.append(int(apart.argmax()))
    return TrainableLaws(laws[chosen], np.array(absent)[chosen])


def _build(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableLaws, CountLawProblem]:
    numbers = {"sizes": Sequence[int], "episodes": int, "checked": int}
    require_settings(config.problem, None, "[problem]", **numbers)
    require_settings(config.model, None, "[model]", n_laws=int, n_odds=int)
    problem = CountLawProblem(training, held_out, **config.problem)
    sizes = {"n_laws": 12, "n_odds": 97, **config.model}
    require_at_least(2, n_odds=sizes["n_odds"])
    return _first_laws(problem.training, **sizes, seed=config.train.seed), problem


TASK = Task("count-laws", _build)
