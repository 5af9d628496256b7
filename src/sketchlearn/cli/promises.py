"""Privacy: releases, the ledger that pays for them, and the audit."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

import sketchlearn as sl
from sketchlearn.cli.base import (
    FORCE,
    JSON,
    OUT,
    lazy,
    load_sketch,
    require_free,
    show,
    write,
)

__all__ = ["audit", "ledger", "release"]


@click.command()
@click.argument("path", metavar="SKETCH", type=click.Path())
@click.option("--epsilon", required=True, type=float)
@click.option("--delta", required=True, type=float)
@click.option("--ledger", required=True, type=click.Path(), help="Where it is paid.")
@click.option(
    "--create-ledger",
    nargs=2,
    type=float,
    metavar="EPSILON DELTA",
    help="Create the ledger with these caps, once for the dataset.",
)
@click.option("--neighbours", default="add_remove", show_default=True)
@click.option("--count", default="joint", show_default=True)
@click.option("--rows-per-unit", default=1, show_default=True, type=click.IntRange(1))
@OUT
@FORCE
@JSON
def release(
    path: str,
    epsilon: float,
    delta: float,
    ledger: str,
    create_ledger: tuple[float, float] | None,
    neighbours: Any,
    count: Any,
    rows_per_unit: int,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Add noise to a SKETCH, once, so that the result is private."""
    require_free(output, force)
    exact = load_sketch(path)
    if create_ledger:
        sl.Ledger(
            ledger,
            epsilon=create_ledger[0],
            delta=create_ledger[1],
            neighbours=neighbours,
            rows_per_unit=rows_per_unit,
        )
    made = sl.release(
        exact,
        epsilon=epsilon,
        delta=delta,
        ledger=ledger,
        neighbours=neighbours,
        count=count,
        rows_per_unit=rows_per_unit,
    )
    write(made, output, as_json)


@click.command()
@click.option("--epsilon", default=1.0, show_default=True)
@click.option("--delta", default=1e-5, show_default=True)
@click.option(
    "--releases", default=20_000, show_default=True, type=click.IntRange(1000)
)
@JSON
def audit(epsilon: float, delta: float, releases: int, as_json: bool) -> None:
    """Inspect this installation's own release, and play the privacy game."""
    report = lazy("privacy.audit").audit_installation(epsilon, delta, releases)
    if as_json:
        click.echo(json.dumps({**asdict(report), "passed": report.passed}))
    else:
        click.echo(str(report))
    if not report.passed:
        sys.exit(1)


@click.group()
def ledger() -> None:
    """Make a ledger, or see what is left of it."""


@ledger.command()
@click.argument("path", type=click.Path())
@click.option("--epsilon", required=True, type=float, help="Cap on all releases.")
@click.option("--delta", required=True, type=float)
@click.option(
    "--pure-epsilon", default=0.0, show_default=True, help="Room for Laplace counts."
)
@click.option("--neighbours", default="add_remove", show_default=True)
@click.option("--rows-per-unit", default=1, show_default=True, type=click.IntRange(1))
@JSON
def create(
    path: str,
    epsilon: float,
    delta: float,
    pure_epsilon: float,
    neighbours: Any,
    rows_per_unit: int,
    as_json: bool,
) -> None:
    """Make a ledger in the file PATH, once for each dataset."""
    made = sl.Ledger(
        path,
        epsilon=epsilon,
        delta=delta,
        pure_epsilon=pure_epsilon,
        neighbours=neighbours,
        rows_per_unit=rows_per_unit,
    )
    show(_summary(made), as_json)


@ledger.command(name="show")
@click.argument("path", type=click.Path())
@JSON
def show_ledger(path: str, as_json: bool) -> None:
    """Say what the ledger PATH allows, what was spent and what is left."""
    show(_summary(sl.Ledger.open(path)), as_json)


def _summary(book: sl.Ledger) -> dict[str, Any]:
    found = vars(book.summary())
    return {**found, "path": str(found["path"])}
