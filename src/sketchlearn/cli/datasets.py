"""``sketchlearn data``: the paper's datasets in a folder of one's own."""

from __future__ import annotations

import sys

import click

from sketchlearn.cli.base import JSON, lazy, show

__all__ = ["data"]


@click.group()
def data() -> None:
    """Get the datasets that trainings and experiments read."""


@data.command()
@click.option(
    "--suite",
    type=click.Choice(["paper", "train", "test"]),
    default="paper",
    show_default=True,
    help="All sets of the paper, or one of its splits.",
)
@click.option("--only", help="Comma-separated names of sets of the suite.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder of the sets and their MANIFEST.json: --data of train and reproduce.",
)
@JSON
def fetch(suite: str, only: str | None, output: str, as_json: bool) -> None:
    """Fetch the sets of the paper that OpenML has, through scikit-learn.

    Sets that are in the folder already are checked and kept. Those that fail are
    reported: repeat the command to go on.
    """
    sets = lazy("meta.paper_sets").paper_sets(suite)
    if only is not None:
        names = [name.strip() for name in only.split(",")]
        unknown = [name for name in names if name not in {one.name for one in sets}]
        if unknown:
            raise click.UsageError(f"--only: {unknown[0]!r} is no set of {suite!r}.")
        sets = [one for one in sets if one.name in names]
    try:
        found = lazy("meta.openml").fetch_sets(sets, output, say=_say)
    except KeyboardInterrupt:
        click.echo("interrupted; repeat the command to go on.", err=True)
        sys.exit(130)
    elsewhere = lazy("meta.paper_sets").as_ranges(found.elsewhere)
    fields = {
        "folder": output,
        "written": len(found.written),
        "kept": len(found.kept),
        "failed": list(found.failed) if as_json else ", ".join(found.failed) or "none",
        "not at OpenML": (
            found.elsewhere if as_json else ", ".join(elsewhere) or "none"
        ),
    }
    show(fields, as_json)
    if found.failed:
        click.echo("error: some sets failed; repeat the command to go on.", err=True)
        sys.exit(1)


def _say(text: str) -> None:
    click.echo(text, err=True)
