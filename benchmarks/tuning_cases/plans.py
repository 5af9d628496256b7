"""Cases of plans: which numbers to sketch, and what is advised."""

from functools import partial

import numpy as np

from sketchlearn.decoders.clusters.kmeans import cluster_reading
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.errors import TooNoisy
from sketchlearn.plans.advice import cluster_advice, noisy_density, noisy_variances
from sketchlearn.plans.cells import ClusterCells, MixtureCells
from sketchlearn.plans.rounds import DensityPlan, RoundTuning
from tuning_cases.base import cases_of
from tuning_cases.centers import Clustered
from tuning_cases.rounds import (
    drawn,
    gaussians,
    over_lloyd,
    perplexity,
    round_clusters,
    sketch_of,
    uneven_clusters,
)


def planned_inertia(plan, rows, k, **options):
    """Inertia over Lloyd's of what is decoded from a planned sketch."""
    reading = read_sketch(sketch_of(rows, plan, **options))
    density = DensityDecoder().decode_reading(reading).params
    found = cluster_reading(reading, density, k, seed=0, n_init=3)
    return over_lloyd(rows, found.centers)


@cases_of("RoundTuning")
def round_cases(data):
    del data
    within = {"bounds": (-2, 2), "epsilon": 1.0}
    for name, rows, k, size, options in (
        ("one round", round_clusters(6, 4, 0.1), 6, 200, {"rounds": 1}),
        ("two rounds", round_clusters(6, 10, 0.2), 6, 120, {}),
        ("release", round_clusters(4, 2, 0.2, 4000), 4, "auto", within),
    ):
        yield (
            f"inertia over Lloyd's, {name}",
            partial(round_inertia, rows, k, size, options),
        )
    yield "numbers of a sketch, 100 clusters of 500 features", large_size


def round_inertia(rows, k, size, options, tuning):
    plan = DensityPlan(ClusterCells(k), size, 0, tuning)
    return planned_inertia(plan, rows, k, **options)


def large_size(tuning):
    return DensityPlan(ClusterCells(100), "auto", 0, tuning).size(500, 2)


@cases_of("ClusterCellTuning")
def cluster_cell_cases(data):
    del data
    stretched = uneven_clusters(40, 10) * np.array([10.0] + 9 * [0.7])
    wide = round_clusters(20, 20, 0.3, 3000)
    within = {"bounds": (-16, 16), "epsilon": 1.0}
    for name, rows, k, size, options in (
        ("few clusters", uneven_clusters(10, 4), 10, "auto", {}),
        ("many directions", wide, 20, 3000, {}),
        ("weak directions", stretched, 100, 1500, {}),
        ("release", round_clusters(5, 3, 0.1, 20_000), 5, 100, within),
    ):
        yield (
            f"inertia over Lloyd's, {name}",
            partial(cluster_cell_inertia, rows, k, size, options),
        )
    yield "numbers of a sketch, 100 clusters of 500 features", many_numbers


def cluster_cell_inertia(rows, k, size, options, tuning):
    plan = DensityPlan(ClusterCells(k, tuning), size, 0)
    return planned_inertia(plan, rows, k, **options)


def many_numbers(tuning):
    return DensityPlan(ClusterCells(100, tuning), "auto", 0).size(500, 2)


@cases_of("MixtureCellTuning")
def mixture_cell_cases(data):
    del data
    for name, mixture, size in (
        ("auto", gaussians(3, 3), "auto"),
        ("thin directions", gaussians(3, 6, thinnest=2e-3), 600),
        ("thinner directions", gaussians(3, 4, thinnest=1e-3), 300),
    ):
        yield (
            f"perplexity, {name}",
            partial(mixture_cell_perplexity, mixture, size),
        )
    yield "numbers of a sketch, 10 components of 40 features", mixture_numbers


def mixture_cell_perplexity(mixture, size, tuning):
    k = len(mixture.weights)
    cells = MixtureCells(k, along_features=False, tuning=tuning)
    plan = DensityPlan(cells, size, 0, RoundTuning(least_size=1))
    sketch = sketch_of(drawn(mixture), plan)
    return perplexity(CellMixtureDecoder(k).decode(sketch).params, mixture)


def mixture_numbers(tuning):
    cells = MixtureCells(10, along_features=False, tuning=tuning)
    return DensityPlan(cells, "auto", 0).size(40, 2)


@cases_of("AdviceTuning")
def advice_cases(data):
    del data
    rows = round_clusters(5, 3, 0.1, 4000)
    panel = [
        Clustered.of(rows, 5, 100, rounds=1, bounds=(-2, 2), epsilon=epsilon)
        for epsilon in (0.03, 0.1, 0.3, 0.5, 1.0, 3.0)
    ]
    yield "wrong verdicts on clusters of releases", partial(wrong_noisy, panel)
    panel = [
        Clustered.of(round_clusters(k, d, 0.1, 4000), k, size, rounds=rounds)
        for k, d, size, rounds in SIZES
    ]
    yield "wrong verdicts on sizes", partial(wrong_advice, panel)
    panel = list(hidden_panel())
    yield "wrong verdicts on mixtures of releases", partial(wrong_hidden, panel)


SIZES = (
    (8, 6, 60, 1),
    (8, 6, 90, 1),
    (8, 6, 300, 1),
    (40, 2, 400, 1),
    (30, 2, 150, 2),
    (30, 2, 300, 2),
    (20, 12, 300, 2),
    (20, 12, 700, 2),
    (20, 12, 2000, 2),
    (30, 30, 1500, 2),
    (30, 30, 6000, 2),
)
"""Clusters, features, numbers and rounds."""


def wrong_noisy(panel, tuning):
    """One more than how often releases are refused, warned of or taken wrongly.

    By the inertia over the best: ten times that may be refused, half more should be
    warned of, and a tenth more should not.
    """
    wrong = 1
    for one in panel:
        lost = over_lloyd(one.rows, one.found.centers)
        try:
            told = noisy_density(one.reading, len(one.found.centers), tuning)
        except TooNoisy:
            wrong += lost < 10
            continue
        wrong += lost > 1.5 if told is None else not 1.1 < lost < 20
    return wrong


def wrong_advice(panel, tuning):
    """One more than how often bad centers come without a word, or good ones with."""
    wrong = 1
    for one in panel:
        plan = DensityPlan(ClusterCells(len(one.found.centers)), "auto", 0)
        said = cluster_advice(
            one.reading, one.density, one.found, one.bounded(None), plan, tuning
        )
        wrong += bool(said) != one.is_bad
    return wrong


def hidden_panel():
    """Releases of narrow and wide rows: reading, density, and whether it is bad."""
    plan = DensityPlan(MixtureCells(1, along_features=False), 36, 0)
    for width in (2.0, 1.0, 0.3, 0.1):
        mixture = gaussians(1, 8, apart=0.0, width=width / 4)
        rows = np.clip(drawn(mixture), -2, 2)
        for epsilon in (1.0, 10.0):
            sketch = sketch_of(rows, plan, rounds=1, bounds=(-2, 2), epsilon=epsilon)
            density = CellMixtureDecoder(1).decode(sketch).params
            is_bad = perplexity(density, mixture) > np.exp(2)
            yield read_sketch(sketch), density, is_bad


def wrong_hidden(panel, tuning):
    """One more than how often a loss of two nats comes without a word, or less with."""
    wrong = 1
    for reading, density, is_bad in panel:
        covariances = density.component_covariances
        told = noisy_variances(reading, density.weights, covariances, tuning)
        wrong += (told is not None) != is_bad
    return wrong
