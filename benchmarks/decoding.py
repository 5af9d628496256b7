"""Time to decode one sketch of 196 features and 2,000 numbers: learned and plain.

usage: python3 dev.py run benchmarks/decoding.py
"""

from time import perf_counter

import numpy as np

from sketchlearn import CompressivePCA, CompressiveRidge
from sketchlearn.plans.moments import moment_decoder

REPEATS = 15


def rows(n_features=196):
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(3000, 20)) @ rng.normal(size=(20, n_features))
    return mixed + rng.normal(size=mixed.shape)


def milliseconds(call, *args):
    call(*args)
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        call(*args)
        times.append(1e3 * (perf_counter() - start))
    return f"min {min(times):6.1f} ms   median {np.median(times):6.1f} ms"


def main():
    X = rows()
    for name in ("nystrom", "learned"):
        pca = CompressivePCA(sketch_size=2000, standardize=True, decoder=name).fit(X)
        decode = moment_decoder(name, pca.sketch_).decode
        print(f"{name:8s} moments  {milliseconds(decode, pca.sketch_)}")
        print(f"{name:8s} PCA      {milliseconds(pca.fit_sketch, pca.sketch_)}")
        ridge = CompressiveRidge(sketch_size=2000, decoder=name).fit(X[:, 1:], X[:, 0])
        print(f"{name:8s} ridge    {milliseconds(ridge.fit_sketch, ridge.sketch_)}")


if __name__ == "__main__":
    main()
