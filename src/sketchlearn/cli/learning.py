"""Learning: the demonstration, the shipped models and the training of new ones."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import sketchlearn as sl
from sketchlearn.cli.base import (
    FORCE,
    JSON,
    OUT,
    found_folder,
    lazy,
    require_free,
    show,
)
from sketchlearn.cli.estimators import given_options

__all__ = ["demo", "models", "train"]


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep the generated files and the sketch here (default: a temporary folder).",
)
@JSON
def demo(rows: int, directory: str | None, as_json: bool) -> None:
    """Sketch, merge, forget and learn from a million generated rows."""
    demonstrate = lazy("demo").demonstrate
    report = demonstrate(
        rows, directory, say=lambda text: click.echo(text, err=as_json)
    )
    if as_json:
        click.echo(json.dumps(report, indent=2))


def _list_configs(context: click.Context, _parameter: Any, value: bool) -> None:
    """Print the configurations of the package and end."""
    if not value or context.resilient_parsing:
        return
    for name, presets in lazy("meta.config").list_configs().items():
        click.echo(f"{name:<18}  {', '.join(presets)}")
    context.exit()


@click.command()
@click.argument("config", type=click.Path())
@click.option("--preset", default="cpu", show_default=True, help="Table of CONFIG.")
@click.option(
    "--data",
    type=click.Path(),
    help="Folder with MANIFEST.json; tasks that draw from a law take none.",
)
@click.option(
    "--steps", type=click.IntRange(0), help="Train so many steps, not as CONFIG says."
)
@click.option(
    "--seconds", type=click.FloatRange(0), help="Train so long, not as CONFIG says."
)
@click.option("--device", help="Train there, such as cuda, not as CONFIG says.")
@click.option("--folder", type=click.Path(), help="Checkpoint and log [OUTPUT.run].")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint, if any.")
@click.option(
    "--start-from",
    type=click.Path(),
    help="Fine-tune: a .safetensors file, a model of the package or a checkpoint.",
)
@click.option(
    "--list",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_list_configs,
    help="Show the configurations of the package and exit.",
)
@OUT
@FORCE
@JSON
def train(
    config: str,
    preset: str,
    data: str | None,
    steps: int | None,
    seconds: float | None,
    device: str | None,
    folder: str | None,
    resume: bool,
    start_from: str | None,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Meta-learn weights as CONFIG says, on training datasets of a folder or a law.

    CONFIG is a TOML file, or a name that --list shows. The best weights that were seen
    are written, with a card, and can be used at once: --output my.safetensors, then
    sl.load_model("my.safetensors") or CompressivePCA(decoder="my.safetensors").
    """
    if not lazy("files.models").is_file_name(output):
        raise click.UsageError(
            f"--output {output}: weights are found by the ending of their file. Call "
            f"it {output}.safetensors."
        )
    require_free(output, force)
    settings = lazy("meta.config").load_config(config, preset)
    settings = _changed(settings, steps, seconds, device)
    runs = lazy("meta.runs")
    datasets = runs.load_datasets(settings, found_folder(data)) if data else []
    done = runs.train_run(
        settings,
        datasets,
        folder=folder or f"{output}.run",
        resume=resume,
        start_from=start_from,
    )
    if done.result.stopped == "interrupt":
        steps = done.result.steps
        click.echo(f"interrupted after {steps} steps; go on with --resume.", err=True)
        sys.exit(130)
    told = {"command": _typed(), "preset": preset, "seed": settings.train.seed}
    weights = done.model.to_weights({**done.card, **told})
    lazy("files.weights").save_weights(weights, output)
    names = ("stopped", "steps", "seconds", "best_step", "best_score", "skipped")
    shown = {name: getattr(done.result, name) for name in names}
    found = {"kind": weights.kind, "checksum": weights.digest}
    show({"file": output, **found, **shown}, as_json)


def _typed() -> str:
    """The command as it was typed, with names in place of paths of this machine."""
    context = click.get_current_context()
    words = ["sketchlearn train", Path(context.params["config"]).name]
    for name in given_options(["preset", "data", "steps", "seconds", "start_from"]):
        value = Path(context.params[name]).name if name == "start_from" else None
        shown = "DATA" if name == "data" else value or context.params[name]
        words.append(f"--{name.replace('_', '-')} {shown}")
    return " ".join(words)


def _changed(
    settings: Any, steps: int | None, seconds: float | None, device: str | None
) -> Any:
    """Settings with another end, where one is given, and on another device."""
    training = settings.train
    if steps is not None or seconds is not None:
        training = replace(training, steps=steps, seconds=seconds)
    return replace(settings, train=replace(training, device=device or training.device))


@click.command()
@click.argument("name", required=False)
@JSON
def models(name: str | None, as_json: bool) -> None:
    """List the models of the package, or show the card of the model or file NAME."""
    if name is not None:
        click.echo(json.dumps(lazy("registry").load_card(name), indent=2))
        return
    found = [vars(model) for model in sl.list_models()]
    if as_json:
        click.echo(json.dumps(found))
        return
    heads = ["name", "task", "kind", "size_bytes", "summary"]
    rows = [[model[head] for head in heads] for model in found]
    click.echo(lazy("report").format_table(heads, rows))
