"""The inertia of centres is bounded by what cells know for certain."""

import numpy as np
import pytest

from sketchlearn import CompressiveKMeans
from sketchlearn.decoders.clusters.inertia import bound_inertia
from sketchlearn.decoders.clusters.kmeans import Centers
from sketchlearn.decoders.density.reading import read_sketch


def inertia(rows, centres):
    return ((rows[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum()


@pytest.mark.parametrize("rounds", [1, 2])
def test_centres_anywhere_have_no_more_inertia_than_the_bound(rounds):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3)) * [3.0, 1.0, 0.5]
    km = CompressiveKMeans(4, sketch_size=300, rounds=rounds).fit(rows)
    reading = read_sketch(km.sketch_)
    for _ in range(10):
        centres = rng.normal(size=(4, 3)) * 3
        found = bound_inertia(reading, km.density_, Centers(centres, 0.0, 1))
        assert inertia(rows, centres) <= found.high


def test_pure_cells_know_the_inertia():
    places = np.array([[-4.0], [0.0], [5.0]])
    rows = np.repeat(places, [10, 20, 30], axis=0)
    km = CompressiveKMeans(2, sketch_size=60, rounds=2).fit(rows)
    assert km.inertia_interval_[1] == pytest.approx(-km.score(rows), rel=1e-3)
