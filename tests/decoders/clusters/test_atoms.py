"""An atom is the mean of the features of one cluster, and its slopes are exact."""

import numpy as np
import pytest

from sketchlearn import (
    ConcatenatedFeatures,
    FourierFeatures,
    MomentFeatures,
    NystromFeatures,
    Scaling,
    clipped,
    sketch_rows,
)
from sketchlearn.decoders.clusters.atomic_sketch import read_atomic
from sketchlearn.errors import FeatureMapError

RNG = np.random.default_rng(0)
SCALING = Scaling.from_bounds(-4.0, 6.0, n_features=3)
FOURIER = FourierFeatures(3, 20, scale=0.7, seed=1, scaling=SCALING)
NYSTROM = NystromFeatures(
    RNG.uniform(-4, 6, (12, 3)), scale=0.9, shift=1e-3, scaling=SCALING
)
MAPS = [FOURIER, NYSTROM]


@pytest.mark.parametrize("phi", MAPS, ids=["fourier", "nystrom"])
def test_an_atom_without_variance_is_the_feature_vector_of_its_centre(phi):
    points = RNG.uniform(-4, 6, (5, 3))
    part = read_atomic(sketch_rows(points, phi))
    atoms, _ = part.atoms.linearise(part.scaling(points), np.zeros((5, 3)))
    assert np.allclose(atoms, phi(points), atol=1e-4)


@pytest.mark.parametrize("phi", MAPS, ids=["fourier", "nystrom"])
def test_an_atom_is_the_mean_over_a_gaussian_cluster(phi):
    """By Gauss-Hermite quadrature along each feature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(25)
    weights = weights / weights.sum()
    centre, variance = np.array([0.2, -0.3, 0.1]), np.array([0.05, 0.2, 0.01])
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    mass = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    rows = (centre + np.sqrt(variance) * grid) / SCALING.factor + SCALING.shift
    expected = mass @ phi(rows).astype(np.float64)
    atoms = read_atomic(sketch_rows(rows, phi)).atoms
    value, _ = atoms.linearise(centre[None], variance[None])
    assert np.allclose(value[0], expected, atol=1e-4)


@pytest.mark.parametrize("phi", MAPS, ids=["fourier", "nystrom"])
def test_slopes_agree_with_finite_differences(phi):
    atoms = read_atomic(sketch_rows(np.zeros((1, 3)), phi)).atoms
    centres, variances = RNG.normal(size=(4, 3)), RNG.uniform(0.1, 1, (4, 3))
    by, step = RNG.normal(size=(4, phi.sketch_size)), 1e-5
    slopes = atoms.linearise(centres, variances)[1](by)

    def total(move_centre, move_variance):
        value, _ = atoms.linearise(centres + move_centre, variances + move_variance)
        return float((by * value).sum())

    for i, j in np.ndindex(4, 3):
        move = np.zeros((4, 3))
        move[i, j] = step
        by_centre = (total(move, 0) - total(-move, 0)) / (2 * step)
        by_variance = (total(0, move) - total(0, -move)) / (2 * step)
        assert slopes[0][i, j] == pytest.approx(by_centre, rel=1e-4, abs=1e-6)
        assert slopes[1][i, j] == pytest.approx(by_variance, rel=1e-4, abs=1e-6)


def test_the_part_with_atoms_is_found_in_a_larger_or_clipped_sketch():
    rows = RNG.uniform(-4, 6, (50, 3))
    alone = read_atomic(sketch_rows(rows, FOURIER))
    parts = ConcatenatedFeatures([MomentFeatures(3, scaling=SCALING), FOURIER])
    for phi in (parts, clipped(FOURIER, norm_bound=0.5)):
        part = read_atomic(sketch_rows(rows, phi))
        assert np.allclose(part.target, alone.target, atol=1e-6)


def test_a_map_without_atoms_is_refused():
    with pytest.raises(FeatureMapError, match="FourierFeatures or NystromFeatures"):
        read_atomic(sketch_rows(np.zeros((1, 2)), MomentFeatures(2)))


def test_the_box_is_the_one_given_or_the_declared_range():
    part = read_atomic(sketch_rows(np.zeros((1, 3)), FOURIER))
    assert [side.tolist() for side in part.box(None)] == [[-1] * 3, [1] * 3]
    low, high = part.box(([-4, 0, 0], 6.0))
    rows = np.array([[-4.0, 0, 0], [6.0, 6, 6]])
    assert np.array_equal(np.stack([low, high]), SCALING(rows))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, "bounds are needed"),
        ((0.0, np.inf), "finite"),
        ((1.0, 0.0), "reversed"),
        (([0.0, 0.0], 1.0), "two numbers or two vectors"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds, message):
    part = read_atomic(sketch_rows(np.zeros((1, 3)), FourierFeatures(3, 4)))
    with pytest.raises(FeatureMapError, match=message):
        part.box(bounds)
