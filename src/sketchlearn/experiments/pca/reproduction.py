"""``sketchlearn reproduce pca``: tables, figures and results.json in one folder."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import click

from sketchlearn.experiments.base import RESULTS_FILE, TABLES_FILE, Experiment
from sketchlearn.experiments.pca.comparison import (
    PCA_SIZES,
    REAL,
    PCAResults,
    dataset_table,
    evaluate_methods,
    summary_tables,
)
from sketchlearn.experiments.pca.figures import (
    draw_component_errors,
    draw_scatter,
    draw_sizes,
)
from sketchlearn.experiments.pca.methods import (
    LARGEST_LEARNED,
    OUR_PCA,
    PCA_METHODS,
    SQNET,
    pca_method,
)
from sketchlearn.experiments.pca.privacy import (
    PRIVACY_SIZES,
    PrivacyCurves,
    mean_curves,
    measure_privacy,
    privacy_table,
)
from sketchlearn.experiments.pca.private_figures import (
    draw_privacy,
    draw_private_scatter,
)
from sketchlearn.experiments.pca.public import PUBLIC
from sketchlearn.experiments.pca.sets import (
    EvaluationSet,
    load_sets,
    printed_errors,
)
from sketchlearn.experiments.pca.training import train_networks
from sketchlearn.experiments.protocol import paper_test_sets, require_plan
from sketchlearn.meta.config import load_config
from sketchlearn.meta.manifest import list_folder
from sketchlearn.report import require_plots
from sketchlearn.version import __version__

__all__ = ["EXPERIMENT", "PCAPlan", "reproduce_pca", "show_results"]

PRINTED_NOTE = (
    "Printed values are relative to the paper's own error at its largest sketch, for\n"
    "its choice of rows and features. Where that is not the error of exact PCA on our\n"
    "rows (MNIST, letters2, hapmap), they are not on the scale of our LRE."
)

SCATTERED = "hapmap31"
"""The genotype set of the scatter plots."""

BY_COMPONENT = ("MNIST", SCATTERED)
"""Sets whose errors are shown by the number of components."""


@final
@dataclass(frozen=True, kw_only=True)
class PCAPlan:
    """What to reproduce; by default all that the paper shows."""

    sizes: tuple[int, ...] = PCA_SIZES
    """Sketch sizes."""

    methods: tuple[str, ...] = tuple(PCA_METHODS)
    """Names of methods."""

    datasets: tuple[str, ...] | None = None
    """Names of test sets; all of them by default."""

    n_seeds: int = 3
    """Draws of the sketch to take the mean of, except for methods that draw once."""

    privacy: bool = True
    """Whether to measure what privacy costs."""

    private_sizes: tuple[int, ...] = PRIVACY_SIZES
    """Sizes of private sketches."""

    n_releases: int = 3
    """Releases to take the mean of."""

    shuffled: bool = False
    """Whether features are in random order instead of that of the dataset."""

    def __post_init__(self) -> None:
        require_plan(self.methods, self.sizes, known=PCA_METHODS, smallest=1)

    @classmethod
    def quick(cls) -> PCAPlan:
        """Two sets, two sizes, one draw: shows in seconds that everything runs."""
        return cls(
            sizes=(20, 100),
            datasets=("diabetes", SCATTERED),
            n_seeds=1,
            private_sizes=(20, 100),
            n_releases=1,
        )


def reproduce_pca(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: PCAPlan,
    *,
    weights: str | os.PathLike[str] | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> PCAResults:
    """Evaluate, write ``results.json``, ``tables.txt`` and figures, and return scores.

    Parameters
    ----------
    data : path
        Holds ``MANIFEST.json``.
    output : path
        Folder to write into; made if it does not exist.
    plan : PCAPlan
        What to do.
    weights : path, optional
        Folder with weights of the paper's SQNet.
    say : callable
        Receives lines of progress.
    """
    require_plots()
    folder = Path(output)
    sets = load_sets(data, plan.datasets, shuffled=plan.shuffled)
    methods = [pca_method(name, weights) for name in plan.methods]
    results = evaluate_methods(
        sets,
        methods,
        sizes=plan.sizes,
        n_seeds=plan.n_seeds,
        printed=printed_errors(plan.sizes),
        say=say,
    )
    curves = []
    listed = list_folder(data)
    here = {one.name for one in sets} if plan.privacy else set()
    here = {name for name in here & set(PUBLIC) if PUBLIC[name].twin in listed}
    for name in (name for name in PUBLIC if name in here):
        say(f"private sketches of {name} ...")
        found = measure_privacy(
            data,
            name,
            sizes=plan.private_sizes,
            n_releases=plan.n_releases,
            weights=weights,
        )
        curves.append(found)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_text(_as_json(results, plan, curves), "utf-8")
    (folder / TABLES_FILE).write_text(_all_tables(results, curves), "utf-8")
    drawn = _draw(folder, sets, results, plan, weights)
    if curves:
        drawn.append(draw_privacy(curves, folder / "privacy.png"))
    if SCATTERED in here:
        path, size = folder / "scatter-private.png", max(plan.private_sizes)
        drawn.append(draw_private_scatter(data, SCATTERED, size, path, weights=weights))
    for path in drawn:
        say(f"figure: {path}")
    return results


def show_results(results: PCAResults) -> str:
    """Means of all methods, our scores on each dataset, and what was left out."""
    chosen = OUR_PCA if OUR_PCA in results.pca else next(iter(results.pca))
    tables = [
        dataset_table(results, chosen),
        dataset_table(results, chosen, ridge=True),
    ]
    return "\n\n".join([*tables, summary_tables(results), *_notes(results)])


def _draw(
    folder: Path,
    sets: Sequence[EvaluationSet],
    results: PCAResults,
    plan: PCAPlan,
    weights: str | os.PathLike[str] | None,
) -> list[Path]:
    """All figures without privacy that the chosen sets and sizes allow."""
    drawn = []
    if results.groups[REAL]:
        drawn.append(draw_sizes(results, folder / "sizes.png"))
    compared = [SQNET, "pinv-chi", "nystrom", OUR_PCA]
    methods = [pca_method(name, weights) for name in compared if name in plan.methods]
    small = [size for size in plan.sizes if size <= LARGEST_LEARNED]
    ordered = sorted(small or plan.sizes)
    shown = sorted({ordered[len(ordered) // 2], ordered[-1]})
    known = [one for one in sets if one.name in BY_COMPONENT]
    if known:
        path = folder / "components.png"
        drawn.append(draw_component_errors(known, methods, shown, path))
    for one in known:
        if one.name == SCATTERED:
            path = folder / "scatter.png"
            best = [method for method in methods if method.name in (SQNET, OUR_PCA)]
            drawn.append(draw_scatter(one, best, shown, path))
    return drawn


def _all_tables(results: PCAResults, curves: Sequence[PrivacyCurves]) -> str:
    """The summary, then every method on every dataset."""
    tables = [summary_tables(results)]
    if curves:
        title = f"LRE from private sketches, mean over {len(curves)} sets"
        tables.append(privacy_table(mean_curves(curves), title=title))
    tables += [privacy_table(one.lre, title=f"private {one.name}") for one in curves]
    for method, found in results.pca.items():
        if found:
            tables += [
                dataset_table(results, method, ridge=ridge) for ridge in (False, True)
            ]
    return "\n\n".join([*tables, *_notes(results)]) + "\n"


def _notes(results: PCAResults) -> list[str]:
    """What to know when reading the tables."""
    skipped = [f"skipped {note}" for note in results.skipped]
    return [PRINTED_NOTE] * bool(results.shared) + skipped


def _as_json(
    results: PCAResults, plan: PCAPlan, curves: Sequence[PrivacyCurves]
) -> str:
    content = {
        "sketchlearn": __version__,
        "plan": asdict(plan),
        **results.to_dict(),
        "privacy": [asdict(found) for found in curves],
    }
    return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """NaN and infinities, which JSON does not have, become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _train_and_reproduce(
    data: str,
    output: str,
    plan: PCAPlan,
    *,
    say: Callable[[str], object],
    weights: str | None,
    training: bool,
    config: str,
    preset: str,
) -> str:
    if training and weights is None:
        raise click.UsageError("--train needs --weights FOLDER to write to.")
    if training and weights is not None:
        settings = load_config(config, preset)
        if not train_networks(settings, data, weights, sizes=plan.sizes, say=say):
            say("interrupted; go on with the same command.")
            sys.exit(130)
    return show_results(reproduce_pca(data, output, plan, weights=weights, say=say))


EXPERIMENT = Experiment(
    name="pca",
    summary="PCA and ridge regression: every method on the test sets of a folder.",
    quick="Two sets, two sizes, one sketch.",
    sets=paper_test_sets,
    plan=PCAPlan,
    run=_train_and_reproduce,
    options=(
        click.Option(
            ["--weights"], type=click.Path(), help="Folder of the paper's networks."
        ),
        click.Option(
            ["--train", "training"], is_flag=True, help="Train those not in WEIGHTS."
        ),
        click.Option(
            ["--shuffled"], is_flag=True, help="Put the features in random order."
        ),
        click.Option(["--config"], default="pca-sqnet", show_default=True),
        click.Option(
            ["--preset"], default="cpu", show_default=True, help="Table of CONFIG."
        ),
    ),
)
