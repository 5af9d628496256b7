"""Models: weights that come with the package, in its folder ``models``, or in a file.

An index beside the packaged ones has the name, the task and the checksum of each; own
weights are named by their path. What the weights compute is not known here.
"""

from __future__ import annotations

import importlib.resources
import json
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import final

from sketchlearn.errors import MissingFileError, SketchFileError
from sketchlearn.files.durable import path_text
from sketchlearn.files.weights import Weights, decode_weights, load_weights

__all__ = [
    "INDEX",
    "SUFFIX",
    "ModelInfo",
    "find_weights",
    "is_file_name",
    "packaged_weights",
    "read_index",
]

MODELS: Traversable = importlib.resources.files("sketchlearn") / "models"
"""Folder of the weights that come with the package."""

INDEX = "models.json"
"""Its index."""

SUFFIX = ".safetensors"
"""How the names of files of weights end."""


@final
@dataclass(frozen=True)
class ModelInfo:
    """What the index knows of weights that come with the package.

    Parameters
    ----------
    name, task, kind : str
        What to call them, what they are for, and what they are weights of.
    summary : str
        One sentence.
    file : str
        Name of the file in the folder of models.
    checksum : str
        SHA-256 of the file.
    size_bytes : int
        Size of the file.
    """

    name: str
    task: str
    kind: str
    summary: str
    file: str
    checksum: str
    size_bytes: int


def read_index() -> dict[str, ModelInfo]:
    """Every model that comes with the package, by name."""
    entries = json.loads((MODELS / INDEX).read_text("utf-8"))
    return {name: ModelInfo(name=name, **entries[name]) for name in sorted(entries)}


def _find_model(name: str) -> ModelInfo:
    """What the index knows of a model, or an error that lists the names it has."""
    index = read_index()
    if name not in index:
        raise MissingFileError(
            f"there is no model {name!r} in this release. It has: "
            f"{', '.join(index) or 'none'}. Weights of your own are named by the path "
            f"of their {SUFFIX} file."
        )
    return index[name]


def is_file_name(source: object) -> bool:
    """Whether this is the path of a file of weights and not the name of a model.

    Examples
    --------
    >>> is_file_name("my.safetensors"), is_file_name("pca-equivariant")
    (True, False)
    """
    if isinstance(source, os.PathLike):
        return True
    return isinstance(source, str) and source.endswith(SUFFIX)


def find_weights(
    source: str | os.PathLike[str], *, checksum: str | None = None
) -> Weights:
    """Weights of a model of the package, or of a file of your own.

    Parameters
    ----------
    source : str or path
        Name of a model, or path of a ``.safetensors`` file; any path object.
    checksum : str, optional
        SHA-256 that the file must have.
    """
    if is_file_name(source):
        return load_weights(source, checksum=checksum)
    return packaged_weights(path_text(source), checksum=checksum)


def packaged_weights(name: str, *, checksum: str | None = None) -> Weights:
    """Weights that come with the package; read once per process.

    Parameters
    ----------
    name : str
        As in the index.
    checksum : str, optional
        Refuse any other version of these weights.
    """
    if checksum is not None and name not in read_index():
        raise SketchFileError(
            f"model {name!r} is not in this release any more, or not yet. Install the "
            "release of sketchlearn that has it."
        )
    info = _find_model(name)
    if checksum not in (None, info.checksum):
        raise SketchFileError(
            f"model {name!r} of this release has checksum {info.checksum[:12]}.., and "
            f"{str(checksum)[:12]}.. is asked for. Install the release of sketchlearn "
            "that has it."
        )
    return _read_packaged(info)


@lru_cache(maxsize=16)
def _read_packaged(info: ModelInfo) -> Weights:
    file = MODELS / info.file
    if not file.is_file():
        raise MissingFileError(
            f"the file {info.file!r} of model {info.name!r} is missing: the "
            "installation is incomplete. Install sketchlearn again."
        )
    weights = decode_weights(file.read_bytes(), f"model {info.name!r}", info.checksum)
    return replace(weights, model=info.name)
