"""What the experiments share: test sets, features, sketch sizes and promises.

Which methods there are, and how they are judged, each experiment says for itself.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.meta.datasets import MetaDataset, load_folder

__all__ = [
    "DELTA",
    "EPSILONS",
    "N_FEATURES",
    "mean_by_size",
    "random_features",
    "require_plan",
    "select_test_sets",
]

N_FEATURES = 196
"""Features drawn from each dataset, and width of a padded row."""

EPSILONS, DELTA = (0.01, 0.1, 1.0, 10.0), 1e-5
"""Promises at which private sketches are compared."""


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


def random_features(data: MetaDataset) -> NDArray[np.int64]:
    """The features of the experiment, the same ones of every set of that width."""
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
