"""Folders of datasets: one with a list of what is in it.

``MANIFEST.json`` has an entry for each file, ``name``, ``file``, ``split``, ``rows``,
``features`` and ``real`` at least. What is in the files is not known here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.files.durable import open_regular, path_text
from sketchlearn.meta.settings import require_settings

__all__ = ["MANIFEST", "Split", "find_folder", "list_folder", "read_manifest"]

MANIFEST = "MANIFEST.json"
"""Name of the list."""

Split = Literal["train", "test"]

_KEYS = ("name", "file", "split", "rows", "features", "real")
_KEY_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "file", "split", "kind"), str),
    **dict.fromkeys(("rows", "features", "bytes"), int),
    "real": bool,
}


def find_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of datasets that a path means: itself, or its folder ``data``.

    Parameters
    ----------
    path : path
        A folder with a ``MANIFEST.json``, or one whose folder ``data`` has it.
    """
    given = Path(path_text(path))
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
    entries = read_manifest(find_folder(path))
    return {entry["name"]: entry["split"] for entry in entries}


def read_manifest(folder: Path) -> list[dict[str, Any]]:
    """The entries of the list of a folder, each with all that an entry must have.

    Parameters
    ----------
    folder : Path
        Has the list itself, as :func:`find_folder` gives it.
    """
    path = folder / MANIFEST
    try:
        with open_regular(path) as stream:
            entries = json.loads(stream.read().decode("utf-8"))["datasets"]
        missing = [key for entry in entries for key in _KEYS if key not in entry]
        known = [_KEY_TYPES.keys() & dict(entry) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowsError(
            f"{str(path)!r} is not a list of datasets ({type(error).__name__}: "
            f"{str(error)[:80]}). Mend it, or fetch the sets into another folder."
        ) from error
    if missing:
        raise RowsError(
            f"an entry of {str(path)!r} has no {missing[0]!r}; each needs "
            f"{', '.join(_KEYS)}. Add it, or remove the entry."
        )
    for entry, keys in zip(entries, known, strict=True):
        where, table = f"an entry of {str(path)!r}", {key: entry[key] for key in keys}
        require_settings(table, None, where, **_KEY_TYPES)
    home = folder.resolve()
    for entry in entries:
        file = path_text(entry["file"])
        if not (home / file).resolve().is_relative_to(home):
            raise RowsError(
                f"an entry of {str(path)!r} names a file outside of the folder: "
                f"{file!r}. Move the file into the folder."
            )
    found: list[dict[str, Any]] = entries
    return found
