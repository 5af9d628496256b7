"""Speed of sketching against its own bare matrix product, cosine and float32 sum.

1e6 x 64 float32 rows, m = 1000 Fourier features (500 frequencies). Three programs are
interleaved in one process and the median of their times is compared:

* bare: X @ W, cos, sin, float32 sums, in blocks of the same size;
* float: the same blocks through the feature map, summed in float32;
* exact: sketch_rows, that is checking rows and exact totals included.

Targets: bare / exact >= 0.70, exact / float <= 1.35; with clipping <= 1.6.

usage: python3 dev.py run benchmarks/sketching.py [rows]
"""

import sys
import time

import numpy as np
import torch

from sketchlearn import FourierFeatures, MomentFeatures, clipped, sketch_rows
from sketchlearn.sketch import BLOCK_ROWS

D, M, REPEATS = 64, 1000, 5


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
    total = np.zeros(phi.sketch_size, np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        total += phi(rows[start : start + BLOCK_ROWS]).sum(axis=0, dtype=np.float32)
    return total / len(rows)


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
        "moments": (exact, moments),
    }
    difference = np.abs(bare(rows[:50_000], phi) - exact(rows[:50_000], phi)).max()
    times = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, (program, feature_map) in runs.items():
            times[name].append(seconds(program, rows, feature_map))
    middle = {name: float(np.median(values)) for name, values in times.items()}
    for name, value in middle.items():
        print(f"{name:<8} {value:7.2f} s  {n / value / 1e6:6.2f} million rows/s")
    print(f"largest difference of the means, bare and exact: {difference:.1e}")
    print(f"speed of exact relative to bare:  {middle['bare'] / middle['exact']:.2f}")
    print(f"time of exact relative to float:  {middle['exact'] / middle['float']:.2f}")
    print(
        f"time of clipped relative to float: {middle['clipped'] / middle['float']:.2f}"
    )


if __name__ == "__main__":
    main()
