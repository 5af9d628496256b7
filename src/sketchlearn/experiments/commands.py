"""``sketchlearn reproduce``: its commands; heavy modules are imported in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from sketchlearn.errors import ConfigError

__all__ = ["reproduce"]

_say = partial(click.echo, err=True)


def _listed(ctx: Any, param: Any, text: str | None) -> tuple[Any, ...] | None:
    """Comma-separated names, or numbers for ``--sizes``."""
    kind = int if param.name == "sizes" else str
    try:
        return None if text is None else tuple(kind(x.strip()) for x in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers.") from error


def _common(task: str, few: str) -> Callable[[Any], Any]:
    """Options that every task has."""
    options = [
        click.option(
            "--data",
            required=True,
            type=click.Path(exists=True, file_okay=False),
            help="Folder with data/MANIFEST.json, and for PCA paper/tables.json.",
        ),
        click.option("--sizes", callback=_listed, help="Comma-separated sketch sizes."),
        click.option("--seeds", type=click.IntRange(1), help="Sketches of each set."),
        click.option("--methods", callback=_listed, help="Comma-separated [all]."),
        click.option("--datasets", callback=_listed, help="Test sets [all]."),
        click.option("--quick", is_flag=True, help=few),
        click.option("--output", default=f"reproduced-{task}", show_default=True),
        click.option("--force", is_flag=True, help="Replace an existing output."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ]

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _prepare(module: Any, data: str, output: str, force: bool) -> None:
    """Refuse a folder without data, and one with results."""
    if not Path(data, "data", "MANIFEST.json").is_file():
        raise click.UsageError(f"--data {data}: there is no data/MANIFEST.json in it.")
    if Path(output, module.RESULTS).exists() and not force:
        raise ConfigError(
            f"{output} has results already; pass --force to replace them."
        )


def _asked(plan: Any, **options: Any) -> Any:
    """A plan with the options that were given."""
    return replace(plan, **{name: value for name, value in options.items() if value})


@click.group()
def reproduce() -> None:
    """Make the paper's tables and figures, with our results beside its own."""


@reproduce.command()
@_common("pca", "Two sets, two sizes, one sketch.")
@click.option("--weights", type=click.Path(), help="Folder of the paper's networks.")
@click.option("--train", "training", is_flag=True, help="Train those not in WEIGHTS.")
@click.option("--config", default="configs/pca-sqnet.toml", show_default=True)
@click.option("--preset", default="cpu", show_default=True, help="Table of CONFIG.")
def pca(
    data: str,
    sizes: tuple[int, ...] | None,
    seeds: int | None,
    methods: tuple[str, ...] | None,
    datasets: tuple[str, ...] | None,
    quick: bool,
    output: str,
    force: bool,
    as_json: bool,
    weights: str | None,
    training: bool,
    config: str,
    preset: str,
) -> None:
    """PCA and ridge regression: every method on the test sets of a folder."""
    if training and weights is None:
        raise click.UsageError("--train needs --weights FOLDER to write to.")
    module = importlib.import_module("sketchlearn.experiments.pca_reproduction")
    _prepare(module, data, output, force)
    plan = module.PCAPlan.quick() if quick else module.PCAPlan()
    plan = _asked(plan, sizes=sizes, n_seeds=seeds, methods=methods, datasets=datasets)
    if training:
        load_config = importlib.import_module("sketchlearn.meta.config").load_config
        experiment = importlib.import_module("sketchlearn.experiments.pca")
        settings = load_config(config, preset)
        if not experiment.train_networks(
            settings, data, weights, sizes=plan.sizes, say=_say
        ):
            click.echo("interrupted; go on with the same command.", err=True)
            sys.exit(130)
    results = module.reproduce_pca(data, output, plan, weights=weights, say=_say)
    shown = Path(output, module.RESULTS).read_text("utf-8") if as_json else None
    click.echo(shown or module.show_results(results))


@reproduce.command()
@_common("kmeans", "One set, one size, few rows.")
@click.option("--complete", is_flag=True, help="Slow methods on all sets: hours.")
def kmeans(
    data: str,
    sizes: tuple[int, ...] | None,
    seeds: int | None,
    methods: tuple[str, ...] | None,
    datasets: tuple[str, ...] | None,
    quick: bool,
    output: str,
    force: bool,
    as_json: bool,
    complete: bool,
) -> None:
    """k-means: inertia over Lloyd's of every method on the real test sets."""
    module = importlib.import_module("sketchlearn.experiments.kmeans_reproduction")
    _prepare(module, data, output, force)
    plan = module.KMeansPlan.quick() if quick else module.KMeansPlan()
    plan = _asked(
        plan,
        sizes=sizes,
        n_seeds=seeds,
        methods=methods,
        datasets=datasets,
        complete=complete,
    )
    tables = module.reproduce_kmeans(data, output, plan, say=_say)
    shown = Path(output, module.RESULTS).read_text("utf-8") if as_json else tables
    click.echo(shown)
