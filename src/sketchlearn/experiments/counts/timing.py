"""Seconds of each method for a batch, beside those that the paper prints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sketchlearn.experiments.counts.methods import (
    COUNT_METHODS,
    LEARNING,
    SEARCHED,
    count_method,
    fixed_table,
    why_missing,
)
from sketchlearn.experiments.counts.networks import NO_NETWORKS, TrainedNetworks
from sketchlearn.experiments.counts.sets import (
    BATCH_SETS,
    CountTask,
    draw_zipf_batch,
)
from sketchlearn.experiments.protocol import read_printed
from sketchlearn.report import Cell, format_table

__all__ = ["BatchSeconds", "measure_seconds", "seconds_table"]

_PRINTED_AS = {
    "cm-fixed": "CM",
    "cs-fixed": "CS",
    "sq-nonlinear": "SQ(Non Linear)",
    "sq-linear": "SQ(Linear)",
    "sq-ternary": "SQ(Ternary)",
    "sq-parallel": "SQ(Parallel)",
    "rfq": "RFQ",
}
"""How the paper's table of times calls our methods."""

_TIMES = "frequency_seconds"


@final
@dataclass(frozen=True, eq=False)
class BatchSeconds:
    """Seconds by method, here and as printed."""

    test: Mapping[str, float]
    """Sketching and decoding a batch of 500 sets, here."""

    scaled: tuple[str, ...]
    """Methods that were timed at fewer sets, and their time scaled."""

    train: Mapping[str, float]
    """As written in the cards of weights."""

    printed: Mapping[str, Mapping[str, float]]
    """``train_s`` and ``test_s`` of the paper's methods."""


def measure_seconds(
    task: CountTask,
    methods: Sequence[str],
    *,
    networks: TrainedNetworks = NO_NETWORKS,
    size: int = 100,
    n_sets: int = BATCH_SETS,
    slow_sets: int = 10,
) -> BatchSeconds:
    """Time each method on a batch of Zipf sets with alpha = 1.

    Parameters
    ----------
    task : CountTask
        What is asked.
    methods : sequence of str
        Of :data:`~sketchlearn.experiments.counts.methods.COUNT_METHODS`.
    networks : TrainedNetworks
        Where methods that are networks are taken from; others are left out.
    size : int
        Numbers of a sketch.
    n_sets, slow_sets : int
        Sets to time, and how many of them slow methods decode.
    """
    batch = draw_zipf_batch(task.zipf_rows[0], 1.0, 1.0, seed=0, n_sets=n_sets)
    test, scaled = {}, []
    train = {}
    for name in methods:
        left_out = name in LEARNING or name in SEARCHED  # as slow as the fixed ones
        if left_out or why_missing(name, size, task.name, networks):
            continue
        method = count_method(name, fixed_table(size), task.name, networks)
        trained = networks.best(task.name, size, family=name)
        if trained is not None:
            train[name] = trained.seconds
        some = batch.first(slow_sets if method.is_slow else None)
        start = time.process_time()
        method.answer(some, 0)
        seconds = time.process_time() - start
        test[name] = seconds * BATCH_SETS / len(some.counts)
        if len(some.counts) < BATCH_SETS:
            scaled.append(name)
    return BatchSeconds(test, tuple(scaled), train, read_printed(_TIMES))


def seconds_table(found: BatchSeconds) -> str:
    """Train and test times, ours and the paper's."""
    rows: list[list[Cell]] = []
    for name, seconds in found.test.items():
        paper = _PRINTED_AS.get(name, "")
        printed = [found.printed.get(k, {}).get(paper) for k in ("train_s", "test_s")]
        ours = f"{seconds:.1e}" + ("~" if name in found.scaled else "")
        trained = found.train.get(name)
        rows.append([COUNT_METHODS[name], _short(trained), ours, *map(_short, printed)])
    heads = ["seconds", "train, here", "test, here", "train, printed", "test, printed"]
    title = (
        f"Seconds for a batch of {BATCH_SETS} sets: here of one CPU, the printed "
        "ones of a V100 GPU\n(~ scaled from fewer sets; training as noted in the card "
        "of the weights)"
    )
    return format_table(heads, rows, title=title)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
