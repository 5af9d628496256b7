"""k-means from sketches: inertia against Lloyd's (scikit-learn, n_init=10).

Features scaled to [0, 1], 196 of them at random at most, k = 10; all numbers of both
rounds counted, means and variances beside. `--split train` is for choosing, `--split
test` only for reporting. `--synthetic` runs unit Gaussian clusters instead, and
`--every-k ROWS` compares one pass and 19 decodings with 19 fits of scikit-learn.

usage: python3 dev.py run benchmarks/kmeans.py [--data ../shared] [--seeds N]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.cluster import KMeans, MiniBatchKMeans

from sketchlearn import sketch_rows
from sketchlearn.estimators.kmeans import CompressiveKMeans

SIZES = (1000, 2000, 5000)
MEDIANS, MEANS = (1.10, 1.05, 1.03), (1.14, 1.09, 1.05)


def unit_scaled(path):
    """At most 196 random features that vary, scaled to [0, 1], at most 10,000 rows."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "label"]
    rows = np.column_stack([table[name].to_numpy() for name in names]).astype(float)
    rng = np.random.default_rng(0)
    rows = rows[:, rng.permutation(rows.shape[1])[:196]]
    rows = rows[rng.permutation(len(rows))[:10_000]]
    rows = rows[:, rows.max(axis=0) > rows.min(axis=0)]
    return (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))


def ratios(rows, sizes, seeds, rounds):
    """Mean inertia ratio for each sketch size."""
    best = KMeans(10, n_init=10, random_state=0).fit(rows).inertia_
    result = []
    for size in sizes:
        found = []
        for seed in range(seeds):
            km = CompressiveKMeans(
                10, sketch_size=size, rounds=rounds, random_state=seed
            ).fit(rows)
            assert km.sketch_.size <= size + 2 * rows.shape[1]
            found.append(-km.score(rows) / best)
        result.append(np.mean(found))
    return result


def real_sets(options):
    folder = options.data / "data" / options.split
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}; pass --data (skipped).")
    manifest = json.loads((options.data / "data" / "MANIFEST.json").read_text())
    real = {entry["file"]: entry["real"] for entry in manifest["datasets"]}
    table = []
    print(f"{'set':<36}{'d':>5}" + "".join(f"{m:>8}" for m in SIZES))
    for path in sorted(folder.glob("*.parquet")):
        if not real[f"{options.split}/{path.name}"]:
            continue
        rows = unit_scaled(path)
        table.append(ratios(rows, SIZES, options.seeds, options.rounds))
        values = "".join(f"{value:8.3f}" for value in table[-1])
        print(f"{path.stem:<36}{rows.shape[1]:>5}{values}", flush=True)
    for name, measure in (("median", np.median), ("mean", np.mean), ("worst", np.max)):
        values = "".join(f"{value:8.3f}" for value in measure(table, axis=0))
        print(f"{name + f' of {len(table)} real sets':<41}{values}")
    for name, values in (("target median", MEDIANS), ("target mean", MEANS)):
        print(f"{name:<41}" + "".join(f"{value:8.2f}" for value in values))


def synthetic(options):
    """Ten unit clusters in ten dimensions, 100,000 rows, 500 and 1,000 numbers."""
    for spread in (1.37, 3.0):
        for size in (500, 1000):
            found, seconds = [], []
            for seed in range(5):
                rng = np.random.default_rng(seed)
                centres = spread * rng.normal(size=(10, 10))
                rows = centres[rng.integers(10, size=100_000)]
                rows += rng.normal(size=rows.shape)
                km = CompressiveKMeans(10, sketch_size=size, rounds=1)
                sketch = sketch_rows(rows, km.plan(10, rows=rows))
                start = time.perf_counter()
                km.fit_sketch(sketch)
                seconds.append(time.perf_counter() - start)
                best = KMeans(10, n_init=10, random_state=0).fit(rows).inertia_
                found.append(-km.score(rows) / best)
            print(
                f"centres sd {spread}, {size} numbers: ratio {np.mean(found):.4f} "
                f"(worst {np.max(found):.4f}), decoding {np.mean(seconds):.2f} s"
            )


def every_k(options):
    """K = 2..20: one pass and 19 decodings against 19 fits."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(12, 16))
    rows = centres[rng.integers(12, size=options.every_k)].astype(np.float32)
    rows += rng.standard_normal(rows.shape, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        names = [f"f{i}" for i in range(16)]
        pq.write_table(pa.table(dict(zip(names, rows.T, strict=True))), path)
        start = time.perf_counter()
        km = CompressiveKMeans(2, sketch_size=1000, rounds=1).fit(path)
        sketch, ours = km.sketch_, {2: km.cluster_centers_}
        for k in range(3, 21):
            ours[k] = km.fit_sketch(sketch, n_clusters=k).cluster_centers_
        mine = time.perf_counter() - start
    some = rows[:50_000]
    for name, search in (("KMeans", KMeans), ("MiniBatchKMeans", MiniBatchKMeans)):
        start, worse = time.perf_counter(), []
        for k in range(2, 21):
            fit = search(k, n_init=1 if options.fast else 10, random_state=0).fit(rows)
            gaps = [
                ((some[:, None] - c) ** 2).sum(axis=2).min(axis=1).sum()
                for c in (ours[k], fit.cluster_centers_)
            ]
            worse.append(gaps[0] / gaps[1])
        theirs = time.perf_counter() - start
        print(
            f"{name}: {theirs:.1f} s against {mine:.1f} s, {theirs / mine:.1f} times; "
            f"inertia ratio {np.mean(worse):.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--every-k", type=int, default=0, metavar="ROWS")
    parser.add_argument("--fast", action="store_true", help="n_init=1 for every-k")
    options = parser.parse_args()
    if options.synthetic:
        synthetic(options)
    elif options.every_k:
        every_k(options)
    else:
        real_sets(options)


if __name__ == "__main__":
    main()
