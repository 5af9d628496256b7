"""CL-OMPR finds the clusters whose sketch is the given one."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from sketchlearn import FourierFeatures, NystromFeatures, Scaling, sketch_rows
from sketchlearn.decoders.baselines.cl_ompr import CLOMPRDecoder
from sketchlearn.errors import FeatureMapError
from sketchlearn.testing import release_seeded

POINTS = np.array([[-3.0, 0.0], [2.0, 2.0], [3.0, -2.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
BOUNDS = (-5.0, 5.0)
PHI = FourierFeatures(2, 60, scale=1.5, law="adapted", seed=0)


def clustered_rows(spread, count=20_000):
    rng = np.random.default_rng(1)
    labels = rng.choice(3, count, p=WEIGHTS)
    return POINTS[labels] + spread * rng.normal(size=(count, 2))


def matched(found):
    """Found clusters in the order of the true ones."""
    distances = ((POINTS[:, None] - found.centers) ** 2).sum(axis=-1)
    order = linear_sum_assignment(distances)[1]
    return found.centers[order], found.weights[order], found.variances[order]


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("atoms", ["dirac", "gaussian"])
def test_points_and_their_shares_come_back_exactly(atoms, replacement):
    rows = np.repeat(POINTS, [5000, 3000, 2000], axis=0)
    decoder = CLOMPRDecoder(3, atoms=atoms, replacement=replacement, bounds=BOUNDS)
    decoding = decoder.decode(sketch_rows(rows, PHI))
    centres, weights, variances = matched(decoding.params)
    assert decoding.residual < 1e-4
    assert np.allclose(centres, POINTS, atol=2e-3)
    assert np.allclose(weights, WEIGHTS, atol=1e-3)
    assert np.abs(variances).max() < 5e-3


def test_a_common_variance_removes_the_bias_of_points():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    points = CLOMPRDecoder(3, atoms="dirac", bounds=BOUNDS).decode(sketch)
    round_ones = CLOMPRDecoder(3, atoms="gaussian", bounds=BOUNDS).decode(sketch)
    centres, weights, variances = matched(round_ones.params)
    assert np.allclose(centres, POINTS, atol=0.06)
    assert np.allclose(weights, WEIGHTS, atol=0.02)
    assert np.allclose(variances, 0.64, rtol=0.05)
    assert np.ptp(variances) == 0
    assert round_ones.residual < 0.2 * points.residual


def test_a_gaussian_mixture_is_decoded_with_its_own_variances():
    rng = np.random.default_rng(2)
    labels = rng.choice(3, 50_000, p=WEIGHTS)
    truth = np.array([[0.2, 1.0], [0.6, 0.1], [1.0, 0.3]])
    rows = POINTS[labels] + np.sqrt(truth)[labels] * rng.normal(size=(50_000, 2))
    phi = FourierFeatures(2, 120, scale=1.0, law="adapted", seed=0)
    decoding = CLOMPRDecoder(3, atoms="diagonal", bounds=(-7, 7)).decode(
        sketch_rows(rows, phi)
    )
    centres, weights, variances = matched(decoding.params)
    assert np.allclose(centres, POINTS, atol=0.05)
    assert np.allclose(weights, WEIGHTS, atol=0.01)
    assert np.allclose(variances, truth, rtol=0.1, atol=0.03)


def test_nystrom_sketches_are_decoded_too():
    rows = clustered_rows(0.8)
    phi = NystromFeatures(rows[:60], scale=1.5, shift=1e-4)
    decoding = CLOMPRDecoder(3, bounds=BOUNDS).decode(sketch_rows(rows, phi))
    centres, weights, _ = matched(decoding.params)
    assert np.allclose(centres, POINTS, atol=0.1)
    assert np.allclose(weights, WEIGHTS, atol=0.03)


def test_the_residual_is_the_relative_distance_of_the_sketches():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    decoding = CLOMPRDecoder(3, bounds=BOUNDS).decode(sketch)
    found, omega = decoding.params, PHI.frequencies.astype(np.float64)
    spread = np.exp(-0.5 * found.variances @ omega**2)
    phases = found.centers @ omega
    parts = [spread * np.cos(phases), spread * np.sin(phases)]
    atoms = np.concatenate(parts, axis=1)
    # The search leaves the sum of the weights free and divides by it at the end.
    model = found.weights @ atoms
    model *= (model @ sketch.mean) / (model @ model)
    distance = np.linalg.norm(sketch.mean - model) / np.linalg.norm(sketch.mean)
    assert decoding.residual == pytest.approx(distance, rel=0.02)


def test_centres_are_in_the_units_of_the_rows():
    scaling = Scaling.from_bounds([-5.0, -500.0], [5.0, 500.0])
    phi = FourierFeatures(2, 60, scale=0.2, law="adapted", seed=0, scaling=scaling)
    stretch = np.array([1.0, 100.0])
    decoding = CLOMPRDecoder(3).decode(sketch_rows(clustered_rows(0.5) * stretch, phi))
    centres, _, _ = matched(
        type(decoding.params)(
            decoding.params.centers / stretch,
            decoding.params.weights,
            decoding.params.variances,
        )
    )
    assert np.allclose(centres, POINTS, atol=0.1)


def test_the_same_seed_gives_the_same_clusters():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    first, again = (
        CLOMPRDecoder(3, bounds=BOUNDS, seed=4).decode(sketch).params for _ in "ab"
    )
    assert np.array_equal(first.centers, again.centers)


@pytest.mark.parametrize("atoms", ["dirac", "gaussian", "diagonal"])
def test_more_clusters_than_points_are_no_harm(atoms):
    sketch = sketch_rows(np.repeat(POINTS[:1], 4, axis=0), PHI)
    decoding = CLOMPRDecoder(3, atoms=atoms, bounds=BOUNDS).decode(sketch)
    found = decoding.params
    assert found.centers.shape == (3, 2)
    assert np.isfinite(found.centers).all()
    assert found.weights.sum() == pytest.approx(1)
    nearest = np.abs(found.centers - POINTS[0]).max(axis=1).min()
    assert nearest < 0.05
    assert decoding.residual < 0.01


def test_centres_stay_in_the_box():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    found = CLOMPRDecoder(3, bounds=(-1.0, [1.5, 0.5])).decode(sketch).params
    assert (found.centers >= -1 - 1e-12).all()
    assert (found.centers <= np.array([1.5, 0.5]) + 1e-12).all()


def test_a_search_cut_short_says_so():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    assert CLOMPRDecoder(3, bounds=BOUNDS).decode(sketch).converged
    assert not CLOMPRDecoder(3, bounds=BOUNDS, max_iter=1).decode(sketch).converged


def test_restarts_end_when_only_noise_is_left():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    easy = CLOMPRDecoder(3, bounds=BOUNDS, n_restarts=5).decode(sketch)
    wrong = CLOMPRDecoder(2, bounds=BOUNDS, n_restarts=5).decode(sketch)
    assert (easy.n_iter, wrong.n_iter) == (6, 20)


def test_a_private_sketch_is_decoded_like_any_other():
    sketch = sketch_rows(clustered_rows(0.8), PHI)
    private = release_seeded(sketch, 0, epsilon=1.0, delta=1e-6)
    centres, _, _ = matched(CLOMPRDecoder(3, bounds=BOUNDS).decode(private).params)
    assert np.allclose(centres, POINTS, atol=0.2)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(FeatureMapError, match="n_clusters"):
        CLOMPRDecoder(0)
    with pytest.raises(FeatureMapError, match="atoms must be one of"):
        CLOMPRDecoder(2, atoms="points")
