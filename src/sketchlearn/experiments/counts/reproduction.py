"""What both streaming experiments do: tables, figures and results.json in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sketchlearn.experiments.base import RESULTS_FILE, TABLES_FILE, Experiment
from sketchlearn.experiments.counts.dataset_errors import (
    SET_ROWS,
    DatasetErrors,
    dataset_tables,
    evaluate_datasets,
)
from sketchlearn.experiments.counts.figures import (
    draw_best_tables,
    draw_table_search,
    draw_zipf_errors,
)
from sketchlearn.experiments.counts.methods import SEARCHED
from sketchlearn.experiments.counts.plan import CountsPlan, CountsPlans
from sketchlearn.experiments.counts.search import TableSearch, search_tables
from sketchlearn.experiments.counts.sets import (
    FREQUENCY,
    MEMBERSHIP,
    CountTask,
    load_binary_sets,
    printed_errors,
)
from sketchlearn.experiments.counts.timing import (
    BatchSeconds,
    measure_seconds,
    seconds_table,
)
from sketchlearn.experiments.counts.zipf_errors import (
    ZipfErrors,
    bytes_table,
    evaluate_zipf,
    zipf_laws,
    zipf_tables,
)
from sketchlearn.report import require_plots
from sketchlearn.version import __version__

__all__ = ["FREQUENCY_EXPERIMENT", "MEMBERSHIP_EXPERIMENT", "reproduce_counts"]

_FEW_RUNS = 2
"""Of the search at sets of which no figure of the search is made."""


def reproduce_counts(
    task: CountTask,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: CountsPlan,
    *,
    say: Callable[[str], object] = lambda text: None,
) -> str:
    """Evaluate, write ``results.json``, ``tables.txt`` and figures; return the tables.

    Parameters
    ----------
    task : CountTask
        What is asked of sketches.
    data : path
        Holds ``data/MANIFEST.json`` and, for the printed values beside ours,
        ``paper/tables.json``.
    output : path
        Folder to write into; made if it does not exist.
    plan : CountsPlan
        What to do.
    say : callable
        Receives lines of progress.
    """
    require_plots()
    sets = load_binary_sets(data, plan.datasets)
    search = _search(task, plan, say)
    laws = [
        law
        for n_rows in task.zipf_rows
        for law in zipf_laws(plan.alphas, task.betas, n_rows)
    ]
    n_sets, slow_sets, size = plan.n_sets, plan.slow_sets, max(plan.sizes)
    errors = evaluate_zipf(
        task, plan.methods, plan.sizes, laws,
        search=search, n_seeds=plan.n_seeds, n_sets=n_sets, slow_sets=slow_sets,
        say=say,
    )  # fmt: skip
    found = evaluate_datasets(
        task, sets, plan.methods,
        size=size, printed=printed_errors(data, task), n_sets=n_sets,
        slow_sets=slow_sets, say=say,
    )  # fmt: skip
    seconds = measure_seconds(
        task, plan.methods, folder=data, size=size, n_sets=n_sets, slow_sets=slow_sets
    )
    tables = _show(task, errors, found, seconds)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    content = _as_json(plan, search, errors, found, seconds)
    (folder / RESULTS_FILE).write_text(content, "utf-8")
    (folder / TABLES_FILE).write_text(tables + "\n", "utf-8")
    for path in _draw(task, plan, search, errors, folder):
        say(f"figure: {path}")
    return tables


def _search(
    task: CountTask, plan: CountsPlan, say: Callable[[str], object]
) -> TableSearch:
    """The best tables: with all runs where figures show them, else with few."""
    methods = [name for name in plan.methods if name in SEARCHED]
    found: TableSearch = {name: {size: {} for size in plan.sizes} for name in methods}
    for n_rows in task.zipf_rows:
        shown = n_rows == task.zipf_rows[0]
        betas = sorted({*task.betas, *(plan.searched_betas if shown else ())})
        part = search_tables(
            task,
            methods,
            plan.sizes,
            zipf_laws(plan.alphas, betas, n_rows),
            n_runs=plan.n_runs if shown else min(plan.n_runs, _FEW_RUNS),
            n_sets=plan.n_sets,
            say=say,
        )
        for name, by_size in part.items():
            for size, laws in by_size.items():
                found[name][size].update(laws)
    return found


def _show(
    task: CountTask, errors: ZipfErrors, found: DatasetErrors, seconds: BatchSeconds
) -> str:
    tables = [*zipf_tables(task, errors), bytes_table(task, errors)]
    if found.widths:
        tables.append(dataset_tables(task, found))
    return "\n\n".join([*tables, seconds_table(seconds)])


def _draw(
    task: CountTask,
    plan: CountsPlan,
    search: TableSearch,
    errors: ZipfErrors,
    folder: Path,
) -> list[Path]:
    """All figures."""
    drawn = [draw_zipf_errors(task, errors, folder / "zipf.png")]
    if not search:
        return drawn
    n_rows = task.zipf_rows[0]
    for size in plan.sizes:
        path = folder / f"search-{size}.png"
        beta = task.betas[0]
        drawn.append(
            draw_table_search(search, size, beta=beta, n_rows=n_rows, path=path)
        )
        for name, widths in (("best-widths", True), ("best-errors", False)):
            path = folder / f"{name}-{size}.png"
            drawn.append(
                draw_best_tables(
                    search, size, betas=plan.searched_betas, n_rows=n_rows, path=path,
                    widths=widths,
                )
            )  # fmt: skip
    return drawn


def _as_json(
    plan: CountsPlan,
    search: TableSearch,
    errors: ZipfErrors,
    found: DatasetErrors,
    seconds: BatchSeconds,
) -> str:
    searched = [
        {
            "method": name, "size": size, **asdict(law),
            "widths": [table.width for table in one.tables],
            "errors": one.errors.tolist(),
        }
        for name, by_size in search.items()
        for size, laws in by_size.items()
        for law, one in laws.items()
    ]  # fmt: skip
    zipf = [
        {"method": name, "size": size, **asdict(law), **asdict(point)}
        for name, by_size in errors.items()
        for size, laws in by_size.items()
        for law, point in laws.items()
    ]
    content: dict[str, Any] = {
        "sketchlearn": __version__,
        "plan": asdict(plan),
        "zipf": zipf,
        "search": searched,
        "datasets": found.to_dict() | {"set_rows": list(SET_ROWS)},
        "seconds": asdict(seconds),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


_QUICK = "Two datasets, one size, three Zipf laws."

FREQUENCY_EXPERIMENT = Experiment(
    name="frequency",
    summary="Item frequencies: every method on Zipf sets and on datasets.",
    quick=_QUICK,
    plan=CountsPlans(FREQUENCY),
    run=partial(reproduce_counts, FREQUENCY),
)

MEMBERSHIP_EXPERIMENT = Experiment(
    name="membership",
    summary="Which items rows hold: every method on Zipf sets and on datasets.",
    quick=_QUICK,
    plan=CountsPlans(MEMBERSHIP),
    run=partial(reproduce_counts, MEMBERSHIP),
)
