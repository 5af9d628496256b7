"""Checkpoints: all a training run needs to go on exactly where it was.

They are private to a run, in PyTorch's own format, read with ``weights_only=True``
and written whole or not at all. Weights to share are safetensors, written elsewhere.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import SketchFileError
from sketchlearn.files.durable import open_regular, write_file
from sketchlearn.meta.backend import torch

__all__ = [
    "CHECKPOINT_NAME",
    "RunState",
    "read_checkpoint",
    "write_checkpoint",
]

CHECKPOINT_NAME = "checkpoint.pt"
"""Name of the checkpoint in the folder of a run."""

_FORMAT = "sketchlearn-checkpoint-1"


@final
@dataclass
class RunState:
    """Where a run is, beside weights and optimizer; the one thing that changes."""

    step: int = 0
    seconds: float = 0.0
    best_score: float = float("inf")
    best_step: int = 0
    stale: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def write_checkpoint(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a run, all of it or nothing."""
    stream = io.BytesIO()
    torch.save({"format": _FORMAT, **content}, stream)
    write_file(os.path.realpath(folder / CHECKPOINT_NAME), stream.getvalue())


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote, without running any code in it."""
    name = os.fspath(path)
    with open_regular(name) as stream:
        try:
            content = torch.load(stream, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise _not_a_checkpoint(name) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _not_a_checkpoint(name)
    return content


def _not_a_checkpoint(name: str) -> SketchFileError:
    return SketchFileError(
        f"{name!r} is damaged or is not a checkpoint of this version of sketchlearn. "
        "Give the checkpoint of a run, or start again in another folder."
    )
