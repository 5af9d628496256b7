"""PCA from private sketches: log relative error by method, epsilon and sketch size.

What is measured, and what of it is public, is told in
``sketchlearn.experiments.pca.privacy`` and ``sketchlearn.experiments.pca.public``.

usage: python3 dev.py run benchmarks/privacy.py [--data ../shared] [--plot privacy.png]
       [--private-count]
"""

import argparse
from pathlib import Path

from sketchlearn.experiments.pca.privacy import (
    SETTINGS,
    mean_curves,
    measure_privacy,
    privacy_table,
)
from sketchlearn.experiments.pca.private_figures import draw_privacy
from sketchlearn.experiments.pca.public import PUBLIC


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--sets", nargs="+", choices=PUBLIC, default=list(PUBLIC))
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--private-count", action="store_true")
    parser.add_argument("--plot", type=Path, default=Path("privacy.png"))
    options = parser.parse_args()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    setting = list(SETTINGS)[options.private_count]
    found = []
    for name in options.sets:
        one = measure_privacy(
            options.data, name, n_releases=options.releases, setting=setting
        )
        found.append(one)
        title = f"{name}, {one.n_rows} rows of {one.n_features}, {setting}; "
        title += f"random basis {one.random:.3f}"
        print(privacy_table(one.lre, title=title), end="\n\n", flush=True)
    title = f"mean over {len(found)} sets"
    print(privacy_table(mean_curves(found), title=title))
    print(f"plot: {draw_privacy(found, options.plot)}")


if __name__ == "__main__":
    main()
