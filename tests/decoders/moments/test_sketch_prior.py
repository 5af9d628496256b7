"""A prior of sketches clamps, shrinks as the best linear decoder does, and is kept."""

from dataclasses import replace

import numpy as np
import pytest

from sketchlearn import sketch_rows
from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.registry import load_model
from sketchlearn.sqnet import SQNet
from sketchlearn.testing import release_seeded

D, SIZE = 3, 6
RNG = np.random.default_rng(0)
PRIOR = SketchPrior(
    np.arange(1.0, SIZE + 1),
    low=np.full(SIZE, -0.3),
    high=np.full(SIZE, 0.4),
    centers=np.linspace(-0.1, 0.2, SIZE),
    variances=np.linspace(0.5, 0.01, SIZE),
)
BASIS = np.linalg.qr(RNG.normal(size=(SIZE, SIZE)))[0].T
NESTED = replace(NestedSQNet.from_basis(BASIS, np.zeros(SIZE)), prior=PRIOR)
NET = NESTED.sized(4)
ROWS = RNG.normal(size=(400, D))


def assert_same(found, expected):
    for name, array in expected.to_tensors().items():
        np.testing.assert_array_equal(found.to_tensors()[name], array)


@pytest.mark.parametrize("noise", [0.05, 0.5, 3.0])
def test_shrinking_is_the_linear_decoder_of_least_squared_error(noise):
    # Regression of vectors on their noisy sketches, without knowing any formula.
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    clean = rng.normal(size=(200_000, 2)) * np.sqrt([2.0, 0.3]) + [0.5, -1.0]
    noisy = clean + noise * rng.normal(size=clean.shape)
    inputs = np.column_stack([noisy, np.ones(len(noisy))])
    solved = np.linalg.lstsq(inputs, clean @ basis.T, rcond=None)[0]
    wide = np.full(2, 100.0)
    prior = SketchPrior(wide, -wide, wide, [0.5, -1.0], [2.0, 0.3])
    for sketch in ([0.0, 0.0], [1.0, -2.0]):
        expected = np.append(sketch, 1.0) @ solved
        found = basis @ prior.clean(np.array(sketch), noise)
        np.testing.assert_allclose(found, expected, atol=0.02)


def test_without_noise_nothing_is_shrunk_and_with_much_the_center_is_left():
    inside = np.full(SIZE, 0.25)
    np.testing.assert_allclose(PRIOR.clean(inside, 0.0), inside, rtol=1e-6)
    np.testing.assert_allclose(PRIOR.clean(inside, 1e6), PRIOR.centers, atol=1e-6)


def test_a_private_sketch_is_clamped_to_the_range_of_training():
    sketch = sketch_rows(5 * ROWS, NET.releasable_map())
    private = release_seeded(sketch, 0, epsilon=1.0, delta=1e-5)
    clamped = np.clip(private.mean, -0.3, 0.4)
    assert (clamped != private.mean).any()
    regular, aware = (
        NET.decoder(shrink=shrink).decode(private).params[np.tril_indices(D)]
        for shrink in (False, True)
    )
    weight = NET.decoder_network.tensors["layers.last.weight"]
    np.testing.assert_allclose(regular, weight @ clamped, atol=1e-5)
    noise = private.noise_std / private.count
    power = PRIOR.variances[:4].astype(float)
    center = PRIOR.centers[:4]
    shrunk = center + (clamped - center) * power / (power + noise**2)
    np.testing.assert_allclose(aware, weight @ shrunk, atol=1e-5)


def test_an_exact_sketch_is_decoded_as_it_is():
    sketch = sketch_rows(5 * ROWS, NET.feature_map())
    plain = replace(NET, prior=None).decoder().decode(sketch).params
    np.testing.assert_array_equal(NET.decoder().decode(sketch).params, plain)


def test_rows_are_clipped_to_the_bound_of_the_size():
    for size in (1, 4, SIZE):
        phi = NESTED.sized(size).releasable_map()
        norms = np.linalg.norm(phi(100 * ROWS), axis=1)
        assert phi.norm_bound == size
        assert norms.max() <= size
        assert norms.max() > 0.99 * size
    with pytest.raises(FeatureMapError, match="without a norm bound"):
        replace(NET, prior=None).releasable_map()


@pytest.mark.parametrize("size", [20, 100])
def test_far_out_rows_are_clipped_and_not_refused(size):
    net = load_model("pca-sqnet").sized(size)
    phi, rows = net.releasable_map(), np.full((2, 196), 4.0)
    rows[1] *= 10
    plain = net.feature_map(value_bound=2.0**20)(rows)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert lengths.min() > net.prior.norm_bound
    assert np.abs(plain).max() > 1024
    expected = plain * (net.prior.norm_bound / lengths)
    np.testing.assert_allclose(phi(rows), expected, atol=1e-4 * net.prior.norm_bound)
    assert sketch_rows(rows, phi).count == 2
    with pytest.raises(RowRangeError, match="value_bound"):
        net.releasable_map(value_bound=1024.0)(rows)


@pytest.mark.parametrize("net", [NESTED, NET])
def test_a_prior_is_kept_with_the_weights(net, tmp_path):
    net.save(tmp_path / "net.safetensors")
    assert_same(type(net).load(tmp_path / "net.safetensors").prior, net.prior)
    replace(net, prior=None).save(tmp_path / "bare.safetensors")
    assert type(net).load(tmp_path / "bare.safetensors").prior is None


def test_a_smaller_network_has_the_beginning_of_the_prior():
    assert_same(NET.prior, PRIOR.first(4))


def test_priors_that_do_not_fit_are_refused():
    with pytest.raises(FeatureMapError, match="prior is one of 6 numbers"):
        SQNet(NET.spec, NET.tensors, prior=PRIOR)
    with pytest.raises(FeatureMapError, match="prior is one of 4 numbers"):
        replace(NESTED, prior=PRIOR.first(4))
    for wrong in (
        {"norm_bounds": np.zeros(SIZE)},
        {"norm_bounds": np.arange(SIZE, 0.0, -1)},
        {"low": np.ones(SIZE)},
        {"variances": np.full(SIZE, -1.0)},
    ):
        with pytest.raises(FeatureMapError, match="positive norm_bounds"):
            replace(PRIOR, **wrong)
    with pytest.raises(FeatureMapError, match="do not fit"):
        replace(PRIOR, low=np.zeros(2))
    weights = NET.to_weights()
    tensors = {n: a for n, a in weights.tensors.items() if n != "sketch.low"}
    with pytest.raises(FeatureMapError, match=r"sketch\.low"):
        SQNet.from_weights(replace(weights, tensors=tensors))


def test_the_shipped_networks_have_a_prior():
    nested = load_model("pca-sqnet")
    assert len(nested.prior.low) == nested.sketch_size
    assert (nested.prior.low < nested.prior.high).all()
