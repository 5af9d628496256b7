"""Unrolled descent finds points whose sketch is the one that was seen."""

import numpy as np
import pytest
import torch

from sketchlearn import (
    ConcatenatedFeatures,
    FourierFeatures,
    NystromFeatures,
    Scaling,
    clipped,
    sketch_rows,
)
from sketchlearn.decoders.baselines.unrolled import UnrolledDecoder
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.meta.descent import unrolled_centroids
from sketchlearn.meta.differentiable import differentiable
from sketchlearn.testing import release_seeded

POINTS = np.array([[-0.6, 0.2], [0.5, 0.5], [0.3, -0.7]])
SCALING = Scaling.from_bounds(-8.0, 8.0, n_features=2)
WIDE = Scaling.from_bounds(-16.0, 16.0, n_features=2)
MATRIX = np.random.default_rng(0).normal(size=(2, 60)) * 2
MAPS = {
    "fourier": FourierFeatures(2, 60, scale=0.7, seed=0, scaling=SCALING),
    "nystrom": NystromFeatures(8 * POINTS, scale=0.7, scaling=SCALING),
    "relu": ActivationFeatures(MATRIX, activation="relu", scaling=SCALING),
    "clipped": clipped(ActivationFeatures(MATRIX, activation="relu"), norm_bound=2.0),
    "beside": ConcatenatedFeatures(
        [
            FourierFeatures(2, 20, scaling=SCALING),
            ActivationFeatures(MATRIX, scaling=WIDE),
        ]
    ),
}


@pytest.mark.parametrize("n_steps", [1, 5, 20])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("name", MAPS)
def test_centres_are_those_of_the_descent_that_torch_differentiates(
    name, optimiser, n_steps
):
    """A descent that lowers the loss is kept, so that its end is what is seen."""
    feature_map = MAPS[name]
    sketch = sketch_rows(8 * np.repeat(POINTS, 5, axis=0), feature_map)
    settings = {"rate": 0.02, "n_steps": n_steps, "optimiser": optimiser}
    decoding = UnrolledDecoder(3, seed=1, **settings).decode(sketch)
    assert decoding.converged
    scaling = (*feature_map.scalings, Scaling.identity(2))[0]
    factor, shift = torch.tensor(scaling.factor), torch.tensor(scaling.shift)
    phi = differentiable(feature_map)
    start = 0.5 * np.random.default_rng(1).standard_normal((1, 3, 2))
    found = unrolled_centroids(
        torch.tensor(sketch.mean),
        lambda scaled: phi(scaled / factor + shift),
        initial=torch.from_numpy(start),
        backward_steps=0,
        **settings,
    )
    expected = (found[0] / factor + shift).numpy()
    away = np.linalg.norm(decoding.params.centers - expected)
    assert away < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "feature_map",
    [
        FourierFeatures(2, 60, scale=0.7, seed=0, scaling=SCALING),
        ActivationFeatures(
            np.random.default_rng(0).normal(size=(2, 60)) * 2,
            activation="sigmoid",
            scaling=SCALING,
        ),
    ],
    ids=["fourier", "sigmoid"],
)
@pytest.mark.parametrize(("optimiser", "rate"), [("adam", 0.05), ("sgd", 0.02)])
def test_points_of_equal_weight_come_back(feature_map, optimiser, rate):
    rows = 8 * np.repeat(POINTS, 5, axis=0)
    decoder = UnrolledDecoder(
        3, rate=rate, n_steps=800, optimiser=optimiser, n_starts=8
    )
    decoding = decoder.decode(sketch_rows(rows, feature_map))
    found = decoding.params.centers
    distances = np.linalg.norm(found[:, None] - 8 * POINTS, axis=-1)
    assert decoding.converged
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2]
    assert distances.min(axis=1).max() < 0.5
    assert np.array_equal(decoding.params.weights, np.full(3, 1 / 3))


def test_the_residual_is_the_relative_distance_of_the_sketches():
    feature_map = FourierFeatures(2, 20, seed=0)
    sketch = sketch_rows(POINTS, feature_map)
    decoding = UnrolledDecoder(3, n_steps=5).decode(sketch)
    model = feature_map(decoding.params.centers).mean(axis=0)
    distance = np.linalg.norm(model - sketch.mean) / np.linalg.norm(sketch.mean)
    assert decoding.residual == pytest.approx(distance, abs=1e-5)


def test_a_descent_that_blows_up_says_so_and_stays_finite():
    feature_map = ActivationFeatures([[100.0, -100.0]], activation="relu")
    sketch = sketch_rows([[0.1], [-0.2]], feature_map)
    decoder = UnrolledDecoder(2, rate=1e9, n_steps=200, optimiser="sgd")
    decoding = decoder.decode(sketch)
    assert not decoding.converged
    assert np.isfinite(decoding.params.centers).all()
    assert np.isfinite(decoding.residual)


def test_a_private_sketch_is_decoded_like_any_other():
    feature_map = FourierFeatures(2, 60, scale=0.7, seed=0, scaling=SCALING)
    sketch = sketch_rows(8 * np.repeat(POINTS, 5000, axis=0), feature_map)
    private = release_seeded(sketch, 0, epsilon=1.0, delta=1e-6)
    found = UnrolledDecoder(3, n_starts=8).decode(private).params.centers
    distances = np.linalg.norm(found[:, None] - 8 * POINTS, axis=-1)
    assert distances.min(axis=1).max() < 0.5


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"n_steps": 0}, {"optimiser": "lion"}]
)
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises(FeatureMapError, match=next(iter(wrong))):
        UnrolledDecoder(2, **wrong)
