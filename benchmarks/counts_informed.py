"""Item frequencies and membership with training rows: linear, packed, and the paper.

Half of the rows of a table of zeros and ones are for learning; a set is N random rows
of the other half, and its sketch has 100 numbers of 4 bytes. Printed are mean square
errors of frequencies (N = 20 and 100) and of membership (N = 10), with standard errors
over sets, of

  linear    principal directions of the training rows, best linear estimate
  counters  packed counters that never wrap: right for rows of any kind
  packed    packed counters that may wrap, checked by a checksum
  packed*   the same, planned for 100 rows where sets have fewer

and beside them what the paper prints for its fine-tuned network, SQ (f), which does not
say how many rows a set has. "unread" counts sets whose checksum did not fit, "wrong"
those that passed it with a wrong counter.

  --train   tables of the training split, for choosing; the default is for reporting
  --shift   sets of rows that hold the same item: rows unlike the training rows

usage: python3 dev.py run benchmarks/counts_informed.py [--data ../shared] [--sets N]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.linear import decode_linear, principal_table
from sketchlearn.decoders.counts.packed import read_counters
from sketchlearn.errors import ConvergenceWarning
from sketchlearn.experiments.counts.sets import (
    FREQUENCIES,
    MEMBERSHIPS,
    BinarySet,
    load_binary_sets,
    printed_errors,
)
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import load_folder
from sketchlearn.plans.packed_counters import pack_counters

SIZE = 100
FREQUENCY_ROWS, MEMBERSHIP_ROWS = (20, 100), 10
TRAINING = (
    *("EMNIST-digits", "Fashion-MNIST", "quickdraw", "Devnagari-Script", "letters1"),
    *("hapmap1", "hapmap2", "hapmapsim12", "dogstrain1", "dogstrain2"),
)


def training_sets(folder):
    """Tables of the training split, cut into halves like those of the report."""
    for data in load_folder(Path(folder, "data"), split="train"):
        if data.name in TRAINING:
            table = binary_rows(data)
            order = np.random.default_rng(0).permutation(len(table))
            half = len(table) // 2
            yield BinarySet(data.name, table[order[:half]], table[order[half:]])


def shifted(data):
    """Rows that hold the item which is nearest to being in a quarter of the rows."""
    item = int(np.abs(data.training.mean(axis=0) - 0.25).argmin())
    return BinarySet(data.name, data.training, data.rows[data.rows[:, item] > 0])


def linear(data, _):
    prior = ItemPrior.from_rows(data.training)
    table = principal_table(prior, SIZE)

    def decode(counts, n_rows):
        z = (counts @ table / n_rows).astype(np.float32)
        return decode_linear(prior, table, z, n_rows)

    return decode, None


def packing(data, max_rows, *, wrap=True):
    packed = pack_counters(
        data.training, sketch_size=SIZE, max_rows=max_rows, wrap=wrap
    )

    def decode(counts, n_rows):
        totals = [int(total) for total in counts @ packed.table]
        return read_counters(packed, totals, n_rows)

    return decode, packed


def measure(batch, plan, question):
    """Squared errors by set, and sets unread or wrong."""
    decode, packed = plan
    errors, unread, wrong = [], 0, 0
    for counts in batch.counts:
        found = decode(counts, batch.n_rows)
        answer = found.params.mean / batch.n_rows
        truth = counts / batch.n_rows
        if question == "membership":
            answer, truth = found.params.presence, counts > 0
        errors.append(np.square(answer - truth).mean())
        unread += not found.converged
        if packed is not None and found.converged:
            counted = packed.order
            wrong += bool((found.params.mean != counts)[counted].any())
    return np.array(errors), unread, wrong


def plans_for(data, n_rows):
    """Methods by name; each is planned for sets of at most so many rows."""
    yield "linear", linear(data, n_rows)
    yield "counters", packing(data, n_rows, wrap=False)
    yield "packed", packing(data, n_rows)
    if n_rows < 100:
        yield "packed*", packing(data, 100)


def report(sets, question, n_rows, n_sets, printed):
    print(
        f"\n{question}, N = {n_rows}, {SIZE} numbers, {4 * SIZE} bytes, {n_sets} sets"
    )
    means = {}
    for data in sets:
        print(f"{data.name}: {data.n_items} items, {len(data.training)} rows to learn")
        if len(data.rows) < n_rows:
            print("  too few rows")
            continue
        batch = data.draw(n_rows, n_sets, seed=0)
        for name, plan in plans_for(data, n_rows):
            start = time.perf_counter()
            errors, unread, wrong = measure(batch, plan, question)
            took = 1e3 * (time.perf_counter() - start) / n_sets
            means.setdefault(name, []).append(errors.mean())
            spread = errors.std() / np.sqrt(n_sets)
            counted = "" if plan[1] is None else f"{len(plan[1].order):5d} counted"
            line = f"  {name:9s} {errors.mean():.2e} ± {spread:.0e}  {took:5.1f} ms"
            failed = f"  unread {unread}, wrong {wrong}" if unread or wrong else ""
            print(f"{line} {counted}{failed}".rstrip(), flush=True)
        if data.name in printed:
            print(f"  paper     {printed[data.name]:.0e}")
    print("average:", *(f"{name} {np.mean(m):.2e}" for name, m in means.items()))
    base = np.mean(means["linear"])
    print("of linear:", *(f"{n} {np.mean(m) / base:.3f}" for n, m in means.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--shift", action="store_true")
    options = parser.parse_args()
    if not Path(options.data, "data", "MANIFEST.json").is_file():
        raise SystemExit(f"no data sets in {options.data}: give their folder by --data")
    warnings.simplefilter("ignore", ConvergenceWarning)
    find = training_sets if options.train else load_binary_sets
    sets = list(find(options.data))
    if options.shift:
        sets = [shifted(data) for data in sets]
    for task, all_rows in (
        (FREQUENCIES, FREQUENCY_ROWS),
        (MEMBERSHIPS, (MEMBERSHIP_ROWS,)),
    ):
        printed = printed_errors(task).get("SQ (f)", {})
        for n_rows in all_rows:
            report(sets, task.name, n_rows, options.sets, printed)


if __name__ == "__main__":
    main()
