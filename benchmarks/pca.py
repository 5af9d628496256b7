"""PCA from sketches of m numbers: mean log relative error over real test sets.

The paper's protocol: 196 features at random, in their order or shuffled, standardised;
LRE is the log ratio of the mean reconstruction error to that of exact PCA. Everything
goes through CompressivePCA and its sketch. Sets that are simulated are marked and have
a mean of their own. ``sketchlearn reproduce pca`` compares with all other methods.

usage: python3 dev.py run benchmarks/pca.py [--data ../shared] [--seeds N] [--shuffled]
"""

import argparse
from pathlib import Path

from sketchlearn.experiments.pca.comparison import (
    dataset_table,
    evaluate_methods,
    summary_tables,
)
from sketchlearn.experiments.pca.methods import pca_method
from sketchlearn.experiments.pca.sets import load_sets, printed_errors

SIZES = (100, 500, 1000, 2000)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    results = evaluate_methods(
        load_sets(options.data, shuffled=options.shuffled),
        [pca_method("nystrom"), pca_method("learned")],
        sizes=SIZES,
        n_seeds=options.seeds,
        printed=printed_errors(SIZES),
    )
    print(dataset_table(results))
    print()
    print(summary_tables(results))


if __name__ == "__main__":
    main()
