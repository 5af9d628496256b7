"""``sketchlearn query``: a sketch of items is asked how often they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import sketchlearn as sl
from sketchlearn.cli.base import fail, lazy, load_sketch

__all__ = ["query"]


@click.command()
@click.argument("path", metavar="SKETCH", type=click.Path())
@click.argument("items", nargs=-1)
@click.option(
    "--vocabulary",
    type=click.Path(exists=True, dir_okay=False),
    help="All items there are, one in each line: they are decoded together.",
)
@click.option("--integers", is_flag=True, help="Items are integers, not texts.")
@click.option("--top", type=click.IntRange(1), help="The most frequent items instead.")
@click.option("--confidence", type=float, default=0.95, show_default=True)
def query(
    path: str,
    items: tuple[str, ...],
    vocabulary: str | None,
    integers: bool,
    top: int | None,
    confidence: float,
) -> None:
    """Print how often ITEMS are in the rows of a SKETCH, as lines of JSON.

    Without a vocabulary each item is answered alone, from the buckets it was hashed
    into; with one, all items are decoded together, which is much closer.
    """
    if bool(items) == (top is not None):
        raise click.UsageError("name the items to ask for, or pass --top N.")
    sketch = load_sketch(path)
    known = None if vocabulary is None else _parsed(_lines(vocabulary), integers)
    if sketch.features.kind == sl.BloomFeatures.kind:
        if top is not None:
            raise click.UsageError("a Bloom filter knows no most frequent items.")
        _print_members(sketch, known, _parsed(list(items), integers))
        return
    asked = sl.FrequencyEstimator(known, decoder=_decoder(sketch, known))
    asked.fit_sketch(sketch)
    if top is None:
        found = asked.query(_parsed(list(items), integers), confidence=confidence)
    else:
        found = asked.top(top, confidence=confidence)
    for item, count, low, high in zip(
        found.items, found.counts, found.low, found.high, strict=True
    ):
        line = {"item": item, "count": count, "low": low, "high": high}
        click.echo(json.dumps(line))


def _decoder(sketch: Any, known: Any) -> Any:
    """What a sketch can be asked by."""
    is_open = sketch.features.n_features == lazy("features.items").OPEN_VOCABULARY
    if known is not None or not is_open:
        return "joint"
    is_min = sketch.features.kind == sl.CountMinFeatures.kind
    return "count-min" if is_min else "count-sketch"


def _print_members(sketch: Any, known: Any, items: list[Any]) -> None:
    """Whether a Bloom filter has seen items."""
    filtered = sl.MembershipEstimator(known, decoder="bloom").fit_sketch(sketch)
    found = filtered.query(items)
    for item, share in zip(found.items, found.probabilities, strict=True):
        click.echo(json.dumps({"item": item, "probability": share}))


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()


def _parsed(items: list[str], integers: bool) -> list[Any]:
    if not integers:
        return list(items)
    try:
        return [int(item) for item in items]
    except ValueError:
        return fail("--integers: some item is not a whole number.")
