"""The registry: trained weights that come with the package, by name, or your own.

Weights are files in the package with an index of their checksums; nothing is ever
downloaded. A file that is not the one in the index is refused. Files of your own, as
``sketchlearn train`` writes them, are named by their path.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sketchlearn.discovery import classes_declaring
from sketchlearn.errors import SketchFileError
from sketchlearn.files.durable import open_regular, path_text, write_file
from sketchlearn.files.models import (
    INDEX,
    SUFFIX,
    ModelInfo,
    find_weights,
    is_file_name,
    read_index,
)
from sketchlearn.files.weights import Weights, save_weights
from sketchlearn.nested_sqnet import NestedSQNet

__all__ = [
    "ModelInfo",
    "add_model",
    "find_builders",
    "list_models",
    "load_card",
    "load_model",
    "load_own_model",
]
__public__ = ["list_models", "load_model"]


def list_models() -> list[ModelInfo]:
    """Every model of this release, by name; loads no weights.

    Examples
    --------
    >>> all(model.size_bytes > 0 for model in list_models())
    True
    """
    return list(read_index().values())


def load_model(name: str | os.PathLike[str], *, checksum: str | None = None) -> Any:
    """A trained model of the package, or one of your own.

    Parameters
    ----------
    name : str or path
        One of :func:`list_models`, or the path of a ``.safetensors`` file that
        ``sketchlearn train`` wrote. Such a file holds numbers and runs no code.
        ``name-100`` is the SQNet of size 100 of a model of all sizes.
    checksum : str, optional
        SHA-256 that the file must have. Files of the package always have that of the
        index; in files of your own damage is found without, and deceit is not.

    Returns
    -------
    SQNet, NestedSQNet or decoder
        By the kind of the model; nothing of it changes. A file of the package is read
        once per process, the model built at every call.

    Examples
    --------
    >>> type(load_model("pca-equivariant")).__name__
    'EquivariantDecoder'
    """
    source, size = _without_size(name)
    weights = find_weights(source, checksum=checksum)
    builders = find_builders()
    if weights.kind not in builders:
        raise SketchFileError(
            f"model {os.fspath(name)!r} is of kind {weights.kind!r}; this release "
            f"builds: {', '.join(sorted(builders))}. Install a newer sketchlearn."
        )
    model = builders[weights.kind].from_weights(weights)
    return model if size is None else model.sized(size)


def _without_size(
    name: str | os.PathLike[str],
) -> tuple[str | os.PathLike[str], int | None]:
    """The model or file that is meant, and of a model of all sizes which of them."""
    index = read_index()
    if is_file_name(name) or path_text(name) in index:
        return name, None
    whole, _, size = path_text(name).rpartition("-")
    is_nested = whole in index and index[whole].kind == NestedSQNet.weights_kind
    if is_nested and size.isascii() and size.isdigit():
        return whole, int(size)
    return name, None


def load_own_model(path: str | os.PathLike[str], kinds: Collection[str]) -> Any:
    """A model of a file of your own, if its weights are of one of these kinds.

    It is built once for as long as the file stays the same.

    Parameters
    ----------
    path : path
        As ``sketchlearn train`` wrote it.
    kinds : collection of str
        What is of use where the model is asked for.
    """
    with open_regular(path) as stream:
        found = os.fstat(stream.fileno())
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    kind, model = _built_once(os.path.abspath(path), stamp)
    if kind not in kinds:
        raise SketchFileError(
            f"{os.fspath(path)!r} holds weights of kind {kind!r}, and what is needed "
            f"here is {' or '.join(map(repr, kinds))}. Pass weights of that kind; "
            "sketchlearn inspect says what a file holds."
        )
    return model


@lru_cache(maxsize=4)
def _built_once(name: str, stamp: tuple[int, ...]) -> tuple[str, Any]:
    return find_weights(Path(name)).kind, load_model(Path(name))


@cache
def find_builders() -> dict[str, Any]:
    """Classes by the kind of weights they are built from.

    A decoder or a model that sets ``weights_kind`` and has ``from_weights(weights)`` is
    one; there is no list to put it into.
    """
    return classes_declaring(
        "weights_kind",
        "sketchlearn.decoders",
        "sketchlearn.nested_sqnet",
        "sketchlearn.sqnet",
    )


def load_card(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The model card: how a model was made, on what, and how good it is.

    Parameters
    ----------
    name : str or path
        As for :func:`load_model`.
    """
    return copy.deepcopy(dict(find_weights(_without_size(name)[0]).card))


def add_model(
    name: str,
    weights: Weights,
    *,
    task: str,
    summary: str,
    folder: str | os.PathLike[str],
) -> ModelInfo:
    """Put weights into a folder of models and its index, replacing the same name.

    Parameters
    ----------
    name : str
        What to call them.
    weights : Weights
        What to add.
    task, summary : str
        What they are for, and one sentence about them.
    folder : path
        The folder ``models`` of the package's sources.
    """
    path = Path(folder, f"{name}{SUFFIX}")
    save_weights(weights, path)
    info = ModelInfo(
        name=name,
        task=task,
        kind=weights.kind,
        summary=summary,
        file=path.name,
        checksum=weights.digest,
        size_bytes=path.stat().st_size,
    )
    index = Path(folder, INDEX)
    entries = json.loads(index.read_text("utf-8")) if index.exists() else {}
    fields = asdict(info)
    entries[fields.pop("name")] = fields
    text = json.dumps(entries, indent=2, sort_keys=True) + "\n"
    write_file(index, text.encode())
    return info
