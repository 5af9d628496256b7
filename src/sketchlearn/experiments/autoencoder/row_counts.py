"""Accuracy against the number of rows in the sketch (paper, Analysis of the sketch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final

import numpy as np

from sketchlearn.experiments.autoencoder.base import AbstractMethod
from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    OWN_CODES,
    autoencoder_method,
    missing_weights,
)
from sketchlearn.experiments.autoencoder.sets import ReconstructionSet
from sketchlearn.report import Cell, format_table

__all__ = ["RowCurve", "evaluate_row_counts", "row_count_table"]


@final
@dataclass(frozen=True)
class RowCurve:
    """One method on one set: accuracies in percent by rows in the sketch."""

    name: str
    method: str
    n_codes: int
    """Numbers of a code, the same of all methods on a set."""

    n_rows: tuple[int, ...]
    """Rows in the sketch; the last one is all of them."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    """Standard deviations over draws of the rows; 0 for all of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def evaluate_row_counts(
    sets: Sequence[ReconstructionSet],
    methods: Sequence[str],
    *,
    sizes: Sequence[int],
    n_seeds: int,
    n_rows: int | None = None,
    weights: str | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> list[RowCurve]:
    """Sketch few and many training rows, and code the same other rows.

    Narrow sets have the code of a quarter of their columns, and methods that only have
    codes of 50 numbers are left out there.

    Parameters
    ----------
    sets : sequence of ReconstructionSet
        Datasets.
    methods : sequence of str
        Names of methods; those without weights are left out.
    sizes : sequence of int
        Rows in the sketch; all training rows are added.
    n_seeds : int
        Draws of the rows.
    n_rows : int, optional
        Most rows to reconstruct.
    weights : path, optional
        Folder of weights that the package does not have.
    say : callable
        Receives lines of progress.
    """
    at_hand = [name for name in methods if not missing_weights(name, weights)]
    curves = []
    for data in sets:
        counts = [size for size in sorted(sizes) if size < len(data.training)]
        counts.append(len(data.training))
        for name in at_hand:
            if name in OWN_CODES and data.narrow_codes:
                continue  # 50 numbers for fewer columns are no code
            method = partial(
                autoencoder_method, name, n_components=_codes(data), weights=weights
            )
            values = [_values(data, method, one, n_seeds, n_rows) for one in counts]
            curves.append(
                RowCurve(
                    data.name,
                    name,
                    _codes(data),
                    tuple(counts),
                    tuple(float(np.mean(some)) for some in values),
                    tuple(float(np.std(some)) for some in values),
                )
            )
        say(f"{data.name}: sketches of {counts[0]} to {counts[-1]} rows")
    return curves


def _values(
    data: ReconstructionSet,
    method: Callable[..., AbstractMethod],
    count: int,
    n_seeds: int,
    n_rows: int | None,
) -> list[float]:
    n_draws = 1 if count == len(data.training) else n_seeds
    found = []
    for seed in range(n_draws):
        fitted = method(seed=seed).fit(*data.sketched_rows(count, seed))
        found.append(data.accuracy(fitted.reconstruct, n_rows=n_rows))
    return found


def _codes(data: ReconstructionSet) -> int:
    """As in the paper; of narrow sets a quarter of the columns."""
    return data.narrow_codes or data.n_codes


def row_count_table(curves: Sequence[RowCurve]) -> str:
    """Means and deviations, a row for each set and method."""
    counts = sorted({count for curve in curves for count in curve.n_rows[:-1]})
    heads = ["balanced accuracy, percent", "code", "method", *map(str, counts)]
    heads.append("all rows")
    rows: list[list[Cell]] = []
    for curve in curves:
        shown: Mapping[int, str] = {
            count: f"{mean:.1f} ({deviation:.1f})"
            for count, mean, deviation in zip(
                curve.n_rows[:-1],
                curve.means[:-1],
                curve.deviations[:-1],
                strict=True,
            )
        }
        cells: list[Cell] = [shown.get(count) for count in counts]
        label = AUTOENCODER_METHODS[curve.method]
        rows.append(
            [curve.name, curve.n_codes, label, *cells, f"{curve.means[-1]:.1f}"]
        )
    title = "Rows in the sketch: means and standard deviations over draws of them"
    return format_table(heads, rows, title=title)
