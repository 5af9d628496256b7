"""Figures for k-means: error and ratio by size, time by rows, ratio by epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sketchlearn.experiments.kmeans.comparison import PRINTED_SIZES, KMeansResults
from sketchlearn.experiments.kmeans.methods import (
    KMEANS_METHODS,
    LLOYD_LABEL,
    OUR_KMEANS,
)
from sketchlearn.experiments.kmeans.privacy import PrivateRatios
from sketchlearn.experiments.kmeans.timing import LLOYD, TimingCurves
from sketchlearn.experiments.protocol import DELTA, EPSILONS, mean_by_size
from sketchlearn.report import Line, LinePanel, draw_lines

__all__ = ["draw_errors", "draw_private_ratios", "draw_ratios", "draw_times"]

_PAPERS = (
    OUR_KMEANS,
    "ckm-paper",
    "ckm",
    "amp",
    "ompr-dirac",
    "ompr-dirac-rff",
    "ompr-nystrom",
    "mean",
)
"""Methods of the paper's figure, and ours; the tables have all."""

_CYCLE = (*(f"C{i}" for i in (0, 1, 2, 3, 4, 5, 6)), "0.5", "C8", "C9")
_OTHERS = [name for name in KMEANS_METHODS if name not in _PAPERS]
_KMEANS_COLOURS = dict(
    zip([*_PAPERS, *_OTHERS], [*_CYCLE, "gold", "navy"], strict=True)
)

_NO_NOISE = 100.0
"""Place on the axis of epsilon."""

_CEILING = 2.5
"""Where larger ratios are drawn, or those of the smallest epsilon would hide the rest;
the tables have them all."""

_REGULAR = "regular"
"""How Iterative CKM that was trained without noise is labelled."""


def draw_errors(results: KMeansResults, path: Path) -> Path | None:
    """The paper's figure: mean squared error at its sizes, and the median ratio beside.

    None if no method ran on all sets at one of these sizes.
    """
    sizes = [size for size in results.sizes if size in PRINTED_SIZES]
    errors, ratios = [], []
    for method, found in results.ratios.items():
        heights = results.mean_errors(method, sizes)
        if method not in _PAPERS or np.isnan(heights).all():
            continue
        medians = [
            float(np.median([by_size.get(size, np.nan) for by_size in found.values()]))
            for size in sizes
        ]
        errors.append(_line(method, sizes, heights))
        ratios.append(_line(method, sizes, medians))
    if not errors:
        return None
    least = float(np.mean(list(results.lloyd.values())))
    errors.append(Line(LLOYD_LABEL, sizes, [least] * len(sizes), "-", "k"))
    ratios.append(Line(LLOYD_LABEL, sizes, [1.0] * len(sizes), "-", "k"))
    n_sets, ticks = len(results.sets), [(float(size), str(size)) for size in sizes]
    x_label = "numbers in the sketch"
    panels = [
        LinePanel(f"mean over {n_sets} real sets", x_label, "MSE", errors, True, ticks),
        LinePanel(
            f"median over {n_sets} real sets",
            x_label,
            "inertia over Lloyd's",
            ratios,
            log_x=True,
            ticks=ticks,
        ),
    ]
    return draw_lines(panels, path, title="k-means at the paper's sketch sizes")


def draw_ratios(results: KMeansResults, path: Path) -> Path | None:
    """Mean ratio against larger sizes: on all sets, and on those all methods share.

    None if there is no such size.
    """
    sizes = [size for size in results.sizes if size not in PRINTED_SIZES]
    if not sizes:
        return None
    everywhere = list(results.sets)
    shared = [
        name
        for name in everywhere
        if any(name in results.shared_sets(size) for size in sizes)
    ]
    panels = []
    for names in [everywhere] + [shared] * (shared != everywhere and bool(shared)):
        lines = []
        for method, found in results.ratios.items():
            means = mean_by_size(found, names, sizes)
            if method != "mean" and not np.isnan(means).all():
                lines.append(_line(method, sizes, means))
        ticks = [(float(size), str(size)) for size in sizes]
        title, x_label = f"mean over {len(names)} real sets", "numbers in the sketch"
        panels.append(LinePanel(title, x_label, "ratio", lines, True, ticks))
    return draw_lines(panels, path, title="Inertia over Lloyd's by sketch size")


def _line(method: str, sizes: Sequence[int], heights: Sequence[float]) -> Line:
    """A curve of a method, which looks the same in all figures of sizes."""
    styles = {OUR_KMEANS: "o-", "ckm-paper": "s-", "mean": ":"}
    style, colour = styles.get(method, ".--"), _KMEANS_COLOURS[method]
    return Line(KMEANS_METHODS[method], sizes, heights, style, colour)


def draw_times(curves: TimingCurves, path: Path) -> Path:
    """Seconds against the number of rows, and beside them what they bought."""
    labels, colours = (
        {**KMEANS_METHODS, LLOYD: LLOYD_LABEL},
        {**_KMEANS_COLOURS, LLOYD: "k"},
    )
    seconds, ratios = (
        [
            Line(labels[name], curves.counts, values, "o-", colours[name])
            for name, values in found.items()
        ]
        for found in (curves.seconds, curves.ratios)
    )
    sizes = f"{curves.n_features} features, {curves.sketch_size} numbers"
    panels = [
        LinePanel(sizes, "rows", "seconds", seconds, log_x=True, log_y=True),
        LinePanel("the same", "rows", "inertia over Lloyd's", ratios, log_x=True),
    ]
    return draw_lines(panels, path, title="Time by number of rows")


def draw_private_ratios(found: PrivateRatios, path: Path) -> Path:
    """Inertia ratio against epsilon: ours by rounds, and Iterative CKM in one panel."""
    places = [*EPSILONS, _NO_NOISE]
    panels: dict[str, list[Line]] = {}
    for method, by_size in found.ratios.items():
        name, _, training = method.partition(", ")
        lines = panels.setdefault(name, [])
        style = "o--" if training == _REGULAR else "o-"
        for number, (size, values) in enumerate(by_size.items()):
            label = ", ".join([f"m = {size}", *[training] * bool(training)])
            heights = [_height(value) for value in values]
            lines.append(Line(label, places, heights, style, f"C{number}"))
    ends = [EPSILONS[0], _NO_NOISE]
    at_mean = Line(KMEANS_METHODS["mean"], ends, [found.mean] * 2, "--", "0.5")
    ticks = [(value, f"{value:g}") for value in EPSILONS]
    ticks.append((_NO_NOISE, "no noise"))
    x_label, y_label = f"ε (δ = {DELTA:g})", f"ratio, {_CEILING:g} if larger"
    drawn = [
        LinePanel(name, x_label, y_label, [*lines, at_mean], True, ticks)
        for name, lines in panels.items()
    ]
    title = f"Private k-means of MNIST, {found.n_rows} rows: inertia over Lloyd's"
    return draw_lines(drawn, path, title=title, n_columns=len(drawn))


def _height(value: float | None) -> float:
    """Of a ratio in the figure of privacy; a gap where there is none."""
    return float("nan") if value is None else min(value, _CEILING)
