"""Errors on datasets of zeros and ones, beside those that the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sketchlearn.experiments.counts.answers import short_error
from sketchlearn.experiments.counts.fine_tuning import fine_tuned
from sketchlearn.experiments.counts.methods import (
    COUNT_METHODS,
    SEARCHED,
    count_method,
    fixed_table,
    why_missing,
)
from sketchlearn.experiments.counts.networks import NO_NETWORKS, TrainedNetworks
from sketchlearn.experiments.counts.search import search_batches
from sketchlearn.experiments.counts.sets import (
    BATCH_SETS,
    PAPER_COLUMNS,
    BinarySet,
    CountTask,
)
from sketchlearn.meta.config import TrainConfig
from sketchlearn.report import Cell, format_table
from sketchlearn.rows.binary_columns import KEPT_COLUMNS

__all__ = ["DatasetErrors", "dataset_tables", "evaluate_datasets"]

_TUNING_SETS = 50
"""Sets of training rows that tables are tuned on."""

_AVERAGE = "average"


@final
@dataclass(frozen=True, eq=False)
class DatasetErrors:
    """Errors by method, rows of a set and dataset."""

    size: int
    widths: Mapping[str, int]
    """Columns of each dataset."""

    marks: Mapping[str, str]
    """What is simulated or a stand-in."""

    train_split: tuple[str, ...]
    """Datasets that weights may have been learned from."""

    errors: Mapping[str, Mapping[int, Mapping[str, float]]]
    printed: Mapping[str, Mapping[str, float]]
    """The paper's, by its methods."""

    n_sets: int
    slow_sets: int
    """Sets of each dataset, and how many of them slow methods decode."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "sketch_size": self.size,
            "columns": dict(self.widths),
            "marks": dict(self.marks),
            "train_split": list(self.train_split),
            "errors": self.errors,
            "n_sets": self.n_sets,
            "slow_sets": self.slow_sets,
            "printed": self.printed,
        }


def evaluate_datasets(
    task: CountTask,
    sets: Sequence[BinarySet],
    methods: Sequence[str],
    *,
    networks: TrainedNetworks = NO_NETWORKS,
    size: int = 100,
    set_rows: Sequence[int] = (),
    n_sets: int = BATCH_SETS,
    slow_sets: int = 10,
    fine_tune: TrainConfig | None = None,
    printed: Mapping[str, Mapping[str, float]] | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> DatasetErrors:
    """Sketch and decode sets of random rows of each dataset's second half.

    Parameters
    ----------
    task : CountTask
        What is asked.
    sets : sequence of BinarySet
        Datasets.
    methods : sequence of str
        Of :data:`~sketchlearn.experiments.counts.methods.COUNT_METHODS`; tables of
        those that are tuned are chosen on sets of training rows.
    networks : TrainedNetworks
        Where methods that are networks are taken from; others are left out.
    size : int
        Numbers of a sketch.
    set_rows : sequence of int
        Rows of a set; those of the task by default.
    n_sets, slow_sets : int
        Sets of each dataset, and how many of them slow methods decode.
    fine_tune : TrainConfig, optional
        How to train the linear SQNet on with training rows; not at all by default.
    printed : mapping, optional
        The paper's errors.
    say : callable
        Receives lines of progress.
    """
    errors: dict[str, dict[int, dict[str, float]]] = {}
    sizes = tuple(set_rows) or task.set_rows
    for data in sets:
        at_hand = _tuned(networks, task, data, size, fine_tune)
        for n_rows in sizes:
            batch = data.draw(n_rows, n_sets, seed=0)
            for name in methods:
                if why_missing(name, size, task.name, at_hand):
                    continue
                table = fixed_table(size)
                if name in SEARCHED:
                    learned = data.draw(n_rows, _TUNING_SETS, seed=1, training=True)
                    table = search_batches([learned], name, size, task).best
                method = count_method(name, table, task.name, at_hand)
                some = batch.first(slow_sets if method.is_slow else None)
                by_rows = errors.setdefault(name, {n: {} for n in sizes})
                by_rows[n_rows][data.name] = task.error(
                    some, method.answer(some, 0).values
                )
            say(f"{data.name}: sets of {n_rows} rows")
    return DatasetErrors(
        size,
        {data.name: data.n_items for data in sets},
        {data.name: data.mark for data in sets if data.mark},
        tuple(data.name for data in sets if data.split == "train"),
        errors,
        printed or {},
        n_sets,
        slow_sets,
    )


def _tuned(
    networks: TrainedNetworks,
    task: CountTask,
    data: BinarySet,
    size: int,
    config: TrainConfig | None,
) -> TrainedNetworks:
    """All networks, and the linear one fine-tuned to a dataset."""
    linear = networks.best(task.name, size, family="sq-linear")
    if linear is None or config is None:
        return networks
    return networks.with_one(fine_tuned(linear, data, config))


def dataset_tables(task: CountTask, found: DatasetErrors) -> str:
    """Ours and the paper's printed errors, and what to know when comparing them."""
    names = list(found.widths)
    heads = ["mean square error", "N", *(_head(found, name) for name in names)]
    rows: list[list[Cell]] = [["columns", "", *found.widths.values(), ""]]
    for method, by_rows in found.errors.items():
        for n_rows, values in by_rows.items():
            cells = [short_error(values[name]) for name in names]
            average = short_error(float(np.mean([values[name] for name in names])))
            rows.append([COUNT_METHODS[method], n_rows, *cells, average])
    for method, printed in found.printed.items():
        cells = [short_error(printed[name]) for name in names]
        average = short_error(float(np.mean([printed[name] for name in names])))
        rows.append([f"printed: {method}", "?", *cells, average])
    title = f"Datasets of zeros and ones, {task.name}: {found.size} numbers"
    table = format_table([*heads, _AVERAGE], rows, title=title)
    return "\n".join([table, *_notes(found, n_all=len(PAPER_COLUMNS))])


def _notes(found: DatasetErrors, *, n_all: int) -> list[str]:
    notes = [
        "Errors are means over the columns that a dataset has. The paper's rows have\n"
        f"{KEPT_COLUMNS}, those of narrower sets padded with zeros: on this scale, its "
        f"errors at d columns\nmay be up to {KEPT_COLUMNS}/d times as large. All "
        f"averages are over the {len(found.widths)} of {n_all} datasets at hand.\n"
        "The paper does not say how many rows a set has. Optimal tables are those\n"
        "that are best for sets of training rows. Errors are means over "
        f"{found.n_sets} sets, and\nover the first {found.slow_sets} of them for "
        "joint decoding, least squares and (f) methods."
    ]
    marked = [f"{name} ({mark})" for name, mark in found.marks.items()]
    if marked:
        notes.append(f"* not the paper's rows: {', '.join(marked)}.")
    if found.train_split:
        listed = ", ".join(found.train_split)
        notes.append(f"+ of the split that weights are learned from: {listed}.")
    return notes


def _head(found: DatasetErrors, name: str) -> str:
    simulated = "*" if name in found.marks else ""
    return name + simulated + ("+" if name in found.train_split else "")
