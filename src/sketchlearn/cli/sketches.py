"""Sketches: made from files, merged, subtracted and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

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
from sketchlearn.cli.estimators import (
    SET,
    ModelName,
    build_estimator,
    given_options,
    takes_targets,
)

__all__ = ["inspect", "merge", "sketch", "subtract"]

_PLANNED = {"model": "--for", "target_bounds": "--target-bounds", "settings": "--set"}
"""What options are called where it is not their name."""


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
@click.option("--for", "model", type=ModelName(), default="pca")
@click.option("--target", multiple=True, help="Target column of a ridge regression.")
@click.option(
    "--columns", help="Comma-separated columns to read [all]; the column of ids."
)
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
@SET
@click.option("--like", type=click.Path(), help="Use the plan of this sketch or map.")
@click.option("--drop-invalid", is_flag=True, help="Leave out rows with NaN.")
@click.option(
    "--no-header", is_flag=True, help="CSV files begin with a row of numbers."
)
@click.option(
    "--jobs", type=int, help="Threads; -1 for one per core [as OMP_NUM_THREADS says]."
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
    jobs: int | None,
    as_json: bool,
    **planned: Any,
) -> None:
    """Sketch the rows of DATA (files, globs, folders or URLs).

    Files are Parquet, CSV, TSV, JSON Lines, Arrow or .npy; text may be compressed.
    """
    require_free(output, force)
    names = [name.strip() for name in columns.split(",")] if columns else None
    example = _example(like, ("target", *planned))
    planner = _planner(target, **planned) if like is None else None
    feature_map = getattr(example, "feature_map", example)
    header = False if no_header else None
    if getattr(planner, "reads_items", hasattr(feature_map, "columns_of")):
        items = _open_items(data, names, header, planner, jobs)
        made = planner.sketch(items) if planner else sl.sketch_items(items, feature_map)
        write(made, output, as_json)
        return
    batches = sl.open_rows(
        list(data) if len(data) > 1 else data[0],
        columns=names or getattr(example, "columns", None),
        on_invalid="drop" if drop_invalid else "raise",
        header=header,
        above=getattr(planner, "binarize", None),
        n_jobs=jobs,
    )
    if planner is None:
        made = sl.sketch_rows(batches, feature_map)
    else:
        made = planner.sketch(batches, list(target) or None)
    write(made, output, as_json)


def _open_items(
    data: tuple[str, ...],
    names: list[str] | None,
    header: bool | None,
    planner: Any,
    jobs: int | None,
) -> Any:
    """Ids in one column of files."""
    if names is not None and len(names) > 1:
        raise click.UsageError("--columns names the one column that holds the ids.")
    return sl.open_items(
        lazy("rows.paths").find_files(data)[0] if len(data) > 1 else data[0],
        column=names[0] if names else None,
        vocabulary=getattr(planner, "vocabulary", None),
        header=header,
        n_jobs=jobs,
    )


def _planner(
    target: tuple[str, ...],
    *,
    model: str,
    settings: tuple[str, ...],
    **options: Any,
) -> Any:
    """The estimator that plans the sketch."""
    planner = build_estimator(model, options, settings)
    if takes_targets(model) and not target:
        raise click.UsageError(f"--for {model} and --target COLUMN go together.")
    return planner


def _example(like: str | None, planned: tuple[str, ...]) -> Any:
    """The file whose plan is used, after checking that nothing else is planned."""
    if like is None:
        return None
    given = given_options(planned)
    if given:
        flags = ", ".join(_PLANNED.get(name, f"--{name}") for name in given)
        raise click.UsageError(
            f"--like takes the plan and the columns of another file; leave out {flags}."
        )
    return sl.load(like)


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
    """Say what the file of a sketch, a map, a session, a share or weights holds."""
    if lazy("files.weights").holds_weights(path):
        _show_weights(path, as_json)
        return
    found = sl.load(path)
    if hasattr(found, "count") or isinstance(found, sl.Session | sl.Share):
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


def _show_weights(path: str, as_json: bool) -> None:
    """Print of what a file has weights, its checksum, and how they came about."""
    weights = lazy("files.weights").load_weights(path)
    fields = {
        "file": path,
        "bytes": Path(path).stat().st_size,
        "kind": weights.kind,
        "numbers": sum(tensor.size for tensor in weights.tensors.values()),
        "spec": weights.spec,
        "checksum": weights.digest,
    }
    if as_json:
        show({**fields, "card": weights.card}, as_json)
        return
    show({**fields, "spec": json.dumps(weights.spec)}, as_json)
    click.echo(f"card {json.dumps(weights.card, indent=2)}")
