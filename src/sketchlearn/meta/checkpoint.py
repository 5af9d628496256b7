"""Checkpoints: all a training run needs to go on exactly where it was.

They are private to a run, in PyTorch's own format, read with ``weights_only=True``
and written whole or not at all. Weights to share are safetensors, written elsewhere.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import SketchFileError, TrainingError
from sketchlearn.files.durable import open_regular, path_text, write_file
from sketchlearn.meta.backend import Tensor, torch
from sketchlearn.meta.config import TrainConfig

__all__ = [
    "CHECKPOINT_NAME",
    "RunState",
    "best_weights",
    "read_checkpoint",
    "require_same_settings",
    "write_checkpoint",
]

CHECKPOINT_NAME = "checkpoint.pt"
"""Name of the checkpoint in the folder of a run."""

_FORMAT = "sketchlearn-checkpoint-1"
_MAY_CHANGE = {"steps", "seconds", "patience", "checkpoint_every_seconds", "device"}


@final
@dataclass
class RunState:
    """Where a run is, beside weights and optimizer; the one thing that changes."""

    step: int = 0
    seconds: float = 0.0
    best_score: float = float("inf")
    best_step: int = 0
    stale: int = 0
    stage: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    def mean_loss(self, default: float) -> float:
        """Of the steps since the last validation, if there were any."""
        return self.loss_sum / self.loss_count if self.loss_count else default


def write_checkpoint(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a run, all of it or nothing."""
    stream = io.BytesIO()
    torch.save({"format": _FORMAT, **content}, stream)
    write_file(folder / CHECKPOINT_NAME, stream.getvalue())


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote, without running any code in it."""
    name = path_text(path)
    with open_regular(name) as stream:
        try:
            content = torch.load(stream, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise _not_a_checkpoint(name) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _not_a_checkpoint(name)
    return content


def best_weights(
    source: str | os.PathLike[str] | Mapping[str, Tensor],
) -> Mapping[str, Tensor]:
    """Weights as given, or those of a checkpoint that validated best."""
    if isinstance(source, Mapping):
        return source
    best: dict[str, Tensor] = read_checkpoint(source)["best"]
    return best


def require_same_settings(before: Mapping[str, Any], config: TrainConfig) -> None:
    """Refuse to go on with other settings than a checkpoint was made with."""
    for name, now in asdict(config).items():
        if name not in _MAY_CHANGE and before.get(name) != now:
            raise TrainingError(
                f"cannot resume: the checkpoint was made with {name} = "
                f"{before.get(name)!r}, now it is {now!r}. Use the same "
                "settings, or start from the checkpoint in another folder."
            )


def _not_a_checkpoint(name: str) -> SketchFileError:
    return SketchFileError(
        f"{name!r} is damaged or is not a checkpoint of this version of sketchlearn. "
        "Give the checkpoint of a run, or start again in another folder."
    )
