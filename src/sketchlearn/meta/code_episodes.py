"""Episodes to learn codes from: what a sketch says of a dataset, and other rows of it.

Rows are zeros and ones of random columns of a dataset, some of them negated; sketches
hold few rows or many, all second moments or a few columns. They are made and decoded as
an estimator would, once, before a training begins: what is learned never changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.plans.codes import plan_codes
from sketchlearn.plans.moments import moment_decoder

__all__ = [
    "CodeEpisode",
    "EpisodeLaw",
    "binary_tables",
    "draw_episode",
    "known_of_rows",
]

_FEWEST_FEATURES = 12
"""Narrower tables teach nothing of codes."""

_SMALLEST_SKETCH = 8
"""Of a sketch."""


@final
@dataclass(frozen=True, eq=False)
class CodeEpisode:
    """What a sketch says, and rows that are not in it."""

    known: CodeDirections
    rows: NDArray[np.uint8]


@final
@dataclass(frozen=True, kw_only=True)
class EpisodeLaw:
    """How episodes are drawn."""

    max_features: int = 1000
    """Most columns of an episode."""

    max_rows: int = 4000
    """Most rows of a sketch."""

    query_rows: int = 96
    """Rows to reconstruct."""

    most_codes: int = 64
    """Most numbers of a code."""

    compressed: float = 0.35
    """Share of sketches that hold only columns of the second moment."""

    few_rows: float = 0.4
    """Share of sketches of at most 256 rows."""

    flips: float = 0.5
    """Share of episodes in which columns are negated, each with probability 1/2."""


def draw_episode(
    tables: Sequence[NDArray[np.uint8]], law: EpisodeLaw, rng: np.random.Generator
) -> CodeEpisode:
    """One episode of one of the tables.

    Parameters
    ----------
    tables : sequence of uint8 arrays of shape (n, d)
        Rows of zeros and ones.
    law : EpisodeLaw
        How to draw.
    rng : numpy.random.Generator
    """
    table = tables[int(rng.integers(len(tables)))]
    widest = min(table.shape[1], law.max_features)
    low = np.log(min(_FEWEST_FEATURES, widest))
    d = int(round(np.exp(rng.uniform(low, np.log(widest)))))
    d = widest if rng.random() < 0.4 else d
    columns = np.sort(rng.permutation(table.shape[1])[:d])
    most = max(min(len(table) - law.query_rows, law.max_rows), _SMALLEST_SKETCH)
    high = min(most, 256) if rng.random() < law.few_rows else most
    n = int(round(np.exp(rng.uniform(np.log(_SMALLEST_SKETCH), np.log(high)))))
    order = rng.permutation(len(table))
    rows = table[:, columns] if d < table.shape[1] else table
    support, query = rows[order[:n]], rows[order[n:][: law.query_rows]]
    if rng.random() < law.flips:
        negated = (rng.random(d) < 0.5).astype(np.uint8)
        support, query = support ^ negated, query ^ negated
    share = np.exp(rng.uniform(np.log(0.03), np.log(0.3)))
    k = int(np.clip(round(d * share), 1, law.most_codes))
    size: int | None = None
    if rng.random() < law.compressed:
        size = d * int(round(np.exp(rng.uniform(0, np.log(20)))))
    return CodeEpisode(known_of_rows(support, k, sketch_size=size), query)


def known_of_rows(
    rows: NDArray[np.uint8], n_components: int, *, sketch_size: int | None = None
) -> CodeDirections:
    """What a sketch of rows says of them, decoded as the estimator does.

    Parameters
    ----------
    rows : uint8 array of shape (n, d)
        Zeros and ones.
    n_components : int
        Directions.
    sketch_size : int, optional
        Numbers in the sketch; all second moments by default.
    """
    d = rows.shape[1]
    phi = plan_codes("learned", d, sketch_size=sketch_size or d * (d + 1) // 2)
    sketch = sketch_rows(rows.astype(np.float32), phi, progress=False)
    decoder = moment_decoder("learned", sketch, rounds_rows=False)
    moments = decoder.decode(sketch).params
    return CodeDirections.of_moments(moments, n_components)


def binary_tables(datasets: Sequence[MetaDataset]) -> dict[str, NDArray[np.uint8]]:
    """Datasets as zeros and ones, those that are wide and long enough."""
    found = {data.name: binary_rows(data) for data in datasets}
    return {
        name: rows
        for name, rows in found.items()
        if rows.shape[1] >= _FEWEST_FEATURES and len(rows) >= 4 * _SMALLEST_SKETCH
    }
