"""What the commands share: options, what is printed and written, refusals."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

import sketchlearn as sl
from sketchlearn.errors import MissingFileError, SketchlearnError

__all__ = [
    "FORCE",
    "JSON",
    "OUT",
    "Group",
    "fail",
    "found_folder",
    "lazy",
    "load_sketch",
    "require_free",
    "show",
    "summary",
    "write",
]

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
OUT = click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write here; - is standard output.",
)
FORCE = click.option("--force", is_flag=True, help="Replace an existing output.")


_FLAGS = {
    "on_invalid='drop'": "--drop-invalid",
    "header=False": "--no-header",
    "with_new_lineage()": "merge --distinct-rows",
    "session.renewed()": "sketchlearn party renew SESSION",
    "share.renewed(session, key)": "sketchlearn party resend SHARE SESSION",
    "State honest_others=": "--honest-others N",
    "ledger must be a Ledger": "--ledger PATH",
    "Ledger(path, epsilon=..., delta=...)": "sketchlearn ledger create PATH",
    "fit_sketch(sketch, targets=[...])": "--target COLUMN",
}
"""What advice in Python is called on the command line."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {message}", err=True)


class Group(click.Group):
    """Turns our errors into one line on stderr and exit code 1; warnings too."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (SketchlearnError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            hints = [flag for words, flag in _FLAGS.items() if words in str(error)]
            fail(str(error) + "".join(f" Here: {flag}." for flag in hints))
        except KeyboardInterrupt:
            click.echo("interrupted; nothing was written.", err=True)
            sys.exit(130)


def write(made: Any, output: str, as_json: bool) -> None:
    """Save a sketch and say what it holds; ``-`` is standard output."""
    if output == "-":
        data = sl.dumps(made)
        click.echo(data, nl=False)
        show(summary(made, output, len(data)), as_json, err=True)
        return
    sl.save(made, output)
    show(summary(made, output, Path(output).stat().st_size), as_json)


def summary(made: Any, path: str, n_bytes: int) -> dict[str, Any]:
    """What a sketch holds, or a session or a share of one."""
    if isinstance(made, sl.Session | sl.Share):
        session = made if isinstance(made, sl.Session) else made.session
        mine = {"party": made.party} if isinstance(made, sl.Share) else {}
        terms = {**asdict(session), "parties": ", ".join(session.names)}
        keys = {f"public key of {name}": key for name, key in session.parties}
        terms |= {"digest": session.digest, **keys}
        return {"file": path, "bytes": n_bytes, **mine, **terms}
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
        "packed bytes": made.packed_bytes,
        "features": made.features.kind,
        "version": made.features.version,
        "columns": made.columns or _width(made.features.n_features),
        "pooling": made.pooling,
        "map": made.features.fingerprint,
        "digest": made.digest,
    }


def _width(n_features: int) -> Any:
    """Columns of a row, unless it may hold any of 2**64 items."""
    return "any items" if n_features == 2**64 else n_features


def show(fields: dict[str, Any], as_json: bool, *, err: bool = False) -> None:
    """Print fields as JSON or as lines."""
    if as_json:
        click.echo(json.dumps(fields), err=err)
        return
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {value}", err=err)


def require_free(output: str, force: bool) -> None:
    """Refuse to write over a file, or into a folder that is not there."""
    if output == "-":
        return
    if Path(output).exists() and not force:
        fail(f"{output} exists already; pass --force to replace it.")
    if not Path(output).resolve().parent.is_dir():
        fail(f"the folder of {output} does not exist; create it first.")


def load_sketch(path: str) -> Any:
    """The sketch in a file, exact or released; ``-`` is standard input."""
    found = sl.loads(sys.stdin.buffer.read()) if path == "-" else sl.load(path)
    if isinstance(found, sl.Session | sl.Share):
        what = type(found).__name__.lower()
        fail(f"{path} holds a {what}, not a sketch; see sketchlearn party --help.")
    if not hasattr(found, "count"):
        fail(f"{path} holds a feature map, not a sketch; sketch rows with --like it.")
    return found


def found_folder(data: str) -> Path:
    """The folder of datasets that ``--data`` means; says so where it is inside."""
    try:
        folder: Path = lazy("meta.manifest").find_folder(data)
    except MissingFileError as error:
        raise click.UsageError(f"--data: {error}") from error
    if folder != Path(data):
        click.echo(f"data: {folder}", err=True)
    return folder


def lazy(module: str) -> Any:
    """A module of ours, imported only when a command needs it."""
    return importlib.import_module(f"sketchlearn.{module}")


def fail(message: str) -> NoReturn:
    """One line on stderr, exit code 1."""
    click.echo(f"error: {message}", err=True)
    sys.exit(1)
