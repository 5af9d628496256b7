"""Speed of exact sketching against its own bare arithmetic, one thread.

* second moments: CompressivePCA's pass over float64 rows, against `X.T @ X` in float64
  on the same blocks (d = 25, 64, 196 with 2,000 numbers, 784 with 20,000). "seen" is a
  plan that looked at the range of the rows (22 bits), "declared" one of declared bounds
  (42 bits);
* Fourier and harmonic features: against a float32 product, cosines and sines in torch
  (d, m = 16, 500; 64, 1000; 196, 2000), with clipping beside;
* two threads against one, for the same pass.

All programs take turns in one process, several times over, and a program's time is its
best: ratios are from one run. Everything of ours goes through `sketch_rows`: rows are
checked, rounded, summed exactly.

Targets: second moments <= 2.5 times the bare product; Fourier >= 0.5 and harmonics >=
0.8 of the speed of the bare features.

usage: python3 dev.py run benchmarks/sketching.py [rows]
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import sys  # noqa: E402
import time  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from sketchlearn import (  # noqa: E402
    CompressivePCA,
    FourierFeatures,
    HarmonicFeatures,
    clipped,
    sketch_rows,
)
from sketchlearn.features.blocks import BLOCK_ROWS  # noqa: E402

REPEATS = 7
MOMENTS = [(25, 2_000), (64, 2_000), (196, 2_000), (784, 20_000)]
FOURIER_SIZES = [(16, 500), (64, 1_000), (196, 2_000)]


def bare_moments(rows):
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        total += block.T @ block
    return total


def bare_fourier(rows, frequencies):
    h = frequencies.shape[1]
    total = torch.zeros(2 * h)
    with torch.no_grad():
        for start in range(0, len(rows), BLOCK_ROWS):
            phases = torch.from_numpy(rows[start : start + BLOCK_ROWS]) @ frequencies
            total[:h] += torch.cos(phases).sum(0)
            total[h:] += torch.sin(phases).sum(0)
    return total


def ours(rows, feature_map):
    return sketch_rows(rows, feature_map, progress=False)


def best_times(programs):
    """Best time of each program; they take turns."""
    best = dict.fromkeys(programs, np.inf)
    for _ in range(REPEATS):
        for name, program in programs.items():
            start = time.perf_counter()
            program()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def moments(n):
    print("second moments: time over that of the bare float64 product")
    for d, size in MOMENTS:
        rows = np.random.default_rng(0).normal(
            size=(max(n // max(d // 25, 1), 2000), d)
        )
        seen = CompressivePCA(sketch_size=size).plan(d, rows=rows)
        declared = CompressivePCA(sketch_size=size, bounds=(-8, 8)).plan(d)
        times = best_times(
            {
                "bare": lambda rows=rows: bare_moments(rows),
                "seen": lambda rows=rows, phi=seen: ours(rows, phi),
                "declared": lambda rows=rows, phi=declared: ours(rows, phi),
            }
        )
        bare = times["bare"]
        print(
            f"  d = {d:<4} {size:>6} numbers  bare {bare / len(rows) * 1e6:6.2f} us/row"
            f"   seen {times['seen'] / bare:5.2f}   "
            f"declared {times['declared'] / bare:5.2f}"
        )


def fourier(n):
    print("Fourier features: speed over that of bare product, cosines and sines")
    for d, m in FOURIER_SIZES:
        rows = np.random.default_rng(0).normal(size=(max(n // (d // 16), 2000), d))
        rows = rows.astype(np.float32)
        maps = {
            "fourier": FourierFeatures(d, m, scale=d**0.5),
            "harmonics": HarmonicFeatures(d, m // 6 * 6, octaves=3, scale=d**0.5),
            "clipped": clipped(FourierFeatures(d, m, scale=d**0.5), norm_bound=1.0),
        }
        frequencies = torch.from_numpy(maps["fourier"].frequencies.astype(np.float32))
        programs = {"bare": lambda rows=rows, w=frequencies: bare_fourier(rows, w)}
        for name, phi in maps.items():
            programs[name] = lambda rows=rows, phi=phi: ours(rows, phi)
        times = best_times(programs)
        difference = np.abs(
            ours(rows[:5000], maps["fourier"]).mean
            - bare_fourier(rows[:5000], frequencies).numpy() / len(rows[:5000])
        ).max()
        bare = times["bare"]
        ratios = "   ".join(f"{name} {bare / times[name]:5.2f}" for name in maps)
        print(
            f"  d, m = {d:>3}, {m:<5} bare {bare / len(rows) * 1e6:6.2f} us/row   "
            f"{ratios}   means differ by {difference:.0e}"
        )


def threads(n):
    rows = np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32)
    phi = FourierFeatures(64, 1000, scale=8.0)

    def run(count):
        with threadpool_limits(count, user_api="blas"):
            return ours(rows, phi)

    times = best_times({1: lambda: run(1), 2: lambda: run(2)})
    same = run(1) == run(2)
    print(f"two threads: {times[1] / times[2]:.2f} times as fast, same bits: {same}")


def main():
    torch.set_num_threads(1)
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000
    moments(n)
    fourier(n)
    threads(n)


if __name__ == "__main__":
    main()
