"""Cases of centers decoded from sketches, and of what is said of them."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from sketchlearn.decoders.clusters.inertia import bound_inertia
from sketchlearn.decoders.clusters.kmeans import Centers, cluster_reading
from sketchlearn.decoders.clusters.resolution import narrow_features, wide_features
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.mixture import Density
from sketchlearn.decoders.density.reading import Reading, read_sketch
from sketchlearn.plans.cells import ClusterCells
from sketchlearn.plans.rounds import DensityPlan
from tuning_cases.base import cases_of
from tuning_cases.rounds import (
    inertia_of,
    over_lloyd,
    round_clusters,
    sketch_of,
    uneven_clusters,
)


def cluster_sketch(rows, k, size="auto", **options):
    return sketch_of(rows, DensityPlan(ClusterCells(k), size, 0), **options)


@dataclass(frozen=True, eq=False)
class Clustered:
    """Centers of some rows, decoded from a sketch of them."""

    rows: np.ndarray
    reading: Reading
    density: Density
    found: Centers

    @classmethod
    def of(cls, rows, k, size=400, **options):
        """From a sketch of so many numbers."""
        reading = read_sketch(cluster_sketch(rows, k, size, **options))
        density = DensityDecoder().decode_reading(reading).params
        found = cluster_reading(reading, density, k, seed=0, n_init=3)
        return cls(rows, reading, density, found)

    @cached_property
    def inertia(self):
        """Of the rows, about these centers."""
        return inertia_of(self.rows, self.found.centers)

    @cached_property
    def is_bad(self):
        """Whether the centers are far from the best."""
        return over_lloyd(self.rows, self.found.centers) > 1.5

    def bounded(self, tuning):
        """What the sketch says of it."""
        return bound_inertia(self.reading, self.density, self.found, tuning)


@cases_of("CenterTuning")
def center_cases(data):
    del data
    tables = {
        "clusters of one shape": (round_clusters(40, 5, 0.2, 20_000), 40, 600),
        "narrow clusters": (round_clusters(20, 3, 0.02), 20, 300),
        "many small clusters": (round_clusters(50, 3, 0.05, 20_000), 50, 500),
        "more clusters than there are": (round_clusters(8, 3, 0.05, 20_000), 40, 600),
        "clusters of many shapes": (uneven_clusters(20, 3), 20, 300),
        "few rows that are no clusters": (skewed_rows(800, 10), 10, 2000),
    }
    for name, (rows, k, size) in tables.items():
        yield (
            f"inertia over Lloyd's, {name}",
            partial(center_inertia, rows, k, cluster_sketch(rows, k, size)),
        )


def skewed_rows(n, d):
    """Exponential features, mixed."""
    rng = np.random.default_rng(0)
    return rng.exponential(size=(n, d)) @ rng.normal(size=(d, d))


def center_inertia(rows, k, sketch, tuning):
    reading = read_sketch(sketch)
    density = DensityDecoder().decode_reading(reading).params
    found = cluster_reading(reading, density, k, seed=0, n_init=3, tuning=tuning)
    return over_lloyd(rows, found.centers)


@cases_of("InertiaTuning")
def inertia_cases(data):
    del data
    one_shape = round_clusters(5, 3, 0.1, 4000)
    cells = [
        Clustered.of(round_clusters(20, 3, 0.003), 20, 1500),
        Clustered.of(round_clusters(50, 3, 0.02), 50, 200),
        Clustered.of(round_clusters(50, 3, 0.02, 20_000), 50, 600),
        Clustered.of(uneven_clusters(10, 4), 10, 1500),
        Clustered.of(uneven_clusters(30, 4), 30, 200),
        Clustered.of(uneven_clusters(30, 4), 30, 1000),
    ]
    without = [
        Clustered.of(one_shape, 5, rounds=1, bounds=(-bound, bound))
        for bound in (2, 8, 16)
    ]
    releases = [
        Clustered.of(one_shape, 5, 100, rounds=rounds, bounds=(-2, 2), epsilon=epsilon)
        for rounds in (1, 2)
        for epsilon in (1.0, 10.0)
    ]
    yield "intervals with cells", partial(interval_loss, cells)
    yield "intervals without cells", partial(interval_loss, without)
    yield "intervals of releases", partial(interval_loss, releases)
    tails = [Clustered.of(heavy_rows(2000, 4), k, rounds=1) for k in (5, 20)]
    yield "relative error of estimates", partial(estimate_error, cells)
    yield "relative error of estimates, heavy tails", partial(estimate_error, tails)
    yield "bad centers not told, or good ones", partial(wrong_blurred, cells)


def interval_loss(panel, tuning):
    """Mean width, in units of the inertia, and 10 for each interval that misses it."""
    loss = 0.0
    for one in panel:
        found = one.bounded(tuning)
        misses = not found.low <= one.inertia * (1 + 1e-6) <= found.high * (1 + 1e-5)
        loss += (found.high - found.low) / one.inertia + 10 * misses
    return loss / len(panel)


def estimate_error(panel, tuning):
    found = [one.bounded(tuning).estimate / one.inertia for one in panel]
    return float(np.mean(np.abs(np.log(found))))


def wrong_blurred(panel, tuning):
    """One more than how often."""
    return 1 + sum(one.bounded(tuning).is_blurred != one.is_bad for one in panel)


def heavy_rows(n, d):
    """Lognormal rows."""
    return np.exp(2 * np.random.default_rng(0).normal(size=(n, d)))


@cases_of("ResolutionTuning")
def resolution_cases(data):
    del data
    rows = round_clusters(5, 3, 0.1, 4000)
    for rounds in (1, 2):
        panel = [
            Clustered.of(with_far(rows, 1, far), 6, rounds=rounds)
            for far in (1.5, 3, 12, 30, 300)
        ]
        yield (
            f"wrong warnings, rounds={rounds}, a row far out",
            partial(wrong_narrow, panel),
        )
    panel = [
        Clustered.of(rows, 5, rounds=1, bounds=(-bound, bound))
        for bound in (2, 8, 16, 64)
    ]
    yield "wrong warnings, rounds=1, wide bounds", partial(wrong_narrow, panel)
    panel = [
        Clustered.of(with_far(rows, n_far, far), 6, bounds=(-(2.0**14), 2.0**14))
        for n_far in (1, 30, 200)
        for far in (30, 1e3, 1e4)
    ]
    yield "wrong warnings, rounds=2, rows far out", partial(wrong_narrow, panel)
    panel = [read_sketch(cluster_sketch(one_heavy(w), 3, rounds=1)) for w in WIDTHS]
    yield "features named that have no heavy tails", partial(wrong_names, panel)


WIDTHS = (0.01, 0.25, 1.0, 4.0)


def one_heavy(width):
    """Gaussian features of one width, and two lognormal ones, of one and of that."""
    rng = np.random.default_rng(0)
    rows = width * rng.normal(size=(30_000, 6))
    rows[:, 1:3] = np.exp(rng.normal(size=(30_000, 2)))
    rows[:, 1:3] *= [1.0, width] / rows[:, 1:3].std(axis=0)
    return rows


def wrong_names(panel, tuning):
    """One more than how many."""
    found = [set(wide_features(one, tuning)) for one in panel]
    heavy = [{1}, {1}, {1, 2}, {2}]  # the other one hardly counts
    return 1 + sum(len(a ^ b) for a, b in zip(found, heavy, strict=True))


def with_far(rows, n_far, far):
    """The same rows, and a small cluster far from them."""
    noise = np.random.default_rng(3).normal(size=(n_far, rows.shape[1]))
    return np.concatenate([rows, far + 0.1 * noise])


def wrong_narrow(panel, tuning):
    """One more than how often bad centers are not told, or good ones are."""
    told = [bool(narrow_features(one.reading, tuning)) for one in panel]
    return 1 + sum(a != one.is_bad for a, one in zip(told, panel, strict=True))
