"""Progress is shown on a terminal, when asked for or when it takes long."""

import io
import sys

import numpy as np
import pytest

from sketchlearn import MomentFeatures, open_rows, sketch_rows
from sketchlearn.sketching import progress
from sketchlearn.sketching.local_rows import LocalRows

ROWS = np.arange(10.0).reshape(5, 2)


class Terminal(io.StringIO):
    """A stderr that claims to be a terminal."""

    def isatty(self):
        return True


def sketch(data, **options):
    return sketch_rows(data, MomentFeatures(2), **options)


def test_progress_is_silent_unless_stderr_is_a_terminal(capsys):
    sketch(ROWS, progress=True)
    sketch(iter([ROWS]), progress=True)

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("known", [True, False])
def test_progress_goes_to_a_terminal_when_asked_for(monkeypatch, capsys, known):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    sketch(ROWS if known else iter([ROWS]), progress=True)

    assert ("100%" if known else "5 rows") in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_progress_of_short_inputs_and_refused_progress_are_silent(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    sketch(ROWS)
    sketch(iter([ROWS]))
    monkeypatch.setattr(progress, "LONG_INPUT", 3)
    sketch(ROWS, progress=False)
    assert terminal.getvalue() == ""
    sketch(ROWS)
    assert "100%" in terminal.getvalue()


def test_looking_ahead_shows_progress_too(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    LocalRows(open_rows(ROWS, progress=True)).extremes()
    assert "100%" in terminal.getvalue()


def test_rows_that_are_only_read_show_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    list(open_rows(ROWS, progress=True))
    assert terminal.getvalue() == ""
    sketch(open_rows(ROWS, progress=True))
    assert "100%" in terminal.getvalue()


@pytest.mark.parametrize(("n_rows", "shown"), [(200_000, False), (200_001, True)])
def test_long_inputs_show_progress_without_being_asked(monkeypatch, n_rows, shown):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    sketch(np.zeros((n_rows, 2), np.float32))
    assert ("100%" in terminal.getvalue()) == shown
