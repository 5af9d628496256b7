"""Ridge from sketches of m numbers: R² on real sets, and what is promised of it.

Rows are standardised and split, 70 % of them are sketched; the target is the label, or
a feature. Beside ``CompressiveRidge`` stand scikit-learn's Ridge (all second moments)
and the best single group of columns, whose R² a sketch knows exactly. Numbers set by
hand are chosen on ``--split train``; ``--split test`` reports. Simulated sets have
means of their own.

usage: python3 dev.py run benchmarks/ridge.py [--data ../shared] [--split test]
           [--target feature] [--decoder nystrom] [--seeds N] [--json PATH]
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import sketchlearn as sl
from sketchlearn.meta.datasets import load_folder

SIZES = (500, 1000, 2000, 5000, 20_000)
MANY, MOST_ROWS, MOST_FEATURES = 60, 10_000, 1100
FIELDS = ("train", "promised", "held_out", "group")


def split_rows(dataset, target):
    """Standardised features and target of the rows that are sketched, and of others."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(dataset.rows))[:MOST_ROWS]
    rows = dataset.rows[order].astype(np.float64)
    labels = np.asarray(dataset.labels)[order].astype(np.float64)
    cut = len(rows) * 7 // 10
    rows = rows[:, rows[:cut].std(axis=0) > 0]
    rows = (rows - rows[:cut].mean(axis=0)) / rows[:cut].std(axis=0)
    if target == "feature":
        chosen = int(np.random.default_rng(1).integers(rows.shape[1]))
        labels, rows = rows[:, chosen], np.delete(rows, chosen, axis=1)
    return (rows[:cut], labels[:cut]), (rows[cut:], labels[cut:])


def best_group(ridge, rows, labels):
    """R² of the best single column of Ω, in the units the sketch sums it in."""
    phi = ridge.sketch_.feature_map
    if not getattr(phi, "is_compressed", False):
        return float("nan")
    kept = phi.kept[phi.kept < rows.shape[1]]
    factor = phi.scaling.factor[kept]
    weights = phi.omega[np.isin(phi.kept, kept), : phi.n_columns] * factor[:, None]
    sums = rows[:, kept] @ weights
    used = sums[:, sums.std(axis=0) > 0]
    scores = np.corrcoef(np.column_stack([used, labels]).T)[-1, :-1] ** 2
    return float(scores.max(initial=0.0))


def measure(train, test, size, decoder, seed):
    ridge = sl.CompressiveRidge(sketch_size=size, decoder=decoder, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ridge.fit(*train)
    return {
        "train": r2_score(train[1], ridge.predict(train[0])),
        "promised": ridge.score_estimate_,
        "held_out": r2_score(test[1], ridge.predict(test[0])),
        "group": best_group(ridge, *train),
        "warned": bool(caught),
    }


def evaluate(dataset, options):
    train, test = split_rows(dataset, options.target)
    d = train[0].shape[1]
    exact = Ridge().fit(*train)
    found = {"name": dataset.name, "real": dataset.real, "n_features": d}
    found["exact"] = [r2_score(y, exact.predict(x)) for x, y in (train, test)]
    for size in SIZES:
        if (d + 1) * (d + 2) // 2 > size:
            found[size] = [
                measure(train, test, size, options.decoder, seed)
                for seed in range(options.seeds)
            ]
    return found


def line(found):
    parts = [f"{found['name'][:24]:24s} {found['n_features']:5d}"]
    parts.append("exact {:.2f} {:.2f}".format(*found["exact"]))
    for size in SIZES:
        if size in found:
            means = [np.mean([one[f] for one in found[size]]) for f in FIELDS]
            parts.append(f"{size}: " + " ".join(f"{one:.2f}" for one in means))
    return " | ".join(parts)


def summary(results):
    """Means over the sets that are compressed at every size."""
    whole = [one for one in results if all(size in one for size in SIZES)]
    if not whole:
        return
    for size in SIZES:
        runs = [one for found in whole for one in found[size]]
        means = {f: np.mean([one[f] for one in runs]) for f in FIELDS}
        over = [one["promised"] - one["train"] for one in runs]
        below = sum(one["train"] < one["group"] - 1e-6 for one in runs)
        silent = [one["train"] for one in runs if not one["warned"]]
        print(
            f"{size:6d} numbers, {len(whole)} sets: R² {means['train']:.3f}, promised "
            f"{means['promised']:.3f} (at most {max(over):+.2f} too much), held out "
            f"{means['held_out']:.3f}; best group {means['group']:.3f}, below it "
            f"{below} of {len(runs)}; not warned of {len(silent)}"
        )
    exact = np.mean([one["exact"] for one in whole], axis=0)
    print("   all second moments: R² {:.3f}, held out {:.3f}".format(*exact))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--target", choices=["label", "feature"], default="label")
    parser.add_argument("--decoder", default="learned")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    results = []
    for dataset in load_folder(options.data / "data", split=options.split):
        if MANY <= dataset.rows.shape[1] <= MOST_FEATURES:
            results.append(evaluate(dataset, options))
            print(line(results[-1]), flush=True)
    for real in (True, False):
        print("real sets" if real else "simulated sets")
        summary([one for one in results if one["real"] == real])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
