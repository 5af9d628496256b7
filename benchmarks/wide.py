"""Many features: PCA and ridge from the default sketch, against scikit-learn.

For each number of features, 2,000 rows of twenty strong directions and noise: time as
a ratio to scikit-learn (PCA(svd_solver="randomized"), Ridge) in the same process,
growth of peak memory over that of one d by d matrix, and what is kept of the exact
result: variance on the components, and R2 of the predictions. 1,000 features are
exact, more are compressed. Memory is that of the whole fit, the planning and sketching
of rows included, in a process that holds the rows and has made its imports already.

usage: python3 dev.py run benchmarks/wide.py [--features 1000 2000 5000 20000]
"""

import argparse
import resource
import time
import warnings
from multiprocessing import get_context

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from sketchlearn import CompressivePCA, CompressiveRidge
from sketchlearn.errors import ConvergenceWarning

N_ROWS, N_FACTORS, N_COMPONENTS = 2000, 20, 10


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(fit):
    start = time.perf_counter()
    fitted = fit()
    return fitted, time.perf_counter() - start


def rows_of(d):
    rng = np.random.default_rng(0)
    sizes = np.linspace(3, 0.5, N_FACTORS)
    factors = rng.normal(size=(N_ROWS, N_FACTORS)) * sizes
    rows = factors @ rng.normal(size=(N_FACTORS, d))
    rows += 0.5 * rng.normal(size=(N_ROWS, d))
    return rows, factors @ rng.normal(size=N_FACTORS) + 0.5 * rng.normal(size=N_ROWS)


def measure(d):
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = rows_of(d)
    for model in (CompressivePCA(2), CompressiveRidge()):  # imports and weights
        model.fit(X[:50, :20], y[:50])
    before = peak()
    pca, ours_pca = timed(lambda: CompressivePCA(N_COMPONENTS).fit(X))
    pca_memory = (peak() - before) / (8 * d * d)
    before = peak()
    ridge, ours_ridge = timed(lambda: CompressiveRidge().fit(X, y))
    ridge_memory = (peak() - before) / (8 * d * d)
    exact = PCA(N_COMPONENTS, svd_solver="randomized", random_state=0)
    exact, theirs_pca = timed(lambda: exact.fit(X))
    plain, theirs_ridge = timed(lambda: Ridge().fit(X, y))
    centred = X - X.mean(axis=0)
    kept, best = (
        np.square(centred @ axes.T).sum()
        for axes in (pca.components_, exact.components_)
    )
    print(
        f"{d:6d} features, {pca.sketch_.size} numbers\n"
        f"  PCA    {ours_pca:6.2f} s, {ours_pca / theirs_pca:4.1f} x scikit-learn; "
        f"memory {pca_memory:5.2f} d x d; variance kept {kept / best:.5f}\n"
        f"  Ridge  {ours_ridge:6.2f} s, {ours_ridge / theirs_ridge:4.1f} x "
        f"scikit-learn; memory {ridge_memory:5.2f} d x d more; "
        f"R2 {ridge.score(X, y):.4f}, exact "
        f"{plain.score(X, y):.4f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [1000, 2000, 5000, 20_000]
    parser.add_argument("--features", type=int, nargs="+", default=sizes)
    for d in parser.parse_args().features:
        process = get_context("spawn").Process(target=measure, args=(d,))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
