"""The paper's figures for PCA and ridge, from results and from the test sets.

Figures pca_regression_results, curves-barrido and, without noise, dp-pca of the paper.
Each function draws one and returns its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sketchlearn.experiments.pca.comparison import REAL, PCAResults
from sketchlearn.experiments.pca.methods import OUR_PCA, PCA_METHODS, SQNET, Method
from sketchlearn.experiments.pca.sets import EvaluationSet
from sketchlearn.experiments.protocol import mean_by_size
from sketchlearn.metrics import leading_components
from sketchlearn.report import (
    Line,
    LinePanel,
    PointPanel,
    draw_lines,
    draw_points,
)

__all__ = [
    "draw_component_errors",
    "draw_scatter",
    "draw_sizes",
    "errors_by_rank",
]

_PCA_COLOURS = dict(
    zip(
        PCA_METHODS,
        ["C1", "C0", "C9", "C4", "C5", "C6", "C7", "C8", "navy", "k", "C2", "C3"],
        strict=True,
    )
)


def draw_sizes(results: PCAResults, path: Path) -> Path:
    """Mean LRE over the real sets against sketch size, for PCA and for ridge."""
    names, panels = results.groups[REAL], []
    for task, scores in (("PCA", results.pca), ("ridge", results.ridge)):
        lines = [
            Line(
                PCA_METHODS[method],
                results.sizes,
                mean_by_size(found, names, results.sizes),
                "o-" if method in (SQNET, OUR_PCA) else ".--",
                _PCA_COLOURS[method],
            )
            for method, found in scores.items()
            if found
        ]
        if task == "PCA" and results.shared:
            printed = mean_by_size(results.printed, results.shared, results.sizes)
            label = f"SQNet, printed in the paper ({len(results.shared)} sets)"
            lines.append(Line(label, results.sizes, printed, "s:", "0.4"))
        ticks = _size_ticks(results.sizes)
        title = f"{task}: mean over {len(names)} {REAL}"
        panels.append(
            LinePanel(
                title, "numbers in the sketch", "LRE (0 = exact)", lines, True, ticks
            )
        )
    return draw_lines(panels, path, title="Log relative error by sketch size")


def _size_ticks(sizes: Sequence[int]) -> list[tuple[float, str]]:
    """Labels of sizes that do not run into one another."""
    ticks: list[tuple[float, str]] = []
    for size in sorted(sizes):
        if not ticks or size > 2 * ticks[-1][0]:
            ticks.append((float(size), str(size)))
    return ticks


def errors_by_rank(
    second_moment: NDArray[np.float64], components: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Share of the variance that the first r components miss, for r = 1, 2, ...

    Examples
    --------
    >>> errors_by_rank(np.diag([3.0, 1.0]), np.eye(2))
    array([0.25, 0.  ])
    """
    captured = np.einsum("ij,ij->i", components @ second_moment, components)
    missed: NDArray[np.float64] = 1 - np.cumsum(captured) / np.trace(second_moment)
    return missed


def draw_component_errors(
    sets: Sequence[EvaluationSet],
    methods: Sequence[Method],
    sizes: Sequence[int],
    path: Path,
) -> Path:
    """Reconstruction error against the number of components: sets by sizes."""
    panels = []
    for data in sets:
        exact = errors_by_rank(data.second_moment, data.components)
        ranks = np.arange(1, len(exact) + 1)
        for size in sizes:
            lines = [Line("exact PCA", ranks.tolist(), exact.tolist(), "-", "0.2")]
            for method in methods:
                if not method.runs_at(size):
                    continue
                moment = method.estimate(data, size, 0).second_moment
                found = leading_components(moment)
                errors = errors_by_rank(data.padded(len(found)), found)[: len(ranks)]
                lines.append(
                    Line(
                        PCA_METHODS[method.name],
                        ranks.tolist(),
                        errors.tolist(),
                        "-",
                        _PCA_COLOURS[method.name],
                    )
                )
            title = f"{data.name}, {size} numbers"
            y_label = "share of variance missed"
            panels.append(LinePanel(title, "number of components", y_label, lines))
    title = "Error by number of principal components"
    return draw_lines(panels, path, title=title, n_columns=len(sizes))


def draw_scatter(
    data: EvaluationSet, methods: Sequence[Method], sizes: Sequence[int], path: Path
) -> Path:
    """Rows on their first two components, exact and from sketches, by class."""
    labels = np.zeros(len(data.rows)) if data.labels is None else data.labels
    groups = [f"class {int(label):02d}" for label in labels]
    exact = data.components[:2]
    panels = [PointPanel("exact PCA", data.rows @ exact.T, groups)]
    for method in methods:
        for size in sizes:
            if not method.runs_at(size):
                continue
            moment = method.estimate(data, size, 0).second_moment
            found = leading_components(moment)[:2, : data.n_features]
            # A component is known up to its sign: show the one nearer to exact PCA.
            signs = np.where(np.einsum("ij,ij->i", found, exact) < 0, -1.0, 1.0)
            points = data.rows @ (found * signs[:, None]).T
            title = f"{PCA_METHODS[method.name]}, {size} numbers"
            panels.append(PointPanel(title, points, groups))
    title = f"First two principal components of {data.name}"
    return draw_points(panels, path, title=title, n_columns=3)
