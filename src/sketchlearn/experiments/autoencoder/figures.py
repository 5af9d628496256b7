"""Figures: accuracy by rows in the sketch, drift, and some rows as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from pathlib import Path

import numpy as np

from sketchlearn.experiments.autoencoder.drift import DriftCurve
from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    DRIFTING,
    OUR_AUTOENCODER,
    PCA_BASELINE,
    autoencoder_method,
    missing_weights,
)
from sketchlearn.experiments.autoencoder.row_counts import RowCurve
from sketchlearn.experiments.autoencoder.sets import ReconstructionSet
from sketchlearn.report import (
    Line,
    LinePanel,
    PictureRow,
    draw_lines,
    draw_pictures,
)

__all__ = ["draw_drift", "draw_row_counts", "draw_rows", "square_set"]

_ACCURACY = "balanced accuracy, percent"
_COLOURS = {name: f"C{number}" for number, name in enumerate(DRIFTING)}
_PICTURED = 10
"""Most rows shown as pictures, one of each class."""

_TICK_RATIO = 2
"""Numbers of rows closer to all of them have no text, since it would overlap."""


def draw_row_counts(curves: Sequence[RowCurve], path: Path) -> Path:
    """Accuracy against rows in the sketch, a panel for each set."""
    panels = []
    for name in dict.fromkeys(curve.name for curve in curves):
        own = [curve for curve in curves if curve.name == name]
        lines = [
            Line(
                AUTOENCODER_METHODS[curve.method],
                curve.n_rows,
                curve.means,
                _style(curve.method),
                _COLOURS[curve.method],
                curve.deviations,
            )
            for curve in own
        ]
        *some, whole = own[0].n_rows
        texts = [str(count) if _TICK_RATIO * count < whole else "" for count in some]
        ticks = list(zip(own[0].n_rows, [*texts, "all"], strict=True))
        title, x_label = f"{name}, {own[0].n_codes} numbers", "rows in the sketch"
        panels.append(LinePanel(title, x_label, _ACCURACY, lines, True, ticks))
    title = "Rows in the sketch: mean and standard deviation over draws of them"
    return draw_lines(panels, path, title=title, n_columns=min(4, len(panels)))


def draw_drift(curves: Sequence[DriftCurve], path: Path) -> Path:
    """Accuracy at each stage: of rows of the first set, and of the second."""
    places = [0.0, 1.0, 2.0]
    ticks = list(zip(places, curves[0].stages, strict=True))
    panels = []
    for is_first, name in ((True, curves[0].first), (False, curves[0].second)):
        lines = [
            Line(
                AUTOENCODER_METHODS[curve.method],
                places,
                curve.on_first if is_first else curve.on_second,
                _style(curve.method),
                _COLOURS[curve.method],
            )
            for curve in curves
        ]
        title = f"rows of {name}"
        panels.append(LinePanel(title, "in the sketch", _ACCURACY, lines, ticks=ticks))
    exact = all(curve.is_exact for curve in curves)
    how = "exactly" if exact else "NOT"
    title = f"Merged, then subtracted: the rest is {how} the sketch of {name} alone"
    return draw_lines(panels, path, title=title)


def square_set(sets: Sequence[ReconstructionSet]) -> ReconstructionSet | None:
    """MNIST if its columns are all pixels of a square image, or None."""
    for data in sets:
        if data.name == "MNIST" and isqrt(data.n_features) ** 2 == data.n_features:
            return data
    return None


def draw_rows(
    data: ReconstructionSet, path: Path, *, weights: str | None = None
) -> Path:
    """Some rows of an image set as they are, and as they come back."""
    chosen = np.unique(data.labels, return_index=True)[1][:_PICTURED]
    rows, labels, side = data.rows[chosen], data.labels[chosen], isqrt(data.n_features)
    shown = [PictureRow("rows", rows.reshape(-1, side, side))]
    for name in ("ms", PCA_BASELINE, OUR_AUTOENCODER):
        if missing_weights(name, weights):
            continue
        method = autoencoder_method(name, n_components=data.n_codes, weights=weights)
        fitted = method.fit(data.training, data.training_labels)
        found = fitted.reconstruct(rows, labels)
        title = AUTOENCODER_METHODS[name].removesuffix(" (train: RM)")
        shown.append(PictureRow(title, np.asarray(found).reshape(-1, side, side)))
    title = f"Rows of {data.name} that are not in the sketch, {data.n_codes} numbers"
    return draw_pictures(shown, path, title=title)


def _style(method: str) -> str:
    return "o-" if method == OUR_AUTOENCODER else ".--"
