r"""Which width and depth are best: all pairs with :math:`w d = m`, as in the appendix.

For each Zipf law, some runs of a batch each, with sets and hashes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.experiments.counts.answers import Table
from sketchlearn.experiments.counts.methods import count_method
from sketchlearn.experiments.counts.sets import (
    BATCH_SETS,
    CountTask,
    SetBatch,
    draw_zipf_batch,
)

__all__ = [
    "SearchedTables",
    "TableSearch",
    "ZipfLaw",
    "search_batches",
    "search_tables",
    "tables_of",
]

_MEDIAN_SETS = 100
"""Sets of a run where a median is taken, which is ten times as slow as a mean."""

_SEARCH_SEED = 1000
"""First seed of the search; methods are compared at other sets and hashes."""


@final
@dataclass(frozen=True, order=True)
class ZipfLaw:
    """Where methods are compared."""

    alpha: float
    beta: float
    n_rows: int


@final
@dataclass(frozen=True, eq=False)
class SearchedTables:
    """Errors of all tables of one size in some runs."""

    tables: tuple[Table, ...]
    """The widest first, which is the best of those that are equal."""

    errors: NDArray[np.float64]
    """Mean square errors, shape (n_runs, n_tables)."""

    @property
    def best(self) -> Table:
        """Of the least mean error."""
        return self.tables[int(self.errors.mean(axis=0).argmin())]

    @property
    def best_widths(self) -> NDArray[np.int64]:
        """Width of the best table of each run."""
        widths = np.array([table.width for table in self.tables], np.int64)
        chosen: NDArray[np.int64] = widths[self.errors.argmin(axis=1)]
        return chosen

    @property
    def best_error(self) -> tuple[float, float]:
        """Mean and standard deviation over runs, of the table that is best."""
        errors = self.errors[:, int(self.errors.mean(axis=0).argmin())]
        return float(errors.mean()), float(errors.std())


TableSearch = dict[str, dict[int, dict[ZipfLaw, SearchedTables]]]
"""By method, size and law."""


def tables_of(size: int) -> tuple[Table, ...]:
    """All tables of ``size`` numbers, the widest first.

    Examples
    --------
    >>> tables_of(4)
    (Table(width=4, depth=1), Table(width=2, depth=2), Table(width=1, depth=4))
    """
    depths = [depth for depth in range(1, size + 1) if size % depth == 0]
    return tuple(Table(size // depth, depth) for depth in depths)


def search_batches(
    batches: Iterable[SetBatch], method: str, size: int, task: CountTask
) -> SearchedTables:
    """Errors of a method at all tables of a size, a run for each batch."""
    tables = tables_of(size)
    errors = []
    for run, batch in enumerate(batches):
        seed = _SEARCH_SEED + run
        found = [count_method(method, table, task.name) for table in tables]
        errors.append(
            [task.error(batch, one.answer(batch, seed).values) for one in found]
        )
    return SearchedTables(tables, np.array(errors))


def search_tables(
    task: CountTask,
    methods: Sequence[str],
    sizes: Sequence[int],
    laws: Sequence[ZipfLaw],
    *,
    n_runs: int,
    n_sets: int = BATCH_SETS,
    say: Callable[[str], object] = lambda text: None,
) -> TableSearch:
    """The best tables of some methods at some Zipf laws.

    Parameters
    ----------
    task : CountTask
        What is asked.
    methods : sequence of str
        Methods of hashed tables.
    sizes : sequence of int
        Numbers of a sketch.
    laws : sequence of ZipfLaw
        Where to search.
    n_runs, n_sets : int
        Batches of a law, and sets of a batch (fewer for medians).
    say : callable
        Receives lines of progress.
    """
    found: TableSearch = {name: {size: {} for size in sizes} for name in methods}
    for law in laws:
        batches = [
            draw_zipf_batch(
                law.n_rows, law.alpha, law.beta, seed=_SEARCH_SEED + run, n_sets=n_sets
            )
            for run in range(n_runs)
        ]
        for name in methods:
            most = _MEDIAN_SETS if "median" in name else None
            some = [batch.first(most) for batch in batches]
            for size in sizes:
                found[name][size][law] = search_batches(some, name, size, task)
        say(f"searched tables: alpha {law.alpha:g}, beta {law.beta:g}, N {law.n_rows}")
    return found
