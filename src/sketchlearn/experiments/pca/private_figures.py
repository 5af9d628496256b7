"""The paper's figures of private PCA: dp-curves, dp-curves-2 and dp-pca."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sketchlearn.experiments.pca.methods import OUR_PCA, SQNET
from sketchlearn.experiments.pca.privacy import (
    SETTINGS,
    PrivacyCurves,
    mean_curves,
    noisy_moment,
)
from sketchlearn.experiments.pca.private_methods import (
    ALL_OF_R,
    CPCA,
    PRIVATE_METHODS,
    sketch_plans,
)
from sketchlearn.experiments.pca.public import private_set
from sketchlearn.experiments.protocol import DELTA, EPSILONS
from sketchlearn.metrics import leading_components
from sketchlearn.report import Line, LinePanel, PointPanel, draw_lines, draw_points

__all__ = ["draw_privacy", "draw_private_scatter"]

_PRIVATE_STYLES = dict(
    zip(
        PRIVATE_METHODS,
        [("o-", "C1"), ("s--", "C1"), ("^-", "C0"), ("v-", "0.5"), ("D-", "C3"),
         ("x:", "k")],
        strict=True,
    )
)  # fmt: skip
_NOISELESS_PLACE = 100.0
"""Place on the axis of epsilon."""

_SHOWN_EPSILON = 1.0
"""Of the panels by sketch size and of the scatter plot, as in the paper."""

PrivateScores = dict[str, dict[int, list[float]]]


def draw_privacy(curves: Sequence[PrivacyCurves], path: Path) -> Path:
    """LRE against epsilon and against sketch size, of the mean and of the first set."""
    scores: dict[str, PrivateScores] = {}
    if len(curves) > 1:
        scores[f"mean over {len(curves)} sets"] = mean_curves(curves)
    scores[f"{curves[0].name}, {curves[0].n_rows} rows"] = curves[0].lre
    panels = []
    for title, found in scores.items():
        panels += [_by_epsilon(title, found), _by_size(title, found)]
    setting = next(iter(SETTINGS))
    return draw_lines(panels, path, title=f"PCA from one private sketch ({setting})")


def _by_epsilon(title: str, scores: PrivateScores) -> LinePanel:
    size = max(size for name, found in scores.items() if name != ALL_OF_R
               for size in found)  # fmt: skip
    places = [*EPSILONS, _NOISELESS_PLACE]
    lines = []
    for name, found in scores.items():
        values = found.get(size, list(found.values())[-1])
        lines.append(
            Line(PRIVATE_METHODS[name], places, values, *_PRIVATE_STYLES[name])
        )
    ticks = [(value, f"{value:g}") for value in EPSILONS] + [
        (_NOISELESS_PLACE, "no noise")
    ]
    title, x_label = f"{title}, {size} numbers", f"ε (δ = {DELTA:g})"
    return LinePanel(title, x_label, "LRE (0 = exact)", lines, True, ticks)


def _by_size(title: str, scores: PrivateScores) -> LinePanel:
    place = EPSILONS.index(_SHOWN_EPSILON)
    sizes = sorted({size for name, found in scores.items() if name != ALL_OF_R
                    for size in found})  # fmt: skip
    lines = []
    for name, found in scores.items():
        at = sorted(found)
        values = [found[size][place] for size in at]
        if name == ALL_OF_R:
            at, values = [sizes[0], sizes[-1]], values * 2
        lines.append(Line(PRIVATE_METHODS[name], at, values, *_PRIVATE_STYLES[name]))
    ticks = [(float(size), str(size)) for size in sizes]
    title, x_label = f"{title}, ε = {_SHOWN_EPSILON:g}", "numbers in the sketch"
    return LinePanel(title, x_label, "LRE (0 = exact)", lines, True, ticks)


def draw_private_scatter(
    folder: str | os.PathLike[str],
    name: str,
    size: int,
    path: Path,
    *,
    weights: str | os.PathLike[str] | None = None,
) -> Path:
    """Private rows on two components, from a sketch and from a release at ε = 1.

    Parameters
    ----------
    folder : path
        Holds ``data/MANIFEST.json``.
    name : str
        One of :data:`~sketchlearn.experiments.pca.public.PUBLIC`.
    size : int
        Numbers in the sketch.
    path : Path
        Where to draw it.
    weights : path, optional
        Folder with weights of the paper's SQNet.
    """
    data = private_set(folder, name)
    labels = np.zeros(len(data.rows)) if data.labels is None else data.labels
    groups = [f"class {int(label):02d}" for label in labels]
    exact = leading_components(data.second_moment)[:2]
    panels = []
    for plan in sketch_plans(data, size, weights):
        for method in (SQNET, CPCA, OUR_PCA):
            if method not in plan.decoders:
                continue
            panels.append(PointPanel("exact PCA", data.rows @ exact.T, groups))
            for epsilon in (None, _SHOWN_EPSILON):
                found = leading_components(noisy_moment(data, plan, method, epsilon))[
                    :2
                ]
                # A component is known up to its sign: show the one nearer to exact PCA.
                signs = np.where(np.einsum("ij,ij->i", found, exact) < 0, -1.0, 1.0)
                shown = "no noise" if epsilon is None else f"ε = {epsilon:g}"
                title = f"{PRIVATE_METHODS[method]}, {shown}"
                points = data.rows @ (found * signs[:, None]).T
                panels.append(PointPanel(title, points, groups))
    title = f"Two components of {name} from {size} numbers, {len(data.rows)} rows"
    return draw_points(panels, path, title=title, n_columns=3)
