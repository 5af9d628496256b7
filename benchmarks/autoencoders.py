"""Autoencoders adapted by a sketch alone: balanced accuracy on unseen datasets.

Half of the rows, at random and at most 2000, are sketched; others are reconstructed.
"marginals" says for each column what is more usual in it than elsewhere, and has no
codes at all. With classes (K) each class has a sketch of its own; in "K known" the
class of a row to reconstruct is given, in "K" it is not. Only training sets are looked
at that no table of the paper tests autoencoders on.

With --adapt: seconds that CompressiveAutoencoder takes to adapt to 10,000 rows of 1,000
entries and to encode them, and how many times as long as the bare product X.T @ X.

usage: python3 dev.py run benchmarks/autoencoders.py [--data ../shared] [name=FILE ...]
       python3 dev.py run benchmarks/autoencoders.py --adapt
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.per_class import PerClassAutoencoder
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.estimators.autoencoder import CompressiveAutoencoder
from sketchlearn.files.weights import load_weights
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import load_folder
from sketchlearn.metrics import balanced_accuracy
from sketchlearn.registry import load_model
from sketchlearn.report import format_table

SETS = (
    "letters1",
    "splice",
    "hapmap11",
    "dogstrain14",
    "EMNIST-digits",
    "Fashion-MNIST",
    "PhishingWebsites",
    "hapmapsim12",
    "dogstrain2",
    "hapmap3",
)
SHIPPED = {"+M": "autoencoder-m", "+MS": "autoencoder-ms"}
MOST_ROWS = 2000


def adapted(family, rows):
    sketch = sketch_rows(family.padded(rows), family.feature_map())
    return family.adapt(sketch, n_features=rows.shape[1])


def per_class(family, rows, classes):
    groups = [rows[classes == c] for c in range(classes.max() + 1)]
    members = [adapted(family, group) for group in groups]
    return PerClassAutoencoder(members, [len(group) for group in groups])


def evaluate(data, families):
    """Balanced accuracies on one dataset, in percent, by method."""
    rows = binary_rows(data)
    order = np.random.default_rng(0).permutation(len(rows))
    half = min(len(rows) // 2, MOST_ROWS)
    told, asked = order[:half], order[half : half + MOST_ROWS]
    labels, classes = np.unique(data.labels[told], return_inverse=True)
    asked = asked[np.isin(data.labels[asked], labels)]
    known = np.searchsorted(labels, data.labels[asked])
    support, query = rows[told], rows[asked]
    usual = support.mean(axis=0) > support.mean()
    found = {"marginals": np.broadcast_to(usual, query.shape)}
    for name, family in families.items():
        found[name] = adapted(family, support).reconstruct(query)
        if family.spec.condition != "none":
            both = per_class(family, support, classes)
            found[f"{name}K"] = both.reconstruct(query)
            found[f"{name}K known"] = both.decode(both.encode(query, known)) > 0
    return {n: 100 * balanced_accuracy(query, ones) for n, ones in found.items()}


def seconds(job):
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def adapt():
    """Time to adapt and to encode, at three sketches."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(10_000, 30)) @ rng.normal(size=(30, 1000))
    rows = (causes + 3 * rng.normal(size=causes.shape) > 4).astype(np.float32)
    wide = rows.astype(np.float64)
    bare = min(seconds(lambda: wide.T @ wide) for _ in range(3))
    table = []
    for size in ("auto", 20_000, 5_000):
        coder = CompressiveAutoencoder(50, sketch_size=size)
        coder.fit(rows[:100])  # weights are read once
        times = [seconds(partial(job, rows)) for job in (coder.fit, coder.transform)]
        figures = [text for t in times for text in (f"{t:.2f} s", f"{t / bare:.1f}")]
        table.append([str(size), *figures])
    head = ["sketch_size", "adapt", "/ product", "encode", "/ product"]
    print(format_table(head, table))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("weights", nargs="*", help="other weights, as name=FILE")
    parser.add_argument("--adapt", action="store_true")
    options = parser.parse_args()
    if options.adapt:
        adapt()
        return
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    files = dict(given.split("=", 1) for given in options.weights)
    families = {
        name: ConditionalAutoencoder.from_weights(load_weights(file))
        for name, file in files.items()
    } or {name: load_model(model) for name, model in SHIPPED.items()}
    sets = {d.name: d for d in load_folder(options.data / "data", split="train")}
    results = {name: evaluate(sets[name], families) for name in SETS}
    methods = list(results[SETS[0]])
    table = [[name, *(f"{results[name][m]:.1f}" for m in methods)] for name in results]
    means = [np.mean([results[name][m] for name in results]) for m in methods]
    table.append(["average", *(f"{mean:.2f}" for mean in means)])
    print(format_table(["dataset", *methods], table))


if __name__ == "__main__":
    main()
