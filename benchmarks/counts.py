"""Counts of all items decoded together, against one item at a time.

By default, mean square error of frequencies of the paper's Zipf streams (d = 1000,
m = 100 numbers, N = 100 rows, beta = 1) with standard errors, and how many times larger
it is with Count-Min (minimum) and Count-Sketch (median), each with the best of all
tables of m numbers for that very alpha, non-negative least squares, and the mean of all
items, which must be told. Others:

  --items D --numbers M --rows N --beta B --sets S   another setting
  --membership     MSE of the probability of presence; N = 10, beta = 0.5
  --real           training sets as zeros and ones, N = 20 and 100
  --coverage       share of counts inside of intervals: Zipf streams, the words of this
                   repository's pages, a column of categories, as collected while they
                   are read and with items that are not there. A count on an end is
                   inside with the part of its probability that is needed
  --streams        long streams, from a hundredth as many numbers as items to as many:
                   mean and root mean square error over that of the median of the same
                   tables, and mean error of the 20 largest; of a Count-Sketch and a
                   Count-Min of as many numbers; inside of 95 % intervals, of all items,
                   of top(20) and top(100), of the 20 and 100 largest asked by name.
                   Exit code 1 if a mean or root mean square error is above that of one
                   of them, or fewer than 93 % are inside; ten minutes with --sets 6
  --large          1e6 items, 1e5 numbers, 1e8 events: seconds, memory, error

usage: python3 dev.py run benchmarks/counts.py [--data ../shared] [--sets N]
"""

import argparse
import json
import keyword
import os
import re
import resource
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from scipy.optimize import nnls

from sketchlearn.decoders.counts.joint import best_depth, decode_counts
from sketchlearn.decoders.counts.zipf import draw_zipf_counts
from sketchlearn.features.joint_counts import JointCountFeatures
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import load_folder

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
LEVELS = (0.5, 0.8, 0.9, 0.95)
KEY = ("f1", "f3", "f5", "f6")
"""Work, education, family and occupation, together one column of categories."""

REAL = ("EMNIST-digits", "Fashion-MNIST", "hapmap1", "dogstrain1", "quickdraw")


def hashed_columns(rng, n_items, size, depth, *, signed=True):
    """Columns of a table of ``depth`` hashes, as an item map has them."""
    width = size // depth
    places = rng.integers(width, size=(n_items, depth)) + width * np.arange(depth)
    shape = (n_items, depth)
    values = rng.choice([-1.0, 1.0], shape) if signed else np.ones(shape)
    starts = np.arange(0, n_items * depth + 1, depth)
    data = (values.ravel(), places.ravel(), starts)
    return sp.csr_array(data, shape=(n_items, size))


def one_by_one(columns, counts, n_rows, summary):
    """Count-Min and Count-Sketch: a summary of an item's numbers, cut to 0..N."""
    sums = columns.T @ counts
    depth = columns.indptr[1]
    seen = columns.data * sums[columns.indices]
    return np.clip(summary(seen.reshape(-1, depth), axis=1), 0, n_rows)


def depths(size):
    return [depth for depth in range(1, size + 1) if size % depth == 0]


def joint_columns(rng, n_items, size):
    """Columns as joint decoding takes them: the first table has no signs."""
    depth = best_depth(size)
    seed = int(rng.integers(2**31))
    phi = JointCountFeatures(n_items, width=size // depth, depth=depth, seed=seed)
    return phi.columns_of(np.arange(n_items, dtype=np.uint64))


def decode(columns, counts, n_rows, **options):
    """As the estimators do: the sum of all counts is read off the first table.

    No row holds an item twice, which estimators know of ids and of tables.
    """
    z, total = columns.T @ counts / n_rows, counts.sum() / n_rows
    return decode_counts(columns, z, n_rows, total=total, **options)


def mean_and_error(values):
    values = np.asarray(values)
    return values.mean(), values.std() / np.sqrt(len(values))


def zipf(options):
    d, m, N = options.items, options.numbers, options.rows
    print(f"d={d} m={m} N={N} beta={options.beta}, {options.sets} sets")
    print("alpha   joint (standard error)  bars  x Count-Min  x CS  x NNLS  x mean")
    for alpha in options.alphas:
        rng = np.random.default_rng(options.seed)
        errors, bars, least, mean = [], [], [], []
        rivals = {key: [] for key in [(s, k) for s in (0, 1) for k in depths(m)]}
        for place in range(options.sets):
            counts = draw_zipf_counts(rng, d, N, alpha, options.beta)[0]
            columns = joint_columns(rng, d, m)
            found = decode(columns, counts, N).params
            errors.append(np.mean((found.mean - counts) ** 2) / N**2)
            bars.append(found.variance.mean() / N**2)
            mean.append(counts.var() / N**2)
            if place < options.rival_sets:
                dense = hashed_columns(rng, d, m, best_depth(m)).T.toarray()
                best = nnls(dense, dense @ counts, maxiter=20 * d)[0]
                least.append(np.mean((best - counts) ** 2) / N**2)
                for (signed, depth), kept in rivals.items():
                    table = hashed_columns(rng, d, m, depth, signed=bool(signed))
                    one = one_by_one(table, counts, N, np.median if signed else np.min)
                    kept.append(np.mean((one - counts) ** 2) / N**2)
        mse, error = mean_and_error(errors)
        tuned = [
            min(np.mean(kept) for (s, _), kept in rivals.items() if s == signed)
            for signed in (0, 1)
        ]
        others = [*tuned, np.mean(least), np.mean(mean)]
        ratios = "  ".join(f"{other / max(mse, 1e-12):9.2f}" for other in others)
        bar = np.mean(bars) / max(mse, 1e-12)
        print(
            f"{alpha:5.2f}   {mse:.2e} ({error:.0e})  {bar:.2f}  {ratios}", flush=True
        )


def membership(options):
    d, m, N, beta = options.items, options.numbers, 10, 0.5
    print(
        f"presence: d={d} m={m} N={N} beta={beta}, {options.sets} sets; share present"
    )
    for alpha in options.alphas:
        rng = np.random.default_rng(options.seed)
        errors, present = [], []
        for _ in range(options.sets):
            counts = draw_zipf_counts(rng, d, N, alpha, beta)[0]
            columns = joint_columns(rng, d, m)
            found = decode(columns, counts, N).params.presence
            errors.append(np.mean((found - (counts > 0)) ** 2))
            present.append(np.mean(counts > 0))
        mse, error = mean_and_error(errors)
        print(
            f"{alpha:5.2f}   {mse:.2e} ({error:.0e})  {np.mean(present):.3f}",
            flush=True,
        )


def real_sets(options):
    sets = {s.name: s for s in load_folder(options.data / "data", split="train")}
    print("set             N    joint          the mean")
    for name in REAL:
        rows = binary_rows(sets[name])
        for N in (20, 100):
            rng = np.random.default_rng(options.seed)
            found = []
            for _ in range(options.sets):
                counts = rows[rng.permutation(len(rows))[:N]].sum(axis=0, dtype=int)
                columns = joint_columns(rng, len(counts), options.numbers)
                gaps = decode(columns, counts, N).params.mean - counts
                found.append([np.mean(gaps**2) / N**2, counts.var() / N**2])
            values = "   ".join(f"{value:.2e}    " for value in np.mean(found, axis=0))
            print(f"{name:15} {N:3}  {values}", flush=True)


def streams(options):
    """Counts of words of a text, and of the categories of a column.

    As collected while they are read (every item is there), and of a part of the
    stream with the vocabulary of the whole (some items are not).
    """
    root = Path(__file__).parent.parent
    folders = (root, root / "docs", root / "changelog")
    pages = sorted(page for folder in folders for page in folder.glob("*.md"))
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    words = np.unique(re.findall(r"[a-z]+", text.lower()), return_inverse=True)[1]
    table = pq.read_table(options.data / "data" / "train" / "adult.parquet")
    columns = np.column_stack([table[name].to_numpy() for name in KEY])
    categories = np.unique(columns, axis=0, return_inverse=True)[1]
    for name, stream in (("words", words), ("categories", categories)):
        part = stream[: len(stream) // 4]
        yield f"{name}, all", np.bincount(stream), 1
        yield f"{name}, first quarter", np.bincount(part, minlength=stream.max() + 1), 0


def long_streams(options):
    """Counts of five streams: words and names of Python's files, columns, paths.

    The addresses are simulated, with a Zipf-Mandelbrot law: none are at hand.
    """
    paths = sysconfig.get_paths()
    code = sorted(Path(paths["stdlib"]).glob("**/*.py"))
    modules = [p for p in code if "site-packages" not in p.parts][:1600]
    others = sorted(Path(paths["purelib"]).glob("**/*.py"))[::6]

    def tokens(files, pattern):
        for path in files:
            yield from re.findall(pattern, path.read_text("utf-8", errors="ignore"))

    def counted(items):
        return np.unique(np.array(list(items)), return_counts=True)[1]

    yield "words", counted(tokens(modules, r"[A-Za-z_]{2,}"))
    names = tokens(others, r"(?<![\w.\"'])[A-Za-z_]\w*(?=[(.= ,:])")
    yield "identifiers", counted(x for x in names if not keyword.iskeyword(x))
    table = pq.read_table(options.data / "data" / "train" / "adult.parquet")
    columns = np.column_stack([table[name].to_numpy().astype(str) for name in KEY])
    yield "categories", np.unique(columns, axis=0, return_counts=True)[1]
    files = [os.path.join(at, f) for at, _, found in os.walk("/usr") for f in found]
    yield "paths", counted(x for f in files for x in re.split(r"[/.]", f) if x)
    rng = np.random.default_rng(5)
    law = (np.arange(1, 60_001.0) + 3) ** -1.15 * rng.lognormal(0, 0.5, 60_000)
    drawn = rng.multinomial(2_000_000, law / law.sum())
    yield "addresses (simulated)", drawn[drawn > 0]


def errors_of(found, counts, largest):
    gaps = np.abs(found - counts)
    return [gaps.mean(), np.sqrt(np.square(gaps).mean()), gaps[largest].mean()]


def long_stream_figures(options):
    print("error over that of: its tables' median | Count-Sketch | Count-Min")
    print("(mean, root mean square, 20 largest); inside of 95 %: all, top, by name")
    trials = breaks = 0
    for name, counts in long_streams(options):
        d, N = len(counts), int(counts.sum())
        for share in (100, 30, 10, 3, 1):
            m, found, inside = max(10, d // share // 5 * 5), [], []
            for seed in range(options.sets):
                rng = np.random.default_rng(seed)
                counts = rng.permutation(counts)
                columns = joint_columns(rng, d, m)
                depth = columns.indptr[1]
                posterior = decode(columns, counts, N, smallest=1).params
                largest = np.argsort(-counts)[:100]
                chosen = np.argsort(-posterior.mean)[:100]
                looks = (columns.T @ counts)[columns.indices] * columns.data
                median = np.median(looks.reshape(d, depth)[:, 1:], axis=1)
                answers = [posterior.mean, np.clip(median, 0, N)]
                for signed, summary in ((True, np.median), (False, np.min)):
                    rival = hashed_columns(rng, d, m, depth, signed=signed)
                    answers.append(one_by_one(rival, counts, N, summary))
                found.append([errors_of(a, counts, largest[:20]) for a in answers])
                low, high = posterior.interval(0.95)
                covers = (low <= counts) & (counts <= high)
                parts = (slice(None), chosen[:20], chosen, largest[:20], largest)
                inside.append([covers[part].mean() for part in parts])
            ours, *rivals = np.mean(found, axis=0)
            worse = any((ours[:2] > rival[:2] + 0.01).any() for rival in rivals)
            narrow = np.mean(inside, axis=0).min() < 0.93
            trials, breaks = trials + 1, breaks + (worse or narrow)
            ratios = " | ".join(
                " ".join(f"{x:5.2f}" for x in ours / np.maximum(rival, 1e-9))
                for rival in rivals
            )
            held = " ".join(f"{100 * x:5.1f}" for x in np.mean(inside, axis=0))
            print(f"{name:12.12} d={d:<6} m={m:<6} {ratios} ; {held}", flush=True)
    print(json.dumps({"trials": trials, "breaks": int(breaks)}))
    sys.exit(1 if breaks else 0)


def covered(posterior, counts, rng):
    low, high = posterior.below(counts - 1), posterior.below(counts)
    rank = low + rng.random(len(counts)) * (high - low)
    return [np.mean(np.abs(rank - 0.5) <= level / 2) for level in LEVELS]


def coverage(options):
    print("inside, %:                          ", *(f"{100 * c:5.0f}" for c in LEVELS))

    def show(label, found):
        values = " ".join(f"{100 * value:5.1f}" for value in np.mean(found, axis=0))
        print(f"{label:36} {values}", flush=True)

    rng = np.random.default_rng(options.seed)
    for alpha in options.alphas:
        found = []
        for _ in range(options.sets):
            counts = draw_zipf_counts(rng, options.items, options.rows, alpha)[0]
            columns = joint_columns(rng, options.items, options.numbers)
            posterior = decode(columns, counts, options.rows).params
            found.append(covered(posterior, counts, rng))
        show(f"Zipf {alpha}, m = {options.numbers}", found)
    for name, counts, least in streams(options):
        N, d = int(counts.sum()), len(counts)
        for share in (20, 10, 4):
            found, m = [], max(10, d // share // 5 * 5)
            for _ in range(options.sets):
                columns = joint_columns(rng, d, m)
                posterior = decode(columns, counts, N, smallest=least).params
                found.append(covered(posterior, counts, rng))
            show(f"{name}, d = {d}, m = {m}", found)


def large(options):
    rng = np.random.default_rng(options.seed)
    d, m, N = 10**6, 10**5, 10**8
    law = 1 / np.arange(1, d + 1.0)
    counts = rng.permutation(rng.multinomial(N, law / law.sum()))
    columns = joint_columns(rng, d, m)
    start, clock = time.perf_counter(), time.process_time()
    found = decode(columns, counts, N)
    seconds, own = time.perf_counter() - start, time.process_time() - clock
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    error = np.sqrt(np.mean((found.params.mean - counts) ** 2))
    signed = hashed_columns(rng, d, m, 5)
    median = np.sqrt(np.mean((one_by_one(signed, counts, N, np.median) - counts) ** 2))
    print(f"{seconds:.1f} s ({own:.1f} s of a core), {memory:.0f} MB of memory in all")
    print(f"{found.n_iter} rounds, converged: {found.converged}")
    print(f"root mean square error {error:.1f}, Count-Sketch x {median / error:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--numbers", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--beta", type=float, default=1.0)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--rival-sets", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alphas", type=float, nargs="+", default=ALPHAS)
    named = {real_sets: "--real", long_stream_figures: "--streams"}
    for figure in (membership, real_sets, coverage, long_stream_figures, large):
        name = named.get(figure, f"--{figure.__name__}")
        parser.add_argument(name, dest="figure", action="store_const", const=figure)
    options = parser.parse_args()
    (options.figure or zipf)(options)


if __name__ == "__main__":
    main()
