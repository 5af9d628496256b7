"""PCA from sketches of m numbers: mean log relative error over real test sets.

The paper's protocol: 196 features at random, standardised, padded with zeros; LRE is
the log ratio of the mean reconstruction error to that of exact PCA. Everything goes
through CompressivePCA and its sketch. Sets that are simulated are marked and have a
mean of their own.

usage: python3 dev.py run benchmarks/pca.py [--data ../shared] [--seeds N]
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from sketchlearn import CompressivePCA
from sketchlearn.metrics import log_relative_error, pca_reconstruction_error

SIZES = (100, 500, 1000, 2000)
TARGETS = (0.58, 0.33, 0.27, 0.21)


def standardised(path):
    """196 random features with zero mean and unit variance; constants are zero."""
    table = pq.read_table(path)
    columns = [name for name in table.column_names if name != "label"]
    rows = np.column_stack([table[name].to_numpy() for name in columns])
    rows = rows.astype(np.float64)
    chosen = np.random.default_rng(0).permutation(rows.shape[1])[:196]
    rows = rows[:, chosen] - rows[:, chosen].mean(axis=0)
    spread = rows.std(axis=0)
    return rows / np.where(spread > 1e-9, spread, 1.0) * (spread > 1e-9)


def lre(rows, size, seed):
    """Log relative error of PCA from one sketch of ``size`` numbers."""
    moment = rows.T @ rows / len(rows)
    exact = np.linalg.eigh(moment)[1][:, ::-1].T
    pca = CompressivePCA(sketch_size=size, standardize=True, random_state=seed)
    components = pca.fit(rows).components_
    assert pca.sketch_.size <= size + 2 * rows.shape[1]
    error = pca_reconstruction_error(moment, components)
    return log_relative_error(error, pca_reconstruction_error(moment, exact))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    folder = options.data / "data" / "test"
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}; pass --data (skipped).")
    manifest = json.loads((options.data / "data" / "MANIFEST.json").read_text())
    printed = json.loads((options.data / "paper" / "tables.json").read_text())
    paper = printed["pca_reconstruction_error"]
    real = {entry["file"]: entry["real"] for entry in manifest["datasets"]}
    table = {}
    print(f"{'set':<36}{'d':>5}" + "".join(f"{m:>8}" for m in SIZES))
    for path in sorted(folder.glob("*.parquet")):
        rows = standardised(path)
        scores = [
            np.mean([lre(rows, size, seed) for seed in range(options.seeds)])
            for size in SIZES
        ]
        is_real = real[f"test/{path.name}"]
        table[path.stem] = (scores, is_real, int((rows.std(axis=0) > 0).sum()))
        mark = "" if is_real else " (simulated)"
        values = "".join(f"{score:8.3f}" for score in scores)
        print(f"{path.stem + mark:<36}{table[path.stem][2]:>5}{values}", flush=True)
    summary("all sets", [scores for scores, _, _ in table.values()])
    summary("real sets", [scores for scores, is_real, _ in table.values() if is_real])
    wide = [scores for scores, is_real, d in table.values() if is_real and d > 100]
    summary("real sets with d > 100", wide)
    known = [name for name in table if name in paper["rows"] and table[name][1]]
    print(f"{'target':<41}" + "".join(f"{value:8.2f}" for value in TARGETS))
    summary("real sets also in the paper", [table[name][0] for name in known])
    print_paper(paper, known)


def print_paper(paper, names):
    """The paper's printed SQNet errors as LRE against its own largest sketch."""
    sizes = [paper["sketch_sizes"].index(size) for size in SIZES]
    last = len(paper["sketch_sizes"]) - 1
    rows = [
        [np.log(paper["rows"][name][i] / paper["rows"][name][last]) for i in sizes]
        for name in names
    ]
    summary("the paper's SQNet, printed", rows)


def summary(name, scores):
    mean = np.mean(scores, axis=0)
    print(f"{name:<33}{len(scores):>8}" + "".join(f"{value:8.3f}" for value in mean))


if __name__ == "__main__":
    main()
