"""Rows that are narrow beside the range of their plan are told by their features."""

import numpy as np
import pytest

from sketchlearn import CompressiveClassifier, CompressiveKMeans, sketch_rows
from sketchlearn.decoders.clusters.resolution import (
    narrow_features,
    noise_share,
    wide_features,
)
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.errors import ConvergenceWarning
from sketchlearn.testing import release_seeded

ROWS = np.random.default_rng(0).normal(size=(2000, 3)) * [1.0, 2.0, 3.0]


def sketched(high):
    km = CompressiveKMeans(3, sketch_size=100, bounds=(-high, high))
    return sketch_rows(ROWS, km.plan(3))


def test_only_rows_narrow_beside_their_bounds_are_named_widest_first():
    assert narrow_features(read_sketch(sketched(16.0))) == []
    assert narrow_features(read_sketch(sketched(64.0))) == [2, 1, 0]


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_of_ten_features_only_the_heavy_tailed_one_is_named(rounds, is_scaled):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30_000, 10))
    rows[:, 4] = np.exp(rng.normal(size=30_000)) ** (2 if is_scaled else 3)
    if is_scaled:
        rows /= rows.std(axis=0)
    km = CompressiveKMeans(3, sketch_size=300, rounds=rounds)
    reading = read_sketch(km.sketch(rows))
    assert wide_features(reading) == [4]
    assert narrow_features(reading) in ([4], [] if is_scaled else [4])
    with pytest.warns(ConvergenceWarning, match="in feature 4 a few rows lie"):
        CompressiveClassifier(sketch_size=300).fit(rows, np.arange(30_000) % 2)


def test_noise_is_measured_in_variances_of_the_rows():
    sketch = sketched(16.0)
    assert noise_share(read_sketch(sketch)) == 0
    shares = [
        noise_share(read_sketch(release_seeded(sketch, 0, epsilon=epsilon, delta=1e-6)))
        for epsilon in (0.05, 10.0, 100.0)
    ]
    assert shares[0] > 1 > shares[1] > shares[2]
    assert shares[2] < 0.1
