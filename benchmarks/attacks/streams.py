"""Attacks on what is long and what is poor: lineages, cycles, threads, odd rows.

Lineages are compared with plain counts of every part through random sums, differences
and files; estimators take rows and forget them ten thousand times, from threads, and
are given rows from which there is hardly anything to learn.

usage: python3 dev.py run benchmarks/attacks/streams.py
"""

import random
import threading
import warnings
from dataclasses import replace

import numpy as np
from tally import run

import sketchlearn as sl
from sketchlearn.errors import PrivacyError, SketchlearnError
from sketchlearn.sketching.lineage import (
    Lineage,
    format_lineage,
    gathered_lineage,
    merged_lineage,
    parse_lineage,
    remaining_lineage,
)
from sketchlearn.sketching.passes import new_run, part_of_run

HISTORIES, CYCLES, SKETCHES, THREADS, ADDED = 2000, 10_000, 20_000, 8, 50
PHI = sl.clipped(sl.MomentFeatures(2), norm_bound=4.0)


def levels_of(lineage, names):
    """How often each part counts, asked one by one."""

    def is_inside(name):
        return int(Lineage.of([name]) <= lineage)

    return {name: is_inside(name) - is_inside("-" + name) for name in names}


def a_lineage_disagrees_with_plain_counts():
    """Up to 60 passes and parts of four runs, added, taken away and refused."""
    rng, breaks = random.Random(0), 0
    for _ in range(HISTORIES):
        runs = [new_run() for _ in range(4)]
        names = [f"{r}{n:016x}" for r in runs[:2] for n in range(8)]
        names += [part_of_run(r, n) for r in runs[2:] for n in (0, 1, 2, None)]
        lineage, counts = Lineage(), dict.fromkeys(names, 0)
        for _ in range(60):
            name, sign = rng.choice(names), rng.choice([1, -1])
            act = merged_lineage if sign > 0 else remaining_lineage
            try:
                lineage = act(lineage, Lineage.of([name]))
                counts[name] += sign
                breaks += abs(counts[name]) > 1
            except PrivacyError:
                breaks += abs(counts[name] + sign) <= 1
        lineage = parse_lineage(format_lineage(lineage))
        breaks += levels_of(lineage, names) != counts
    return 60 * HISTORIES, breaks


def a_sum_of_thousands_is_lost_or_takes_a_part_twice():
    """Of one process, and of runs that have nothing to do with each other."""
    one, breaks = sl.sketch_rows(np.ones((1, 2)), PHI), 0
    own = [one.with_new_lineage() for _ in range(SKETCHES)]
    strange = [replace(one, lineage=Lineage.of([new_run()])) for _ in range(SKETCHES)]
    for parts in (own, strange):
        whole = sl.loads(sl.dumps(sl.merge(parts)))
        breaks += whole.lineage != gathered_lineage(part.lineage for part in parts)
        breaks += not is_released(whole)
        for part in parts[::10]:
            try:
                whole + part
                breaks += 1
            except PrivacyError:
                breaks += (whole - part + part).lineage != whole.lineage
    return 2 * SKETCHES, breaks


def is_released(sketch):
    """Whether a sketch can be released without anybody's word."""
    book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-9)
    try:
        return sl.release(sketch, epsilon=1.0, delta=1e-9, ledger=book) is not None
    except PrivacyError:
        return False


def cycles_of_adding_and_forgetting_lose_the_right_to_release():
    rows = np.random.default_rng(0).uniform(0, 1, (60, 2))
    model = sl.CompressivePCA(1).fit_sketch(sl.sketch_rows(rows, PHI))
    before, breaks = model.sketch_, 0
    for _ in range(CYCLES):
        model.partial_fit(rows[:2]).forget(rows[:2])
        breaks += len(model.sketch_.lineage.points) > 6
    breaks += model.sketch_ != before or not is_released(model.sketch_)
    return CYCLES, breaks


def threads_lose_rows():
    rows = np.random.default_rng(0).uniform(0, 1, (THREADS * ADDED, 3))
    model = sl.CompressivePCA(2, bounds=(0, 1))

    def add(first):
        for i in range(first, len(rows), THREADS):
            model.partial_fit(rows[i : i + 1])

    threads = [threading.Thread(target=add, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = sl.sketch_rows(rows, model.sketch_.feature_map)
    return len(rows), int(model.sketch_ != alone)


def poor_tables():
    """Rows from which there is hardly anything to learn, and of odd magnitudes."""
    rng = np.random.default_rng(0)
    two, rare = np.array([[0.0, 1.0], [3.0, -2.0]]), np.eye(200)[:, :1]
    normal = rng.normal(size=(50, 2))
    return [
        np.full((50, 2), 3.3),
        np.zeros((50, 2)),
        two[:1],
        two,
        two[rng.integers(2, size=50)],
        rare,
        np.column_stack([rare, 0 * rare]),
        rng.integers(3, size=(60, 1)).astype(float),
        np.outer(np.arange(20.0), [1.0, 2.0]),
        np.concatenate([np.zeros((49, 2)), [[1e100, 1.0]]]),
        np.concatenate([np.zeros((10, 1)), [[1e308]]]),
        1e12 + normal,
        1 + 1e-15 * normal,
        normal * [1e100, 1e-100],
        *[normal * 10.0**exponent for exponent in (140, -140, -170, -310)],
    ]


def models():
    """Every estimator of numbers, as it may be asked for."""
    yield from (sl.CompressivePCA(1), sl.CompressivePCA(1, standardize=True))
    yield from (sl.CompressivePCA(1, sketch_size=3), sl.CompressiveRidge())
    yield sl.CompressiveRidge(alpha=0.0, fit_intercept=False)
    yield sl.CompressiveAutoencoder(1, binarize=0.5, per_class=False)
    for k in (1, 2, 5):
        for rounds in (1, 2):
            options = {"rounds": rounds, "sketch_size": 100}
            yield sl.CompressiveKMeans(k, **options)
            yield sl.CompressiveGaussianMixture(k, **options)
            options |= {"covariance_type": "diag", "reg_covar": 0.0}
            yield sl.CompressiveGaussianMixture(k, **options)
            yield sl.CompressiveClassifier(k, rounds=rounds, sketch_size=100)


def poor_rows_give_what_is_no_number_or_a_foreign_error():
    trials = breaks = 0
    for model in models():
        for rows in poor_tables():
            trials += 1
            try:
                model.fit(rows, np.arange(len(rows)) % 2)
                ask = getattr(model, "predict", None) or model.transform
                values = [value for key, value in vars(model).items() if key[-1] == "_"]
                numbers = [v for v in values if isinstance(v, float | np.ndarray)]
                for found in (*numbers, np.asarray(ask(rows))):
                    array = np.asarray(found)
                    breaks += array.dtype.kind == "f" and not np.isfinite(array).all()
            except SketchlearnError:
                pass
            except Exception:
                breaks += 1
    return trials, breaks


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(
        a_lineage_disagrees_with_plain_counts,
        a_sum_of_thousands_is_lost_or_takes_a_part_twice,
        cycles_of_adding_and_forgetting_lose_the_right_to_release,
        threads_lose_rows,
        poor_rows_give_what_is_no_number_or_a_foreign_error,
    )
