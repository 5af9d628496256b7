"""``sketchlearn reproduce``: a command for every experiment, imported when needed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import click
from typing_extensions import override

from sketchlearn.errors import ConfigError, MissingFileError
from sketchlearn.experiments.base import RESULTS_FILE, Experiment, find_experiments
from sketchlearn.meta.manifest import find_folder, list_folder
from sketchlearn.meta.paper_sets import as_ranges

__all__ = ["reproduce"]


@final
class _Experiments(click.Group):
    """Commands that are made from what the experiments declare."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(find_experiments())

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        experiment = find_experiments().get(cmd_name)
        return None if experiment is None else _command(experiment)


@click.command(cls=_Experiments)
def reproduce() -> None:
    """Make the paper's tables and figures, with our results beside its own."""


def _command(experiment: Experiment) -> click.Command:
    return click.Command(
        experiment.name,
        params=[*_shared_options(experiment), *experiment.options],
        callback=partial(_run, experiment),
        help=experiment.summary,
    )


def _run(
    experiment: Experiment,
    *,
    data: str,
    output: str,
    quick: bool,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Refuse a folder without data and one with results; then run and show."""
    try:
        folder = find_folder(data)
    except MissingFileError as error:
        raise click.UsageError(f"--data: {error}") from error
    if Path(output, RESULTS_FILE).exists() and not force:
        raise ConfigError(
            f"{output} has results already; pass --force to replace them."
        )
    _require_writable(output)
    plan = experiment.plan.quick() if quick else experiment.plan()
    planned = {field.name: options.pop(field.name, None) for field in fields(plan)}
    plan = replace(plan, **{name: value for name, value in planned.items() if value})
    say = partial(click.echo, err=True)
    if folder != Path(data):
        say(f"data: {folder}")
    listed = list_folder(folder)
    wanted = plan.datasets or experiment.sets()
    missing = [name for name in wanted if name not in listed]
    if missing:
        shown = ", ".join(as_ranges(missing))
        say(f"not in {folder}: {len(missing)} of the paper's sets ({shown})")
    there = tuple(name for name in plan.datasets or () if name in listed)
    if there and planned["datasets"] is None:  # a quick plan is content with fewer
        plan = replace(plan, datasets=there)
    shown = experiment.run(folder, output, plan, say=say, **options)
    _note_missing(Path(output, RESULTS_FILE), missing)
    click.echo(Path(output, RESULTS_FILE).read_text("utf-8") if as_json else shown)


def _note_missing(results: Path, missing: list[str]) -> None:
    """Put what was missing into the results, beside the plan."""
    content = json.loads(results.read_text("utf-8"))
    text = json.dumps({**content, "missing_sets": missing}, indent=1, allow_nan=False)
    results.write_text(text + "\n", "utf-8")


def _require_writable(output: str) -> None:
    """Refuse a folder that results cannot be written into before they are computed."""
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise ConfigError(
            f"--output {output}: results cannot be written there ({error.strerror}). "
            "Name another folder."
        ) from error


def _shared_options(experiment: Experiment) -> list[click.Option]:
    """Options that every experiment has."""
    return [
        click.Option(
            ["--data"],
            required=True,
            type=click.Path(exists=True, file_okay=False),
            help="Folder with MANIFEST.json, as for train.",
        ),
        click.Option(
            ["--sizes"], callback=_listed, help="Comma-separated sketch sizes."
        ),
        click.Option(
            ["--seeds", "n_seeds"],
            type=click.IntRange(1),
            help="Sketches of each set.",
        ),
        click.Option(["--methods"], callback=_listed, help="Comma-separated [all]."),
        click.Option(["--datasets"], callback=_listed, help="Test sets [all]."),
        click.Option(["--quick"], is_flag=True, help=experiment.quick),
        click.Option(
            ["--output"], default=f"reproduced-{experiment.name}", show_default=True
        ),
        click.Option(["--force"], is_flag=True, help="Replace an existing output."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
    ]


def _listed(ctx: Any, param: Any, text: str | None) -> tuple[Any, ...] | None:
    """Comma-separated names, or numbers for ``--sizes``."""
    kind = int if param.name == "sizes" else str
    try:
        return None if text is None else tuple(kind(x.strip()) for x in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers.") from error
