"""Drift: a sketch of A becomes one of A and B by merging, and of B by subtraction.

No row is needed again: what is decoded at each stage is all that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from sketchlearn.experiments.autoencoder.base import AbstractSketchMethod
from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    autoencoder_method,
    missing_weights,
)
from sketchlearn.experiments.autoencoder.sets import ReconstructionSet
from sketchlearn.report import Cell, format_table

__all__ = ["DriftCurve", "drift_pair", "drift_table", "measure_drift"]

_USUAL = ("MNIST", "quickdraw")
"""Sets of one width that have little else in common."""


@final
@dataclass(frozen=True)
class DriftCurve:
    """One method: accuracies in percent at the stages A, A + B and B."""

    method: str
    first: str
    second: str
    """Names of A and B."""

    on_first: tuple[float, float, float]
    on_second: tuple[float, float, float]
    """Of rows of A, and of B."""

    is_exact: bool
    """Whether the sketch after subtraction is the sketch of B, bit by bit."""

    @property
    def stages(self) -> tuple[str, str, str]:
        """What is in the sketch."""
        return self.first, f"{self.first} + {self.second}", self.second

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def drift_pair(
    sets: Sequence[ReconstructionSet],
) -> tuple[ReconstructionSet, ReconstructionSet] | None:
    """Two sets of one width: the usual ones, or the first that there are."""
    known = {data.name: data for data in sets}
    if all(name in known for name in _USUAL):
        return known[_USUAL[0]], known[_USUAL[1]]
    pairs = [
        (first, second)
        for place, first in enumerate(sets)
        for second in sets[place + 1 :]
        if first.n_features == second.n_features
    ]
    return pairs[0] if pairs else None


def measure_drift(
    first: ReconstructionSet,
    second: ReconstructionSet,
    methods: Sequence[str],
    *,
    n_rows: int | None = None,
    weights: str | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> list[DriftCurve]:
    """Merge and subtract sketches of two sets, and decode at each stage.

    Parameters
    ----------
    first, second : ReconstructionSet
        A and B, of one width.
    methods : sequence of str
        Names of methods of one sketch; those without weights are left out.
    n_rows : int, optional
        Most rows of each set to reconstruct.
    weights : path, optional
        Folder of weights that the package does not have.
    say : callable
        Receives lines of progress.
    """
    curves = []
    for name in methods:
        if missing_weights(name, weights):
            continue
        method = autoencoder_method(name, n_components=first.n_codes, weights=weights)
        if not isinstance(method, AbstractSketchMethod):
            continue
        sketch_a, sketch_b = (
            method.sketch(first.training),
            method.sketch(second.training),
        )
        both = sketch_a + sketch_b
        rest = both - sketch_a
        on_first, on_second = [], []
        for sketch in (sketch_a, both, rest):
            fitted = method.decode(sketch, first.n_features)
            on_first.append(first.accuracy(fitted.reconstruct, n_rows=n_rows))
            on_second.append(second.accuracy(fitted.reconstruct, n_rows=n_rows))
        exact = rest == sketch_b
        say(f"{AUTOENCODER_METHODS[name]}: from {first.name} to {second.name}")
        curves.append(
            DriftCurve(
                name,
                first.name,
                second.name,
                (on_first[0], on_first[1], on_first[2]),
                (on_second[0], on_second[1], on_second[2]),
                bool(exact),
            )
        )
    return curves


def drift_table(curves: Sequence[DriftCurve]) -> str:
    """Accuracies of rows of both sets at each stage."""
    stages = curves[0].stages
    heads = ["balanced accuracy, percent", "rows of", *stages, "subtraction"]
    rows: list[list[Cell]] = []
    for curve in curves:
        exact = "exact" if curve.is_exact else "NOT EXACT"
        for name, values in (
            (curve.first, curve.on_first),
            (curve.second, curve.on_second),
        ):
            cells = [f"{value:.1f}" for value in values]
            rows.append([AUTOENCODER_METHODS[curve.method], name, *cells, exact])
    title = "Drift: what is in the sketch, by merging and then by subtraction"
    return format_table(heads, rows, title=title)
