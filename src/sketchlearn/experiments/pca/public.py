"""What is public of private test sets, and their rows in public units.

Nothing here is read off a private row. Centers and scales of features are those of a
training set with the same features (images), those of all values of a training set of
the same kind (genotypes), or the middle and the standard deviation of a uniform law on
declared bounds. Rows are brought to these units and to at most 4 of them; where a
method needs a norm bound S, it comes from the rows of a training set in its own units.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.experiments.protocol import random_features
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.meta.datasets import MetaDataset, load_folder

__all__ = ["PUBLIC", "REACH", "Knowledge", "PrivateSet", "private_set"]

REACH = 4.0
"""Largest magnitude of a value in public units."""

_LEAST_PUBLIC_SCALE = 0.1
"""Features of a training set that hardly vary get this share of the largest scale."""

_PUBLIC_ROWS_KEPT = 0.99
"""Share of training rows that S leaves as they are."""


@final
@dataclass(frozen=True)
class Knowledge:
    """Where public units and norm bounds of a private set come from."""

    twin: str
    """A training set that nobody protects."""

    aligned: bool = False
    """Whether its features are those of the private set."""

    bounds: tuple[float, float] | None = None
    """Declared range of all features, if the twin tells none."""


PUBLIC = {
    "MNIST": Knowledge("EMNIST-digits", aligned=True),
    "letters2": Knowledge("letters1", aligned=True),
    "hapmap31": Knowledge("hapmap1"),
    "hapmap32": Knowledge("hapmap1"),
    "human-1000G": Knowledge("hapmap1"),
    "semeion": Knowledge("EMNIST-digits", bounds=(0, 1)),
    "pendigits": Knowledge("letter", bounds=(0, 100)),
    "wall-robot-navigation": Knowledge("ozone-level-8hr", bounds=(0, 5)),
}
"""Private sets of the test split."""


@final
@dataclass(frozen=True, eq=False)
class PrivateSet:
    """Private rows in public units, and public rows to choose constants with."""

    name: str
    """Name in its collection."""

    rows: NDArray[np.float64]
    """To be protected, shape (n, d)."""

    public_rows: NDArray[np.float64]
    """Not to be protected, shape (n', d)."""

    labels: NDArray[Any] | None = None
    """Class of each private row."""

    @property
    def second_moment(self) -> NDArray[np.float64]:
        """R = E[xxᵀ] of the private rows, exactly."""
        return np.asarray(self.rows.T @ self.rows / len(self.rows))

    def norm_bound(self, feature_map: AbstractFeatureMap) -> float:
        """S: longer than 99 % of the feature vectors of public rows."""
        blocks = np.array_split(self.public_rows, -(-len(self.public_rows) // 256))
        norms = [np.linalg.norm(feature_map(block), axis=1) for block in blocks]
        return float(np.quantile(np.concatenate(norms), _PUBLIC_ROWS_KEPT))


def private_set(folder: str | os.PathLike[str], name: str) -> PrivateSet:
    """One of :data:`PUBLIC` in the units of its public knowledge.

    Parameters
    ----------
    folder : path
        Holds ``MANIFEST.json``.
    name : str
        Name of the private set.
    """
    known = PUBLIC[name]
    private = _find(os.fspath(folder), name, "test")
    twin = _find(os.fspath(folder), known.twin, "train")
    rows = private.rows[:, random_features(private)].astype(np.float64)
    d = rows.shape[1]
    beside = twin.rows[:, random_features(twin)[:d]].astype(np.float64)
    if beside.shape[1] < d:
        raise RowsError(f"{known.twin!r} has fewer features than {name!r}.")
    own = beside.mean(axis=0), _scales(beside.std(axis=0))
    units: tuple[Any, Any] = own
    if known.bounds is not None:
        low, high = known.bounds
        units = (low + high) / 2, (high - low) / np.sqrt(12)
    elif not known.aligned:
        units = own = beside.mean(), beside.std()
    return PrivateSet(
        name, _in_units(rows, *units), _in_units(beside, *own), private.labels
    )


def _scales(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.maximum(deviations, _LEAST_PUBLIC_SCALE * deviations.max()))


def _in_units(rows: NDArray[np.float64], center: Any, scale: Any) -> Any:
    return np.clip((rows - center) / scale, -REACH, REACH)


@lru_cache(maxsize=4)
def _find(folder: str, name: str, split: Literal["train", "test"]) -> MetaDataset:
    for data in load_folder(folder, split=split):
        if data.name == name:
            return data
    raise RowsError(f"{folder!r} has no set {name!r} in its split {split!r}.")
