"""CL-AMP finds round clusters, and says so when it does not."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment
from scipy.stats import multivariate_normal, norm

from sketchlearn import FourierFeatures, NystromFeatures, Scaling, sketch_rows
from sketchlearn.decoders.baselines.cl_amp import CLAMPDecoder
from sketchlearn.decoders.baselines.phasors import _others, read_phasors
from sketchlearn.decoders.clusters.atomic_sketch import read_atomic
from sketchlearn.errors import FeatureMapError
from sketchlearn.testing import release_seeded

RNG = np.random.default_rng(0)
CENTRES = 3 * RNG.normal(size=(4, 5))
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
LABELS = RNG.choice(4, 20_000, p=WEIGHTS)
ROWS = CENTRES[LABELS] + RNG.normal(size=(20_000, 5))
BOUNDS = (-10.0, 10.0)
PHI = FourierFeatures(5, 200, scale=1.5, law="adapted", seed=0)


def matched(found):
    distances = ((CENTRES[:, None] - found.centers) ** 2).sum(axis=-1)
    order = linear_sum_assignment(distances)[1]
    return found.centers[order], found.weights[order], found.variances[order]


def test_round_clusters_come_back_with_weights_and_variances():
    decoding = CLAMPDecoder(4, bounds=BOUNDS).decode(sketch_rows(ROWS, PHI))
    centres, weights, variances = matched(decoding.params)
    assert decoding.converged
    assert decoding.residual < 0.02
    assert np.allclose(centres, CENTRES, atol=0.15)
    assert np.allclose(weights, WEIGHTS, atol=0.02)
    assert np.allclose(variances, 1, atol=0.2)


def test_centres_are_in_the_units_of_the_rows():
    scaling = Scaling.from_bounds(-20.0, 20.0, n_features=5)
    phi = FourierFeatures(5, 200, scale=0.05, law="adapted", seed=0, scaling=scaling)
    sketch = sketch_rows(ROWS, phi)
    centres, _, variances = matched(
        CLAMPDecoder(4, bounds=BOUNDS).decode(sketch).params
    )
    assert np.allclose(centres, CENTRES, atol=0.2)
    assert np.allclose(variances, 1, atol=0.3)


def test_the_other_phasors_have_the_moments_of_wrapped_gaussians():
    """Against draws of the phases."""
    sizes = np.array([[0.5, 0.3, 0.2]])
    phases, blur = np.array([[0.4, -1.0, 2.0]]), np.array([[0.3, 1.5, 0.01]])
    draws = phases + np.sqrt(blur) * RNG.normal(size=(400_000, 3))
    phasors = sizes * np.exp(1j * draws)
    left, (cos_var, sin_var, cross) = _others(
        np.array([0.7 + 0.1j]), sizes, phases, blur
    )
    for i in range(3):
        rest = np.delete(phasors, i, axis=1).sum(axis=1)
        covariance = np.cov(rest.real, rest.imag)
        assert left[0, i] == pytest.approx(0.7 + 0.1j - rest.mean(), abs=2e-3)
        found = [[cos_var[0, i], cross[0, i]], [cross[0, i], sin_var[0, i]]]
        assert np.allclose(found, covariance, atol=1e-3)


def test_the_posterior_of_a_form_is_the_integral_over_the_line():
    """Against adaptive quadrature."""
    sketch = sketch_rows(ROWS, PHI)
    model = read_phasors(read_atomic(sketch), BOUNDS, 4)
    state = model.start(4, np.random.default_rng(1))
    forms = model.directions @ state.centers.T
    v, noise = np.full(4, 0.5), 0.05
    means, variances = model._posterior(state, forms, v, noise)
    g = model.lengths[:, None]
    sizes = state.weights * np.exp(-0.5 * g**2 * state.taus)
    left, (a, b, c) = _others(model.target, sizes, g * forms, g**2 * v)
    for at in [(0, 0), (3, 1), (50, 2), (99, 3)]:
        cov = [[a[at] + noise**2, c[at]], [c[at], b[at] + noise**2]]
        law, seen = multivariate_normal([0, 0], cov), left[at]

        def mass(z, power=0, at=at, law=law, seen=seen):
            away = seen - sizes[at] * np.exp(1j * model.lengths[at[0]] * z)
            prior = norm.pdf(z, forms[at], 0.5**0.5)
            return z**power * prior * law.pdf([away.real, away.imag])

        ends = forms[at] - 6 * 0.5**0.5, forms[at] + 6 * 0.5**0.5
        total, first, second = (quad(mass, *ends, args=(p,))[0] for p in range(3))
        assert means[at] == pytest.approx(first / total, abs=0.01)
        variance = second / total - (first / total) ** 2
        assert variances[at] == pytest.approx(variance, rel=0.02)


def test_the_residual_is_the_relative_distance_of_the_sketches():
    sketch = sketch_rows(ROWS, PHI)
    decoding = CLAMPDecoder(4, bounds=BOUNDS).decode(sketch)
    found, omega = decoding.params, PHI.frequencies.astype(np.float64)
    phases = found.centers @ omega
    phasors = np.exp(1j * phases - 0.5 * found.variances @ omega**2)
    y = sketch.mean[:100] + 1j * sketch.mean[100:]
    model = found.weights @ phasors
    # The weights are divided by their sum at the end.
    model *= np.vdot(model, y).real / np.vdot(model, model).real
    distance = np.linalg.norm(y - model) / np.linalg.norm(y)
    assert decoding.residual == pytest.approx(distance, rel=0.2)


def test_the_same_seed_gives_the_same_clusters():
    sketch = sketch_rows(ROWS, PHI)
    first, again = (
        CLAMPDecoder(4, bounds=BOUNDS, seed=3).decode(sketch).params for _ in "ab"
    )
    assert np.array_equal(first.centers, again.centers)


@pytest.mark.parametrize("scale", [1e-3, 0.05, 1e3])
def test_a_hopeless_sketch_gives_finite_clusters_and_no_warning(scale):
    phi = FourierFeatures(5, 40, scale=scale, seed=0)
    decoder = CLAMPDecoder(4, bounds=BOUNDS, damping=1.0, max_iter=30)
    decoding = decoder.decode(sketch_rows(ROWS[:200], phi))
    assert np.isfinite(decoding.params.centers).all()
    assert np.isfinite(decoding.params.variances).all()
    assert decoding.params.weights.sum() == pytest.approx(1)
    assert np.isfinite(decoding.residual)


def test_a_sketch_of_nothing_but_noise_does_not_converge():
    phi = FourierFeatures(5, 200, scale=1e-3, law="adapted", seed=0)
    decoding = CLAMPDecoder(4, bounds=BOUNDS).decode(sketch_rows(ROWS, phi))
    assert decoding.residual > 0.9
    assert not decoding.converged


def test_a_search_that_has_not_settled_says_so():
    sketch = sketch_rows(ROWS, PHI)
    decoding = CLAMPDecoder(4, bounds=BOUNDS, max_iter=2, n_starts=1).decode(sketch)
    assert not decoding.converged
    assert decoding.n_iter == 2


def test_a_search_that_overflows_says_so(monkeypatch):
    sketch = sketch_rows(ROWS, PHI)
    cls = type(read_phasors(read_atomic(sketch), BOUNDS, 4))
    step = cls.step

    def explode(self, state, noise, damping):
        after = step(self, state, noise, damping)
        object.__setattr__(after, "centers", after.centers * np.inf)
        return after

    monkeypatch.setattr(cls, "step", explode)
    decoding = CLAMPDecoder(4, bounds=BOUNDS).decode(sketch)
    assert not decoding.converged
    assert np.isfinite(decoding.params.centers).all()


def test_a_private_sketch_is_decoded_like_any_other():
    private = release_seeded(sketch_rows(ROWS, PHI), 0, epsilon=2.0, delta=1e-6)
    centres, _, _ = matched(CLAMPDecoder(4, bounds=BOUNDS).decode(private).params)
    assert np.allclose(centres, CENTRES, atol=0.5)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(FeatureMapError, match="damping"):
        CLAMPDecoder(2, damping=0.0)
    with pytest.raises(FeatureMapError, match="n_starts"):
        CLAMPDecoder(2, n_starts=0)
    landmarks = NystromFeatures(ROWS[:10])
    with pytest.raises(FeatureMapError, match="Fourier features only"):
        CLAMPDecoder(2, bounds=BOUNDS).decode(sketch_rows(ROWS[:20], landmarks))
