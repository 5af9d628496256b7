"""The command line: one function per command, each a few library calls.

Results go to stdout, talk and progress to stderr. Exit codes: 0 done, 1 refused or
failed, 2 wrong usage, 130 interrupted. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import click

import sketchlearn as sl
from sketchlearn.cli.base import Group
from sketchlearn.cli.datasets import data
from sketchlearn.cli.fitting import fit
from sketchlearn.cli.items import query
from sketchlearn.cli.learning import demo, models, train
from sketchlearn.cli.parties import party
from sketchlearn.cli.promises import audit, ledger, release
from sketchlearn.cli.sketches import inspect, merge, sketch, subtract
from sketchlearn.experiments.commands import reproduce

__all__ = ["main"]

COMMANDS = (
    demo,
    sketch,
    merge,
    subtract,
    inspect,
    fit,
    query,
    release,
    ledger,
    party,
    audit,
    models,
    data,
    train,
    reproduce,
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(sl.__version__, prog_name="sketchlearn")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(debug: bool) -> None:
    """Learn from one small exact vector: the sketch of a dataset."""


for command in COMMANDS:
    main.add_command(command)
