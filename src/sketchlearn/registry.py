"""The registry: trained weights that come with the package, by name.

Weights are files in the package with an index of their checksums; nothing is ever
downloaded. A file that is not the one in the index is refused.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from sketchlearn.discovery import classes_declaring
from sketchlearn.errors import SketchFileError
from sketchlearn.files.durable import write_file
from sketchlearn.files.models import INDEX, ModelInfo, packaged_weights, read_index
from sketchlearn.files.weights import Weights, save_weights
from sketchlearn.nested_sqnet import NestedSQNet

__all__ = [
    "ModelInfo",
    "add_model",
    "find_builders",
    "list_models",
    "load_card",
    "load_model",
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


def load_model(name: str) -> Any:
    """A trained model of the package.

    Parameters
    ----------
    name : str
        One of :func:`list_models`; ``name-100`` is the SQNet of size 100 of a model
        of all sizes.

    Returns
    -------
    SQNet, NestedSQNet or decoder
        By the kind of the model; nothing of it changes. The file is read once per
        process, the model built at every call.
    """
    nested, _, size = name.rpartition("-")
    models = {model.name: model for model in list_models()}
    if name not in models and nested in models and size.isascii() and size.isdigit():
        model = load_model(nested)
        if isinstance(model, NestedSQNet):
            return model.sized(int(size))
    weights = packaged_weights(name)
    builders = find_builders()
    if weights.kind not in builders:
        raise SketchFileError(
            f"model {name!r} is of kind {weights.kind!r}; this release builds: "
            f"{', '.join(sorted(builders))}. Install a newer sketchlearn."
        )
    return builders[weights.kind].from_weights(weights)


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


def load_card(name: str) -> dict[str, Any]:
    """The model card: how a model was made, on what, and how good it is.

    Parameters
    ----------
    name : str
        One of :func:`list_models`.
    """
    return copy.deepcopy(dict(packaged_weights(name).card))


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
    path = Path(folder, f"{name}.safetensors")
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
    write_file(os.path.realpath(index), text.encode())
    return info
