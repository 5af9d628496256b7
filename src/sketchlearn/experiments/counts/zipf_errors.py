"""Errors of all methods on Zipf sets, and what their sketches weigh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import numpy as np

from sketchlearn.experiments.counts.answers import CountMethod, short_error
from sketchlearn.experiments.counts.methods import (
    COUNT_METHODS,
    LEARNING,
    SEARCHED,
    count_method,
    fixed_table,
    why_missing,
)
from sketchlearn.experiments.counts.networks import (
    NO_NETWORKS,
    TrainedNetworks,
    network_answers,
)
from sketchlearn.experiments.counts.search import TableSearch, ZipfLaw
from sketchlearn.experiments.counts.sets import (
    BATCH_SETS,
    N_ITEMS,
    CountTask,
    draw_zipf_batch,
)
from sketchlearn.report import Cell, format_table

__all__ = [
    "ALPHAS",
    "ZipfErrors",
    "ZipfPoint",
    "bytes_table",
    "evaluate_networks",
    "evaluate_zipf",
    "measure_point",
    "zipf_laws",
    "zipf_tables",
]

ALPHAS = tuple(step / 4 for step in range(9))
"""Of the Zipf laws: the axis of the paper's figures."""

_WEIGHED_ALPHA = 1.0
"""Where sketches are weighed."""


@final
@dataclass(frozen=True)
class ZipfPoint:
    """One method at one law."""

    error: float
    """Mean square error."""

    deviation: float
    """Standard error of it, over sets."""

    n_sets: int
    """Sets it is the mean of."""

    numbers: int
    bits: int
    """Numbers of a sketch, and bits of a number."""

    n_bytes: int
    """Of a sketch."""


ZipfErrors = dict[str, dict[int, dict[ZipfLaw, ZipfPoint]]]
"""By method, size and law."""


def zipf_laws(
    alphas: Sequence[float], betas: Sequence[float], n_rows: int
) -> list[ZipfLaw]:
    """All pairs of parameters; beta has no effect from alpha = 1 on, and is 1 there.

    Examples
    --------
    >>> [(law.alpha, law.beta) for law in zipf_laws((0.5, 1.0), (1.0, 0.5), 10)]
    [(0.5, 0.5), (0.5, 1.0), (1.0, 1.0)]
    """
    pairs = {(a, b if a < 1 else 1.0) for a in alphas for b in betas}
    return [ZipfLaw(a, b, n_rows) for a, b in sorted(pairs)]


def evaluate_zipf(
    task: CountTask,
    methods: Sequence[str],
    sizes: Sequence[int],
    laws: Sequence[ZipfLaw],
    *,
    search: TableSearch,
    networks: TrainedNetworks = NO_NETWORKS,
    n_sets: int = BATCH_SETS,
    slow_sets: int = 10,
    n_seeds: int = 1,
    say: Callable[[str], object] = lambda text: None,
) -> ZipfErrors:
    """Mean square errors at sets that no search has seen.

    Parameters
    ----------
    task : CountTask
        What is asked.
    methods : sequence of str
        Of :data:`~sketchlearn.experiments.counts.methods.COUNT_METHODS`.
    sizes : sequence of int
        Numbers of a sketch.
    laws : sequence of ZipfLaw
        Where to compare.
    search : TableSearch
        Where methods that are tuned take their table from.
    networks : TrainedNetworks
        Where methods that are networks are taken from; others are left out.
    n_sets, slow_sets : int
        Sets of a batch, and how many of them slow methods decode.
    n_seeds : int
        Batches of a law.
    say : callable
        Receives lines of progress.
    """
    shown = [name for name in methods if name not in LEARNING]
    found: ZipfErrors = {name: {size: {} for size in sizes} for name in shown}
    for law in laws:
        for size in sizes:
            for name in shown:
                if why_missing(name, size, task.name, networks):
                    continue
                table = fixed_table(size)
                if name in SEARCHED:
                    table = search[name][size][law].best
                method = count_method(name, table, task.name, networks)
                n_drawn = min(n_sets, slow_sets) if method.is_slow else n_sets
                found[name][size][law] = measure_point(
                    task, method, law, n_sets=n_drawn, n_seeds=n_seeds
                )
        say(f"compared: alpha {law.alpha:g}, beta {law.beta:g}, N {law.n_rows}")
    return found


def measure_point(
    task: CountTask, method: CountMethod, law: ZipfLaw, *, n_sets: int, n_seeds: int = 1
) -> ZipfPoint:
    """One method at one law."""
    errors = []
    for seed in range(n_seeds):
        batch = draw_zipf_batch(law.n_rows, law.alpha, law.beta, seed=seed)
        batch = batch.first(n_sets)
        answers = method.answer(batch, seed)
        gaps = np.square(answers.values - task.truth(batch))
        errors.append(gaps.mean(axis=1))
    every = np.concatenate(errors)
    return ZipfPoint(
        float(every.mean()),
        float(every.std() / np.sqrt(len(every))),
        len(every),
        answers.numbers,
        answers.bits,
        answers.n_bytes,
    )


def evaluate_networks(
    task: CountTask,
    networks: TrainedNetworks,
    attribute: Literal["pooling", "activation"],
    size: int,
    laws: Sequence[ZipfLaw],
    *,
    n_sets: int,
) -> dict[str, dict[ZipfLaw, ZipfPoint]]:
    """Errors of the best network of each pooling, or of each activation.

    Those of activations are RFQNets, those of poolings the others. Names say how long
    each was trained.
    """
    found: dict[str, dict[ZipfLaw, ZipfPoint]] = {}
    for kind in networks.kinds(task.name, size, attribute):
        network = networks.best(
            task.name, size, learned=attribute == "pooling", **{attribute: kind}
        )
        if network is None:
            continue
        answer = partial(network_answers, network=network, question=task.name)
        method = CountMethod(kind, answer)
        found[f"{kind} ({network.seconds:.0f} s)"] = {
            law: measure_point(task, method, law, n_sets=n_sets) for law in laws
        }
    return found


def zipf_tables(task: CountTask, errors: ZipfErrors) -> list[str]:
    """A table of errors for each size, beta and number of rows."""
    sizes = next(iter(errors.values())).keys()
    laws = next(iter(next(iter(errors.values())).values())).keys()
    groups = sorted({(law.n_rows, law.beta) for law in laws if law.alpha < 1})
    alphas = sorted({law.alpha for law in laws})
    tables = []
    for size in sizes:
        for n_rows, beta in reversed(groups):
            shown = zipf_laws(alphas, (beta,), n_rows)
            rows = [
                [COUNT_METHODS[name], *(_error(found[size].get(law)) for law in shown)]
                for name, found in errors.items()
                if any(law in found[size] for law in shown)
            ]
            heads = ["mean square error", *(f"alpha {alpha:g}" for alpha in alphas)]
            title = (
                f"Zipf sets, {task.name}: d = {N_ITEMS}, m = {size}, N = {n_rows}, "
                f"beta = {beta:g}"
            )
            tables.append(format_table(heads, rows, title=title))
    return tables


def bytes_table(task: CountTask, errors: ZipfErrors) -> str:
    """Numbers and bytes of each sketch, at one law."""
    by_size = next(iter(errors.values()))
    laws = next(iter(by_size.values())).keys()
    alpha = min((law.alpha for law in laws), key=lambda one: abs(one - _WEIGHED_ALPHA))
    weighed = [law for law in laws if law.alpha == alpha and law.beta == 1.0]
    rows: list[list[Cell]] = []
    for size in by_size:
        for law in weighed:
            for name, found in errors.items():
                if law in found[size]:
                    one = found[size][law]
                    weight: list[Cell] = [one.numbers, one.bits, one.n_bytes]
                    error: list[Cell] = [short_error(one.error), f"{one.deviation:.0e}"]
                    label = COUNT_METHODS[name]
                    rows.append([label, size, law.n_rows, *weight, *error, one.n_sets])
    heads = ["sketch", "m", "N", "numbers", "bits", "bytes", "error", "±", "sets"]
    bits = max(law.n_rows for law in weighed).bit_length()
    bits = 1 if task.name == "membership" else bits
    title = (
        f"What a sketch weighs (alpha = {alpha:g}): bits that hold every number of the "
        f"batch, 32 of a float.\nA counter of {bits} bit(s) for each of the {N_ITEMS} "
        f"items is exact, and has {bits * N_ITEMS // 8} bytes."
    )
    return format_table(heads, rows, title=title)


def _error(point: ZipfPoint | None) -> str:
    return "-" if point is None else short_error(point.error)
