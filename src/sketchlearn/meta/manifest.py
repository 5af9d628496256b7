"""Folders of datasets: one with a list of what is in it.

``MANIFEST.json`` has an entry for each file, ``name``, ``file``, ``split``, ``rows``,
``features`` and ``real`` at least. What is in the files is not known here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from sketchlearn.errors import MissingFileError

__all__ = ["MANIFEST", "Split", "find_folder", "list_folder"]

MANIFEST = "MANIFEST.json"
"""Name of the list."""

Split = Literal["train", "test"]


def find_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of datasets that a path means: itself, or its folder ``data``.

    Parameters
    ----------
    path : path
        A folder with a ``MANIFEST.json``, or one whose folder ``data`` has it.
    """
    given = Path(path)
    for folder in (given, given / "data"):
        if (folder / MANIFEST).is_file():
            return folder
    raise MissingFileError(
        f"there is no {MANIFEST} in {str(given)!r}; give a folder of datasets that has "
        "one. 'sketchlearn data fetch' makes such a folder."
    )


def list_folder(path: str | os.PathLike[str]) -> dict[str, Split]:
    """Names of the datasets of a folder, each with its split.

    Parameters
    ----------
    path : path
        The folder, as for :func:`find_folder`.
    """
    text = (find_folder(path) / MANIFEST).read_text(encoding="utf-8")
    return {entry["name"]: entry["split"] for entry in json.loads(text)["datasets"]}
