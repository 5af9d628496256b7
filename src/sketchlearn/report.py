"""Results as text tables and as pictures.

What the numbers mean is not known here: tables are rows of cells, pictures are panels
of lines or of points, or rows of small images. Pictures need matplotlib
(``pip install 'sketchlearn[plots]'``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import import_extra

__all__ = [
    "Cell",
    "Line",
    "LinePanel",
    "PictureRow",
    "PointPanel",
    "draw_lines",
    "draw_pictures",
    "draw_points",
    "format_table",
    "require_plots",
]

Cell = str | int | float | None
"""Numbers with a fraction get three digits; None, and NaN, is a dash."""

_WIDTH, _HEIGHT = 4.6, 3.9


@final
@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a panel; NaN is a gap."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "o-"
    """Marker and line, as matplotlib writes them."""

    colour: str | None = None
    """Any matplotlib colour; the next one of the cycle by default."""

    spread: Sequence[float] = ()
    """Half of the length of an error bar at each point; none by default."""


@final
@dataclass(frozen=True, eq=False)
class LinePanel:
    """Curves over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    """Whether distances along x are ratios."""

    ticks: Sequence[tuple[float, str]] = ()
    """Places and texts along x; chosen by matplotlib by default."""

    log_y: bool = False
    """Whether distances along y are ratios; values of 0 are not drawn then."""


@final
@dataclass(frozen=True, eq=False)
class PointPanel:
    """Points in the plane, coloured by their group."""

    title: str
    points: NDArray[np.float64]
    """Shape (n, 2)."""

    groups: Sequence[str]
    """One text for each point."""


@final
@dataclass(frozen=True, eq=False)
class PictureRow:
    """Small images in a row, with a text to the left."""

    title: str
    pictures: NDArray[np.generic]
    """Shape (n, height, width): numbers in 0..1, the largest black."""


def format_table(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str = ""
) -> str:
    """A table as text: the first column to the left, the others to the right.

    Examples
    --------
    >>> print(format_table(["set", "d", "error"], [["iris", 4, 0.5], ["b", 10, None]]))
    set    d  error
    iris   4  0.500
    b     10      -
    """
    cells = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([title, *lines] if title else lines)


def require_plots() -> None:
    """Raise :class:`~sketchlearn.errors.MissingExtraError` without matplotlib."""
    import_extra("matplotlib.figure", "plots")


def draw_lines(
    panels: Sequence[LinePanel],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    n_columns: int = 2,
) -> Path:
    """Draw panels of curves into a PNG file, with one legend for all of them.

    Parameters
    ----------
    panels : sequence of LinePanel
        From left to right, then down. Equal labels should have equal looks.
    path : path
        Where to write.
    title : str
        Above all panels.
    n_columns : int
        Panels in a row.
    """
    figure, axes = _canvas(len(panels), n_columns, title)
    shown: dict[str, Any] = {}
    for panel, axis in zip(panels, axes, strict=True):
        for line in panel.lines:
            drawn = axis.plot(
                line.x, line.y, line.style, color=line.colour, markersize=4, lw=1.3
            )
            shown.setdefault(line.label, drawn[0])
            if line.spread:
                _draw_spread(axis, line, drawn[0].get_color(), panel.log_y)
        axis.set_title(panel.title, fontsize="medium")
        axis.set(xlabel=panel.x_label, ylabel=panel.y_label)
        if panel.log_x:
            axis.set_xscale("log")
        if panel.log_y:
            axis.set_yscale("log")
            axis.set_ylim(*_decades(panel.lines))
        if panel.ticks:
            axis.set_xticks(*zip(*panel.ticks, strict=True))
            axis.minorticks_off()
        axis.grid(alpha=0.3)
    return _finish(figure, shown, path)


def draw_points(
    panels: Sequence[PointPanel],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    n_columns: int = 4,
) -> Path:
    """Draw panels of coloured points into a PNG file; arguments as for lines."""
    figure, axes = _canvas(len(panels), n_columns, title)
    colours = import_extra("matplotlib", "plots").colormaps["tab20"]
    shown: dict[str, Any] = {}
    for panel, axis in zip(panels, axes, strict=True):
        groups = np.asarray(panel.groups)
        for number, group in enumerate(dict.fromkeys(sorted(panel.groups))):
            points = panel.points[groups == group]
            colour = [colours(number % 20)]
            drawn = axis.scatter(points[:, 0], points[:, 1], s=6, c=colour)
            shown.setdefault(group, drawn)
        axis.set_title(panel.title, fontsize="medium")
        axis.set(xticks=[], yticks=[])
    return _finish(figure, shown, path)


def draw_pictures(
    rows: Sequence[PictureRow], path: str | os.PathLike[str], *, title: str = ""
) -> Path:
    """Draw rows of equally many small images into a PNG file, below one another."""
    n_pictures = len(rows[0].pictures)
    figure = import_extra("matplotlib.figure", "plots").Figure(
        figsize=(1.6 + 0.7 * n_pictures, 0.5 + 0.75 * len(rows)), layout="constrained"
    )
    figure.suptitle(title, fontsize="medium", fontweight="bold")
    axes = figure.subplots(len(rows), n_pictures, squeeze=False)
    for row, places in zip(rows, axes, strict=True):
        for picture, axis in zip(row.pictures, places, strict=True):
            axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        places[0].set_ylabel(row.title, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=120)
    return Path(path)


def _decades(lines: Sequence[Line]) -> tuple[float, float]:
    """Whole powers of ten around all values: at least two of them have a label."""
    values = np.concatenate([np.asarray(line.y, np.float64) for line in lines])
    drawn = values[np.isfinite(values) & (values > 0)]
    if not drawn.size:
        return 0.1, 1.0
    # What is just beyond a power of ten is within the margins around it.
    low = np.floor(np.log10(drawn.min()) + 0.1)
    high = np.ceil(np.log10(drawn.max()) - 0.1)
    return 0.7 * 10.0**low, 1.4 * 10.0 ** max(high, low + 1)


def _draw_spread(axis: Any, line: Line, colour: str, log_y: bool) -> None:
    """Error bars; on a logarithmic axis they stop short of 0."""
    spread, heights = np.asarray(line.spread), np.asarray(line.y)
    down = np.minimum(spread, 0.9 * heights) if log_y else spread
    bars = np.stack([down, spread])
    axis.errorbar(line.x, line.y, bars, fmt="none", ecolor=colour, lw=1, capsize=2)


def _canvas(n_panels: int, n_columns: int, title: str) -> tuple[Any, Iterator[Any]]:
    """A figure and its axes, made one after the other."""
    columns = min(n_columns, n_panels)
    rows = -(-n_panels // columns)
    figure = import_extra("matplotlib.figure", "plots").Figure(
        figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained"
    )
    if title:
        figure.suptitle(title, fontsize="medium", fontweight="bold")
    axes = (figure.add_subplot(rows, columns, i + 1) for i in range(n_panels))
    return figure, axes


def _finish(figure: Any, shown: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    columns = max(1, int(figure.get_figwidth() // 2.6))
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
    )
    figure.savefig(path, dpi=120)
    return Path(path)


def _text(cell: Cell) -> str:
    if cell is None or cell != cell:  # NaN
        return "-"
    # Adding 0 turns what rounds to -0.0 into 0.0.
    return f"{round(cell, 3) + 0.0:.3f}" if isinstance(cell, float) else str(cell)
