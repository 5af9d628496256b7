"""``sketchlearn reproduce frequency`` and ``... membership``: all into one folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from sketchlearn.experiments.base import RESULTS_FILE, TABLES_FILE, Experiment
from sketchlearn.experiments.counts.dataset_errors import evaluate_datasets
from sketchlearn.experiments.counts.figures import (
    draw_best_tables,
    draw_network_errors,
    draw_table_search,
    draw_zipf_errors,
)
from sketchlearn.experiments.counts.fine_tuning import tuning_config
from sketchlearn.experiments.counts.methods import (
    COUNT_METHODS,
    SEARCHED,
    why_missing,
)
from sketchlearn.experiments.counts.networks import TrainedNetworks, find_networks
from sketchlearn.experiments.counts.plan import CountsPlan, CountsPlans
from sketchlearn.experiments.counts.results import CountsResults
from sketchlearn.experiments.counts.search import TableSearch, search_tables
from sketchlearn.experiments.counts.sets import (
    FREQUENCIES,
    MEMBERSHIPS,
    PAPER_COLUMNS,
    CountTask,
    load_binary_sets,
    printed_errors,
)
from sketchlearn.experiments.counts.timing import measure_seconds
from sketchlearn.experiments.counts.zipf_errors import (
    evaluate_networks,
    evaluate_zipf,
    zipf_laws,
)
from sketchlearn.report import require_plots

__all__ = ["FREQUENCY_EXPERIMENT", "MEMBERSHIP_EXPERIMENT", "reproduce_counts"]

_FEW_RUNS = 2
"""Of the search at sets of which no figure of the search is made."""

Say = Callable[[str], object]


def reproduce_counts(
    task: CountTask,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: CountsPlan,
    *,
    weights: str | os.PathLike[str] | None = None,
    say: Say = lambda text: None,
) -> str:
    """Evaluate, write ``results.json``, ``tables.txt`` and figures; return the tables.

    Parameters
    ----------
    task : CountTask
        What is asked of sketches.
    data : path
        Holds ``MANIFEST.json``.
    output : path
        Folder to write into; made if it does not exist.
    plan : CountsPlan
        What to do.
    weights : path, optional
        Folder with weights of the paper's networks.
    say : callable
        Receives lines of progress.
    """
    require_plots()
    results = _evaluate(task, data, plan, find_networks(weights), say)
    tables = results.show(task)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_text(results.to_json(plan), "utf-8")
    (folder / TABLES_FILE).write_text(tables + "\n", "utf-8")
    for path in _draw(task, plan, results, folder):
        say(f"figure: {path}")
    return tables


def _evaluate(
    task: CountTask,
    data: str | os.PathLike[str],
    plan: CountsPlan,
    networks: TrainedNetworks,
    say: Say,
) -> CountsResults:
    sets = load_binary_sets(data, plan.datasets)
    search = _search(task, plan, say)
    laws = [
        law
        for n_rows in task.zipf_rows
        for law in zipf_laws(plan.alphas, task.betas, n_rows)
    ]
    shown = zipf_laws(plan.alphas, task.betas[:1], task.zipf_rows[0])
    size, n_sets, slow_sets = max(plan.sizes), plan.n_sets, plan.slow_sets
    errors = evaluate_zipf(
        task, plan.methods, plan.sizes, laws,
        search=search, networks=networks, n_seeds=plan.n_seeds,
        n_sets=n_sets, slow_sets=slow_sets, say=say,
    )  # fmt: skip
    tuning = tuning_config(plan.fine_tune) if plan.fine_tune else None
    found = evaluate_datasets(
        task, sets, plan.methods,
        networks=networks, size=size, printed=printed_errors(task),
        n_sets=n_sets, slow_sets=slow_sets, fine_tune=tuning, say=say,
    )  # fmt: skip
    seconds = measure_seconds(
        task, plan.methods,
        networks=networks, size=size, n_sets=n_sets, slow_sets=slow_sets,
    )  # fmt: skip
    compared = partial(evaluate_networks, task, networks, n_sets=slow_sets)
    return CountsResults(
        search,
        errors,
        found,
        seconds,
        compared("pooling", size=size, laws=shown),
        compared("activation", size=size, laws=shown),
        _skipped(task, plan, networks),
    )


def _search(task: CountTask, plan: CountsPlan, say: Say) -> TableSearch:
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


def _skipped(
    task: CountTask, plan: CountsPlan, networks: TrainedNetworks
) -> tuple[str, ...]:
    """What was left out, and why."""
    return tuple(
        f"skipped {COUNT_METHODS[name]}: {why}"
        for name in plan.methods
        for size in plan.sizes
        if (why := why_missing(name, size, task.name, networks))
        if not (name == "sq-tuned" and (plan.fine_tune or size < max(plan.sizes)))
    )


def _draw(
    task: CountTask, plan: CountsPlan, results: CountsResults, folder: Path
) -> list[Path]:
    """All figures that there are results for."""
    drawn = [draw_zipf_errors(task, results.zipf, folder / "zipf.png")]
    for name, title, errors in (
        ("poolings", "SQNet by pooling", results.poolings),
        ("activations", "RFQNet by activation", results.activations),
    ):
        if len(errors) > 1:
            path = folder / f"{name}.png"
            drawn.append(draw_network_errors(task, errors, path, title=title))
    if not results.search:
        return drawn
    n_rows, beta = task.zipf_rows[0], task.betas[0]
    for size in plan.sizes:
        path = folder / f"search-{size}.png"
        drawn.append(
            draw_table_search(results.search, size, beta=beta, n_rows=n_rows, path=path)
        )
        drawn.append(
            draw_best_tables(
                results.search,
                size,
                betas=plan.searched_betas,
                n_rows=n_rows,
                path=folder / f"best-tables-{size}.png",
            )
        )
    return drawn


_WEIGHTS = click.Option(
    ["--weights"], type=click.Path(), help="Folder of the paper's networks."
)
_FINE_TUNE = click.Option(
    ["--fine-tune"],
    type=click.FloatRange(0),
    help="Seconds to train the linear network on with rows of each dataset.",
)
_QUICK = "Two datasets, one size, three Zipf laws."

FREQUENCY_EXPERIMENT = Experiment(
    name="frequency",
    summary="Item frequencies: every method on Zipf sets and on datasets.",
    quick=_QUICK,
    sets=lambda: PAPER_COLUMNS,
    plan=CountsPlans(FREQUENCIES),
    run=partial(reproduce_counts, FREQUENCIES),
    options=(_WEIGHTS, _FINE_TUNE),
)

MEMBERSHIP_EXPERIMENT = Experiment(
    name="membership",
    summary="Which items rows hold: every method on Zipf sets and on datasets.",
    quick=_QUICK,
    sets=lambda: PAPER_COLUMNS,
    plan=CountsPlans(MEMBERSHIPS),
    run=partial(reproduce_counts, MEMBERSHIPS),
    options=(_WEIGHTS, _FINE_TUNE),
)
