"""Attacks on what models say of rows that are nothing like Gaussians.

Random tables of heavy tails, rare levels, constants, copies and unequal classes, and
where --data has them, real tables in their own units.

usage: python3 dev.py run benchmarks/attacks/models.py [--data ../shared]
"""

import argparse
import json
import re
import warnings
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tally import run

from sketchlearn.errors import ConvergenceWarning
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.estimators.kmeans import CompressiveKMeans

TABLES, TOLERANCE = 150, 0.005


def column(kind, n, rng):
    """Some values of one kind."""
    return {
        "normal": lambda: rng.normal(size=n),
        "lognormal": lambda: np.exp(rng.uniform(0.5, 3) * rng.normal(size=n)),
        "cauchy": lambda: rng.standard_cauchy(n),
        "rare": lambda: (rng.random(n) < rng.uniform(0.001, 0.05)).astype(float),
        "constant": lambda: np.full(n, rng.normal()),
        "codes": lambda: rng.integers(40, size=n).astype(float),
        "outlier": lambda: np.where(np.arange(n) == 3, 1e6, rng.normal(size=n)),
    }[kind]()


KINDS = ("normal", "lognormal", "cauchy", "rare", "constant", "codes", "outlier")


def hostile_table(seed):
    """Rows of several kinds of columns, and classes that a few of them decide."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(200, 2000)), int(rng.integers(2, 16))
    rows = np.stack([column(rng.choice(KINDS), n, rng) for _ in range(d)], axis=1)
    ranks = rows.argsort(axis=0).argsort(axis=0) / n
    score = ranks @ (rng.normal(size=d) * (rng.random(d) < 0.4))
    score = score + rng.uniform(0, 2) * rng.normal(size=n)
    shares = rng.dirichlet(np.full(rng.integers(2, 6), 0.7))
    cuts = np.quantile(score, np.cumsum(shares)[:-1].clip(0.02, 0.98))
    labels = np.searchsorted(cuts, score)
    if rng.random() < 0.3:  # a class that is wide, or far out
        rows[labels == labels.max()] *= 10 ** rng.uniform(-2, 2)
    return rows * 10.0 ** rng.uniform(-3, 3, size=d), labels


@cache
def real_tables():
    """Rows and classes of real tables; none without the data."""
    if DATA is None:
        return []
    manifest = DATA / "data" / "MANIFEST.json"
    found = []
    for entry in json.loads(manifest.read_text())["datasets"]:
        if not entry["real"] or entry["kind"] != "tabular":
            continue
        table = pq.read_table(DATA / "data" / entry["file"])
        labels = table.column("label").to_numpy()
        names = [name for name in table.column_names if name != "label"]
        rows = np.column_stack([table[name].to_numpy() for name in names])
        rng = np.random.default_rng(0)
        kept = rng.permutation(len(rows))[:2000]
        columns = rng.permutation(len(names))[:32]
        found.append((rows[kept][:, columns].astype(float), labels[kept]))
    return found


def a_classifier_is_worse_than_its_largest_class_on_its_own_rows():
    tables = [hostile_table(seed) for seed in range(TABLES)] + real_tables()
    breaks = trials = 0
    for number, (rows, labels) in enumerate(tables):
        counts = np.unique(labels, return_counts=True)[1]
        if counts.min() < 2:
            continue
        model = CompressiveClassifier(1 + number % 3).fit(rows, labels)
        told = int((model.predict(rows) == labels).sum())
        breaks += told < counts.max() - ceil(TOLERANCE * len(rows))
        trials += 1
    return trials, breaks


def an_inertia_lies_outside_of_its_interval():
    tables = [hostile_table(seed) for seed in range(TABLES // 5)] + real_tables()
    breaks = trials = 0
    for number, (rows, _) in enumerate(tables):
        for k in (2, 5, 10, 20):
            rounds = 1 + (number + k) % 2
            km = CompressiveKMeans(k, rounds=rounds, n_init=1).fit(rows)
            low, high = km.inertia_interval_
            breaks += not low <= -km.score(rows) <= high * (1 + 1e-9)
            trials += 1
    return trials, breaks


def a_feature_without_outliers_is_named():
    breaks = trials = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(2000, 10)) * rng.uniform(0.5, 2, 10)
        kind = ("lognormal", "cauchy", "outlier")[seed % 3]
        rows[:, 4] = column(kind, 2000, rng) * 10 ** rng.uniform(-1, 3)
        labels = rng.integers(2, size=2000)
        for model in (
            CompressiveKMeans(5, rounds=1, n_init=1),
            CompressiveKMeans(5, rounds=2, n_init=1),
            CompressiveClassifier(2),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(rows, labels)
            said = [str(one.message) for one in caught]
            named = re.findall(r"feature ([\d, ]+) ", " ".join(said))
            breaks += any(which != "4" for which in named)
            trials += 1
    return trials, breaks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    DATA = parser.parse_args().data
    if not (DATA / "data" / "MANIFEST.json").is_file():
        DATA = None
    warnings.simplefilter("ignore", ConvergenceWarning)
    run(
        a_classifier_is_worse_than_its_largest_class_on_its_own_rows,
        an_inertia_lies_outside_of_its_interval,
        a_feature_without_outliers_is_named,
    )
