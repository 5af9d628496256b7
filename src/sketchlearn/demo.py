"""The main job on generated data: sketch, merge, forget, learn, compare.

A million readings of 24 correlated, clustered sensors and a load to predict, in ten
Parquet parts. Everything sketchlearn learns, it learns from one small file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.estimators.pca import CompressivePCA
from sketchlearn.estimators.ridge import CompressiveRidge
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.sketches import load, save

__all__ = ["demonstrate", "write_parts"]

N_SENSORS, N_PARTS, FORGOTTEN = 24, 10, 3
SENSOR_BOUNDS, LOAD_BOUNDS = (-64.0, 64.0), (-256.0, 256.0)
FEATURES = np.arange(N_SENSORS)

Say = Callable[[str], object]


def demonstrate(
    rows: int = 1_000_000, directory: str | None = None, *, say: Say = print
) -> dict[str, Any]:
    """Run the demo, telling the story through ``say``; return its figures.

    Parameters
    ----------
    rows : int
        Number of rows to generate.
    directory : str, optional
        Where to keep the files; a temporary folder by default.
    say : callable
        Receives each line of the story.
    """
    if directory is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        return _run(rows, Path(directory), say)
    with tempfile.TemporaryDirectory(prefix="sketchlearn-demo-") as folder:
        return _run(rows, Path(folder), say)


def write_parts(rows: int, directory: Path, *, seed: int = 0) -> list[Path]:
    """Write the generated rows as Parquet parts and return their paths."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(0.0, 3.0, (8, N_SENSORS))
    mixing = rng.normal(size=(6, N_SENSORS))
    weights = rng.normal(size=N_SENSORS)
    names = [f"sensor_{i:02d}" for i in range(N_SENSORS)]
    paths = []
    sizes = [len(part) for part in np.array_split(np.arange(rows), N_PARTS)]
    for number, size in enumerate(sizes):
        cluster = rng.choice(8, size, p=np.arange(1, 9) / 36)
        values = centers[cluster] + rng.normal(size=(size, 6)) @ mixing
        values = np.clip(values + 0.5 * rng.normal(size=values.shape), *SENSOR_BOUNDS)
        load_ = np.clip(values @ weights + 4.0 * rng.normal(size=size), *LOAD_BOUNDS)
        table = np.column_stack([values, load_]).astype(np.float32)
        columns = dict(zip([*names, "load"], table.T, strict=True))
        paths.append(directory / f"part-{number}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def _run(rows: int, directory: Path, say: Say) -> dict[str, Any]:
    start = time.perf_counter()
    paths = write_parts(rows, directory)
    size = sum(path.stat().st_size for path in paths)
    say(
        f"data      {rows:,} rows x {N_SENSORS + 1} columns in {len(paths)} Parquet "
        f"parts, {size / 1e6:.0f} MB ({time.perf_counter() - start:.1f} s to generate)"
    )
    rest, seconds = _sketch_and_forget(paths, directory / "all.sketch", say)
    kept = (directory / "all.sketch").stat().st_size
    figures = _compare(rest, paths, kept, seconds, say)
    total = time.perf_counter() - start
    say(f"done      in {total:.1f} s")
    return {"rows": rows, "bytes_kept": kept, "seconds": total, **figures}


def _sketch_and_forget(paths: list[Path], file: Path, say: Say) -> tuple[Sketch, float]:
    """Sketch the parts, merge, store, forget one part; return what remains."""
    phi = CompressiveRidge(bounds=SENSOR_BOUNDS, target_bounds=LOAD_BOUNDS).plan(
        N_SENSORS
    )
    start = time.perf_counter()
    parts = [sketch_rows(path, phi, progress=False) for path in paths]
    seconds = time.perf_counter() - start
    whole = sum(parts[1:], start=parts[0])
    save(whole, file)
    say(
        f"sketch    each part on its own, then merged: {whole.size} numbers, "
        f"{file.stat().st_size:,} bytes on disk ({seconds:.1f} s, one pass)"
    )
    rest = load(file) - sketch_rows(paths[FORGOTTEN], phi, progress=False)
    others = [part for i, part in enumerate(parts) if i != FORGOTTEN]
    never = sum(others[1:], start=others[0])
    same = rest.digest == never.digest
    say(f"forget    part {FORGOTTEN}: digest {rest.digest[:16]}.. after forgetting")
    say(f"                  digest {never.digest[:16]}.. never having seen it")
    say(f"          {'equal to the last bit' if same else 'DIFFERENT'}")
    if not same:
        raise AssertionError("forgetting was not exact; please report this.")
    return rest, seconds


def _compare(
    rest: Sketch, paths: list[Path], kept: int, sketching: float, say: Say
) -> dict[str, Any]:
    """Fit both libraries and print one table."""
    ours = _timed_fits(
        lambda: CompressivePCA(5).fit_sketch(rest, features=FEATURES),
        lambda: CompressiveRidge(alpha=1.0).fit_sketch(rest),
    )
    start = time.perf_counter()
    used = [path for i, path in enumerate(paths) if i != FORGOTTEN]
    table = np.concatenate([_read(path) for path in used])
    reading = time.perf_counter() - start
    X, y = table[:, :N_SENSORS], table[:, N_SENSORS]
    theirs = _timed_fits(lambda: PCA(5).fit(X), lambda: Ridge(alpha=1.0).fit(X, y))
    held_out = _read(paths[FORGOTTEN])
    Z, target = held_out[:, :N_SENSORS], held_out[:, N_SENSORS]
    variance = [_variance_kept(fits.pca, Z) for fits in (ours, theirs)]
    r2 = [_r2(fits.ridge, Z, target) for fits in (ours, theirs)]
    say("")
    say("from the one sketch            sketchlearn   scikit-learn")
    for name, left, right in [
        ("PCA, variance kept", *variance),
        ("ridge, R2 on unseen rows", *r2),
        ("PCA, seconds to fit", ours.pca_seconds, theirs.pca_seconds),
        ("ridge, seconds to fit", ours.ridge_seconds, theirs.ridge_seconds),
        ("seconds to read the rows", sketching, reading),
    ]:
        say(f"  {name:<26} {left:>13.4f}  {right:>13.4f}")
    say(f"  {'bytes kept':<26} {kept:>13,}  {table.nbytes:>13,}")
    say("")
    return {
        "digests_equal": True,
        "pca_variance_kept": variance,
        "ridge_r2": r2,
        "bytes_in_memory": table.nbytes,
    }


@final
@dataclass(frozen=True, eq=False)
class _Fits:
    """Both models of a library, and how long they took."""

    pca: Any
    ridge: Any
    pca_seconds: float
    ridge_seconds: float


def _timed_fits(fit_pca: Callable[[], Any], fit_ridge: Callable[[], Any]) -> _Fits:
    start = time.perf_counter()
    pca = fit_pca()
    middle = time.perf_counter()
    ridge = fit_ridge()
    return _Fits(pca, ridge, middle - start, time.perf_counter() - middle)


def _read(path: Path) -> NDArray[np.float32]:
    table = pq.read_table(path)
    return np.column_stack([column.to_numpy() for column in table.columns])


def _r2(ridge: Any, rows: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    return float(r2_score(target, rows @ ridge.coef_ + ridge.intercept_))


def _variance_kept(pca: Any, rows: NDArray[np.float32]) -> float:
    """Share of the variance of ``rows`` that the components keep."""
    centred = rows - rows.mean(axis=0)
    projected = centred @ pca.components_.T.astype(np.float32)
    return float((projected**2).sum() / (centred**2).sum())
