"""``sketchlearn reproduce kmeans``: tables, figures and results.json in one folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import click

from sketchlearn.experiments.base import RESULTS_FILE, TABLES_FILE, Experiment
from sketchlearn.experiments.kmeans.comparison import (
    KMEANS_SIZES,
    PRINTED_SIZES,
    KMeansResults,
    error_table,
    evaluate_clusterings,
    ratio_table,
    summary_tables,
)
from sketchlearn.experiments.kmeans.figures import (
    draw_errors,
    draw_private_ratios,
    draw_ratios,
    draw_times,
)
from sketchlearn.experiments.kmeans.methods import (
    KMEANS_METHODS,
    OUR_KMEANS,
    ClusterMethod,
    kmeans_method,
)
from sketchlearn.experiments.kmeans.privacy import (
    PRIVATE,
    PUBLIC_TWIN,
    PrivateRatios,
    measure_private_ratios,
)
from sketchlearn.experiments.kmeans.sets import ClusterSet, load_cluster_sets
from sketchlearn.experiments.kmeans.timing import (
    COUNTS,
    TIMED,
    TimingCurves,
    measure_times,
)
from sketchlearn.experiments.protocol import EPSILONS, paper_test_sets, require_plan
from sketchlearn.meta.manifest import list_folder
from sketchlearn.report import Cell, format_table, require_plots
from sketchlearn.version import __version__

__all__ = ["EXPERIMENT", "KMeansPlan", "reproduce_kmeans", "show_clusterings"]

SMALLEST_KMEANS_SIZE = 20
"""Sizes below are not in the paper's figure either."""

SLOW_SETS = ("balance-scale", "diabetes", "segment", "pendigits")
"""Narrow sets of different kinds, on which slow methods run by default at 1,000; at the
paper's sizes they run on all sets."""

SLOW_SIZE = 1000
"""Largest sketch that slow methods decode by default."""


@final
@dataclass(frozen=True, kw_only=True)
class KMeansPlan:
    """What to reproduce."""

    sizes: tuple[int, ...] = KMEANS_SIZES
    """Sketch sizes."""

    methods: tuple[str, ...] = tuple(KMEANS_METHODS)
    """Names of methods."""

    datasets: tuple[str, ...] | None = None
    """Names of real test sets; all of them by default."""

    n_seeds: int = 1
    """Draws of the sketch to take the mean of."""

    complete: bool = False
    """Whether slow methods run on all sets and sizes: that takes hours."""

    counts: tuple[int, ...] = COUNTS
    """Numbers of rows to measure time at."""

    timed_size: int = 500
    """Sketch size to measure time at."""

    privacy: bool = True
    """Whether to measure what privacy costs, if MNIST is among the sets."""

    def __post_init__(self) -> None:
        require_plan(
            self.methods,
            self.sizes,
            known=KMEANS_METHODS,
            smallest=SMALLEST_KMEANS_SIZE,
        )

    @classmethod
    def quick(cls) -> KMeansPlan:
        """One set, one size: shows in about a minute that everything runs."""
        return cls(
            sizes=(200,),
            datasets=("diabetes",),
            methods=(
                OUR_KMEANS,
                "one-round",
                "ompr-gaussian",
                "unrolled",
                "ckm-paper",
                "ckm",
                "mean",
            ),
            counts=(500, 1000),
            timed_size=100,
            privacy=False,
        )

    def why_left_out(
        self, method: ClusterMethod, data: ClusterSet, size: int
    ) -> str | None:
        """Why a method is spared a set and a size, if it is."""
        largest = method.largest_size
        if largest is not None and size > largest:
            return f"it has {largest} numbers at most"
        is_quick = size <= PRINTED_SIZES[-1]
        few = data.name in SLOW_SETS and size <= SLOW_SIZE
        if method.is_slow and not self.complete and not (is_quick or few):
            return "slow (--complete runs them)"
        return None


def reproduce_kmeans(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: KMeansPlan,
    *,
    say: Callable[[str], object] = lambda text: None,
) -> str:
    """Evaluate, write ``results.json``, ``tables.txt`` and figures; return the tables.

    Parameters
    ----------
    data : path
        Holds ``MANIFEST.json``.
    output : path
        Folder to write into; made if it does not exist.
    plan : KMeansPlan
        What to do.
    say : callable
        Receives lines of progress.
    """
    require_plots()
    folder = Path(output)
    sets = load_cluster_sets(data, plan.datasets)
    results = evaluate_clusterings(
        sets,
        [kmeans_method(name) for name in plan.methods],
        sizes=plan.sizes,
        n_seeds=plan.n_seeds,
        why_left_out=plan.why_left_out,
        say=say,
    )
    timed = [name for name in TIMED if name in plan.methods]
    times = measure_times(
        plan.counts, methods=timed, sketch_size=plan.timed_size, say=say
    )
    has_private = plan.privacy and any(one.name == PRIVATE for one in sets)
    has_private = has_private and PUBLIC_TWIN in list_folder(data)
    private = measure_private_ratios(data, say=say) if has_private else None
    tables = show_clusterings(results, times, private)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_text(_as_json(plan, results, times, private), "utf-8")
    (folder / TABLES_FILE).write_text(tables + "\n", "utf-8")
    figures = [
        draw_errors(results, folder / "errors.png"),
        draw_ratios(results, folder / "ratios.png"),
        draw_times(times, folder / "times.png"),
    ]
    if private is not None:
        figures.append(draw_private_ratios(private, folder / "privacy.png"))
    for path in filter(None, figures):
        say(f"figure: {path}")
    return tables


def show_clusterings(
    results: KMeansResults, times: TimingCurves, private: PrivateRatios | None
) -> str:
    """All tables, and what was left out."""
    chosen = OUR_KMEANS if OUR_KMEANS in results.ratios else next(iter(results.ratios))
    tables = [
        ratio_table(results, chosen),
        error_table(results),
        summary_tables(results),
    ]
    rows: list[list[Cell]] = [
        [name, *seconds, *times.ratios[name]] for name, seconds in times.seconds.items()
    ]
    heads = [f"{count} rows" for count in times.counts]
    heads += [f"ratio {count}" for count in times.counts]
    title = f"Seconds by rows ({times.n_features} features), and inertia over Lloyd's"
    tables.append(format_table(["method", *heads], rows, title=title))
    if private is not None:
        rows = [
            [f"{rounds}, {size} numbers", *values]
            for rounds, by_size in private.ratios.items()
            for size, values in by_size.items()
        ]
        heads = [*(f"eps={value:g}" for value in EPSILONS), "no noise"]
        title = (
            f"Private k-means of {PRIVATE}, inertia over Lloyd's; all centers at the "
            f"mean: {private.mean:.3f}"
        )
        tables.append(format_table(["sketch", *heads], rows, title=title))
    notes = [f"skipped {note}" for note in results.skipped]
    return "\n\n".join([*tables, *notes])


def _as_json(
    plan: KMeansPlan,
    results: KMeansResults,
    times: TimingCurves,
    private: PrivateRatios | None,
) -> str:
    content = {
        "sketchlearn": __version__,
        "plan": asdict(plan),
        **results.to_dict(),
        "times": asdict(times),
        "privacy": None if private is None else asdict(private),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


EXPERIMENT = Experiment(
    name="kmeans",
    summary="k-means: error and inertia over Lloyd's of every method, real test sets.",
    quick="One set, one size, few rows.",
    sets=paper_test_sets,
    plan=KMeansPlan,
    run=reproduce_kmeans,
    options=(
        click.Option(
            ["--complete"], is_flag=True, help="Slow methods on all sets: hours."
        ),
    ),
)
