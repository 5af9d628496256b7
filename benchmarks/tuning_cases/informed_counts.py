"""Cases of item counts with training rows: the prior, packing, and reading."""

from functools import cache, partial

import numpy as np

from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.linear import decode_linear
from sketchlearn.decoders.counts.packed import read_counters
from sketchlearn.plans.packed_counters import PackingTuning, pack_counters
from tuning_cases.base import cases_of

SET_ROWS = 20


@cache
def binary_factor_rows(n_rows, n_items=80, n_factors=5, rare=0.0, seed=0):
    """Rows of zeros and ones, several items together; ``rare`` makes ones fewer."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(seed + 1).normal(size=(n_factors, n_items))
    score = rng.normal(size=(n_rows, n_factors)) @ mixing
    return (score + rng.normal(size=score.shape) > rare).astype(np.int64)


def sets_of(rows, n_sets=40):
    rng = np.random.default_rng(5)
    return [rows[rng.permutation(len(rows))[:SET_ROWS]].sum(0) for _ in range(n_sets)]


def linear_error(n_rows, rare, tuning):
    """Squared error of frequencies, of which every fourth is measured."""
    rows = binary_factor_rows(n_rows + 2000, rare=rare)
    prior = ItemPrior.from_rows(rows[:n_rows], tuning=tuning)
    table = np.eye(rows.shape[1])[:, ::4]
    found = [
        decode_linear(prior, table, (counts / SET_ROWS) @ table, SET_ROWS).params.mean
        - counts
        for counts in sets_of(rows[n_rows:])
    ]
    return float(np.square(found).mean())


@cases_of("ItemPriorTuning")
def item_prior_cases(data):
    del data
    for n_rows, rare in ((60, 0.0), (60, 5.0), (2000, 0.0)):
        name = f"{n_rows} training rows, ones above {rare}"
        yield name, partial(linear_error, n_rows, rare)


@cache
def packed_plan(tuning, size):
    rows = binary_factor_rows(3000)
    return pack_counters(
        rows[:1000], sketch_size=size, max_rows=SET_ROWS, tuning=tuning
    )


def packed_error(size, tuning):
    """Squared error of counts, those that are predicted included."""
    packed = packed_plan(tuning, size)
    found = [
        read_counters(packed, (counts @ packed.table).tolist(), SET_ROWS).params.mean
        - counts
        for counts in sets_of(binary_factor_rows(3000)[1000:])
    ]
    return float(np.square(found).mean())


@cases_of("PackingTuning")
def packing_cases(data):
    del data
    for size in (6, 8):
        yield f"80 items in {size} numbers", partial(packed_error, size)


def ways_tried(spread, tuning):
    """Mean number of ways of reading until one fits."""
    packed = packed_plan(PackingTuning(spreads=(spread,)), 10)
    return np.mean(
        [
            read_counters(
                packed, (counts @ packed.table).tolist(), SET_ROWS, tuning=tuning
            ).n_iter
            for counts in sets_of(binary_factor_rows(3000)[1000:])
        ]
    )


@cases_of("PackedReadingTuning")
def packed_reading_cases(data):
    del data
    for spread in (4.5, 3.5):
        yield f"bases of {spread} deviations", partial(ways_tried, spread)
