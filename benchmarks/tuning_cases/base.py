"""How cases are registered, and the rows that several of them share."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sketchlearn.meta.datasets import load_folder

TRAINING_SETS = ("MiceProtein", "dogstrain1", "Fashion-MNIST")

Case = tuple[str, Callable[[Any], float]]
Builder = Callable[[Path | None], Iterator[Case]]
BUILDERS: dict[str, list[Builder]] = {}


def cases_of(name: str) -> Callable[[Builder], Builder]:
    """Register a function from the data folder, or None, to cases of a tuning."""

    def register(build: Builder) -> Builder:
        BUILDERS.setdefault(name, []).append(build)
        return build

    return register


@cache
def training_set(data: Path, name: str):
    """Standardised rows of a training set: at most 196 features and 3,000 rows."""
    listed = {one.name: one for one in load_folder(data / "data", split="train")}
    return standardised(listed[name].rows[:3000, :196].astype(np.float64))


def training_sets(data: Path | None, names=TRAINING_SETS):
    return {name: training_set(data, name) for name in names} if data else {}


def standardised(rows):
    rows = rows[:, rows.std(axis=0) > 0]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


@cache
def factor_rows(n_features=60, n_factors=6, noise=1.0, n_rows=2000, seed=0):
    """Standardised rows of a few directions and noise."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(n_factors, n_features))
    rows = rng.normal(size=(n_rows, n_factors)) @ mixing
    return standardised(rows + noise * rng.normal(size=rows.shape))


def reconstruction_ratio(rows, vectors):
    """Mean error of keeping 1, 2, .. of some directions, over the best possible."""
    moment = rows.T @ rows / len(rows)
    best = np.cumsum(np.linalg.eigvalsh(moment)[::-1])
    kept = np.cumsum(np.einsum("ij,ik,kj->j", vectors, moment, vectors))
    return float(np.sum(best[-1] - kept) / np.sum(best[-1] - best))


@cache
def cluster_rows(n_clusters=5, n_features=4, spread=0.3, n_rows=5000, seed=0):
    """Rows of round clusters within [-1, 1], and their true centres."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, size=(n_clusters, n_features))
    rows = centers[rng.integers(n_clusters, size=n_rows)]
    noise = spread * 0.25 * rng.normal(size=rows.shape)
    return np.clip(rows + noise, -1, 1), centers


def inertia_ratio(rows, centers, truth):
    """Inertia of some centres over that of the true ones."""
    found, best = (
        ((rows[:, None] - each) ** 2).sum(axis=-1).min(axis=1).sum()
        for each in (centers, truth)
    )
    return float(found / best)
