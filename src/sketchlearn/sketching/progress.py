"""Progress: how far the rows are, on a terminal and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

import click

__all__ = ["with_progress"]

LONG_INPUT = 200_000
"""Rows from which progress is shown without being asked for."""


_Batch = TypeVar("_Batch", bound=Sized)
_Given = TypeVar("_Given", bound=Sized, covariant=True)


class _Batches(Protocol[_Given]):
    """What is asked of opened rows here."""

    n_rows: int | None
    progress: bool | None

    def __iter__(self) -> Iterator[_Given]: ...


def with_progress(batches: _Batches[_Batch]) -> Iterator[_Batch]:
    """The batches; how many rows they had is shown on stderr if it is a terminal.

    Nothing is read, and nothing shown, before the first of them is asked for.

    Parameters
    ----------
    batches : Batches or ItemBatches
        Whether progress is wanted was said where they were opened; otherwise it is
        shown for long inputs.
    """
    n_rows, wanted = batches.n_rows, batches.progress
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_long = n_rows is None or n_rows > LONG_INPUT
    if not is_terminal or wanted is False or (wanted is None and not is_long):
        yield from batches
    elif n_rows is None:
        yield from _counted(batches, delay=0.0 if wanted else 1.0)
    else:
        yield from _with_bar(batches, n_rows)


def _with_bar(batches: Iterable[_Batch], n_rows: int) -> Iterator[_Batch]:
    with click.progressbar(length=n_rows, label="rows", file=sys.stderr) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
        bar.update(n_rows - bar.pos)  # rows that were left out


def _counted(batches: Iterable[_Batch], delay: float) -> Iterator[_Batch]:
    """Count the rows of an input whose length nobody knows."""
    count, shown, due = 0, False, time.monotonic() + delay
    try:
        for batch in batches:
            yield batch
            count += len(batch)
            if time.monotonic() >= due:
                click.echo(f"\r{count:,} rows", file=sys.stderr, nl=False)
                shown, due = True, time.monotonic() + 0.2
    finally:
        if shown:
            click.echo(f"\r{count:,} rows", file=sys.stderr)
