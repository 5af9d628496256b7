"""``sketchlearn reproduce autoencoder``: tables and figures into one folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import click

from sketchlearn.errors import RowsError
from sketchlearn.experiments.autoencoder.comparison import evaluate_accuracies
from sketchlearn.experiments.autoencoder.drift import drift_pair, measure_drift
from sketchlearn.experiments.autoencoder.figures import (
    draw_drift,
    draw_row_counts,
    draw_rows,
    square_set,
)
from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    DRIFTING,
    OUR_AUTOENCODER,
    PCA_BASELINE,
    SPECIFIC,
    missing_weights,
)
from sketchlearn.experiments.autoencoder.results import AutoencoderResults
from sketchlearn.experiments.autoencoder.row_counts import evaluate_row_counts
from sketchlearn.experiments.autoencoder.sets import (
    LETTERS,
    ReconstructionSet,
    load_reconstruction_sets,
    printed_accuracies,
)
from sketchlearn.experiments.autoencoder.sketch_sizes import compare_sketches
from sketchlearn.experiments.autoencoder.specific import (
    SpecificAutoencoders,
    specific_config,
)
from sketchlearn.experiments.base import RESULTS_FILE, TABLES_FILE, Experiment
from sketchlearn.experiments.protocol import require_plan
from sketchlearn.report import require_plots

__all__ = ["EXPERIMENT", "AutoencoderPlan", "reproduce_autoencoder"]

Say = Callable[[str], object]


@final
@dataclass(frozen=True, kw_only=True)
class AutoencoderPlan:
    """What to reproduce; by default all that the paper shows."""

    sizes: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    """Rows in the sketch, beside all of them."""

    methods: tuple[str, ...] = tuple(AUTOENCODER_METHODS)
    """Names of methods."""

    datasets: tuple[str, ...] | None = None
    """Names of datasets of the table; all of them by default."""

    n_seeds: int = 3
    """Draws of the rows in a sketch, and of compressed sketches."""

    seconds: float = 60.0
    """To train each dataset-specific autoencoder."""

    test_rows: int = 2000
    """Most rows of each set to reconstruct in tables."""

    curve_rows: int = 500
    """Most rows of each set to reconstruct in figures."""

    def __post_init__(self) -> None:
        require_plan(self.methods, self.sizes, known=AUTOENCODER_METHODS, smallest=1)

    @classmethod
    def quick(cls) -> AutoencoderPlan:
        """Two sets, two sizes, few rows: shows in a minute or two that all runs."""
        return cls(
            sizes=(4, 64),
            datasets=("MNIST", "quickdraw"),
            n_seeds=1,
            seconds=5.0,
            test_rows=200,
            curve_rows=100,
        )


def reproduce_autoencoder(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: AutoencoderPlan,
    *,
    weights: str | None = None,
    say: Say = lambda text: None,
) -> str:
    """Evaluate, write ``results.json``, ``tables.txt`` and figures; return the tables.

    Parameters
    ----------
    data : path
        Holds ``MANIFEST.json``.
    output : path
        Folder to write into; made if it does not exist.
    plan : AutoencoderPlan
        What to do.
    weights : path, optional
        Folder of weights that the package does not have.
    say : callable
        Receives lines of progress.
    """
    require_plots()
    sets = load_reconstruction_sets(data, plan.datasets, test_rows=plan.test_rows)
    if not sets:
        raise RowsError("the folder has none of the sets of this table.")
    results = _evaluate(sets, plan, weights, say)
    tables = results.show()
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_text(results.to_json(asdict(plan)), "utf-8")
    (folder / TABLES_FILE).write_text(tables + "\n", "utf-8")
    for path in _draw(sets, results, folder, weights):
        say(f"figure: {path}")
    return tables


def _evaluate(
    sets: Sequence[ReconstructionSet],
    plan: AutoencoderPlan,
    weights: str | None,
    say: Say,
) -> AutoencoderResults:
    specific = SpecificAutoencoders(specific_config(plan.seconds), say)
    printed = printed_accuracies()
    drawn = [name for name in DRIFTING if name in plan.methods]
    accuracies = evaluate_accuracies(
        sets, plan.methods, specific, printed=printed, weights=weights, say=say
    )
    gaps = []
    if {PCA_BASELINE, OUR_AUTOENCODER} <= set(plan.methods):
        ceilings = specific if SPECIFIC in plan.methods else None
        gaps = compare_sketches(sets, ceilings, n_seeds=plan.n_seeds, say=say)
    curves = evaluate_row_counts(
        sets,
        drawn,
        sizes=plan.sizes,
        n_seeds=plan.n_seeds,
        n_rows=plan.curve_rows,
        weights=weights,
        say=say,
    )
    pair = drift_pair(sets)
    drift = []
    if pair is not None:
        n_rows = plan.curve_rows
        drift = measure_drift(*pair, drawn, n_rows=n_rows, weights=weights, say=say)
    skipped = tuple(
        f"skipped {AUTOENCODER_METHODS[name]}: {why}"
        for name in plan.methods
        if (why := missing_weights(name, weights))
    )
    return AutoencoderResults(accuracies, gaps, curves, drift, skipped)


def _draw(
    sets: Sequence[ReconstructionSet],
    results: AutoencoderResults,
    folder: Path,
    weights: str | None,
) -> list[Path]:
    """All figures that there are results for."""
    drawn = []
    if results.curves:
        drawn.append(draw_row_counts(results.curves, folder / "rows-in-sketch.png"))
    if results.drift:
        drawn.append(draw_drift(results.drift, folder / "drift.png"))
    pictured = square_set(sets)
    if pictured is not None:
        drawn.append(draw_rows(pictured, folder / "digits.png", weights=weights))
    return drawn


EXPERIMENT = Experiment(
    name="autoencoder",
    summary="Autoencoders of zeros and ones: every method on the sets of the paper.",
    quick="Two sets, two sketches of few rows, five seconds of training.",
    sets=lambda: LETTERS,
    plan=AutoencoderPlan,
    run=reproduce_autoencoder,
    options=(
        click.Option(
            ["--seconds"],
            type=click.FloatRange(0, min_open=True),
            help="Training of each dataset-specific autoencoder.",
        ),
        click.Option(
            ["--weights"],
            type=click.Path(),
            help="Folder of weights beside those of the package.",
        ),
    ),
)
