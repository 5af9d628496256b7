"""What rows cost: their number, their width, the size of the sketch, and the engine.

* rows: 1e5 to 1e8 rows of 16 numbers, drawn on the fly and never held: seconds (of
  drawing, and of all) and peak memory, each in a process of its own;
* sizes: a million rows, d and m varied: seconds, and time over that of the bare float64
  product of the same shape, one thread;
* peers: the same Parquet files through `CompressivePCA` and `CompressiveKMeans`, and
  through scikit-learn's `IncrementalPCA` and `MiniBatchKMeans`: seconds, peak memory,
  and what is lost;
* engines: the same files sketched here with one and two threads, and by Dask, Ray and
  Spark with one and two workers that run already: seconds, time over that of as many
  threads here, and whether the digests are equal; and a pass in which the engine hands
  the rows to a function that only counts them;
* first: seconds of the first job of a new session, without starting the session.

Targets: memory flat to 1e8 rows and below 600 MB; engines < 1.25 times the time here at
1e7 x 16 with two workers; a first Spark job in < 10 s.

usage: python3 dev.py run benchmarks/scale.py [rows|sizes|peers|engines|first] [N]
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sketchlearn as sl
from sketchlearn.engines.base import AbstractTask
from sketchlearn.engines.runner import run_task

WIDTH, BATCH, FILES = 16, 1 << 16, 8
NAMES = [f"f{i}" for i in range(WIDTH)]
BOUNDS = (-16.0, 16.0)
ENGINES = ("dask", "ray", "spark")
TURNS = 2


def plans():
    """Maps of the three estimators that people use most."""
    return {
        "moments": sl.CompressivePCA(bounds=BOUNDS).plan(WIDTH),
        "Fourier 1000": sl.FourierFeatures(WIDTH, 1000, scale=0.3),
        "k-means": sl.CompressiveKMeans(10, bounds=BOUNDS).plan(WIDTH),
    }


def drawn(count):
    """Batches of rows, always in the same memory."""
    rng, block = np.random.default_rng(0), np.empty((BATCH, WIDTH))
    for start in range(0, count, BATCH):
        rng.standard_normal(out=block)
        yield block[: count - start]


def write_files(folder, count):
    """Rows in files of several row groups, ten clusters of them."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((10, WIDTH))
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    for number in range(FILES):
        left = count // FILES
        with pq.ParquetWriter(Path(folder) / f"{number}.parquet", schema) as writer:
            while left > 0:
                size = min(4 * BATCH, left)
                rows = centres[rng.integers(0, 10, size)]
                rows = np.clip(rows + rng.standard_normal((size, WIDTH)), *BOUNDS)
                writer.write_table(
                    pa.table(dict(zip(NAMES, rows.T, strict=True)), schema=schema)
                )
                left -= size
    return str(Path(folder) / "*.parquet")


def peak_megabytes():
    """Peak resident size of this process (Linux; getrusage would count the parent)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("no VmHWM in /proc/self/status; run this on Linux.")


def seconds(work, *arguments, **options):
    start = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - start


def apart(*arguments):
    """What this script says in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr[-3000:])
    return json.loads(found.stdout.splitlines()[-1])


def measure_rows(name, count):
    phi, count = plans()[name], int(count)
    drawing = seconds(lambda: [None for _ in drawn(count)])
    whole = seconds(lambda: sl.sketch_rows(drawn(count), phi, progress=False))
    print(json.dumps([drawing, whole, peak_megabytes()]))


def rows(largest):
    for name in plans():
        for count in (10**5, 10**6, 10**7, 10**8):
            if count > largest:
                continue
            drawing, whole, peak = apart("measure-rows", name, count)
            print(
                f"{name:14} {count:>11,} rows {whole:8.2f} s, of which drawing "
                f"{drawing:6.2f} s; peak {peak:4.0f} MB"
            )


def sizes(count):
    rng = np.random.default_rng(0)
    print("d, m: seconds (one thread), time over that of the bare product")
    for d in (4, 16, 64, 256):
        X = rng.uniform(-1, 1, (min(count, 2**26 // d), d))
        maps = {"moments": (sl.CompressivePCA(bounds=(-1, 1)).plan(d), X.T)}
        for m in (100, 1000, 10_000):
            maps[f"Fourier {m}"] = (
                sl.FourierFeatures(d, m),
                rng.normal(size=(d, m // 2)),
            )
        for name, (phi, other) in maps.items():
            taken, bare = [], []
            for _ in range(TURNS if name != "Fourier 10000" else 1):
                taken.append(seconds(sl.sketch_rows, X, phi, n_jobs=1))
                bare.append(seconds(_bare, X, other, name == "moments"))
            ratio = min(taken) / min(bare)
            per = min(taken) / len(X) * 1e6
            print(
                f"  d = {d:3}, {name:13} {phi.sketch_size:6,} numbers {per:8.2f} s a "
                f"million rows {ratio:6.2f}"
            )


def _bare(X, other, is_gram):
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1):
        for start in range(0, len(X), 4096):
            block = X[start : start + 4096]
            block.T @ block if is_gram else block @ other


def measure_peer(name, files):
    """One way through the files: seconds, memory, and what the model is worth."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # noqa: PLC0415
    from sklearn.decomposition import PCA, IncrementalPCA  # noqa: PLC0415

    models = {
        "CompressivePCA": sl.CompressivePCA(4),
        "IncrementalPCA": IncrementalPCA(4),
        "CompressiveKMeans": sl.CompressiveKMeans(10),
        "CompressiveKMeans, bounds": sl.CompressiveKMeans(10, bounds=BOUNDS),
        "MiniBatchKMeans": MiniBatchKMeans(10, random_state=0, n_init=3),
    }
    model = models[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name.startswith("Compressive"):
            taken = seconds(lambda: model.fit(files))
        else:
            taken = seconds(
                lambda: [model.partial_fit(batch) for batch in sl.open_rows(files)]
            )
    peak = peak_megabytes()
    sample = np.concatenate(list(sl.open_rows(sorted(Path(files).parent.iterdir())[0])))
    sample = sample[:200_000]
    if "PCA" in name:
        best = PCA(4).fit(sample)
        kept = ((sample - sample.mean(axis=0)) @ model.components_.T).var(axis=0).sum()
        worth = 1 - kept / (best.transform(sample).var(axis=0).sum())
    else:
        best = KMeans(10, n_init=5, random_state=0).fit(sample[:50_000])
        distances = model.transform(sample[:50_000]).min(axis=1) ** 2
        worth = distances.sum() / best.inertia_ - 1
    print(json.dumps([taken, peak, worth]))


def peers(count):
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(folder, count)
        print(
            f"{count:,} x {WIDTH} in {FILES} Parquet files, one pass (two where said)"
        )
        for name in (
            "CompressivePCA",
            "IncrementalPCA",
            "CompressiveKMeans",
            "CompressiveKMeans, bounds",
            "MiniBatchKMeans",
        ):
            taken, peak, worth = apart("measure-peer", name, files)
            print(f"  {name:26} {taken:7.2f} s, {peak:5.0f} MB, loss {worth:.2%}")


def dataset(name, workers, files):
    """The files as a dataset of an engine that runs with so many workers."""
    paths = sorted(map(str, Path(files).parent.glob("*.parquet")))
    if name == "dask":
        import dask.dataframe  # noqa: PLC0415
        import distributed  # noqa: PLC0415

        distributed.Client(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
        )
        return dask.dataframe.read_parquet(paths)
    if name == "ray":
        import ray  # noqa: PLC0415
        import ray.data  # noqa: PLC0415

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        logging.getLogger("ray.data").setLevel("ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
        return ray.data.read_parquet(paths)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
    }
    builder = SparkSession.builder.master(f"local[{workers}]").config(map=local)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.read.parquet(*paths)


@dataclass(frozen=True)
class Counting(AbstractTask):
    """How many rows a partition has: what an engine takes to hand them over."""

    is_ordered = False

    def result_of(self, batches, partition):
        return str(sum(map(len, batches))).encode()


def measure_engine(name, workers, files):
    """Seconds of each map, the best of some turns, and the digests."""
    workers = int(workers)
    warnings.simplefilter("ignore")
    data = files if name == "here" else dataset(name, workers, files)
    options = {"n_jobs": workers, "progress": False} if name == "here" else {}
    maps, found = plans(), {}
    if name != "here":
        held = sl.open_rows(data).dataset
        empty = [seconds(list, run_task(held, Counting(), None)) for _ in range(TURNS)]
        found["rows alone"] = empty[0], min(empty), None
    for kind, phi in maps.items():
        taken = []
        for _ in range(TURNS):
            start = time.perf_counter()
            sketch = sl.sketch_rows(data, phi, **options)
            taken.append(time.perf_counter() - start)
        found[kind] = taken[0], min(taken), sketch.digest
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # without waiting for the engine to shut down


def engines(count):
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(folder, count)
        for workers in (1, 2):
            here = apart("measure-engine", "here", workers, files)
            print(f"{count:,} x {WIDTH}, {workers} threads here, workers elsewhere:")
            for name in ENGINES:
                there = apart("measure-engine", name, workers, files)
                print(
                    f"  {name:6} hands the rows over in {there['rows alone'][1]:.2f} s"
                )
                for kind in here:
                    _, best, digest = there[kind]
                    equal = "equal" if digest == here[kind][2] else "OTHER DIGEST"
                    ours = here[kind][1]
                    print(
                        f"  {name:6} {kind:13} {best:7.2f} s, here {ours:7.2f} "
                        f"s: {best / ours:5.2f}; {equal}"
                    )


def measure_first(name, files):
    warnings.simplefilter("ignore")
    data = dataset(name, 2, files)
    phi = plans()["Fourier 1000"]
    print(json.dumps(seconds(lambda: sl.sketch_rows(data, phi))))
    sys.stdout.flush()
    os._exit(0)


def first(count):
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(folder, count)
        for name in ENGINES:
            taken = apart("measure-first", name, files)
            print(f"{name:6} first job, {count:,} rows: {taken:5.2f} s")


JOBS = {
    "rows": (rows, 10**8),
    "sizes": (sizes, 10**6),
    "peers": (peers, 10**7),
    "engines": (engines, 10**7),
    "first": (first, 10**4),
}
MEASURED = {
    "measure-rows": measure_rows,
    "measure-peer": measure_peer,
    "measure-engine": measure_engine,
    "measure-first": measure_first,
}


def main():
    job, *arguments = sys.argv[1:] or ["rows"]
    if job in MEASURED:
        MEASURED[job](*arguments)
        return
    work, count = JOBS[job]
    work(int(float(arguments[0])) if arguments else count)


if __name__ == "__main__":
    main()
