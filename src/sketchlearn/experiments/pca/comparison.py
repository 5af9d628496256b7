"""The paper's comparison for PCA and ridge: every method, every size, every test set.

Scores are log relative errors (LRE); 0 is as good as the exact second moment. Nothing
is trained or chosen on the test sets: the paper's networks are trained on the training
split, and all other settings are fixed beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from sketchlearn.experiments.pca.methods import OUR_PCA, PCA_METHODS, Method
from sketchlearn.experiments.pca.sets import EvaluationSet
from sketchlearn.experiments.protocol import mean_by_size
from sketchlearn.report import Cell, format_table

__all__ = [
    "PCA_SIZES",
    "PCAResults",
    "Scores",
    "SetInfo",
    "dataset_table",
    "evaluate_methods",
    "summary_tables",
]

PCA_SIZES = (2, 10, 20, 100, 200, 500, 1000, 2000, 15000, 19306)
"""Sketch sizes of the paper's table."""

WIDE = 100
"""More features than this is a wide set."""

REAL = "real sets"

Say = Callable[[str], object]

Scores = dict[str, dict[str, dict[int, float]]]
"""Mean LRE by method, dataset and sketch size."""


@final
@dataclass(frozen=True)
class SetInfo:
    """What the tables say of a dataset."""

    name: str
    real: bool
    n_rows: int
    n_features: int


@final
@dataclass(frozen=True, eq=False)
class PCAResults:
    """Scores of all methods on all sets."""

    sets: tuple[SetInfo, ...]
    sizes: tuple[int, ...]
    pca: Scores
    ridge: Scores
    printed: Mapping[str, Mapping[int, float]]
    """LRE of the paper's SQNet as printed, by dataset and size."""

    skipped: tuple[str, ...] = ()
    """What was left out, and why."""

    @property
    def groups(self) -> dict[str, list[str]]:
        """Names of the sets that means are taken over; a group may be empty."""
        real = [info.name for info in self.sets if info.real]
        wide = [info.name for info in self.sets if info.n_features > WIDE]
        printed = "real sets that the paper prints"
        return {
            REAL: real,
            f"real sets with d > {WIDE}": [name for name in real if name in wide],
            "sets, simulated ones included": [info.name for info in self.sets],
            printed: self.shared,
            f"{printed}, d > {WIDE}": [name for name in self.shared if name in wide],
        }

    @property
    def shared(self) -> list[str]:
        """Real sets of the paper's table: a simulated one is not the paper's data."""
        return [
            info.name for info in self.sets if info.real and info.name in self.printed
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def evaluate_methods(
    sets: Sequence[EvaluationSet],
    methods: Sequence[Method],
    *,
    sizes: Sequence[int] = PCA_SIZES,
    n_seeds: int = 3,
    printed: Mapping[str, Mapping[int, float]] | None = None,
    say: Say = lambda text: None,
) -> PCAResults:
    """Sketch and decode every set with every method at every size.

    Parameters
    ----------
    sets : sequence of EvaluationSet
        Test sets.
    methods : sequence of Method
        A method that lacks weights at a size is left out there, with a note.
    sizes : sequence of int
        Sketch sizes.
    n_seeds : int
        Draws of the sketch to take the mean of, except for methods that draw once.
    printed : mapping, optional
        The paper's own values, to be shown beside.
    say : callable
        Receives lines of progress and notes.
    """
    pca: Scores = {method.name: {} for method in methods}
    ridge: Scores = {method.name: {} for method in methods}
    skipped = []
    start = time.perf_counter()
    # Sets of one width follow each other, so that they can share a random matrix.
    ordered = sorted(sets, key=lambda data: data.n_features)
    for size in sizes:
        for method in methods:
            smallest, largest = method.sizes
            if not smallest <= size <= largest:
                continue
            reason = method.missing(size)
            if reason is not None:
                skipped.append(f"{method.name} at size {size}: {reason}")
                say(f"skipped {skipped[-1]}.")
                continue
            for data, scores in _scores(ordered, method, size, n_seeds):
                pca[method.name].setdefault(data.name, {})[size] = scores[0]
                ridge[method.name].setdefault(data.name, {})[size] = scores[1]
            seconds = time.perf_counter() - start
            say(f"{seconds:7.1f} s  size {size:>5}  {PCA_METHODS[method.name]}")
    info = tuple(
        SetInfo(data.name, data.real, len(data.rows), data.n_features) for data in sets
    )
    return PCAResults(info, tuple(sizes), pca, ridge, printed or {}, tuple(skipped))


def summary_tables(results: PCAResults) -> str:
    """Mean LRE by sketch size over groups of sets, for PCA and for ridge."""
    tables = []
    for task, scores in (("PCA", results.pca), ("Ridge", results.ridge)):
        for group, names in results.groups.items():
            if not names:
                continue
            rows: list[list[Cell]] = [
                [PCA_METHODS[method], *mean_by_size(found, names, results.sizes)]
                for method, found in scores.items()
                if found
            ]
            shared = [name for name in names if name in results.shared]
            if task == "PCA" and shared:
                label = f"SQNet, printed in the paper ({len(shared)} sets)"
                rows.append(
                    [label, *mean_by_size(results.printed, shared, results.sizes)]
                )
            title = f"{task}: mean LRE by sketch size, {group} ({len(names)})"
            heads = ["method", *map(str, results.sizes)]
            tables.append(format_table(heads, rows, title=title))
    return "\n\n".join(tables)


def dataset_table(
    results: PCAResults, method: str = OUR_PCA, *, ridge: bool = False
) -> str:
    """LRE of one method on each dataset, the paper's printed SQNet beside it."""
    scores = (results.ridge if ridge else results.pca)[method]
    printed = {} if ridge else results.printed
    rows: list[list[Cell]] = []
    for info in results.sets:
        name = info.name if info.real else f"{info.name} (simulated)"
        own = [scores.get(info.name, {}).get(size) for size in results.sizes]
        row: list[Cell] = [name, info.n_features, *own]
        if printed:
            theirs = printed.get(info.name, {}) if info.real else {}
            row += [theirs.get(size) for size in results.sizes]
        rows.append(row)
    heads = ["set", "d", *map(str, results.sizes)]
    title = (
        f"{'Ridge' if ridge else 'PCA'}: LRE of {PCA_METHODS[method]} by sketch size"
    )
    if printed:
        heads += [f"SQNet {size}" for size in results.sizes]
        title += "; to the right, SQNet as printed in the paper"
    return format_table(heads, rows, title=title)


def _scores(
    sets: Sequence[EvaluationSet], method: Method, size: int, n_seeds: int
) -> list[tuple[EvaluationSet, tuple[float, float]]]:
    """Mean LRE of PCA and of ridge for each set."""
    seeds = range(1 if method.draws_once else n_seeds)
    found = np.zeros((len(sets), len(seeds), 2))
    for seed in seeds:
        for place, data in enumerate(sets):
            estimate = method.estimate(data, size, seed)
            found[place, seed] = data.pca_lre(estimate), data.ridge_lre(estimate)
    means = found.mean(axis=1).tolist()
    return [
        (data, (pca, ridge)) for data, (pca, ridge) in zip(sets, means, strict=True)
    ]
