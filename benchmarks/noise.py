"""Cost of exact noise: microseconds per coordinate, vectorised and one by one.

Target: at most 5 microseconds for the vectorised sampler (sigma up to 2**56).

usage: python3 dev.py run benchmarks/noise.py
"""

import time

import numpy as np

from sketchlearn.privacy.noise import discrete_gaussian

SIZES = {1: 200_000, 2**31: 200_000, 2**46: 200_000, 2**56: 200_000, 2**67: 2000}


def main():
    for sigma, size in SIZES.items():
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            draws = discrete_gaussian(sigma, size)
            best = min(best, time.perf_counter() - start)
        spread = np.std([float(value) for value in draws]) / sigma
        print(
            f"sigma 2**{sigma.bit_length() - 1:<4} {best / size * 1e6:7.2f} us per "
            f"coordinate, standard deviation / sigma {spread:.3f}"
        )


if __name__ == "__main__":
    main()
