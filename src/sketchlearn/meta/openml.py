"""Datasets of the paper from OpenML, as a folder that trainings and experiments read.

scikit-learn fetches them and checks what was sent against OpenML's checksums. A set is
written whole, with its own checksum in the manifest, before the next one is fetched: a
fetch that was interrupted, or failed at some sets, goes on where it is repeated.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sketchlearn.errors import RowsError, import_extra
from sketchlearn.files.durable import write_file
from sketchlearn.meta.datasets import LABEL
from sketchlearn.meta.manifest import MANIFEST, read_manifest
from sketchlearn.meta.paper_sets import PaperSet

__all__ = ["Fetched", "fetch_sets"]

MOST_IMAGES = 10_000
"""Rows that are kept of a set of images, drawn by class."""

Say = Callable[[str], object]
Fetch = Callable[[int], tuple[Any, Any]]


@final
@dataclass(frozen=True)
class Fetched:
    """What a fetch came to, by names of sets."""

    written: tuple[str, ...]
    """Fetched and written now."""

    kept: tuple[str, ...]
    """There already, with the right checksum."""

    failed: dict[str, str]
    """Not to be had, and why."""

    elsewhere: tuple[str, ...]
    """Not at OpenML."""


def fetch_sets(
    sets: Sequence[PaperSet],
    folder: str | os.PathLike[str],
    *,
    fetch: Fetch | None = None,
    say: Say = lambda text: None,
) -> Fetched:
    """Write those of the paper's sets that OpenML has into a folder with a manifest.

    Columns are called ``f0``, ``f1``, ..., and the last one ``label``. Categories
    become whole numbers in the order of their names, a missing one a number of its own;
    a missing number becomes the median of its column. Of images at most
    ``MOST_IMAGES`` rows are kept, drawn by class with seed 0. The manifest says what
    was done to each.

    Parameters
    ----------
    sets : sequence of PaperSet
        What to fetch; those that are in the folder already are not fetched again.
    folder : path
        Where; made if it does not exist.
    fetch : callable, optional
        From the number of a set at OpenML to its frame of features and its classes;
        scikit-learn's by default.
    say : callable
        Receives lines of progress.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    entries = _read_manifest(home)
    fetch, wanted = fetch or _fetch_openml, [one for one in sets if one.openml]
    written, kept, failed = [], [], dict[str, str]()
    for place, one in enumerate(wanted, 1):
        if _is_whole(home, entries.get(one.name)):
            kept.append(one.name)
            continue
        say(f"{place} of {len(wanted)}: {one.name} (OpenML {one.openml}) ...")
        try:
            entries[one.name] = _write_set(home, one, *fetch(one.openml or 0))
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            failed[one.name] = f"{type(error).__name__}: {error}"
            say(f"failed: {one.name}: {failed[one.name]}")
            continue
        _write_manifest(home, entries)
        written.append(one.name)
    elsewhere = tuple(one.name for one in sets if not one.openml)
    return Fetched(tuple(written), tuple(kept), failed, elsewhere)


def _fetch_openml(number: int) -> tuple[Any, Any]:
    """Features as a frame and classes of a set, checked by scikit-learn."""
    import_extra("pandas", "data")
    datasets = import_extra("sklearn.datasets", "data")
    found = datasets.fetch_openml(data_id=number, as_frame=True, parser="auto")
    return found.data, found.target


def _is_whole(home: Path, entry: dict[str, Any] | None) -> bool:
    """Whether the file of an entry is there as it was written."""
    if entry is None or not (home / entry["file"]).is_file():
        return False
    data = (home / entry["file"]).read_bytes()
    return hashlib.sha256(data).hexdigest() == entry.get("sha256")


def _write_set(home: Path, one: PaperSet, frame: Any, target: Any) -> dict[str, Any]:
    """Write a set, and say what it is."""
    if target is None or not frame.size:
        raise RowsError("it has no rows, no columns or no classes.")
    labels, names = _codes(target)
    table = _Table()
    columns = {
        f"f{place}": table.column(f"f{place}", frame.iloc[:, place])
        for place in range(frame.shape[1])
    }
    kept = np.arange(len(labels))
    if one.kind == "image" and len(labels) > MOST_IMAGES:
        kept = _by_class(labels, MOST_IMAGES)
        table.done.append(f"stratified subsample of {MOST_IMAGES} rows, seed 0")
    if one.features not in (None, len(columns)):
        table.done.append(f"{one.features} features in the paper")
    columns = {name: values[kept] for name, values in columns.items()}
    data = _parquet({**columns, LABEL: labels[kept]})
    file = f"{one.split}/{one.name}.parquet"
    (home / one.split).mkdir(exist_ok=True)
    write_file(home / file, data)
    return {
        **_described(one, columns),
        "file": file,
        "rows": len(kept),
        "original_rows": len(labels),
        "classes": len(names),
        "class_names": names,
        "columns": [str(name) for name in frame.columns],
        "categorical_columns": table.categories,
        "imputed": table.imputed,
        "transformation": "; ".join(table.done),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _described(one: PaperSet, columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """What the paper, OpenML and the columns themselves say of a set."""
    types = [str(values.dtype) for values in columns.values()]
    return {
        "name": one.name,
        "paper_name": one.name,
        "split": one.split,
        "kind": one.kind,
        "real": True,
        "features": len(columns),
        "paper_rows": one.rows,
        "paper_features": one.features,
        "paper_classes": one.classes,
        "dtypes": {kind: types.count(kind) for kind in sorted(set(types))},
        "constant_columns": [n for n, v in columns.items() if (v == v[0]).all()],
        "source": f"OpenML, dataset {one.openml}",
        "licence": f"see https://www.openml.org/d/{one.openml}",
    }


@final
class _Table:
    """Makes columns numbers, and remembers how."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.categories: dict[str, int] = {}
        self.imputed: dict[str, str] = {}

    def column(self, name: str, values: Any) -> NDArray[Any]:
        """A column of whole numbers or floats, all finite and none missing."""
        try:
            numbers = np.asarray(values.astype("float64"), np.float64)
        except (TypeError, ValueError):
            codes, found = _codes(values)
            self.categories[name] = len(found)
            missing = int(values.isna().sum())
            if missing:
                self.imputed[name] = f"{missing} missing -> own code {len(found) - 1}"
            return codes
        if np.isinf(numbers).any():
            raise RowsError(f"column {values.name!r} has infinite values.")
        missing = int(np.isnan(numbers).sum())
        if missing == len(numbers):
            numbers = np.zeros(len(numbers))
            self.imputed[name] = f"{missing} missing -> 0"
        elif missing:
            numbers = np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)
            self.imputed[name] = f"{missing} missing -> median"
        return _smallest(numbers)


def _codes(values: Any) -> tuple[NDArray[Any], list[str]]:
    """Whole numbers of categories by the order of their names; missing ones last."""
    gone = np.asarray(values.isna(), bool)
    texts = np.array([str(value) for value in values], object)
    names, codes = np.unique(texts[~gone].astype(str), return_inverse=True)
    found = np.full(len(texts), float(len(names)))
    found[~gone] = codes
    return _smallest(found), [*names.tolist(), *["missing"] * bool(gone.any())]


def _smallest(numbers: NDArray[np.float64]) -> NDArray[Any]:
    """The smallest exact type of whole numbers, or of floats that merges no values."""
    for kind in (np.uint8, np.int8, np.uint16, np.int16, np.int32):
        limits = np.iinfo(kind)
        if numbers.min() >= limits.min and numbers.max() <= limits.max:
            whole = numbers.astype(kind)
            if np.array_equal(whole, numbers):
                return whole
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    is_told_apart = len(np.unique(narrow)) == len(np.unique(numbers))
    return narrow if is_told_apart and np.isfinite(narrow).all() else numbers


def _by_class(labels: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Numbers of rows, in order, of which each class has its share."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    ordered = order[np.argsort(labels[order], kind="stable")]
    places = np.floor((np.arange(count) + 0.5) * len(labels) / count).astype(np.int64)
    return np.sort(ordered[places])


def _parquet(columns: dict[str, NDArray[Any]]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, compression="zstd")
    return stream.getvalue()


def _read_manifest(home: Path) -> dict[str, dict[str, Any]]:
    if not (home / MANIFEST).is_file():
        return {}
    return {entry["name"]: entry for entry in read_manifest(home)}


def _write_manifest(home: Path, entries: dict[str, dict[str, Any]]) -> None:
    ordered = sorted(entries.values(), key=lambda one: (one["split"], one["name"]))
    total = sum(entry.get("bytes", 0) for entry in ordered)
    text = json.dumps({"datasets": ordered, "total_bytes": total}, indent=1)
    write_file(home / MANIFEST, (text + "\n").encode())
