"""Datasets to meta-learn from: whole tables, read when first used.

A dataset here is an item of a collection: a name, a size and a way to read it. How
episodes are drawn from it, and what is learned, is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sketchlearn.errors import MissingFileError, RowsError
from sketchlearn.meta.manifest import MANIFEST, Split, find_folder, read_manifest

__all__ = [
    "MetaDataset",
    "load_folder",
    "require_apart",
    "split_datasets",
]

Arrays = tuple[NDArray[Any], NDArray[Any] | None]

LABEL = "label"
"""Name of the class column in the files of a folder."""


@final
@dataclass(frozen=True, eq=False)
class MetaDataset:
    """One table of a collection, read once, when its rows are first asked for.

    Rows keep the 8-bit types of images and genotypes, a quarter of float32.

    Examples
    --------
    >>> data = MetaDataset.from_arrays("two", [[1, 5], [3, 5]])
    >>> data.take([0, 1], [1, 0]).tolist()
    [[0.0, -1.0], [0.0, 1.0]]
    """

    name: str
    """Name in its collection."""

    n_rows: int
    """Rows of the whole table."""

    n_features: int
    """Columns without the label."""

    read: Callable[[], Arrays]
    """Gives rows and labels; called once."""

    real: bool = True
    """False for simulated data and stand-ins."""

    kind: str = ""
    """Such as image, genotype or tabular, where the collection says so."""

    @classmethod
    def from_arrays(
        cls, name: str, rows: Any, labels: Any = None, *, real: bool = True
    ) -> Self:
        """A dataset that is in memory already."""
        table = np.asarray(rows)
        if table.ndim != 2 or not table.size:
            raise RowsError(
                f"dataset {name!r} must be a table with rows and columns; "
                f"got shape {table.shape}."
            )
        given = None if labels is None else np.asarray(labels)
        n_rows, n_features = table.shape
        return cls(name, n_rows, n_features, lambda: (table, given), real=real)

    def announced(self, say: Callable[[str], object]) -> Self:
        """The same dataset, which tells its name when it is read."""

        def read() -> Arrays:
            say(self.name)
            return self.read()

        return replace(self, read=read)

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, shape (n_rows, n_features)."""
        return self._arrays[0]

    @property
    def labels(self) -> NDArray[Any] | None:
        """Class of each row, if there are classes."""
        return self._arrays[1]

    def take(
        self, rows: Any, columns: Any, *, standardize: bool = True
    ) -> NDArray[np.float32]:
        """Chosen rows and columns as float32.

        Standardized columns have mean 0 and variance 1 over the whole table, as in the
        paper's appendix on PCA; a constant column becomes 0.
        """
        taken = self.rows[np.asarray(rows)[:, None], np.asarray(columns)]
        values: NDArray[np.float32] = taken.astype(np.float32)
        if standardize:
            mean, scale = self._moments
            values = (values - mean[columns]) * scale[columns]
        return values

    @property
    def varying(self) -> NDArray[np.int64]:
        """Columns that are not constant."""
        return np.flatnonzero(self._moments[1])

    @cached_property
    def _arrays(self) -> Arrays:
        rows, labels = self.read()
        if rows.shape != (self.n_rows, self.n_features):
            raise RowsError(
                f"dataset {self.name!r} has shape {rows.shape}, but was announced with "
                f"{(self.n_rows, self.n_features)}. Correct the manifest."
            )
        return rows, labels

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and inverse standard deviation of each column."""
        deviation = self.rows.std(axis=0, dtype=np.float64)
        mean = self.rows.mean(axis=0, dtype=np.float64)
        constant = deviation <= 1e-6 * np.abs(mean)  # 0 up to float32 rounding
        scale = np.where(constant, 0.0, 1 / np.where(constant, 1.0, deviation))
        return mean.astype(np.float32), scale.astype(np.float32)


def load_folder(
    path: str | os.PathLike[str],
    *,
    split: Split = "train",
    real_only: bool = False,
) -> list[MetaDataset]:
    """The datasets of one split of a folder of Parquet files.

    The folder has a ``MANIFEST.json`` with an entry per file: ``name``, ``file``,
    ``split``, ``rows``, ``features`` and ``real``. Each file has feature columns and
    a column ``label``. Only the manifest is read now.

    Parameters
    ----------
    path : path
        The folder, or its parent:
        see :func:`~sketchlearn.meta.manifest.find_folder`.
    split : {"train", "test"}
        Which datasets. Weights must never be trained or chosen on ``"test"``.
    real_only : bool
        Leave out simulated data and stand-ins.
    """
    folder = find_folder(path)
    manifest = folder / MANIFEST
    found = [
        MetaDataset(
            name=entry["name"],
            n_rows=entry["rows"],
            n_features=entry["features"],
            read=partial(_read_parquet, folder / entry["file"]),
            real=entry["real"],
            kind=entry.get("kind", ""),
        )
        for entry in read_manifest(folder)
        if entry["split"] == split and (entry["real"] or not real_only)
    ]
    if not found:
        raise RowsError(f"{str(manifest)!r} lists no dataset of the split {split!r}.")
    return found


def require_apart(
    training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> None:
    """Refuse datasets that are on both sides, and a side without any."""
    both = {data.name for data in training} & {data.name for data in held_out}
    if not training or not held_out or both:
        raise RowsError(
            "training and validation need at least one dataset each and none in "
            f"common; got {len(training)} and {len(held_out)}, common: "
            f"{', '.join(sorted(both)) or 'none'}. See split_datasets."
        )


def split_datasets(
    datasets: Sequence[MetaDataset],
    held_out: float | Collection[str],
    *,
    seed: int = 0,
) -> tuple[list[MetaDataset], list[MetaDataset]]:
    """Training and held-out datasets; no dataset is in both.

    Parameters
    ----------
    datasets : sequence of MetaDataset
        All of them.
    held_out : float or collection of str
        Fraction to hold out, drawn with ``seed`` (at least one dataset), or names.
    seed : int
        Same seed, same split.

    Examples
    --------
    >>> data = [MetaDataset.from_arrays(name, [[0.0]]) for name in "abcd"]
    >>> train, rest = split_datasets(data, ["b"])
    >>> [d.name for d in train], [d.name for d in rest]
    (['a', 'c', 'd'], ['b'])
    """
    if isinstance(held_out, (int, float)):
        if not 0 < held_out < 1 or len(datasets) < 2:
            raise RowsError(
                f"cannot hold out {held_out!r} of {len(datasets)} datasets; give a "
                "fraction between 0 and 1 and at least two datasets."
            )
        count = min(max(1, round(held_out * len(datasets))), len(datasets) - 1)
        drawn = np.random.default_rng(seed).permutation(len(datasets))[:count]
        chosen = {datasets[int(index)].name for index in drawn}
    else:
        chosen = set(held_out)
        missing = chosen - {data.name for data in datasets}
        if missing:
            raise RowsError(
                f"cannot hold out {sorted(missing)[0]!r}: there is no such dataset."
            )
    training = [data for data in datasets if data.name not in chosen]
    return training, [data for data in datasets if data.name in chosen]


def _read_parquet(path: Path) -> Arrays:
    if not path.is_file():
        raise MissingFileError(
            f"there is no file {str(path)!r}, which the manifest names; correct it."
        )
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RowsError(
            f"{str(path)!r} is no Parquet file that can be read: {error}."
        ) from error
    labels = None
    if LABEL in table.column_names:
        labels = table[LABEL].to_numpy()
        table = table.drop_columns([LABEL])
    for name, column in zip(table.column_names, table.columns, strict=True):
        _require_numbers(path, name, column)
    columns = [column.to_numpy() for column in table.columns]
    kinds = {column.dtype for column in columns}
    small = len(kinds) == 1 and next(iter(kinds)).itemsize == 1
    kind = next(iter(kinds)) if small else np.dtype(np.float32)
    return np.column_stack([column.astype(kind) for column in columns]), labels


def _require_numbers(path: Path, name: str, column: pa.ChunkedArray) -> None:
    """Refuse a column that networks cannot learn from."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        problem = f"holds {kind}"
    elif column.null_count or (
        pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py()
    ):
        problem = "has missing or infinite values"
    else:
        return
    raise RowsError(
        f"column {name!r} of {str(path)!r} {problem}; a dataset to learn from holds "
        "finite numbers alone. Encode or impute it."
    )
