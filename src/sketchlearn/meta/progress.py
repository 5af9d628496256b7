"""What a training run tells: lines on a terminal, a JSONL log, a picture.

Nothing here changes the run. The log has one JSON object per line, with an
``"event"`` each; the picture is drawn when matplotlib is installed.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import MissingExtraError, import_extra

__all__ = ["ReadingLine", "Reporter", "draw_losses"]

LOG_NAME = "log.jsonl"
PICTURE_NAME = "loss.png"
_SHOW_EVERY = 0.5


@final
class ReadingLine:
    """Says which dataset is read: a run starts with reading them all.

    On a terminal one line is renewed; elsewhere there is a line for the first.

    Parameters
    ----------
    total : int
        Datasets that will be read.
    """

    def __init__(self, total: int) -> None:
        self._total, self._read = total, 0
        self._on_terminal = sys.stderr.isatty()
        self._width = 0

    def show(self, name: str) -> None:
        """One more dataset is being read."""
        self._read += 1
        if self._on_terminal:
            text = f"reading dataset {self._read} of {self._total}: {name}"
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = len(text)
        elif self._read == 1:
            sys.stderr.write(f"reading {self._total} datasets ...\n")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line, if there is one."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


@final
class Reporter:
    """Writes the log of a run and its progress line.

    Parameters
    ----------
    folder : path, optional
        Where ``log.jsonl`` is kept; without it there is no log.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / LOG_NAME
        self._on_terminal = sys.stderr.isatty()
        self._shown_at = -math.inf
        self._width = 0

    def record(self, event: str, **fields: Any) -> None:
        """Append one object to the log; what is not finite becomes null."""
        if self._path is None:
            return
        entry = {"event": event, **{name: _plain(fields[name]) for name in fields}}
        with open(self._path, "a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")

    def show(
        self, *, step: int, done: float, seconds: float, rate: float, loss: float
    ) -> None:
        """Renew the progress line, on a terminal and not too often.

        ``done`` is the fraction of the run that is over, ``rate`` steps per second.
        """
        now = time.monotonic()
        if not self._on_terminal or now - self._shown_at < _SHOW_EVERY:
            return
        self._shown_at = now
        left = seconds * (1 - done) / done if done > 0 else math.inf
        text = (
            f"step {step} ({done:.0%})  {rate:.1f} steps/s  loss {loss:.4g}  "
            f"{_clock(left)} left"
        )
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self) -> None:
        """End the progress line, if there is one."""
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()


def draw_losses(history: Sequence[Mapping[str, float]], folder: Path) -> Path | None:
    """Draw training loss and validation score over steps into ``loss.png``.

    Returns the path, or None when matplotlib is not installed.
    """
    try:
        figures = import_extra("matplotlib.figure", "plots")
    except MissingExtraError:
        return None
    figure = figures.Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    trained = [record for record in history if math.isfinite(record["loss"])]
    axes.plot(
        [record["step"] for record in trained],
        [record["loss"] for record in trained],
        color="tab:gray",
        label="training loss",
    )
    axes.set(xlabel="step", ylabel="training loss")
    right = axes.twinx()
    right.plot(
        [record["step"] for record in history],
        [record["score"] for record in history],
        color="tab:blue",
        marker=".",
        label="validation score",
    )
    right.set_ylabel("validation score")
    right.legend(handles=[*axes.lines, *right.lines], frameon=False)
    figure.savefig(folder / PICTURE_NAME, dpi=120)
    return folder / PICTURE_NAME


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
