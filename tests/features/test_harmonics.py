"""Counting phases gives the sums of cosines and sines, at all octaves at once."""

import numpy as np
import pytest

from contracts import check_feature_map
from sketchlearn import FourierFeatures, HarmonicFeatures, Scaling, sketch_rows
from sketchlearn.errors import FeatureMapError, RowRangeError

RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, (700, 5))
SCALING = Scaling.from_bounds(-np.ones(5), np.full(5, 3.0), origin="data")

MAPS = {
    "one octave": HarmonicFeatures(5, 6, octaves=1, seed=1),
    "three octaves": HarmonicFeatures(5, 24, octaves=3, scale=0.4),
    "scaled": HarmonicFeatures(5, 40, octaves=4, law="gaussian", scaling=SCALING),
}


@pytest.mark.parametrize("name", MAPS)
def test_harmonic_features_keep_the_contract_of_feature_maps(name):
    check_feature_map(MAPS[name], ROWS)


@pytest.mark.parametrize("name", MAPS)
def test_features_are_cosines_and_sines_up_to_half_a_step_of_the_grid(name):
    phi = MAPS[name]
    rows = ROWS if phi.scaling is None else phi.scaling(ROWS)
    phases = rows @ phi.frequencies.astype(np.float64)
    expected = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    half_step = 2 ** (phi.octaves - 1) * np.pi / 1024
    assert np.abs(phi(ROWS) - expected).max() <= half_step + 1e-4


def test_every_octave_doubles_the_frequencies_of_the_one_before():
    first, second, third = np.split(MAPS["three octaves"].frequencies, 3, axis=1)
    assert np.array_equal(second, 2 * first)
    assert np.array_equal(third, 4 * first)


def test_frequencies_are_those_of_fourier_features():
    fourier = FourierFeatures(5, 8, scale=0.4, law="adapted", seed=7)
    harmonic = HarmonicFeatures(5, 8, octaves=1, scale=0.4, seed=7)
    assert np.array_equal(harmonic.frequencies, fourier.frequencies)


def test_the_grid_hardly_moves_the_characteristic_function_of_a_smooth_density():
    rows = RNG.normal(size=(20_000, 3))
    phi = HarmonicFeatures(3, 60, octaves=3, scale=1.0, seed=2)
    phases = rows @ phi.frequencies.astype(np.float64)
    exact = np.concatenate([np.cos(phases), np.sin(phases)], axis=1).mean(axis=0)
    assert np.abs(sketch_rows(rows, phi).mean - exact).max() < 2e-4


def test_rows_far_outside_the_range_have_phases_too():
    far = MAPS["three octaves"](np.full((1, 5), 1e9))
    cosines, sines = np.split(far[0], 2)
    assert np.allclose(cosines**2 + sines**2, 1, atol=1e-6)
    with pytest.raises(RowRangeError, match="row 0"):
        sketch_rows(np.full((1, 5), 1e30), MAPS["three octaves"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HarmonicFeatures(2, 8, octaves=3), "multiple of 2 . octaves = 6"),
        (lambda: HarmonicFeatures(2, 10, octaves=5), "octaves must be 1, 2, 3 or 4"),
        (lambda: HarmonicFeatures(2, 6, scale=-1.0), "scale must be a positive"),
        (lambda: HarmonicFeatures(2, 6, law="cauchy"), "law must be one of gaussian"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make, message):
    with pytest.raises(FeatureMapError, match=message):
        make()


def test_few_rows_are_summed_without_counters_to_the_same_bits():
    rows = RNG.uniform(-1, 1, (1500, 5))
    for phi in MAPS.values():
        whole = sketch_rows(rows, phi)
        parts = [sketch_rows(part, phi) for part in np.split(rows, [1, 70, 900])]
        assert sum(parts) == whole
