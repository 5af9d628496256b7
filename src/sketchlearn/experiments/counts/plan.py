"""What to reproduce of a streaming experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sketchlearn.experiments.counts.methods import methods_of
from sketchlearn.experiments.counts.sets import BATCH_SETS, CountTask, Question
from sketchlearn.experiments.counts.zipf_errors import ALPHAS
from sketchlearn.experiments.protocol import require_plan

__all__ = ["CountsPlan", "CountsPlans"]

_SIZES = (100, 10)
_QUICK_SETS = ("dogstrain15", "heart")
_SMALLEST_SIZE = 5
"""Fixed sketches have five tables."""


@final
@dataclass(frozen=True, kw_only=True)
class CountsPlan:
    """How much to do."""

    question: Question
    """What is asked of sketches."""

    methods: tuple[str, ...]
    """Names of methods."""

    sizes: tuple[int, ...] = _SIZES
    """Sketch sizes."""

    datasets: tuple[str, ...] | None = None
    """Names of datasets of the table; all of them by default."""

    n_seeds: int = 1
    """Batches of each Zipf law to take the mean of."""

    n_runs: int = 5
    """Batches of each Zipf law to search the best tables at."""

    alphas: tuple[float, ...] = ALPHAS
    """Of the Zipf laws."""

    searched_betas: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Of the Zipf laws in the figures of the search."""

    n_sets: int = BATCH_SETS
    """Sets of a batch."""

    slow_sets: int = 10
    """Sets of a batch that slow methods decode."""

    fine_tune: float = 0.0
    """Seconds to fine-tune a network to each dataset; not at all if 0."""

    def __post_init__(self) -> None:
        require_plan(
            self.methods,
            self.sizes,
            known=methods_of(self.question),
            smallest=_SMALLEST_SIZE,
        )


@final
@dataclass(frozen=True, eq=False)
class CountsPlans:
    """The plans of one task."""

    task: CountTask

    def __call__(self) -> CountsPlan:
        """All that the paper shows."""
        return CountsPlan(
            question=self.task.name,
            methods=methods_of(self.task.name),
            n_runs=self.task.search_runs,
        )

    def quick(self) -> CountsPlan:
        """Two datasets, one size, three laws: shows in a minute that all runs."""
        return CountsPlan(
            question=self.task.name,
            methods=methods_of(self.task.name),
            sizes=_SIZES[:1],
            datasets=_QUICK_SETS,
            n_runs=2,
            alphas=(0.5, 1.0, 1.5),
            searched_betas=self.task.betas,
            n_sets=50,
            slow_sets=2,
        )
