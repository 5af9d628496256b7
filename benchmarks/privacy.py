"""PCA from private sketches: log relative error against epsilon and sketch size.

Each set has 196 features at random. A sketch of m numbers (beside means and variances)
is released with delta = 1e-5, and PCA is decoded from it; LRE is the log ratio of its
reconstruction error on the private rows to that of exact PCA. The full second moment,
d (d + 1) / 2 numbers, is what one would release without sketching.

Public, fixed before the private rows are read:
  MNIST     the bounds: mean of each pixel of EMNIST-digits, plus or minus 255;
  hapmap31  the bounds: 0 and 1;
  both      the norm bound S of each map: the 99th percentile of the norms of its
            features on the rows of EMNIST-digits or hapmap1, which nobody protects.
Rows are not standardised: variances of the private rows are private.

usage: python3 dev.py run benchmarks/privacy.py [--data ../shared] [--plot privacy.png]
"""

import argparse
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq

import sketchlearn as sl
from sketchlearn.errors import PrivacyWarning, TooNoisy
from sketchlearn.metrics import log_relative_error, pca_reconstruction_error
from sketchlearn.testing import release_seeded

EPSILONS = (0.01, 0.1, 1.0, 10.0)
DELTA = 1e-5
N_FEATURES = 196
FULL = N_FEATURES * (N_FEATURES + 1) // 2
SIZES = (200, 500, 1000, 2000, FULL)
SETTINGS = {
    "one row more or less, the count is private": {},
    "one row replaced, the count is public": {
        "neighbours": "replace",
        "count": "public",
    },
}


def read(path):
    """196 features at random, the same ones of every set of that width."""
    table = pq.read_table(path)
    columns = [name for name in table.column_names if name != "label"]
    rows = np.column_stack([table[name].to_numpy() for name in columns])
    chosen = np.random.default_rng(0).permutation(rows.shape[1])[:N_FEATURES]
    return rows[:, chosen].astype(np.float64)


def sets(folder):
    """Name, private rows, public rows, public bounds."""
    digits = read(folder / "train" / "EMNIST-digits.parquet")
    centre = 8 * np.rint(digits.mean(axis=0) / 8)  # on the grid of Scaling.from_bounds
    around = (centre - 255, centre + 255)
    yield "MNIST", read(folder / "test" / "MNIST.parquet"), digits, around
    genomes = read(folder / "train" / "hapmap1.parquet")
    yield "hapmap31", read(folder / "test" / "hapmap31.parquet"), genomes, (0, 1)


def public_norm_bound(feature_map, public):
    """S: longer than 99 % of the feature vectors of public rows."""
    blocks = np.array_split(public, len(public) // 256)
    norms = [np.linalg.norm(feature_map(block), axis=1) for block in blocks]
    return float(np.quantile(np.concatenate(norms), 0.99))


class Judge:
    """How good components are for the private rows: 0 is as good as exact PCA."""

    def __init__(self, rows):
        self.moment = np.cov(rows.T, bias=True)
        exact = np.linalg.eigh(self.moment)[1][:, ::-1].T
        self.best = pca_reconstruction_error(self.moment, exact)

    def lre(self, components):
        """Log relative error of orthonormal components."""
        error = pca_reconstruction_error(self.moment, components)
        return log_relative_error(error, self.best)

    def random(self):
        """LRE of a basis that knows nothing of the rows."""
        rng = np.random.default_rng(0)
        shape = (N_FEATURES, N_FEATURES)
        bases = [np.linalg.qr(rng.normal(size=shape))[0] for _ in range(20)]
        return float(np.mean([self.lre(basis) for basis in bases]))


def noisy_lre(judge, pca, sketch, epsilon, setting, n_releases):
    """Mean LRE of some releases; NaN if a release is too noisy to have a mean."""
    scores = []
    for seed in range(n_releases):
        private = release_seeded(
            sketch, seed, epsilon=epsilon, delta=DELTA, **SETTINGS[setting]
        )
        try:
            scores.append(judge.lre(pca.fit_sketch(private).components_))
        except TooNoisy:
            return np.nan
    return float(np.mean(scores))


def measure(judge, rows, public, bounds, n_releases):
    """LRE by setting and sketch size: one value per epsilon, then without noise."""
    table = {setting: {} for setting in SETTINGS}
    bounds_used = {}
    for size in SIZES:
        pca = sl.CompressivePCA(sketch_size=size, bounds=bounds)
        plan = pca.plan(N_FEATURES)
        bounds_used[size] = public_norm_bound(plan, public)
        feature_map = sl.clipped(plan, norm_bound=bounds_used[size])
        sketch = sl.sketch_rows(rows, feature_map, progress=False)
        exact = judge.lre(pca.fit_sketch(sketch).components_)
        for setting, scores in table.items():
            noisy = [
                noisy_lre(judge, pca, sketch, epsilon, setting, n_releases)
                for epsilon in EPSILONS
            ]
            scores[size] = [*noisy, exact]
    return table, bounds_used


def label(size):
    return f"full, {size}" if size == FULL else str(size)


def show(name, n_rows, table, bounds_used, random):
    """Print one table for each setting."""
    for setting, scores in table.items():
        print(f"\n{name}, {n_rows} rows; neighbours: {setting}; random {random:.3f}")
        heads = "".join(f"{f'eps={value:g}':>11}" for value in EPSILONS)
        print(f"{'sketch size':<14}{'S':>8}{heads}{'no noise':>11}")
        for size, values in scores.items():
            cells = "".join(
                f"{'too noisy':>11}" if np.isnan(value) else f"{value:>11.3f}"
                for value in values
            )
            print(f"{label(size):<14}{bounds_used[size]:>8.2f}{cells}", flush=True)


def plot(results, path):
    """LRE against epsilon: a panel for each set, a line for each sketch size."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 (after the back end is set)

    setting = list(SETTINGS)[1]  # the one without gaps
    figure, axes = plt.subplots(1, len(results), figsize=(11, 4.6), layout="tight")
    places = [*EPSILONS, 100.0]
    colours = [*plt.get_cmap("viridis")(np.linspace(0.8, 0.1, len(SIZES) - 1)), "C3"]
    for axis, (name, (n_rows, table, random)) in zip(
        axes, results.items(), strict=True
    ):
        for (size, values), colour in zip(table[setting].items(), colours, strict=True):
            axis.plot(
                places[:-1], values[:-1], "o-", color=colour, label=f"m = {label(size)}"
            )
            axis.plot(places[-2:], values[-2:], "o:", color=colour)
        axis.axhline(random, color="grey", ls="--", lw=1, label="random basis")
        axis.set_xscale("log")
        axis.set_xticks(places, [*(f"{value:g}" for value in EPSILONS), "no\nnoise"])
        axis.minorticks_off()
        axis.set_xlabel("epsilon (delta = 1e-5)")
        axis.set_ylabel("log relative error of PCA (0 = exact)")
        axis.set_ylim(bottom=0)
        axis.set_title(f"{name}, {n_rows} rows")
        axis.grid(alpha=0.3)
    axes[0].legend(title="numbers in the sketch")
    figure.suptitle(f"PCA from one private sketch ({setting})")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=Path("privacy.png"))
    options = parser.parse_args()
    folder = options.data / "data"
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}; pass --data (skipped).")
    # 1e-5 is more than a tenth of one over 10,000 rows: said above, not every time.
    warnings.simplefilter("ignore", PrivacyWarning)
    results = {}
    for name, rows, public, bounds in sets(folder):
        judge = Judge(rows)
        table, bounds_used = measure(judge, rows, public, bounds, options.releases)
        show(name, len(rows), table, bounds_used, judge.random())
        results[name] = (len(rows), table, judge.random())
    plot(results, options.plot)
    print(f"\nplot: {options.plot}")


if __name__ == "__main__":
    main()
