"""``sketchlearn fit``: a model decoded from a sketch, as JSON."""

from __future__ import annotations

import json
from typing import Any

import click

from sketchlearn.cli.base import fail, load_sketch
from sketchlearn.cli.estimators import (
    SET,
    ModelName,
    build_estimator,
    takes_targets,
)

__all__ = ["fit"]


@click.command()
@click.argument("model", type=ModelName())
@click.argument("path", metavar="SKETCH", type=click.Path())
@click.option(
    "--components", type=click.IntRange(1), help="Number of components, or of clusters."
)
@click.option("--standardize", is_flag=True, help="PCA of the correlations.")
@click.option("--alpha", type=click.FloatRange(0), help="Penalty of ridge [1.0].")
@click.option(
    "--decoder", help="Of the model, by name, or weights of your own, by path."
)
@click.option("--target", multiple=True, help="Target column, by name or number.")
@SET
def fit(
    model: str,
    path: str,
    target: tuple[str, ...],
    settings: tuple[str, ...],
    **options: Any,
) -> None:
    """Decode a MODEL from a SKETCH and print its parameters as JSON."""
    estimator = build_estimator(model, options, settings)
    targets = takes_targets(model)
    loaded = load_sketch(path)
    if targets:
        chosen = [_column(loaded, name) for name in target] or None
        fitted = estimator.fit_sketch(loaded, targets=chosen)
    else:
        fitted = estimator.fit_sketch(loaded)
    values = {
        name.rstrip("_"): _plain(getattr(fitted, name))
        for name in estimator.command_output
    }
    features = _plain(getattr(fitted, "feature_names_in_", None))
    found = {"model": model, "rows": loaded.count, "features": features, **values}
    click.echo(json.dumps(found))


def _column(sketch: Any, name: str) -> int:
    """The number of a column of a sketch, given its name or its number."""
    names = sketch.columns or ()
    if name in names:
        return int(names.index(name))
    if name.isdecimal() and int(name) < sketch.features.n_features:
        return int(name)
    known = ", ".join(names) or f"numbers from 0 to {sketch.features.n_features - 1}"
    return fail(f"the sketch has no column {name!r}; it has: {known[:500]}.")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
