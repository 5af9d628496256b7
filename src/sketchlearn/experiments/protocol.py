"""What the experiments share: test sets, features, sketch sizes and promises.

Which methods there are, and how they are judged, each experiment says for itself.
"""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.datasets import MetaDataset, load_folder
from sketchlearn.meta.manifest import list_folder
from sketchlearn.meta.paper_sets import paper_sets

__all__ = [
    "DELTA",
    "EPSILONS",
    "N_FEATURES",
    "mark_of",
    "mean_by_size",
    "named_sets",
    "paper_test_sets",
    "printed_table",
    "random_features",
    "read_printed",
    "require_plan",
    "select_test_sets",
    "shuffled_features",
]

N_FEATURES = 196
"""Features drawn from each dataset, and width of a padded row."""

EPSILONS, DELTA = (0.01, 0.1, 1.0, 10.0), 1e-5
"""Promises at which private sketches are compared."""

_STAND_INS = ("KDD98-PVA",)
"""Real rows, but not those of the paper's set."""


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
    """Test sets of a folder, in the order of ``names``, or all by name.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    names : collection of str, optional
        Only these; all by default.
    real_only : bool
        Leave out simulated data and stand-ins.
    """
    listed = load_folder(folder, split="test", real_only=real_only)
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


def named_sets(
    folder: str | os.PathLike[str],
    known: Collection[str],
    names: Collection[str] | None = None,
) -> list[tuple[MetaDataset, str]]:
    """Those of the known sets that a folder has, each with its split.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json`` and the files it names.
    known : collection of str
        Sets of a table of the paper, in its order.
    names : collection of str, optional
        Only these of them; all by default.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ConfigError(
            f"there is no dataset {unknown[0]!r} in this table; it has: "
            f"{', '.join(known)}."
        )
    splits = sorted(set(list_folder(folder).values()))
    found = {
        data.name: (data, str(split))
        for split in splits
        for data in load_folder(folder, split=split)
    }
    return [
        found[name] for name in known if name in found and (not names or name in names)
    ]


def paper_test_sets() -> list[str]:
    """Names of the paper's meta-testing sets, in its order."""
    return [one.name for one in paper_sets("test") if one.rows is not None]


def mark_of(data: MetaDataset) -> str:
    """Whether rows are simulated, or a stand-in for the paper's; empty if neither."""
    if data.name in _STAND_INS:
        return "stand-in"
    return "" if data.real else "simulated"


def read_printed(table: str) -> dict[str, Any]:
    """The numbers of a table as the paper prints them; a file of the package.

    Parameters
    ----------
    table : str
        Name of the table.

    Examples
    --------
    >>> read_printed("pca_reconstruction_error")["sketch_sizes"][-1]
    19306
    """
    folder = importlib.resources.files("sketchlearn") / "experiments" / "printed"
    content: dict[str, Any] = json.loads((folder / f"{table}.json").read_text("utf-8"))
    return content


def printed_table(
    table: str, columns: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """What the paper prints, by its methods and our names of datasets.

    Parameters
    ----------
    table : str
        Name of the table.
    columns : mapping of str to str
        Our names of datasets to those of its columns; other columns stay as they are.
    """
    content = read_printed(table)
    ours = {paper: name for name, paper in columns.items()}
    heads = [ours.get(column, column) for column in content["columns"]]
    return {
        method: dict(zip(heads, values, strict=True))
        for method, values in content["rows"].items()
    }


def random_features(data: MetaDataset) -> NDArray[np.int64]:
    """The features of the experiment, the same ones of every set of that width.

    They keep the order of the dataset, in which neighbours are often alike: only then
    can a network of a fixed order reach the errors that the paper prints.
    """
    return np.sort(shuffled_features(data))


def shuffled_features(data: MetaDataset) -> NDArray[np.int64]:
    """The same features in random order."""
    return np.random.default_rng(0).permutation(data.n_features)[:N_FEATURES]


def mean_by_size(
    scores: Mapping[str, Mapping[int, float]],
    names: Sequence[str],
    sizes: Sequence[int],
) -> list[float]:
    """Mean over sets at each size; NaN where a set has no value.

    Examples
    --------
    >>> mean_by_size({"a": {20: 1.0}, "b": {20: 2.0}}, ["a", "b"], [20, 100])
    [1.5, nan]
    """
    values = [
        [scores.get(name, {}).get(size, np.nan) for size in sizes] for name in names
    ]
    means: list[float] = np.mean(values, axis=0).tolist()
    return means
