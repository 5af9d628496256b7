"""The command line: one function per command, each a few library calls.

Results go to stdout, talk and progress to stderr. Exit codes: 0 done, 1 refused or
failed, 2 wrong usage, 130 interrupted. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

import sketchlearn as sl
from sketchlearn.errors import SketchlearnError
from sketchlearn.experiments.commands import reproduce

__all__ = ["main"]

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_OUT = click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="Write here."
)
_FORCE = click.option("--force", is_flag=True, help="Replace an existing output.")
_MODELS = ["pca", "ridge", "kmeans", "mixture"]


class _Group(click.Group):
    """Turns our errors into one line on stderr and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (SketchlearnError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            _fail(str(error))
        except KeyboardInterrupt:
            click.echo("interrupted; nothing was written.", err=True)
            sys.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(sl.__version__, prog_name="sketchlearn")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(debug: bool) -> None:
    """Learn from one small exact vector: the sketch of a dataset."""


@main.command()
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep the generated files and the sketch here (default: a temporary folder).",
)
@_JSON
def demo(rows: int, directory: str | None, as_json: bool) -> None:
    """Sketch, merge, forget and learn from a million generated rows."""
    demonstrate = _lazy("demo").demonstrate
    report = demonstrate(
        rows, directory, say=lambda text: click.echo(text, err=as_json)
    )
    if as_json:
        click.echo(json.dumps(report, indent=2))


@main.command()
@click.argument("data", nargs=-1, required=True)
@_OUT
@_FORCE
@click.option("--for", "model", type=click.Choice(_MODELS), default="pca")
@click.option("--target", multiple=True, help="Target column of a ridge regression.")
@click.option("--columns", help="Comma-separated columns to read (default: all).")
@click.option("--size", default=2000, show_default=True, type=click.IntRange(1))
@click.option("--bounds", nargs=2, type=float, help="Declared range of every feature.")
@click.option("--target-bounds", nargs=2, type=float, help="Declared target range.")
@click.option("--seed", default=0, show_default=True)
@click.option("--like", type=click.Path(), help="Use the plan of this sketch or map.")
@click.option("--drop-invalid", is_flag=True, help="Leave out rows with NaN.")
@_JSON
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
    _require_free(output, force)
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
    _write(made, output, as_json)


@main.command()
@click.argument("sketches", nargs=-1, required=True, type=click.Path())
@click.option(
    "--distinct-rows",
    is_flag=True,
    help="State that sketches of the same run are of different rows.",
)
@_OUT
@_FORCE
@_JSON
def merge(
    sketches: tuple[str, ...],
    distinct_rows: bool,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Add SKETCHES of the same feature map; releases must be of different people."""
    _require_free(output, force)
    loaded = [_load_sketch(path) for path in sketches]
    private = [one for one in loaded if isinstance(one, sl.PrivateSketch)]
    if private and len(private) < len(loaded):
        _fail("some of these are released and some exact; merge each kind apart.")
    if distinct_rows and private:
        _fail("--distinct-rows speaks of exact sketches; these are released.")
    if distinct_rows:
        loaded = [one.with_new_lineage() for one in loaded]
    whole = sl.merge_disjoint(*private) if private else sum(loaded)
    _write(whole, output, as_json)


@main.command()
@click.argument("whole", type=click.Path())
@click.argument("parts", nargs=-1, required=True, type=click.Path())
@_OUT
@_FORCE
@_JSON
def subtract(
    whole: str, parts: tuple[str, ...], output: str, force: bool, as_json: bool
) -> None:
    """Forget PARTS of WHOLE, exactly."""
    _require_free(output, force)
    rest = _load_sketch(whole)
    for path in parts:
        rest = rest - _load_sketch(path)
    _write(rest, output, as_json)


@main.command()
@click.argument("path", type=click.Path())
@_JSON
def inspect(path: str, as_json: bool) -> None:
    """Say what a sketch or map file holds."""
    found = sl.load(path)
    if hasattr(found, "count"):
        _show(_summary(found, path, Path(path).stat().st_size), as_json)
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
    _show(fields, as_json)


@main.command()
@click.argument("model", type=click.Choice(_MODELS))
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
    loaded = _load_sketch(path)
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


@main.command()
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
@_OUT
@_FORCE
@_JSON
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
    _require_free(output, force)
    exact = _load_sketch(path)
    if create_ledger:
        sl.Ledger(ledger, epsilon=create_ledger[0], delta=create_ledger[1])
    made = sl.release(
        exact,
        epsilon=epsilon,
        delta=delta,
        ledger=ledger,
        neighbours=neighbours,
        count=count,
        rows_per_unit=rows_per_unit,
    )
    _write(made, output, as_json)


@main.command()
@click.argument("config", type=click.Path())
@click.option("--preset", default="cpu", show_default=True, help="Table of CONFIG.")
@click.option("--data", required=True, type=click.Path(), help="Folder of datasets.")
@click.option("--folder", type=click.Path(), help="Checkpoint and log [OUTPUT.run].")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint, if any.")
@click.option("--start-from", type=click.Path(), help="Fine-tune this checkpoint.")
@_OUT
@_FORCE
@_JSON
def train(
    config: str,
    preset: str,
    data: str,
    folder: str | None,
    resume: bool,
    start_from: str | None,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Meta-learn weights as CONFIG says, on the training datasets of a folder."""
    _require_free(output, force)
    settings = _lazy("meta.config").load_config(config, preset)
    done = _lazy("meta.runs").train_run(
        settings,
        _lazy("meta.datasets").load_folder(data, split="train"),
        folder=folder or f"{output}.run",
        resume=resume,
        start_from=start_from,
    )
    if done.result.stopped == "interrupt":
        steps = done.result.steps
        click.echo(f"interrupted after {steps} steps; go on with --resume.", err=True)
        sys.exit(130)
    weights = done.model.to_weights({**done.card, "preset": preset})
    _lazy("weights").save_weights(weights, output)
    names = ("stopped", "steps", "seconds", "best_step", "best_score", "skipped")
    shown = {name: getattr(done.result, name) for name in names}
    _show({"file": output, **shown}, as_json)


@main.command()
@click.option("--epsilon", default=1.0, show_default=True)
@click.option("--delta", default=1e-5, show_default=True)
@click.option("--releases", default=20_000, show_default=True, type=click.IntRange(100))
@_JSON
def audit(epsilon: float, delta: float, releases: int, as_json: bool) -> None:
    """Play the privacy game against this installation's own release."""
    report = _lazy("auditing").audit_installation(epsilon, delta, releases)
    if as_json:
        click.echo(json.dumps({**vars(report), "passed": report.passed}))
    else:
        click.echo(str(report))
    if not report.passed:
        sys.exit(1)


@main.command()
@click.argument("name", required=False)
@_JSON
def models(name: str | None, as_json: bool) -> None:
    """List the models of the package, or show the card of the model NAME."""
    if name is not None:
        click.echo(json.dumps(_lazy("registry").load_card(name), indent=2))
        return
    found = [vars(model) for model in sl.list_models()]
    if as_json:
        click.echo(json.dumps(found))
        return
    heads = ["name", "task", "kind", "size_bytes", "summary"]
    rows = [[model[head] for head in heads] for model in found]
    click.echo(_lazy("report").format_table(heads, rows))


main.add_command(reproduce)


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
    rows = None if bounds else _lazy("estimators.inputs").column_extremes(batches)
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
    return _fail(f"the sketch has no column {name!r}; it has: {known[:500]}.")


def _load_sketch(path: str) -> Any:
    found = sl.load(path)
    if not hasattr(found, "count"):
        _fail(f"{path} holds a feature map, not a sketch; sketch rows with --like it.")
    return found


def _lazy(module: str) -> Any:
    """A module of ours, imported only when a command needs it."""
    return importlib.import_module(f"sketchlearn.{module}")


def _write(made: Any, output: str, as_json: bool) -> None:
    """Save a sketch and say what it holds; ``-`` is standard output."""
    if output == "-":
        data = sl.dumps(made)
        click.echo(data, nl=False)
        _show(_summary(made, output, len(data)), as_json, err=True)
        return
    sl.save(made, output)
    _show(_summary(made, output, Path(output).stat().st_size), as_json)


def _summary(made: Any, path: str, n_bytes: int) -> dict[str, Any]:
    if isinstance(made, sl.PrivateSketch):
        return {
            "file": path,
            "bytes": n_bytes,
            "rows (noisy)": round(made.count),
            "numbers": made.size,
            "features": made.features.kind,
            "version": made.features.version,
            "map": made.features.fingerprint,
            **made.statement.describe(),
        }
    return {
        "file": path,
        "bytes": n_bytes,
        "rows": made.count,
        "numbers": made.size,
        "features": made.features.kind,
        "version": made.features.version,
        "columns": made.columns or made.features.n_features,
        "pooling": made.pooling,
        "map": made.features.fingerprint,
        "digest": made.digest,
    }


def _show(fields: dict[str, Any], as_json: bool, *, err: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(fields), err=err)
        return
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {value}", err=err)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _require_free(output: str, force: bool) -> None:
    if output == "-":
        return
    if Path(output).exists() and not force:
        _fail(f"{output} exists already; pass --force to replace it.")
    if not Path(output).resolve().parent.is_dir():
        _fail(f"the folder of {output} does not exist; create it first.")


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
