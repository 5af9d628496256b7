"""Iterative CKM in training is the frozen model: same law, same slope, same end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sketchlearn import sketch_rows
from sketchlearn.decoders.clusters.ckm_descent import CKMObjective, CKMSpec, fit_frame
from sketchlearn.decoders.clusters.ckm_units import draw_units
from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.meta import ckm
from sketchlearn.meta.ckm import TensorObjective, TrainableCKM
from sketchlearn.registry import load_model

D, K = 5, 4
SPECS = [
    CKMSpec(),
    CKMSpec(activation="cos", optimiser="sgd"),
    CKMSpec(activation="sin", atoms="gaussian"),
    CKMSpec(atoms="point"),
    CKMSpec(activation="tanh", atoms="point", optimiser="sgd"),
    CKMSpec(activation="relu", atoms="point"),
]
SPEC = pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.activation}-{s.atoms}")
SHIPPED = [("kmeans-ckm", 300), ("kmeans-ckm-private", 300), ("kmeans-ckm-paper", 300)]


def case(spec, seed=0, n_units=30):
    """A target, a matrix and starts of no special kind."""
    rng = np.random.default_rng(seed)
    size = n_units * (2 if spec.activation == "fourier" else 1)
    target, matrix = 0.4 * rng.normal(size=size), rng.normal(size=(D, n_units))
    return target, matrix, rng.normal(size=(3, K, D))


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(array, np.float64)) for array in arrays]


def double(model):
    return TrainableCKM.thaw(model).double()


def tensor_fit(model, target, matrix, start):
    given = tensors(np.broadcast_to(target, (3, len(target))).copy(), matrix, start)
    with torch.no_grad():
        return model.fit(*given, n_features=torch.tensor(float(D)).double())


@SPEC
@pytest.mark.parametrize("blur", [0.0, 0.5])
def test_the_slope_is_the_gradient_torch_finds(spec, blur):
    target, matrix, start = case(spec)
    rng = np.random.default_rng(1)
    centre, unit = 0.2 * rng.normal(size=(1, D)), rng.uniform(0.2, 1, (1, D))
    # Some logarithms are beyond where they are cut off, and have no slope there.
    logs = rng.uniform(-1, 1, (3, 1, D)) + 6 * (rng.random((3, 1, D)) < 0.2)
    point = np.concatenate([start, logs], axis=1)
    objective = CKMObjective(spec, target, matrix, centre, unit, 0.07, blur)
    given = tensors(target, matrix, centre, unit, 0.07)
    leaf = torch.from_numpy(point).requires_grad_()
    losses = TensorObjective(spec, *given, blur)(leaf)
    (expected,) = torch.autograd.grad(losses.sum(), leaf, allow_unused=True)
    assert np.allclose(objective.slope(point), expected, rtol=1e-10, atol=1e-12)


@SPEC
def test_the_fit_at_a_point_is_the_same(spec):
    target, matrix, start = case(spec)
    point = np.concatenate([start, np.full((3, 1, D), -0.3)], axis=1)
    frame = np.zeros((1, D)), np.full((1, D), 0.5)
    found = CKMObjective(spec, target, matrix, *frame, 0.07).fit_at(point)
    given = tensors(target, matrix, *frame, 0.07)
    expected = TensorObjective(spec, *given).fit_at(torch.from_numpy(point))
    for own, other in zip(found, expected, strict=True):
        assert np.allclose(own, other, rtol=1e-12)


def test_the_frame_is_the_same():
    target, matrix, _ = case(CKMSpec())
    for own, other in zip(
        fit_frame(CKMSpec(n_steps=20), target, matrix),
        ckm.fit_frame(CKMSpec(n_steps=20), *tensors(target, matrix)),
        strict=True,
    ):
        assert np.allclose(own, other, rtol=1e-8)


@SPEC
@pytest.mark.parametrize("n_steps", [0, 5, 20])
def test_descents_end_at_the_same_clusters(spec, n_steps):
    model = IterativeCKM.initial(replace(spec, n_steps=n_steps))
    target, matrix, start = case(spec)
    found = model.fit(target, matrix, start)
    expected = tensor_fit(double(model), target, matrix, start)
    for own, other in zip(found, expected, strict=True):
        assert own.shape == tuple(other.shape)
        away = np.linalg.norm(own - other.numpy())
        assert away <= 1e-5 * np.linalg.norm(other)


@pytest.mark.parametrize(("name", "size"), SHIPPED)
def test_shipped_models_decode_as_torch_would(name, size):
    """In few steps to 1e-5, and at the end to as good a fit."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(size=(K, D))
    rows = centres[rng.integers(K, size=2000)] + 0.05 * rng.normal(size=(2000, D))
    shipped, start = load_model(name), rng.normal(size=(3, K, D))
    phi = shipped.feature_map(D, size, seed=1)
    target, matrix = sketch_rows(rows, phi).mean, phi.matrix.astype(np.float64)
    for n_steps, tolerance in ((15, 1e-5), (shipped.spec.n_steps, 1e-3)):
        model = replace(shipped, spec=replace(shipped.spec, n_steps=n_steps))
        found = model.fit(target, matrix, start)
        expected = tensor_fit(double(model), target, matrix, start)
        assert np.allclose(found.objective, expected.objective, rtol=tolerance)
        if n_steps == 15:
            away = np.linalg.norm(found.centroids - expected.centroids.numpy())
            assert away < tolerance * np.linalg.norm(found.centroids)


@pytest.mark.parametrize("spec", [CKMSpec(), CKMSpec(sketch_size=60)])
def test_the_matrix_of_the_feature_map_is_that_of_training(spec):
    model = TrainableCKM(spec, seed=3)
    drawn = [torch.from_numpy(a) for a in draw_units(D, 30, np.random.default_rng(7))]
    with torch.no_grad():
        expected = model.matrix(*drawn, torch.tensor(float(D)))
    found = model.freeze().feature_map(D, 60, seed=7).matrix
    assert np.allclose(found, expected, rtol=1e-6)


def test_training_goes_on_from_the_frozen_model():
    model = TrainableCKM(CKMSpec(sketch_size=20), seed=3)
    with torch.no_grad():
        model.numbers["rate"].fill_(-1.5)
    again = TrainableCKM.thaw(model.freeze())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert model.freeze().learned["rate"] == -1.5
