"""Cases of joint decoding: laws that it has to find, and systems that are hard."""

from functools import partial

import numpy as np
import scipy.sparse as sp

from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.joint import decode_counts
from sketchlearn.decoders.counts.zipf import draw_zipf_counts
from sketchlearn.features.joint_counts import JointCountFeatures
from tuning_cases.base import cases_of

SETS = 4


def columns_of(n_items, width, depth=5, seed=0):
    phi = JointCountFeatures(n_items, width=width, depth=depth, seed=seed)
    return phi.columns_of(np.arange(n_items, dtype=np.uint64))


def zipf(alpha, rng):
    return draw_zipf_counts(rng, 400, 60, alpha)[0], 60


def flat(rng):
    return rng.binomial(60, 0.3, 400), 60


def partly_absent(rng):
    odds = rng.normal(-1.0, 1.5, 400)
    return rng.binomial(60, 1 / (1 + np.exp(-odds))) * (rng.random(400) < 0.6), 60


def rare(rng):
    return rng.binomial(2000, 2e-4, 400), 2000


def many(rng):
    counts = rng.negative_binomial(0.3, 0.01, 400)
    return counts, int(counts.sum())


def heavy(rng):
    counts = rng.poisson(3.0, 400)
    counts[:3] = 10**6, 10**5, 10**4
    return counts, int(counts.sum())


LAWS = {
    "Zipf 0.5": partial(zipf, 0.5),
    "Zipf 1": partial(zipf, 1.0),
    "Zipf 2": partial(zipf, 2.0),
    "one frequency": flat,
    "four tenths absent": partly_absent,
    "rare": rare,
    "many rows": many,
    "three heavy items": heavy,
}


def surprise(posterior, counts):
    """Nats of a true count; finite where it was thought impossible."""
    chance = posterior.below(counts) - posterior.below(counts - 1)
    return float(-np.log(np.maximum(chance, 1e-12)).mean())


def surprise_of(law, width, **tunings):
    """Nats of a count after decoding, over some sets, from at least one tenth."""
    found = []
    for seed in range(SETS):
        counts, n_rows = LAWS[law](np.random.default_rng(seed))
        columns = columns_of(len(counts), width, seed=seed)
        z, total = columns.T @ counts / n_rows, counts.sum() / n_rows
        decoding = decode_counts(columns, z, n_rows, total=total, **tunings)
        found.append(surprise(decoding.params, counts))
    return 0.1 + float(np.mean(found))


def error_of(law, width, tuning):
    """Root mean square error of counts, over some sets, and a tenth of a count."""
    found = []
    for seed in range(SETS):
        counts, n_rows = LAWS[law](np.random.default_rng(seed))
        columns = columns_of(len(counts), width, seed=seed)
        z, total = columns.T @ counts / n_rows, counts.sum() / n_rows
        mean = decode_counts(columns, z, n_rows, total=total, tuning=tuning).params.mean
        found.append(np.mean((mean - counts) ** 2))
    return 0.1 + float(np.sqrt(np.mean(found)))


def unnoticed_items(tuning):
    """Sketches of items that are not in the vocabulary and are thought explained."""
    found = 0
    for seed in range(4 * SETS):
        counts, n_rows = zipf(0.5, np.random.default_rng(seed))
        columns = columns_of(400, 30, seed=seed)
        z = columns.T @ counts / n_rows
        known = sp.csr_array(columns[:200])
        found += decode_counts(known, z, n_rows, tuning=tuning).converged
    return 1 + found


def unsigned_error(tuning):
    """Few items in as many numbers, which can be solved for."""
    rng = np.random.default_rng(0)
    counts, columns = rng.integers(0, 1000, 250), columns_of(250, 60)
    z = columns.T @ counts / 1000
    found = decode_counts(columns, z, 1000, tuning=tuning).params.mean
    return 0.1 + float(np.sqrt(np.mean((found - counts) ** 2)))


def rounds_of(law, width, tuning):
    """How long it takes."""
    counts, n_rows = LAWS[law](np.random.default_rng(0))
    columns = columns_of(len(counts), width)
    z = columns.T @ counts / n_rows
    return decode_counts(columns, z, n_rows, tuning=tuning).n_iter


def signed_error(tuning):
    """Twenty items of about one count in ten signed numbers, with noise."""
    found = []
    for seed in range(3 * SETS):
        rng = np.random.default_rng(seed)
        counts = rng.binomial(30_000, 0.05, 20)
        columns = sp.csr_array(rng.choice([-1.0, 0.0, 1.0], (20, 10)))
        z = columns.T @ counts / 30_000 + rng.normal(scale=1e-3, size=10)
        decoding = decode_counts(columns, z, 30_000, noise_variance=1e-6, tuning=tuning)
        found.append(np.mean((decoding.params.mean - counts) ** 2))
    return float(np.sqrt(np.mean(found)))


@cases_of("JointTuning")
def joint_cases(data):
    del data
    yield "Zipf 1 in 80 numbers: error", partial(error_of, "Zipf 1", 16)
    yield "Zipf 2 in 80 numbers: nats", lambda t: surprise_of("Zipf 2", 16, tuning=t)
    yield (
        "three heavy items in 100 numbers: error",
        partial(error_of, "three heavy items", 20),
    )
    yield "many rows in 100 numbers: error", partial(error_of, "many rows", 20)
    yield "items that are not in the vocabulary", unnoticed_items
    yield "250 items in 300 numbers: error", unsigned_error
    yield "Zipf 1 in 80 numbers: rounds", partial(rounds_of, "Zipf 1", 16)
    yield "20 items in 10 signed numbers: error", signed_error


@cases_of("PriorTuning")
def prior_cases(data):
    del data
    for law in LAWS:
        for width in (8, 24):
            name = f"{law} in {5 * width} numbers: nats"
            yield name, lambda t, at=(law, width): surprise_of(*at, law_tuning=t)


def grid_surprise(law, noise, tuning):
    """Nats of counts that are seen with noise, under the law they come from."""
    counts, n_rows = LAWS[law](np.random.default_rng(0))
    grid = CountGrid.up_to(n_rows, tuning)
    seen = counts + np.random.default_rng(1).normal(scale=noise, size=len(counts))
    sizes = np.diff(np.concatenate([[-1.0], grid.tops]))
    prior = np.bincount(np.searchsorted(grid.tops, counts), minlength=grid.n_bins)
    known = Channel(grid, prior + 0.01 * sizes, seen, np.full(len(counts), noise**2))
    chance = known.below(counts.astype(float)) - known.below(counts - 1.0)
    return 0.1 + float(-np.log(np.maximum(chance, 1e-12)).mean())


@cases_of("GridTuning")
def grid_cases(data):
    del data
    for law, noise in (("Zipf 1", 0.5), ("many rows", 2.0), ("three heavy items", 3.0)):
        yield f"{law}, seen with noise of {noise}", partial(grid_surprise, law, noise)
