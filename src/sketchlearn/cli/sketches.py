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
    lazy,
    load_sketch,
    require_free,
    show,
    summary,
    write,
)

__all__ = ["fit", "inspect", "merge", "sketch", "subtract"]

MODELS = ["pca", "ridge", "kmeans", "mixture"]


@click.command()
@click.argument("data", nargs=-1, required=True)
@OUT
@FORCE
@click.option("--for", "model", type=click.Choice(MODELS), default="pca")
@click.option("--target", multiple=True, help="Target column of a ridge regression.")
@click.option("--columns", help="Comma-separated columns to read (default: all).")
@click.option("--size", default=2000, show_default=True, type=click.IntRange(1))
@click.option("--bounds", nargs=2, type=float, help="Declared range of every feature.")
@click.option("--target-bounds", nargs=2, type=float, help="Declared target range.")
@click.option("--seed", default=0, show_default=True)
@click.option("--like", type=click.Path(), help="Use the plan of this sketch or map.")
@click.option("--drop-invalid", is_flag=True, help="Leave out rows with NaN.")
@JSON
def sketch(
    data: tuple[str, ...],
    output: str,
    force: bool,
    model: str,
    target: tuple[str, ...],
    columns: str | None,
    size: int,
    bounds: tuple[float, float] | None,
    target_bounds: tuple[float, float] | None,
    seed: int,
    like: str | None,
    drop_invalid: bool,
    as_json: bool,
) -> None:
    """Sketch the rows of DATA (Parquet, CSV or Arrow files, globs, folders)."""
    require_free(output, force)
    source = list(data) if len(data) > 1 else data[0]
    names = [name.strip() for name in columns.split(",")] if columns else None
    feature_map = None
    if like is not None:
        context = click.get_current_context()
        planned = ("model", "target", "size", "bounds", "target_bounds", "seed")
        sources = [context.get_parameter_source(name) for name in planned]
        if any(source is ParameterSource.COMMANDLINE for source in sources):
            raise click.UsageError(
                "--like takes the plan and the columns of another file; leave out "
                "--for, --target, --size, --bounds, --target-bounds and --seed."
            )
        example = sl.load(like)
        names = names or getattr(example, "columns", None)
        feature_map = getattr(example, "feature_map", example)
    elif (model == "ridge") != bool(target):
        raise click.UsageError("--for ridge and --target COLUMN go together.")
    invalid: Any = "drop" if drop_invalid else "raise"
    batches = sl.open_rows(source, columns=names, on_invalid=invalid)
    if target:
        features = [name for name in batches.names or () if name not in target]
        batches = batches.select([*features, *target])
    if feature_map is None:
        declared = (bounds or None, target_bounds or None)
        feature_map = _plan(batches, model, size, seed, declared, len(target))
    made = sl.sketch_rows(batches, feature_map)
    write(made, output, as_json)


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


def _plan(
    batches: Any,
    model: str,
    size: int,
    seed: int,
    declared: tuple[tuple[float, float] | None, tuple[float, float] | None],
    n_targets: int,
) -> sl.AbstractFeatureMap:
    """The map of an estimator, from declared bounds or else from the rows."""
    bounds, target_bounds = declared
    rows = None if bounds else lazy("estimators.inputs").column_extremes(batches)
    n_features = batches.n_features - n_targets
    if not n_targets:
        kinds: dict[str, Any] = {
            "pca": sl.CompressivePCA,
            "kmeans": sl.CompressiveKMeans,
            "mixture": sl.CompressiveGaussianMixture,
        }
        planner = kinds[model](sketch_size=size, bounds=bounds, random_state=seed)
        feature_map: sl.AbstractFeatureMap = planner.plan(n_features, rows=rows)
        return feature_map
    ridge = sl.CompressiveRidge(
        sketch_size=size,
        bounds=bounds,
        target_bounds=target_bounds,
        random_state=seed,
    )
    return ridge.plan(n_features, n_targets=n_targets, rows=rows)


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
