"""``sketchlearn reproduce kmeans`` as a command; heavy modules are imported in it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

__all__ = ["kmeans_command"]


def kmeans_command(listed: Callable[..., Any]) -> click.Command:
    """The command, given what reads comma-separated lists."""
    names = "Comma-separated %s [all]."
    options = [
        click.Option(
            ["--data"],
            required=True,
            type=click.Path(exists=True, file_okay=False),
            help="Folder with data/MANIFEST.json.",
        ),
        click.Option(
            ["--sizes"], callback=listed, help="Comma-separated sketch sizes."
        ),
        click.Option(
            ["--seeds"], type=click.IntRange(1), help="Sketches of each set [1]."
        ),
        click.Option(["--methods"], callback=listed, help=names % "methods"),
        click.Option(["--datasets"], callback=listed, help=names % "real test sets"),
        click.Option(["--quick"], is_flag=True, help="One set, one size, few rows."),
        click.Option(
            ["--complete"], is_flag=True, help="Slow methods on all sets: hours."
        ),
        click.Option(["--output"], default="reproduced-kmeans", show_default=True),
        click.Option(["--force"], is_flag=True, help="Replace an existing output."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
    ]
    text = "k-means: inertia over Lloyd's of every method on the real test sets."
    return click.Command("kmeans", params=[*options], callback=_run, help=text)


def _run(
    data: str,
    sizes: tuple[int, ...] | None,
    seeds: int | None,
    methods: tuple[str, ...] | None,
    datasets: tuple[str, ...] | None,
    quick: bool,
    complete: bool,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    if not Path(data, "data", "MANIFEST.json").is_file():
        raise click.UsageError(f"--data {data}: there is no data/MANIFEST.json in it.")
    module = importlib.import_module("sketchlearn.experiments.kmeans_reproduction")
    if Path(output, module.RESULTS).exists() and not force:
        raise click.ClickException(
            f"{output} has results already; pass --force to replace them."
        )
    plan = module.KMeansPlan.quick() if quick else module.KMeansPlan()
    asked = {"sizes": sizes, "n_seeds": seeds, "methods": methods, "datasets": datasets}
    asked["complete"] = complete
    plan = replace(plan, **{name: value for name, value in asked.items() if value})
    say = partial(click.echo, err=True)
    tables = module.reproduce_kmeans(data, output, plan, say=say)
    shown = Path(output, module.RESULTS).read_text("utf-8") if as_json else tables
    click.echo(shown)
