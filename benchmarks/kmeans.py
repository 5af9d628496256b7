"""Clusters, mixtures and classes from sketches, against scikit-learn.

By default, inertia of k-means over Lloyd's (scikit-learn, n_init=10) on real sets:
features scaled to [0, 1], 196 of them at random at most, k = 10; all numbers of both
rounds counted, means and variances beside. `--split train` is for choosing, `--split
test` only for reporting. Other figures:

  --clusters K     as by default for another k, with 2,000 numbers and with "auto", on
                   sets of ten rows and more for each cluster
  --sets NAME ...  only these sets
  --synthetic      unit Gaussian clusters in ten dimensions: the default estimator, one
                   round, and CL-OMPR with Gaussian atoms
  --every-k ROWS   k = 2..20 from a Parquet file: one pass and 19 decodings, against 19
                   fits in memory and streaming. The others run for k = 2, 11 and 20
                   only, from one start: their times for all 19 are extrapolated
  --mixture        held-out log-likelihood against GaussianMixture
  --classifier     accuracy against one GaussianMixture per class, on five real sets
  --methods        accuracy of the classifier by method, against logistic regression
                   and the largest class: real tables as they are, and with one-hot
                   columns, 70 % of at most 6,000 rows learned from
  --inertia        `inertia_` and its interval over the inertia, on real tables in their
                   own units: at most 5,000 rows and 64 features, with one round and two

usage: python3 dev.py run benchmarks/kmeans.py [--data ../shared] [--seeds N]
"""

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sketchlearn.decoders.baselines.cl_ompr import CLOMPRDecoder
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.estimators.kmeans import CompressiveKMeans
from sketchlearn.estimators.mixture import CompressiveGaussianMixture
from sketchlearn.experiments.kmeans.methods import fourier_plan
from sketchlearn.experiments.kmeans.sets import inertia
from sketchlearn.experiments.kmeans.timing import gaussian_clusters

SIZES = (1000, 2000, 5000)
MEDIANS, MEANS = (1.10, 1.05, 1.03), (1.14, 1.09, 1.05)


def unit_scaled(path):
    """At most 196 random features that vary, scaled to [0, 1], at most 10,000 rows."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "label"]
    rows = np.column_stack([table[name].to_numpy() for name in names]).astype(float)
    rng = np.random.default_rng(0)
    rows = rows[:, rng.permutation(rows.shape[1])[:196]]
    rows = rows[rng.permutation(len(rows))[:10_000]]
    rows = rows[:, rows.max(axis=0) > rows.min(axis=0)]
    return (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))


def ratios(rows, sizes, seeds, rounds, k):
    """Mean inertia ratio and processor time for each sketch size."""
    best = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
    result, seconds = [], []
    for size in sizes:
        found, start = [], time.process_time()
        for seed in range(seeds):
            km = CompressiveKMeans(
                k, sketch_size=size, rounds=rounds, random_state=seed
            ).fit(rows)
            if size != "auto":
                assert km.sketch_.size <= size + 2 * rows.shape[1]
            found.append(-km.score(rows) / best)
        result.append(np.mean(found))
        seconds.append((time.process_time() - start) / seeds)
    return result, seconds


def real_sets(options):
    folder = options.data / "data" / options.split
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}; pass --data (skipped).")
    manifest = json.loads((options.data / "data" / "MANIFEST.json").read_text())
    real = {entry["file"]: entry["real"] for entry in manifest["datasets"]}
    table, spent, k = [], [], options.clusters
    sizes = SIZES if k == 10 else (2000, "auto")
    print(f"{'set':<36}{'d':>5}" + "".join(f"{m:>8}" for m in sizes))
    for path in sorted(folder.glob("*.parquet")):
        if not real[f"{options.split}/{path.name}"]:
            continue
        if options.sets and path.stem not in options.sets:
            continue
        rows = unit_scaled(path)
        if len(rows) < 10 * k:
            continue
        found, seconds = ratios(rows, sizes, options.seeds, options.rounds, k)
        table.append(found)
        spent.append(seconds)
        values = "".join(f"{value:8.3f}" for value in table[-1])
        print(f"{path.stem:<36}{rows.shape[1]:>5}{values}", flush=True)
    for name, measure in (("median", np.median), ("mean", np.mean), ("worst", np.max)):
        values = "".join(f"{value:8.3f}" for value in measure(table, axis=0))
        print(f"{name + f' of {len(table)} real sets':<41}{values}")
    values = "".join(f"{value:8.1f}" for value in np.sum(spent, axis=0))
    print(f"{'processor seconds of a fit of each':<41}{values}")
    if k != 10:
        return
    for name, values in (("target median", MEDIANS), ("target mean", MEANS)):
        print(f"{name:<41}" + "".join(f"{value:8.2f}" for value in values))


def synthetic(options):
    """Ten unit clusters in ten dimensions, 100,000 rows, 500 numbers."""
    for spread in (1.37, 3.0):
        ratios, seconds = {}, {}
        for seed in range(5):
            rng = np.random.default_rng(seed)
            rows = gaussian_clusters(100_000, 10, rng=rng, spread=spread)
            low, high = rows.min(axis=0), rows.max(axis=0)
            best = KMeans(10, n_init=10, random_state=0).fit(rows).inertia_
            for rounds in (None, 1):
                km = CompressiveKMeans(10, sketch_size=500, rounds=rounds).fit(rows)
                sketch = km.sketch_
                again = CompressiveKMeans(10, sketch_size=500, rounds=rounds)
                start = time.perf_counter()
                again.fit_sketch(sketch)
                name = "default" if rounds is None else "1 round"
                seconds.setdefault(name, []).append(time.perf_counter() - start)
                ratios.setdefault(name, []).append(-km.score(rows) / best)
            unit = (rows - low) / (high - low)
            sketch = sketch_rows(unit, fourier_plan(unit, 500), progress=False)
            start = time.perf_counter()
            found = CLOMPRDecoder(10, n_restarts=1).decode(sketch).params
            seconds.setdefault("CL-OMPR", []).append(time.perf_counter() - start)
            centres = found.centers * (high - low) + low
            ratios.setdefault("CL-OMPR", []).append(inertia(rows, centres) / best)
        for name, values in ratios.items():
            print(
                f"centers sd {spread}, 500 numbers, {name}: ratio "
                f"{np.mean(values):.4f} (worst {np.max(values):.4f}), decoding "
                f"{np.mean(seconds[name]):.2f} s",
                flush=True,
            )


def every_k(options):
    """K = 2..20: one pass and 19 decodings against 19 fits."""
    for spread in (1.37, 3.0):
        rng = np.random.default_rng(0)
        rows = gaussian_clusters(
            options.every_k, 16, rng=rng, n_clusters=12, spread=spread
        ).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            names = [f"f{i}" for i in range(16)]
            pq.write_table(pa.table(dict(zip(names, rows.T, strict=True))), path)
            start = time.perf_counter()
            km = CompressiveKMeans(2, sketch_size=700, rounds=1).fit(path)
            sketch, ours = km.sketch_, {2: km.cluster_centers_}
            pass_time = time.perf_counter() - start
            for k in range(3, 21):
                ours[k] = km.fit_sketch(sketch, n_clusters=k).cluster_centers_
            mine = time.perf_counter() - start
        print(
            f"{len(rows)} x 16, centers sd {spread}, 700 numbers: {mine:.1f} s for 19 "
            f"values of k ({pass_time:.1f} s for the first)",
            flush=True,
        )
        for name, search in (
            ("KMeans, 1 start", lloyd),
            ("MiniBatchKMeans, streamed", streamed),
        ):
            compare_every_k(name, mine, ours, rows, search)


def lloyd(rows, k):
    return KMeans(k, n_init=1, random_state=0).fit(rows)


def streamed(rows, k):
    search = MiniBatchKMeans(k, n_init=1, random_state=0)
    for block in np.array_split(rows, -(-len(rows) // 100_000)):
        search.partial_fit(block)
    return search


def compare_every_k(name, mine, ours, rows, search):
    """Time of another method at three k, extrapolated to 19."""
    times, ratios = [], []
    for k in (2, 11, 20):
        start = time.perf_counter()
        centres = search(rows, k).cluster_centers_
        times.append(time.perf_counter() - start)
        some = rows[:50_000]
        ratios.append(inertia(some, ours[k]) / inertia(some, centres))
    theirs = 19 * np.mean(times)
    print(
        f"{name}: {np.round(times, 1).tolist()} s for k = 2, 11, 20, about "
        f"{theirs:.0f} s for 19 of them, {theirs / mine:.1f} times ours; inertia of "
        f"ours over its: {np.round(ratios, 3).tolist()}",
        flush=True,
    )


def mixture(options):
    """Held-out log-likelihood of well-specified mixtures."""
    cases = [(5, 4, 1.37), (10, 5, 1.37), (10, 10, 2.0), (30, 5, 2.0), (50, 3, 2.0)]
    for kind, (d, k, spread) in itertools.product(("full", "diag"), cases):
        for seed, size in itertools.product(range(2), (1000, 2000)):
            rng = np.random.default_rng(seed)
            rows = gaussian_clusters(60_000, d, rng=rng, n_clusters=k, spread=spread)
            # With "diag", features of different widths; with "full", turned ones too.
            rows *= np.exp(0.3 * rng.normal(size=d))
            if kind == "full":
                rows @= np.linalg.qr(rng.normal(size=(d, d)))[0]
            rows, held_out = rows[:50_000], rows[50_000:]
            start = time.perf_counter()
            ours = CompressiveGaussianMixture(k, covariance_type=kind, sketch_size=size)
            mine = ours.fit(rows).score(held_out)
            seconds = time.perf_counter() - start
            search = GaussianMixture(k, covariance_type=kind, n_init=2, random_state=0)
            best = search.fit(rows).score(held_out)
            print(
                f"{kind}, d = {d}, k = {k}, {size} numbers, seed {seed}: "
                f"{mine:.3f} against {best:.3f}, {(best - mine) / abs(best):+.2%}, "
                f"{seconds:.1f} s",
                flush=True,
            )


def classifier(options):
    """Accuracy on half of the rows, learned from the other half."""
    names = "pendigits segment wall-robot-navigation mfeat-zernike diabetes"
    for name in names.split():
        table = pq.read_table(options.data / "data" / "test" / f"{name}.parquet")
        labels = table["label"].to_numpy()
        columns = [column for column in table.column_names if column != "label"]
        rows = np.column_stack([table[column].to_numpy() for column in columns])
        rows = rows.astype(float)
        rows = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12)
        fit, rest, y, y_rest = train_test_split(
            rows, labels, test_size=0.5, random_state=0, stratify=labels
        )
        for k in (1, 2, 3, 5):
            theirs = (mixture_per_class(fit, y, rest, k) == y_rest).mean()
            mine = [
                CompressiveClassifier(k, method="density", sketch_size=size).fit(fit, y)
                for size in (1000, 2000)
            ]
            scores = [f"{model.score(rest, y_rest):.3f}" for model in mine]
            print(
                f"{name}, d = {rows.shape[1]}, {k} components: accuracy {scores[0]} "
                f"with 1000 numbers per class, {scores[1]} with 2000, {theirs:.3f} "
                "of a mixture per class",
                flush=True,
            )


def methods(options):
    """Mean accuracy on held-out rows, by method."""
    table = []
    names = ("largest", "logistic", "density", "linear", "auto")
    print(f"{'table':<45}" + "".join(f"{name:>9}" for name in names) + "  chosen")
    for name, rows, labels in labelled_tables(options.data, options.split):
        fit, rest, y, y_rest = train_test_split(
            rows, labels, test_size=0.3, random_state=0, stratify=labels
        )
        logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        both = [np.bincount(y).max() / len(y), logistic.fit(fit, y).score(rest, y_rest)]
        for k in (1, 2, 3):
            models = [
                CompressiveClassifier(k, method=method).fit(fit, y)
                for method in names[2:]
            ]
            scores = [model.score(rest, y_rest) for model in models]
            own = models[-1].score(fit, y) - both[0]
            table.append([*both, *scores, own])
            values = "".join(f"{value:9.3f}" for value in table[-1][:-1])
            print(f"{name + f', {k}':<45}{values}  {models[-1].method_}", flush=True)
    for k in (1, 2, 3):
        values = "".join(
            f"{value:9.4f}" for value in np.mean(table[k - 1 :: 3], 0)[:-1]
        )
        print(f"{f'mean of {len(table) // 3} tables, {k} components':<45}{values}")
    own = np.array(table)[:, -1]
    print(
        f"auto on its own rows: {(own < -0.005).sum()} of {len(own)} are more than "
        f"0.005 below the largest class, at most {max(-own.min(), 0):.3f}"
    )


def labelled_tables(data, split):
    """Name, rows and classes of real tables, and again with one-hot columns."""
    manifest = json.loads((data / "data" / "MANIFEST.json").read_text())
    for entry in manifest["datasets"]:
        folder, name = entry["file"].removesuffix(".parquet").split("/")
        if folder != split or not entry["real"] or entry["kind"] != "tabular":
            continue
        table = pq.read_table(data / "data" / entry["file"])
        labels = table["label"].to_numpy()
        columns = [column for column in table.column_names if column != "label"]
        rows = np.column_stack([table[name].to_numpy() for name in columns])
        order = np.random.default_rng(0).permutation(len(rows))[:6000]
        rows, labels = rows[order].astype(float), labels[order]
        if rows.shape[1] > 300 or np.unique(labels, return_counts=True)[1].min() < 10:
            continue
        coded = [columns.index(one) for one in entry.get("categorical_columns") or {}]
        coded = [j for j in coded if len(np.unique(rows[:, j])) > 2]
        levels = [
            rows[:, [j]] == np.unique(rows[:, j]) if j in coded else rows[:, [j]]
            for j in range(len(columns))
        ]
        yield name, rows[:, rows.std(axis=0) > 0], labels
        wide = np.hstack(levels).astype(float)
        if coded and wide.shape[1] <= 200:
            yield f"{name}, one-hot", wide[:, wide.std(axis=0) > 0], labels


def raw_inertia(options):
    """How far estimates and intervals are from the inertia, in its units."""
    manifest = json.loads((options.data / "data" / "MANIFEST.json").read_text())
    found = {1: [], 2: []}
    for entry in manifest["datasets"]:
        if not entry["real"] or entry["kind"] == "genotype":
            continue
        table = pq.read_table(options.data / "data" / entry["file"])
        names = [name for name in table.column_names if name != "label"]
        rows = np.column_stack([table[name].to_numpy() for name in names])
        rng = np.random.default_rng(0)
        rows = rows[rng.permutation(len(rows))[:5000]].astype(float)
        rows = rows[:, rng.permutation(len(names))[:64]]
        for rounds, k in itertools.product(found, (2, 5, 10, 20)):
            km = CompressiveKMeans(k, rounds=rounds, n_init=3).fit(rows)
            known = np.array([km.inertia_, *km.inertia_interval_]) / -km.score(rows)
            found[rounds].append(known)
            print(f"{entry['file']}, k = {k}, rounds = {rounds}: {known.round(3)}")
    for rounds, known in found.items():
        estimate, low, high = np.transpose(known)
        breaks = ((low > 1 + 1e-9) | (high < 1 - 1e-9)).sum()
        print(
            f"{rounds} round(s): {breaks} of {len(low)} outside, median width "
            f"{np.median(high - low):.2f}; estimates: median "
            f"{np.median(estimate):.3f}, mean absolute logarithm "
            f"{np.abs(np.log(estimate)).mean():.3f}, within a factor of two "
            f"{(np.abs(np.log2(estimate)) < 1).mean():.3f}"
        )


def mixture_per_class(fit, y, rest, k):
    """Classes by Bayes' rule with scikit-learn's mixtures."""
    classes, logs = np.unique(y), []
    for label in classes:
        search = GaussianMixture(k, reg_covar=1e-3, random_state=0)
        search.fit(fit[y == label])
        logs.append(search.score_samples(rest) + np.log((y == label).mean()))
    return classes[np.argmax(logs, axis=0)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=10, metavar="K")
    parser.add_argument("--sets", nargs="*", metavar="NAME")
    parser.add_argument("--every-k", type=int, default=0, metavar="ROWS")
    for name in ("--synthetic", "--mixture", "--classifier", "--methods", "--inertia"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    if options.every_k:
        every_k(options)
    elif options.synthetic:
        synthetic(options)
    elif options.mixture:
        mixture(options)
    elif options.classifier:
        classifier(options)
    elif options.methods:
        methods(options)
    elif options.inertia:
        raw_inertia(options)
    else:
        real_sets(options)


if __name__ == "__main__":
    main()
