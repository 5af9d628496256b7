"""What an experiment takes: methods, sketch sizes and test sets that exist."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.datasets import MetaDataset, load_folder

__all__ = ["require_plan", "select_test_sets"]


def require_plan(
    methods: Sequence[str],
    sizes: Sequence[int],
    *,
    known: Collection[str],
    smallest: int,
) -> None:
    """Refuse methods that are not ``known`` and sizes below ``smallest``."""
    unknown = [name for name in methods if name not in known]
    if unknown:
        raise ConfigError(
            f"there is no method {unknown[0]!r}; the methods are: {', '.join(known)}."
        )
    if not sizes or min(sizes) < smallest:
        raise ConfigError(
            f"sizes must be whole numbers from {smallest} on; got {sizes}."
        )


def select_test_sets(
    folder: str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    real_only: bool = False,
) -> list[MetaDataset]:
    """Test sets of ``folder/data``, in the order of ``names``, or all by name.

    Parameters
    ----------
    folder : path
        Holds ``data/MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these; all by default.
    real_only : bool
        Leave out simulated data and stand-ins.
    """
    listed = load_folder(Path(folder, "data"), split="test", real_only=real_only)
    found = {data.name: data for data in listed}
    chosen = sorted(found) if names is None else list(names)
    unknown = [name for name in chosen if name not in found]
    if unknown:
        kind = "real test set" if real_only else "test set"
        raise RowsError(
            f"there is no {kind} {unknown[0]!r}; the sets are: "
            f"{', '.join(sorted(found))}."
        )
    return [found[name] for name in chosen]
