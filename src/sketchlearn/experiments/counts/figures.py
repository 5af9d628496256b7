"""Figures of the streaming experiments: errors by alpha, and the search for tables.

Figures frequency, frequency_2 to frequency_4, membership and membership_1 of the paper.
Each function draws one and returns its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sketchlearn.experiments.counts.methods import COUNT_METHODS
from sketchlearn.experiments.counts.search import (
    SearchedTables,
    TableSearch,
    ZipfLaw,
)
from sketchlearn.experiments.counts.sets import N_ITEMS, CountTask
from sketchlearn.experiments.counts.zipf_errors import (
    ZipfErrors,
    ZipfPoint,
    zipf_laws,
)
from sketchlearn.report import Line, LinePanel, draw_lines

__all__ = [
    "draw_best_tables",
    "draw_network_errors",
    "draw_table_search",
    "draw_zipf_errors",
]

_ERROR = "mean square error"

_STEEP = 1.0
"""From this alpha on, laws have few items that are frequent."""

_MARKERS = "os^D"

_LOOKS = {
    "zeros": (":", "0.3"),
    "mean": ("-.", "0.3"),
    "cm": ("s-", "C0"),
    "cm-fixed": ("s:", "C0"),
    "cs": ("^-", "C1"),
    "cs-fixed": ("^:", "C1"),
    "cs-median": ("v-", "C5"),
    "cs-median-fixed": ("v:", "C5"),
    "bloom": ("s-", "C0"),
    "bloom-fixed": ("s:", "C0"),
    "nnls": ("d--", "C2"),
    "sq-nonlinear": ("P-", "C4"),
    "sq-linear": ("D-", "C4"),
    "sq-ternary": ("D--", "C6"),
    "sq-binary": ("D:", "C6"),
    "sq-parallel": ("X-", "C8"),
    "sq-ternary-parallel": ("X:", "C8"),
    "rfq": ("X--", "C9"),
    "bloom-bits": ("^-", "C1"),
    "joint": ("o-", "C3"),
    "joint-bytes": ("o:", "C3"),
}
"""Marker and line, and colour, by method; others take the next colour."""

_FLOOR = 1e-7
"""Smaller errors, such as 0, are drawn here."""

_TICK_GAP = 1.3
"""Ratio of neighbouring ticks whose texts have room."""


def _sizes(errors: ZipfErrors) -> list[int]:
    return list(next(iter(errors.values())))


def _laws(errors: ZipfErrors) -> list[ZipfLaw]:
    return list(next(iter(next(iter(errors.values())).values())))


def draw_zipf_errors(task: CountTask, errors: ZipfErrors, path: Path) -> Path:
    """Error against alpha: a panel for each size, beta and number of rows."""
    laws = _laws(errors)
    alphas = sorted({law.alpha for law in laws})
    groups = sorted({(law.n_rows, law.beta) for law in laws if law.alpha < 1})
    panels = []
    for size in _sizes(errors):
        for n_rows, beta in reversed(groups):
            lines = []
            for name, found in errors.items():
                shown = zipf_laws(alphas, (beta,), n_rows)
                points = [found[size].get(law) for law in shown]
                if not any(points):
                    continue
                heights = [
                    np.nan if point is None else max(point.error, _FLOOR)
                    for point in points
                ]
                style, colour = _LOOKS.get(name, ("o-", None))
                label = COUNT_METHODS[name]
                lines.append(Line(label, alphas, heights, style, colour))
            title = f"m = {size}, N = {n_rows}, β = {beta:g}"
            y_label = f"MSE ({_FLOOR:g} if smaller)"
            panels.append(LinePanel(title, "α", y_label, lines, log_y=True))
    title = f"{task.name.capitalize()} in Zipf sets of {N_ITEMS} items"
    columns = 2 if len(panels) > 1 else 1
    return draw_lines(panels, path, title=title, n_columns=columns)


def draw_network_errors(
    task: CountTask,
    errors: Mapping[str, Mapping[ZipfLaw, ZipfPoint]],
    path: Path,
    *,
    title: str,
) -> Path:
    """Error against alpha, a line for each pooling or activation.

    As in the paper, a second panel shows the steep laws alone.
    """
    n_rows, beta, panels = task.zipf_rows[0], task.betas[0], []
    for least, zoomed in ((0.0, ""), (_STEEP, f", α ≥ {_STEEP:g}")):
        lines = []
        for number, (kind, points) in enumerate(errors.items()):
            shown = {law: one for law, one in points.items() if law.alpha >= least}
            heights = [max(one.error, _FLOOR) for one in shown.values()]
            spread = [one.deviation for one in shown.values()]
            alphas, style = [law.alpha for law in shown], _MARKERS[number % 4] + "-"
            lines.append(Line(kind, alphas, heights, style, f"C{number}", spread))
        panel_title = f"N = {n_rows}, β = {beta:g}{zoomed}"
        panels.append(LinePanel(panel_title, "α", _ERROR, lines, log_y=True))
    return draw_lines(panels, path, title=title)


def draw_table_search(
    search: TableSearch, size: int, *, beta: float, n_rows: int, path: Path
) -> Path:
    """Error against width, a panel for each alpha: means and deviations over runs."""
    found = {name: by_size[size] for name, by_size in search.items()}
    alphas = sorted({law.alpha for laws in found.values() for law in laws})
    panels = []
    for law in zipf_laws(alphas, (beta,), n_rows):
        lines = []
        for name, laws in found.items():
            if law not in laws:
                continue
            means = np.maximum(laws[law].errors.mean(axis=0), _FLOOR)
            deviations = laws[law].errors.std(axis=0)
            widths = [table.width for table in laws[law].tables]
            style, colour = _LOOKS[name]
            label = COUNT_METHODS[name].removesuffix(", optimal")
            lines.append(
                Line(label, widths, means.tolist(), style, colour, deviations.tolist())
            )
        ticks = _ticks(widths)
        title = f"α = {law.alpha:g}" + f", β = {law.beta:g}" * (law.alpha < 1)
        x_label = f"width w (depth = {size}/w)"
        panels.append(LinePanel(title, x_label, _ERROR, lines, True, ticks, log_y=True))
    n_runs = len(next(iter(next(iter(found.values())).values())).errors)
    title = (
        f"Tables of {size} numbers, sets of {n_rows} rows: mean and standard deviation "
        f"of {n_runs} runs"
    )
    return draw_lines(panels, path, title=title, n_columns=3)


def draw_best_tables(
    search: TableSearch,
    size: int,
    *,
    betas: Sequence[float],
    n_rows: int,
    path: Path,
) -> Path:
    """Width of the best table against alpha, then its error, a line for each beta."""
    panels = []
    for widths in (True, False):
        for name, by_size in search.items():
            laws, lines = by_size[size], []
            alphas = sorted({law.alpha for law in laws})
            for number, beta in enumerate(sorted(betas)):
                chosen = [laws[law] for law in zipf_laws(alphas, (beta,), n_rows)]
                means, spread = zip(
                    *(_best(one, widths) for one in chosen), strict=True
                )
                # Lines that agree from alpha = 1 on are moved apart a little.
                places = [alpha + 0.02 * (number - 1) * widths for alpha in alphas]
                label, style = f"β = {beta:g}", f"{_MARKERS[number % 4]}-"
                lines.append(Line(label, places, means, style, f"C{number}", spread))
            y_label = "width w of the best table" if widths else _ERROR
            label = COUNT_METHODS[name].removesuffix(", optimal")
            panels.append(LinePanel(label, "α", y_label, lines, log_y=True))
    title = f"The best tables of {size} numbers, sets of {n_rows} rows"
    return draw_lines(panels, path, title=title, n_columns=max(2, len(search)))


def _best(one: SearchedTables, widths: bool) -> tuple[float, float]:
    """Mean and deviation over runs, of the best width or of its error."""
    if widths:
        return float(one.best_widths.mean()), float(one.best_widths.std())
    error, deviation = one.best_error
    return max(error, _FLOOR), deviation


def _ticks(widths: Sequence[int]) -> list[tuple[float, str]]:
    """Places of all widths, and texts where they do not overlap."""
    ordered = sorted(widths)
    return [
        (float(width), str(width) if width > _TICK_GAP * last else "")
        for width, last in zip(ordered, [0, *ordered], strict=False)
    ]
