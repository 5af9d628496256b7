"""Sketches: made from files, merged, subtracted, shown and decoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import sketchlearn as sl
from sketchlearn.cli.base import (
    FORCE,
    JSON,
    OUT,
    fail,
    load_sketch,
    require_free,
    show,
    summary,
    write,
)

__all__ = ["fit", "inspect", "merge", "sketch", "subtract"]

MODELS = ["pca", "ridge", "kmeans", "mixture"]

_PLANNED = {
    "model": "--for",
    "size": "--size",
    "clusters": "--clusters",
    "rounds": "--rounds",
    "bounds": "--bounds",
    "target_bounds": "--target-bounds",
    "seed": "--seed",
}


def _size(_context: Any, _parameter: Any, value: str) -> int | str:
    """A whole number of at least 1, or ``auto``."""
    if value == "auto":
        return value
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a whole number >= 1 nor 'auto'.")


@click.command()
@click.argument("data", nargs=-1, required=True)
@OUT
@FORCE
@click.option("--for", "model", type=click.Choice(MODELS), default="pca")
@click.option("--target", multiple=True, help="Target column of a ridge regression.")
@click.option("--columns", help="Comma-separated columns to read (default: all).")
@click.option(
    "--size",
    default="auto",
    show_default=True,
    metavar="INTEGER|auto",
    callback=_size,
    help="Numbers the sketch may hold.",
)
@click.option(
    "--clusters", type=click.IntRange(1), help="Clusters, or components, to plan for."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 2),
    help="Passes over the rows for kmeans, mixture [2, or 1 with --bounds].",
)
@click.option("--bounds", nargs=2, type=float, help="Declared range of every feature.")
@click.option("--target-bounds", nargs=2, type=float, help="Declared target range.")
@click.option("--seed", default=0, show_default=True)
@click.option("--like", type=click.Path(), help="Use the plan of this sketch or map.")
@click.option("--drop-invalid", is_flag=True, help="Leave out rows with NaN.")
@click.option(
    "--no-header", is_flag=True, help="CSV files begin with a row of numbers."
)
@JSON
def sketch(
    data: tuple[str, ...],
    output: str,
    force: bool,
    target: tuple[str, ...],
    columns: str | None,
    like: str | None,
    drop_invalid: bool,
    no_header: bool,
    as_json: bool,
    **planned: Any,
) -> None:
    """Sketch the rows of DATA (Parquet, CSV or Arrow files, globs, folders)."""
    require_free(output, force)
    names = [name.strip() for name in columns.split(",")] if columns else None
    example = _example(like)
    if like is None and (planned["model"] == "ridge") != bool(target):
        raise click.UsageError("--for ridge and --target COLUMN go together.")
    batches = sl.open_rows(
        list(data) if len(data) > 1 else data[0],
        columns=names or getattr(example, "columns", None),
        on_invalid="drop" if drop_invalid else "raise",
        header=False if no_header else None,
    )
    if example is not None:
        made = sl.sketch_rows(batches, getattr(example, "feature_map", example))
    else:
        made = _planner(**planned).sketch(batches, list(target) or None)
    write(made, output, as_json)


def _example(like: str | None) -> Any:
    """The file whose plan is used, after checking that nothing else is planned."""
    if like is None:
        return None
    context = click.get_current_context()
    given = [
        name
        for name in (*_PLANNED, "target")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        flags = ", ".join(_PLANNED.get(name, f"--{name}") for name in given)
        raise click.UsageError(
            f"--like takes the plan and the columns of another file; leave out {flags}."
        )
    return sl.load(like)


def _planner(
    *,
    model: str,
    size: int | str,
    clusters: int | None,
    rounds: int | None,
    bounds: tuple[float, float] | None,
    target_bounds: tuple[float, float] | None,
    seed: int,
) -> Any:
    """The estimator that plans the sketch."""
    shared: dict[str, Any] = {
        "sketch_size": size,
        "bounds": bounds or None,
        "random_state": seed,
    }
    density = model in ("kmeans", "mixture")
    if not density and (clusters or rounds):
        raise click.UsageError("--clusters and --rounds go with kmeans and mixture.")
    if model == "ridge":
        return sl.CompressiveRidge(target_bounds=target_bounds or None, **shared)
    if target_bounds:
        raise click.UsageError("--target-bounds goes with --for ridge.")
    if model == "pca":
        return sl.CompressivePCA(**shared)
    if model == "kmeans":
        return sl.CompressiveKMeans(clusters or 8, rounds=rounds, **shared)
    return sl.CompressiveGaussianMixture(clusters or 1, rounds=rounds, **shared)


@click.command()
@click.argument("sketches", nargs=-1, required=True, type=click.Path())
@click.option(
    "--distinct-rows",
    is_flag=True,
    help="State that sketches of the same run are of different rows.",
)
@OUT
@FORCE
@JSON
def merge(
    sketches: tuple[str, ...],
    distinct_rows: bool,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Add SKETCHES of the same feature map; releases must be of different people."""
    require_free(output, force)
    loaded = [load_sketch(path) for path in sketches]
    private = [one for one in loaded if isinstance(one, sl.PrivateSketch)]
    if private and len(private) < len(loaded):
        fail("some of these are released and some exact; merge each kind apart.")
    if distinct_rows and private:
        fail("--distinct-rows speaks of exact sketches; these are released.")
    if distinct_rows:
        loaded = [one.with_new_lineage() for one in loaded]
    whole = sl.merge_disjoint(*private) if private else sum(loaded)
    write(whole, output, as_json)


@click.command()
@click.argument("whole", type=click.Path())
@click.argument("parts", nargs=-1, required=True, type=click.Path())
@OUT
@FORCE
@JSON
def subtract(
    whole: str, parts: tuple[str, ...], output: str, force: bool, as_json: bool
) -> None:
    """Forget PARTS of WHOLE, exactly."""
    require_free(output, force)
    rest = load_sketch(whole)
    for path in parts:
        rest = rest - load_sketch(path)
    write(rest, output, as_json)


@click.command()
@click.argument("path", type=click.Path())
@JSON
def inspect(path: str, as_json: bool) -> None:
    """Say what a sketch or map file holds."""
    found = sl.load(path)
    if hasattr(found, "count"):
        show(summary(found, path, Path(path).stat().st_size), as_json)
        return
    fields = {
        "file": path,
        "bytes": Path(path).stat().st_size,
        "features": found.kind,
        "version": found.version,
        "columns": found.n_features,
        "numbers": found.sketch_size,
        "planned from": found.origin,
        "map": found.fingerprint,
    }
    show(fields, as_json)


@click.command()
@click.argument("model", type=click.Choice(MODELS))
@click.argument("path", metavar="SKETCH", type=click.Path())
@click.option(
    "--components", type=click.IntRange(1), help="Number of components, or of clusters."
)
@click.option("--standardize", is_flag=True, help="PCA of the correlations.")
@click.option("--alpha", default=1.0, show_default=True, type=click.FloatRange(0))
@click.option("--target", multiple=True, help="Target column, by name or number.")
def fit(
    model: str,
    path: str,
    components: int | None,
    standardize: bool,
    alpha: float,
    target: tuple[str, ...],
) -> None:
    """Decode a MODEL from a SKETCH and print its parameters as JSON."""
    loaded = load_sketch(path)
    if model == "pca":
        pca = sl.CompressivePCA(components, standardize=standardize)
        fitted: Any = pca.fit_sketch(loaded)
        names = ["mean_", "scale_", "components_", "explained_variance_ratio_"]
    elif model == "kmeans":
        fitted = sl.CompressiveKMeans(components or 8).fit_sketch(loaded)
        names = ["cluster_centers_", "inertia_"]
    elif model == "mixture":
        fitted = sl.CompressiveGaussianMixture(components or 1).fit_sketch(loaded)
        names = ["weights_", "means_", "covariances_"]
    else:
        chosen = [_column(loaded, name) for name in target] or None
        fitted = sl.CompressiveRidge(alpha).fit_sketch(loaded, targets=chosen)
        names = ["coef_", "intercept_"]
    values = {name.rstrip("_"): _plain(getattr(fitted, name)) for name in names}
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
