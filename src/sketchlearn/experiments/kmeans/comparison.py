"""The comparison for k-means: every method, every sketch size, every real test set.

Scores are inertias over that of Lloyd's algorithm (scikit-learn, best of ten starts) on
the same rows; 1 is as good. The paper's figure has means over sets of the mean squared
error instead, which wide sets decide alone: both are shown. Nothing is trained or
chosen on the test sets.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np

from sketchlearn.errors import ConvergenceWarning
from sketchlearn.experiments.kmeans.methods import (
    KMEANS_METHODS,
    LLOYD_LABEL,
    OUR_KMEANS,
    ClusterMethod,
)
from sketchlearn.experiments.kmeans.sets import ClusterSet
from sketchlearn.experiments.protocol import mean_by_size
from sketchlearn.report import Cell, format_table

__all__ = [
    "KMEANS_SIZES",
    "PRINTED_SIZES",
    "KMeansResults",
    "Ratios",
    "error_table",
    "evaluate_clusterings",
    "ratio_table",
    "summary_tables",
]

PRINTED_SIZES = (20, 50, 100, 200, 500)
"""Where the paper claims the lead of Iterative CKM."""

KMEANS_SIZES = (*PRINTED_SIZES, 1000, 2000, 5000)
"""Numbers of the sketch, all rounds together; means and variances beside."""

Say = Callable[[str], object]

Ratios = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Mean inertia ratio by method, dataset and sketch size."""

_MEASURES: dict[str, Callable[[Sequence[float]], Any]] = {
    "median": np.median,
    "mean": np.mean,
    "worst": np.max,
}


@final
@dataclass(frozen=True, eq=False)
class KMeansResults:
    """Scores of all methods on the sets they ran on."""

    sets: Mapping[str, tuple[int, int]]
    """Rows and features of each set."""

    sizes: tuple[int, ...]
    ratios: Ratios
    seconds: Ratios
    """Of sketching and decoding."""

    skipped: tuple[str, ...] = ()
    """What was left out, and why."""

    lloyd: Mapping[str, float] = field(default_factory=dict)
    """Mean squared error of Lloyd's centers on each set."""

    def mean_errors(self, method: str, sizes: Sequence[int]) -> list[float]:
        """Mean squared error of a method, averaged over all sets, by size.

        NaN where it did not run on all of them.
        """
        errors = {
            name: {size: ratio * self.lloyd[name] for size, ratio in found.items()}
            for name, found in self.ratios[method].items()
        }
        return mean_by_size(errors, list(self.sets), sizes)

    def shared_sets(self, size: int) -> list[str]:
        """Sets on which every method that ran at this size has a score."""
        ran = [
            found
            for found in self.ratios.values()
            if any(size in scores for scores in found.values())
        ]
        return [
            name
            for name in self.sets
            if all(size in found.get(name, {}) for found in ran)
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)


def evaluate_clusterings(
    sets: Sequence[ClusterSet],
    methods: Sequence[ClusterMethod],
    *,
    sizes: Sequence[int] = KMEANS_SIZES,
    n_seeds: int = 1,
    why_left_out: Callable[[ClusterMethod, ClusterSet, int], str | None] = (
        lambda method, data, size: None
    ),
    say: Say = lambda text: None,
) -> KMeansResults:
    """Sketch and decode every set with every method at every size.

    Parameters
    ----------
    sets : sequence of ClusterSet
        Test sets.
    methods : sequence of ClusterMethod
        What to compare.
    sizes : sequence of int
        Sketch sizes.
    n_seeds : int
        Draws of the sketch to take the mean of.
    why_left_out : callable
        Why a method does without a set and a size, which is noted; None if it does not.
    say : callable
        Receives lines of progress.
    """
    ratios: dict[str, dict[str, dict[int, float]]] = {m.name: {} for m in methods}
    seconds: dict[str, dict[str, dict[int, float]]] = {m.name: {} for m in methods}
    left_out: Counter[tuple[str, str]] = Counter()
    for data in sets:
        for method in methods:
            for size in sizes:
                reason = why_left_out(method, data, size)
                if reason is not None:
                    left_out[method.name, reason] += 1
                    continue
                ratio, spent = _mean_ratio(data, method, size, n_seeds)
                ratios[method.name].setdefault(data.name, {})[size] = ratio
                seconds[method.name].setdefault(data.name, {})[size] = spent
                say(f"{data.name}  size {size}  {method.name}  {ratio:.3f}")
    pairs = f"{len(sets) * len(sizes)} pairs of a set and a size"
    skipped = tuple(
        f"{name}: {count} of {pairs}, {reason}"
        for (name, reason), count in left_out.items()
    )
    shapes = {data.name: (len(data.rows), data.n_features) for data in sets}
    lloyd = {data.name: data.lloyd_error for data in sets}
    return KMeansResults(shapes, tuple(sizes), ratios, seconds, skipped, lloyd)


def summary_tables(results: KMeansResults) -> str:
    """Median, mean and worst ratio by size: ours on all sets, then all on shared ones.

    Examples
    --------
    >>> print(summary_tables(KMeansResults(
    ...     {"a": (9, 2), "b": (9, 2)}, (50,),
    ...     {"ours": {"a": {50: 1.0}, "b": {50: 1.5}}, "amp": {"a": {50: 2.0}}}, {},
    ... )))
    Inertia over Lloyd's, sets on which a method ran at all sizes
    method                    sets  50 median  50 mean  50 worst
    CompressiveKMeans (ours)     2      1.250    1.250     1.500
    CL-AMP, adapted radius       1      2.000    2.000     2.000
    <BLANKLINE>
    Inertia over Lloyd's at size 50, the same 1 sets for every method
    method                    median   mean  worst
    CompressiveKMeans (ours)   1.000  1.000  1.000
    CL-AMP, adapted radius     2.000  2.000  2.000
    """
    rows: list[list[Cell]] = []
    for method, found in results.ratios.items():
        ran = [name for name in found if set(found[name]) == set(results.sizes)]
        if ran:
            measured = [_measure(found, ran, size) for size in results.sizes]
            rows.append([KMEANS_METHODS[method], len(ran), *sum(measured, [])])
    heads = [f"{size} {name}" for size in results.sizes for name in _MEASURES]
    title = "Inertia over Lloyd's, sets on which a method ran at all sizes"
    tables = [format_table(["method", "sets", *heads], rows, title=title)]
    for size in results.sizes:
        names = results.shared_sets(size)
        if not names:
            continue
        rows = [
            [KMEANS_METHODS[method], *_measure(found, names, size)]
            for method, found in results.ratios.items()
            if all(size in found.get(name, {}) for name in names)
        ]
        title = (
            f"Inertia over Lloyd's at size {size}, the same {len(names)} sets for "
            "every method"
        )
        tables.append(format_table(["method", *_MEASURES], rows, title=title))
    return "\n\n".join(tables)


def error_table(results: KMeansResults) -> str:
    """Mean squared errors averaged over all sets, as in the paper's figure.

    Examples
    --------
    >>> print(error_table(KMeansResults(
    ...     {"a": (9, 2), "b": (9, 2)}, (20, 50),
    ...     {"amp": {"a": {20: 2.0, 50: 1.5}, "b": {50: 1.0}}}, {},
    ...     lloyd={"a": 0.5, "b": 4.0},
    ... )))
    Mean squared error, averaged over all 2 sets
    method                     20     50
    CL-AMP, adapted radius      -  2.375
    Lloyd's algorithm       2.250  2.250
    """
    rows: list[list[Cell]] = [
        [KMEANS_METHODS[method], *results.mean_errors(method, results.sizes)]
        for method in results.ratios
    ]
    least = float(np.mean(list(results.lloyd.values())))
    rows.append([LLOYD_LABEL, *[least] * len(results.sizes)])
    title = f"Mean squared error, averaged over all {len(results.sets)} sets"
    return format_table(["method", *map(str, results.sizes)], rows, title=title)


def ratio_table(results: KMeansResults, method: str = OUR_KMEANS) -> str:
    """Inertia ratios of one method on each dataset."""
    found = results.ratios[method]
    rows: list[list[Cell]] = [
        [name, *shape, *(found.get(name, {}).get(size) for size in results.sizes)]
        for name, shape in results.sets.items()
    ]
    title = f"Inertia over Lloyd's of {KMEANS_METHODS[method]} by sketch size"
    heads = ["set", "rows", "d", *map(str, results.sizes)]
    return format_table(heads, rows, title=title)


def _measure(
    found: Mapping[str, Mapping[int, float]], names: Sequence[str], size: int
) -> list[Cell]:
    values = [found[name][size] for name in names]
    return [float(measure(values)) for measure in _MEASURES.values()]


def _mean_ratio(
    data: ClusterSet, method: ClusterMethod, size: int, n_seeds: int
) -> tuple[float, float]:
    """Mean ratio over seeds, and seconds for one."""
    found, start = [], time.perf_counter()
    for seed in range(n_seeds):
        with warnings.catch_warnings():
            # Sets with few distinct rows repeat centers: the ratio shows what it costs.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found.append(method.centers(data.rows, size, seed))
    spent = (time.perf_counter() - start) / n_seeds
    return float(np.mean([data.ratio(centers) for centers in found])), spent
