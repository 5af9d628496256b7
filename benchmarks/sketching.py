"""Speed of sketching against its own bare matrix product, cosine and float32 sum.

1e6 x 64 float32 rows, m = 1000 Fourier features (500 frequencies). The programs take
turns on slices of 250,000 rows in one process, five times over; a program's time is the
sum over slices of its best time, so that what else the machine does cancels out:

* bare: X @ W, cos, sin, float32 sums, in blocks of the same size;
* float: the same blocks through the feature map, summed in float32;
* exact: sketch_rows, that is checking rows and exact totals included;
* clipped: the same with every row shortened.

Targets: bare / exact >= 0.70, exact / float <= 1.35; with clipping <= 1.6.

usage: python3 dev.py run benchmarks/sketching.py [rows]
"""

import sys
import time

import numpy as np
import torch

from sketchlearn import FourierFeatures, MomentFeatures, clipped, sketch_rows
from sketchlearn.features.base import BLOCK_ROWS

D, M, REPEATS, SLICE = 64, 1000, 5, 250_000


def bare(rows, phi):
    weights = torch.from_numpy(phi.frequencies)
    total = torch.zeros(M)
    with torch.no_grad():
        for start in range(0, len(rows), BLOCK_ROWS):
            phases = torch.from_numpy(rows[start : start + BLOCK_ROWS]) @ weights
            total[: M // 2] += torch.cos(phases).sum(0)
            total[M // 2 :] += torch.sin(phases).sum(0)
    return total.numpy() / len(rows)


def summed(rows, phi):
    total = torch.zeros(phi.sketch_size)
    for start in range(0, len(rows), BLOCK_ROWS):
        total += torch.from_numpy(phi(rows[start : start + BLOCK_ROWS])).sum(0)
    return total.numpy() / len(rows)


def exact(rows, phi):
    return sketch_rows(rows, phi, progress=False).mean


def seconds(program, *arguments):
    start = time.perf_counter()
    program(*arguments)
    return time.perf_counter() - start


def main():
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    rows = np.random.default_rng(0).normal(size=(n, D)).astype(np.float32)
    phi = FourierFeatures(D, M, scale=8.0)
    short = clipped(phi, norm_bound=1.0)
    moments = MomentFeatures(D)
    runs = {
        "bare": (bare, phi),
        "float": (summed, phi),
        "exact": (exact, phi),
        "clipped": (exact, short),
    }
    difference = np.abs(bare(rows[:50_000], phi) - exact(rows[:50_000], phi)).max()
    slices = [rows[start : start + SLICE] for start in range(0, n, SLICE)]
    best = {name: [np.inf] * len(slices) for name in runs}
    for _ in range(REPEATS):
        for i, part in enumerate(slices):
            for name, (program, feature_map) in runs.items():
                best[name][i] = min(best[name][i], seconds(program, part, feature_map))
    times = {name: sum(values) for name, values in best.items()}
    # On its own: NumPy's BLAS threads keep spinning and would slow the next program.
    times["moments"] = sum(seconds(exact, part, moments) for part in slices)
    for name, value in times.items():
        print(f"{name:<8} {value:7.2f} s  {n / value / 1e6:6.2f} million rows/s")
    print(f"largest difference of the means, bare and exact: {difference:.1e}")
    print(f"speed of exact relative to bare:  {times['bare'] / times['exact']:.2f}")
    print(f"time of exact relative to float:  {times['exact'] / times['float']:.2f}")
    print(f"time of clipped relative to float: {times['clipped'] / times['float']:.2f}")


if __name__ == "__main__":
    main()
