"""Cases of densities decoded from cells and from Fourier features."""

from dataclasses import replace
from functools import partial

import numpy as np

from sketchlearn.decoders.clusters.kmeans import cluster_reading
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.class_mixture import ClassMoments
from sketchlearn.decoders.density.decoder import DensityDecoder
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.errors import TooNoisy
from sketchlearn.estimators.classifier import CompressiveClassifier
from sketchlearn.plans.cells import ClusterCells, MixtureCells
from sketchlearn.plans.rounds import DensityPlan
from tuning_cases.base import cases_of
from tuning_cases.rounds import (
    drawn,
    gaussians,
    over_lloyd,
    perplexity,
    round_clusters,
    sketch_of,
    uneven_clusters,
)


def cell_sketch(rows, k, size, **options):
    cells = MixtureCells(k, along_features=False)
    return sketch_of(rows, DensityPlan(cells, size, 0), **options)


@cases_of("CellTuning")
def cell_cases(data):
    del data
    mixture = gaussians(3, 2, width=0.3)
    rows = np.clip(drawn(mixture, 20_000), -4, 4)
    sketches = [
        cell_sketch(rows, 3, 60, bounds=(-4, 4), epsilon=epsilon)
        for epsilon in (0.03, 0.1, 0.3, 1.0, 3.0)
    ]
    yield "perplexity, release", partial(release_perplexity, mixture, sketches[-1])
    yield "wrong refusals of releases", partial(wrong_refusals, mixture, sketches)
    for n_points in (300, 3000):
        yield (
            f"error of fourth moments, {n_points} points",
            partial(weighed_error, rows, cell_sketch(rows, 3, 60), n_points),
        )
    for name, table, k in (
        ("clusters of one shape", round_clusters(20, 3, 0.05), 20),
        ("clusters of many shapes", uneven_clusters(20, 3), 20),
    ):
        plan = DensityPlan(ClusterCells(k), 300, 0)
        yield (
            f"inertia over Lloyd's, {name}",
            partial(cell_inertia, table, k, sketch_of(table, plan)),
        )


def release_perplexity(mixture, sketch, tuning):
    reading = read_sketch(sketch, is_blurred=True, tuning=tuning)
    return perplexity(CellMixtureDecoder(3).decode_reading(reading).params, mixture)


def wrong_refusals(mixture, sketches, tuning):
    """One more than how often a mixture is refused that is better than a Gaussian.

    Or is not refused that is worse.
    """
    wrong = 1
    for sketch in sketches:
        never = replace(tuning, visible=0.0)
        reading = read_sketch(sketch, is_blurred=True, tuning=never)
        one = CellMixtureDecoder(1).decode_reading(reading).params
        found = CellMixtureDecoder(3).decode_reading(reading).params
        is_worse = perplexity(found, mixture) > perplexity(one, mixture)
        try:
            read_sketch(sketch, tuning=tuning)
        except TooNoisy:
            wrong += not is_worse
        else:
            wrong += is_worse
    return wrong


def weighed_error(rows, sketch, n_points, tuning):
    """Of points of one Gaussian, which rows are not, that were weighted by cells."""
    cells = read_sketch(sketch, tuning=tuning).cells
    z = cells.frame.of_rows(rows)
    rng = np.random.default_rng(0)
    points = rng.multivariate_normal(z.mean(axis=0), np.cov(z.T), n_points)
    found = cells.weigh(points, cells.locate(points)) @ points**4
    return float(np.abs(found / (z**4).mean(axis=0) - 1).mean())


def cell_inertia(rows, k, sketch, tuning):
    reading = read_sketch(sketch, tuning=tuning)
    density = DensityDecoder().decode_reading(reading).params
    found = cluster_reading(reading, density, k, seed=0, n_init=3)
    return over_lloyd(rows, found.centers)


@cases_of("CellMixtureTuning")
def cell_mixture_cases(data):
    del data
    for name, mixture, k, size, n_rows in (
        ("three components", gaussians(3, 3, apart=1.0), 3, 150, 6000),
        ("few rows", gaussians(3, 3, apart=1.0), 3, 300, 400),
        ("many cells", gaussians(2, 2, apart=1.0), 2, 1200, 6000),
        ("six features", gaussians(3, 6, apart=0.7), 3, 300, 10_000),
        ("twelve components", gaussians(12, 2, 1.0, 0.3, seed=2), 12, 600, 6000),
        ("fewer components than there are", gaussians(8, 3), 3, 150, 6000),
    ):
        rows = drawn(mixture, n_rows)
        yield (
            f"perplexity, {name}",
            partial(mixture_perplexity, mixture, k, cell_sketch(rows, k, size)),
        )


def mixture_perplexity(mixture, k, sketch, tuning):
    found = CellMixtureDecoder(k, tuning=tuning).decode(sketch).params
    return perplexity(found, mixture)


@cases_of("ClassTuning")
def class_cases(data):
    del data
    yield "wrong verdicts on mixtures of classes", wrong_classes
    yield "error of the linear rule, of two near classes", linear_error


def linear_error(tuning):
    """Share of Gaussian rows that are told wrongly, of classes of 0.7 and 0.3."""
    rng = np.random.default_rng(0)
    rows, label = rng.normal(size=(8000, 2)), (rng.random(8000) < 0.3).astype(int)
    rows[:, 0] += 1.5 * label
    sketches = CompressiveClassifier().fit(rows, label).sketches_
    known = ClassMoments.read([sketches[0], sketches[1]], np.array([0.7, 0.3]))
    rule = known.linear_rule(shrinkage=1e-3, seed=0, tuning=tuning)
    return float((rule(rows).argmax(axis=1) != label).mean())


def wrong_classes(tuning):
    """One more than how many features are taken for Gaussian wrongly, or not."""
    rng, n = np.random.default_rng(0), 20_000
    rows = rng.normal(size=(n, 8))
    rows[:, 1] = np.exp(2 * rows[:, 1])
    for column, share in ((2, 0.02), (3, 0.1), (4, 0.5)):
        rows[:, column] = rng.random(n) < share
    label = np.arange(n) % 2
    rows[:, 5] *= np.where(label, 1.0, 0.02)
    rows[:, 6] *= np.where(label, 1.0, 0.1)
    rows[:, 7] = rng.standard_t(4, n)
    sketches = CompressiveClassifier(method="density").fit(rows, label).sketches_
    known = ClassMoments.read(list(sketches.values()), np.full(2, 0.5))
    named = {int(j) for at in known.unlike_gaussians(tuning).values() for j in at}
    return 1 + len(named ^ {1, 2, 5})


@cases_of("FourierTuning")
def fourier_cases(data):
    del data
    for name, mixture, k, size, n_rows in (
        ("three components", gaussians(3, 2, apart=1.0), 3, 60, 6000),
        ("few rows", gaussians(3, 2, apart=1.0), 3, 60, 300),
        ("fewer components than there are", gaussians(8, 2), 3, 60, 6000),
        ("as many as can be told", gaussians(4, 2, apart=1.0), None, 100, 6000),
    ):
        plan = DensityPlan(ClusterCells(2), size, 0)
        sketch = sketch_of(drawn(mixture, n_rows), plan, rounds=1)
        shape = "auto" if k is None else "full"
        yield (
            f"perplexity, {name}",
            partial(fourier_perplexity, mixture, k, shape, sketch),
        )


def fourier_perplexity(mixture, k, shape, sketch, tuning):
    found = DensityDecoder(k, shape=shape, tuning=tuning).decode(sketch).params
    return perplexity(found, mixture)
