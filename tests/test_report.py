"""Tables line up, and pictures show what they were given."""

import numpy as np
import pytest

from sketchlearn import errors, report
from sketchlearn.report import (
    Line,
    LinePanel,
    PointPanel,
    draw_lines,
    draw_points,
    format_table,
    require_plots,
)

PNG = b"\x89PNG"


def test_cells_are_aligned_and_gaps_are_dashes():
    table = format_table(
        ["set", "m"], [["wide name", 1000], ["b", 0.25], ["c", None]], title="scores"
    )
    assert table.splitlines() == [
        "scores",
        "set            m",
        "wide name   1000",
        "b          0.250",
        "c              -",
    ]
    assert format_table(["a", "b"], [["x", float("nan")]]).endswith("x  -")


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="argument"):
        format_table(["a", "b"], [["x"]])


@pytest.fixture
def figures(monkeypatch):
    """Figures as they are before they are written."""
    seen = []
    finish = report._finish

    def spy(figure, shown, path):
        seen.append(figure)
        return finish(figure, shown, path)

    monkeypatch.setattr(report, "_finish", spy)
    return seen


def test_lines_are_drawn_with_gaps_ticks_and_one_legend(tmp_path, figures):
    lines = [Line("ours", [1, 10, 100], [0.3, np.nan, 0.1]), Line("b", [1, 10], [1, 2])]
    panel = LinePanel("t", "x", "y", lines, True, [(1, "one"), (100, "all")])
    path = draw_lines([panel, panel], tmp_path / "lines.png", title="both")
    assert path.read_bytes().startswith(PNG)
    (figure,) = figures
    assert len(figure.axes) == 2
    for axis in figure.axes:
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), [0.3, np.nan, 0.1])
        assert axis.get_xscale() == "log"
        assert [text.get_text() for text in axis.get_xticklabels()] == ["one", "all"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "b"]


def test_a_logarithmic_axis_has_whole_decades_and_error_bars_stay_above_zero(
    tmp_path, figures
):
    line = Line("ours", [1, 2, 3], [0.2, 0.3, np.nan], spread=[0.5, 0.1, 0.1])
    empty = Line("none", [1, 2, 3], [np.nan] * 3)
    panels = [LinePanel("t", "x", "y", [one], log_y=True) for one in (line, empty)]
    draw_lines(panels, tmp_path / "lines.png")
    axis = figures[0].axes[0]
    low, high = axis.get_ylim()
    assert low < 0.1 < 1 < high
    (bars,) = axis.collections
    ends = np.array([segment for segment in bars.get_segments() if len(segment)])
    assert np.nanmin(ends[..., 1]) > 0


def test_points_are_coloured_by_group(tmp_path, figures):
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    panel = PointPanel("t", points, ["b", "a", "b"])
    path = draw_points([panel], tmp_path / "points.png")
    assert path.read_bytes().startswith(PNG)
    first, second = figures[0].axes[0].collections
    np.testing.assert_array_equal(first.get_offsets(), points[[1]])
    np.testing.assert_array_equal(second.get_offsets(), points[[0, 2]])
    assert (first.get_facecolor()[0] != second.get_facecolor()[0]).any()


def test_without_matplotlib_the_install_line_is_given(monkeypatch):
    def gone(name):
        raise ImportError(name)

    monkeypatch.setattr(errors.importlib, "import_module", gone)
    with pytest.raises(errors.MissingExtraError, match=r"sketchlearn\[plots\]"):
        require_plots()
