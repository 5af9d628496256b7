"""PCA from private sketches: log relative error against epsilon and sketch size.

What is measured, and what of it is public, is told in
``sketchlearn.experiments.pca.privacy``.

usage: python3 dev.py run benchmarks/privacy.py [--data ../shared] [--plot privacy.png]
"""

import argparse
from pathlib import Path

import numpy as np

from sketchlearn.experiments.pca.figures import draw_privacy
from sketchlearn.experiments.pca.privacy import (
    FULL,
    PUBLIC_TWINS,
    measure_privacy,
)
from sketchlearn.experiments.protocol import EPSILONS
from sketchlearn.report import format_table


def show(curves):
    """Print one table for each setting."""
    heads = ["sketch size", "S", *(f"eps={value:g}" for value in EPSILONS), "no noise"]
    for setting, scores in curves.lre.items():
        rows = [
            [
                f"full, {size}" if size == FULL else str(size),
                curves.norm_bounds[size],
                *("too noisy" if np.isnan(value) else value for value in values),
            ]
            for size, values in scores.items()
        ]
        title = (
            f"{curves.name}, {curves.n_rows} rows; neighbours: {setting}; "
            f"random {curves.random:.3f}"
        )
        print(format_table(heads, rows, title=title), end="\n\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=Path("privacy.png"))
    options = parser.parse_args()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    found = []
    for name in PUBLIC_TWINS:
        found.append(measure_privacy(options.data, name, n_releases=options.releases))
        show(found[-1])
    print(f"plot: {draw_privacy(found, options.plot)}")


if __name__ == "__main__":
    main()
