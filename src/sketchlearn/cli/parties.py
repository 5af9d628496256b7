"""Parties that add up their sketches in secret: keys, sessions, shares, their sum."""

from __future__ import annotations

from typing import Any

import click

import sketchlearn as sl
from sketchlearn.cli.base import (
    FORCE,
    JSON,
    OUT,
    fail,
    load_sketch,
    require_free,
    show,
    write,
)

__all__ = ["party"]


@click.group()
def party() -> None:
    """Add up sketches of several parties, none of which shows its own."""


@party.command()
@OUT
@FORCE
@JSON
def key(output: str, force: bool, as_json: bool) -> None:
    """Make a secret key, and say the public key that the others need."""
    if output == "-":
        fail("a secret key goes to a file that its owner alone can read, not to -.")
    require_free(output, force)
    made = sl.PartyKey.generate()
    public = made.public  # before anything is written: its package may be missing
    made.save(output)
    show({"file": output, "public key": public}, as_json)


@party.command()
@click.argument("path", metavar="KEY", type=click.Path())
@JSON
def public(path: str, as_json: bool) -> None:
    """Say the public key of a secret KEY once more."""
    show({"file": path, "public key": sl.PartyKey.load(path).public}, as_json)


@party.command()
@click.option(
    "--map",
    "plan",
    required=True,
    type=click.Path(),
    help="The map of all sketches, or a sketch that has it.",
)
@click.option(
    "--party",
    "parties",
    required=True,
    multiple=True,
    metavar="NAME=KEY",
    help="A party and its public key; once for each.",
)
@click.option("--epsilon", type=float, help="The promise; none for an exact sum.")
@click.option("--delta", type=float)
@click.option("--neighbours", default="add_remove", show_default=True)
@click.option("--rows-per-unit", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--honest",
    type=click.IntRange(1),
    help="Parties that keep their noise to themselves [1: nobody is relied on].",
)
@OUT
@FORCE
@JSON
def session(
    plan: str,
    parties: tuple[str, ...],
    epsilon: float | None,
    delta: float | None,
    neighbours: Any,
    rows_per_unit: int,
    honest: int | None,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write down the terms on which parties add up their sketches, once."""
    require_free(output, force)
    loaded = sl.load(plan)
    made = sl.Session.start(
        getattr(loaded, "feature_map", loaded),
        _named(parties),
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        rows_per_unit=rows_per_unit,
        n_honest=honest,
    )
    write(made, output, as_json)


@party.command()
@click.argument("path", metavar="SESSION", type=click.Path())
@OUT
@FORCE
@JSON
def renew(path: str, output: str, force: bool, as_json: bool) -> None:
    """Start a SESSION anew, on the same terms: everybody contributes again."""
    require_free(output, force)
    write(_load(path, sl.Session).renewed(), output, as_json)


@party.command()
@click.argument("sketch", type=click.Path())
@click.argument("path", metavar="SESSION", type=click.Path())
@click.option(
    "--key", "secret", required=True, type=click.Path(), help="Of this party."
)
@click.option("--ledger", type=click.Path(), help="Where a private sum is paid.")
@click.option(
    "--honest-others",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Other parties that are relied on to keep their noise to themselves.",
)
@OUT
@FORCE
@JSON
def contribute(
    sketch: str,
    path: str,
    secret: str,
    ledger: str | None,
    honest_others: int,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Make this party's share of a SESSION from its exact SKETCH."""
    require_free(output, force)
    terms = _load(path, sl.Session)
    exact, mine = load_sketch(sketch), sl.PartyKey.load(secret)
    made = sl.contribute(exact, terms, mine, ledger=ledger, honest_others=honest_others)
    write(made, output, as_json)


@party.command()
@click.argument("share", type=click.Path())
@click.argument("path", metavar="SESSION", type=click.Path())
@click.option(
    "--key", "secret", required=True, type=click.Path(), help="Of this party."
)
@OUT
@FORCE
@JSON
def resend(
    share: str, path: str, secret: str, output: str, force: bool, as_json: bool
) -> None:
    """Send the numbers of this party's SHARE again in another SESSION, for free."""
    require_free(output, force)
    terms, mine = _load(path, sl.Session), sl.PartyKey.load(secret)
    write(_load(share, sl.Share).renewed(terms, mine), output, as_json)


@party.command()
@click.argument("shares", nargs=-1, required=True, type=click.Path())
@click.option(
    "--map",
    "plan",
    type=click.Path(),
    help="The map, where it has weights that no description holds.",
)
@OUT
@FORCE
@JSON
def combine(
    shares: tuple[str, ...], plan: str | None, output: str, force: bool, as_json: bool
) -> None:
    """Add up the SHARES of all parties of a session."""
    require_free(output, force)
    loaded = [_load(path, sl.Share) for path in shares]
    if plan is not None:
        feature_map = _load(plan, sl.AbstractFeatureMap)
        loaded = [share.with_map(feature_map) for share in loaded]
    write(sl.combine(loaded), output, as_json)


def _named(parties: tuple[str, ...]) -> dict[str, str]:
    """Public keys by name."""
    found: dict[str, str] = {}
    for text in parties:
        name, equals, public = text.partition("=")
        if not equals or name in found:
            raise click.UsageError(
                f"--party takes NAME=KEY, each name once; got {text!r}."
            )
        found[name] = public
    return found


def _load(path: str, kind: type[Any]) -> Any:
    """What is in a file, if it is of this kind."""
    found = sl.load(path)
    if not isinstance(found, kind):
        fail(f"{path} holds no {kind.__name__.lower()}; see sketchlearn party --help.")
    return found
