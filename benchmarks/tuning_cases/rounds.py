"""Rows, sketches of one and two rounds, and figures, for cases of densities."""

from dataclasses import replace
from functools import cache

import numpy as np
from sklearn.cluster import KMeans

import sketchlearn as sl
from sketchlearn.decoders.density.mixture import Mixture
from sketchlearn.plans.scaling import extremes_of, plan_scaling
from sketchlearn.testing import release_seeded


@cache
def round_clusters(k=10, d=4, width=0.1, n_rows=8000, seed=0):
    """Rows of round clusters of one width, about centers within [-1, 1]."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1, 1, size=(k, d))
    return centers[rng.integers(k, size=n_rows)] + width * rng.normal(size=(n_rows, d))


@cache
def uneven_clusters(k=10, d=4, n_rows=8000, seed=0):
    """Rows of clusters of many widths and shares, with a few rows far out."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1, 1, size=(k, d))
    labels = rng.choice(k, n_rows, p=rng.dirichlet(np.ones(k)))
    widths = np.exp(rng.uniform(-4, 0, size=(k, d)))
    return centers[labels] + widths[labels] * rng.standard_t(4, size=(n_rows, d))


@cache
def gaussians(n_components=3, d=3, apart=2.0, width=0.7, thinnest=1.0, seed=0):
    """A mixture with components of any covariance, thinner in some directions."""
    rng = np.random.default_rng(seed)
    means = apart * rng.normal(size=(n_components, d))
    roots = width * (rng.normal(size=(n_components, d, d)) / d**0.5 + 0.5 * np.eye(d))
    scales = thinnest ** np.linspace(0, 1, d)
    weights = rng.dirichlet(3 * np.ones(n_components))
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0] * scales
    return Mixture(weights, means @ turned.T, turned @ roots)


def drawn(mixture, n_rows=6000, seed=1):
    return mixture.sample(n_rows, np.random.default_rng(seed))[0]


def first_sketch(rows, plan, *, rounds, bounds=None):
    """The only sketch, or the first of two, and what was seen of the range."""
    extremes = None if bounds else extremes_of(rows)
    scaling, reach = plan_scaling(bounds, rows.shape[1], extremes)
    phi = plan.first(
        rows.shape[1], scaling=scaling, reach=reach, rows=extremes, rounds=rounds
    )
    return sl.sketch_rows(rows, phi), extremes


def sketch_of(rows, plan, *, rounds=2, bounds=None, epsilon=None):
    """The sketch that an estimator would make; released with some epsilon."""
    sketch, extremes = first_sketch(rows, plan, rounds=rounds, bounds=bounds)
    if rounds == 2:
        known = plan.after(sketch, extremes)
        if epsilon is not None:  # as if the first round had been released too
            known = replace(known, origin="declared")
        sketch = sl.sketch_rows(rows, plan.second(known))
    if epsilon is None:
        return sketch
    return release_seeded(sketch, 0, epsilon=epsilon, delta=1e-6)


def inertia_of(rows, centers):
    squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centers.T
    return float((squares + (centers**2).sum(axis=1)).min(axis=1).sum())


def over_lloyd(rows, centers):
    """Inertia over that of Lloyd's algorithm on the rows."""
    return inertia_of(rows, centers) / lloyd_inertia(Table(rows), len(centers))


class Table:
    """Rows that can be remembered."""

    def __init__(self, rows):
        self.rows = rows

    def __hash__(self):
        return hash(self.rows.tobytes())

    def __eq__(self, other):
        return np.array_equal(self.rows, other.rows)


@cache
def lloyd_inertia(table, k):
    return KMeans(k, n_init=3, random_state=0).fit(table.rows).inertia_


def perplexity(density, mixture):
    """Factor by which rows are less probable than by the mixture they come from."""
    rows = drawn(mixture, 4000, seed=2)
    return float(
        np.exp((mixture.log_density(rows) - density.score_samples(rows)).mean())
    )
