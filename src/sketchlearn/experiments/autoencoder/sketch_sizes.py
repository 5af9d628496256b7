"""PCA against ours at equal sketches, between PCA and the dataset-specific ceiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from sketchlearn.experiments.autoencoder.methods import (
    OUR_AUTOENCODER,
    PCA_BASELINE,
    SketchSize,
    autoencoder_method,
)
from sketchlearn.experiments.autoencoder.sets import ReconstructionSet
from sketchlearn.experiments.autoencoder.specific import SpecificAutoencoders
from sketchlearn.report import Cell, format_table

__all__ = ["SKETCHES", "GapClosed", "compare_sketches", "gap_table"]

SKETCHES = {
    "full": "all second moments",
    "compressed": "5 numbers a column",
    "few rows": "64 rows",
}
"""The sketches at which both are compared, and what is in them."""

_PER_COLUMN, _FEW_ROWS = 5, 64
_LEAST_GAP = 0.1
"""Below so many percent there is no distance to close."""


@final
@dataclass(frozen=True)
class GapClosed:
    """One set at one sketch: accuracies in percent."""

    name: str
    sketch: str
    pca: float
    ours: float
    ceiling: float | None
    """Of the dataset-specific autoencoder with the same code and rows, if trained."""

    @property
    def share(self) -> float:
        """Share of the distance from PCA to the ceiling that is closed; or NaN."""
        gap = np.nan if self.ceiling is None else self.ceiling - self.pca
        return float((self.ours - self.pca) / gap) if gap > _LEAST_GAP else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        share = None if np.isnan(self.share) else self.share
        return {**asdict(self), "share": share}


def compare_sketches(
    sets: Sequence[ReconstructionSet],
    specific: SpecificAutoencoders | None,
    *,
    n_seeds: int,
    say: Callable[[str], object] = lambda text: None,
) -> list[GapClosed]:
    """PCA and ours from the same sketches of each set.

    Narrow sets have the code of a quarter of their columns: with the paper's, nothing
    is lost.

    Parameters
    ----------
    sets : sequence of ReconstructionSet
        Datasets.
    specific : SpecificAutoencoders, optional
        Where ceilings are trained.
    n_seeds : int
        Draws of what is random in a sketch, to take the mean of.
    say : callable
        Receives lines of progress.
    """
    found = []
    for data in sets:
        codes = data.narrow_codes or data.n_codes
        ceiling = None
        if specific is not None:
            ceiling = data.accuracy(specific.of(data, codes).reconstruct)
        for sketch in SKETCHES:
            pca, ours = (
                _mean_accuracy(data, name, codes, sketch, n_seeds)
                for name in (PCA_BASELINE, OUR_AUTOENCODER)
            )
            found.append(GapClosed(data.name, sketch, pca, ours, ceiling))
        say(f"{data.name}: PCA and ours at {len(SKETCHES)} sketches")
    return found


def _mean_accuracy(
    data: ReconstructionSet, name: str, codes: int, sketch: str, n_seeds: int
) -> float:
    values = []
    for seed in range(1 if sketch == "full" else n_seeds):
        few = _FEW_ROWS if sketch == "few rows" else None
        rows, labels = data.sketched_rows(few, seed)
        size: SketchSize = "auto"
        if sketch == "compressed":
            size = _PER_COLUMN * data.n_features
        method = autoencoder_method(
            name, n_components=codes, sketch_size=size, seed=seed
        )
        values.append(data.accuracy(method.fit(rows, labels).reconstruct))
    return float(np.mean(values))


def gap_table(found: Sequence[GapClosed]) -> str:
    """Sets by sketches: PCA, ours and the share of the distance that is closed."""
    heads = ["balanced accuracy, percent", "AE"]
    for sketch in SKETCHES:
        heads += [f"PCA, {sketch}", "ours", "closed"]
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(one.name for one in found):
        own = {one.sketch: one for one in found if one.name == name}
        ceiling = next(iter(own.values())).ceiling
        row: list[Cell] = [name, None if ceiling is None else f"{ceiling:.1f}"]
        for sketch in SKETCHES:
            one = own[sketch]
            row += [f"{one.pca:.1f}", f"{one.ours:.1f}", _closed(one.share)]
        rows.append(row)
    listed = ", ".join(f"{name}: {what}" for name, what in SKETCHES.items())
    title = (
        "PCA and ours from the same sketch, and the dataset-specific autoencoder (AE) "
        "with the\nsame code: how much of the distance from PCA to it is closed"
    )
    notes = (
        f"{listed}.\nMore than 100 %: ours is better than the autoencoder that was "
        "trained with all rows, for the\nseconds it had; a dash where that one is no "
        "better than PCA. Narrow sets have small codes."
    )
    return "\n".join([format_table(heads, rows, title=title), notes])


def _closed(share: float) -> str | None:
    """In percent; how far beyond the ceiling says nothing."""
    if np.isnan(share):
        return None
    return f"{100 * share:.0f} %" if share <= 1 else "> 100 %"
