"""Correlations by distance come back from a sketch, and are those of a real matrix."""

import numpy as np
import pytest

from sketchlearn.decoders.moments.cross_moments import Places
from sketchlearn.decoders.moments.lag_correlations import LAGS, lag_correlations
from sketchlearn.features.cross_moments import random_groups


def toeplitz(curve):
    every = np.arange(len(curve))
    return curve[np.abs(every[:, None] - every)]


def read(truth, columns, *, places=None, noise=0.0, seed=0):
    """The curve that a sketch of ``truth`` through random groups tells."""
    d, rng = len(truth), np.random.default_rng(seed)
    shown = np.arange(d) if places is None else places
    omega = random_groups(len(shown), columns, seed)
    omega /= np.linalg.norm(omega, axis=0)
    seen = truth[np.ix_(shown, shown)] @ omega
    seen += noise * rng.normal(size=seen.shape)
    return lag_correlations(omega, seen, Places(shown, d), noise)


STEPS = np.arange(150)
CURVES = {
    "falling": np.exp(-STEPS / 5.0),
    "waves": np.exp(-STEPS / 30.0) * np.cos(2 * np.pi * STEPS / 12.0),
    "rows of a picture": 0.4 * np.exp(-STEPS / 2.0)
    + 0.6 * np.exp(-STEPS / 40.0) * (1 + np.cos(2 * np.pi * STEPS / 14.0)) / 2,
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("columns", [3, 10])
def test_correlations_that_depend_on_distance_alone_come_back(name, columns):
    curve, near = CURVES[name], slice(1, 30)
    found, _ = read(toeplitz(curve), columns)
    assert np.corrcoef(found[near], curve[near])[0, 1] > 0.94
    # The penalty makes them smaller, and none larger.
    slope = found[near] @ curve[near] / (curve[near] @ curve[near])
    assert 0.4 < slope < 1.05


def test_every_second_feature_tells_of_even_distances():
    curve = CURVES["falling"]
    found, _ = read(toeplitz(curve), 6, places=np.arange(0, 150, 2))
    ratio = found[2:12:2] / curve[2:12:2]
    assert ((ratio > 0.5) & (ratio < 1.05)).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_features_that_are_all_alike_have_that_in_common_at_any_distance(share):
    truth = share + (1 - share) * np.eye(90)
    found, far = read(truth, 5)
    assert far == pytest.approx(share, abs=0.01)
    assert np.abs(found[1:] - share).max() < 0.02


def test_shuffled_features_tell_nothing_of_distances():
    truth = toeplitz(CURVES["falling"])
    order = np.random.default_rng(1).permutation(len(truth))
    found, far = read(truth[np.ix_(order, order)], 5)
    assert np.abs(found[1:] - far).max() < 0.1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("d", "columns"), [(1, 1), (2, 1), (3, 2), (40, 4), (120, 9)])
def test_any_sketch_gives_a_curve_of_a_positive_definite_matrix(d, columns, seed):
    rng = np.random.default_rng(seed)
    omega = np.linalg.qr(rng.normal(size=(d, columns)))[0]
    seen = rng.normal(size=(d, columns))
    found, far = lag_correlations(omega, seen, Places(np.arange(d), d), 0.5)
    assert found.shape == (d,)
    assert np.isfinite([*found, far]).all()
    assert found[0] == pytest.approx(1.0)
    assert np.linalg.eigvalsh(toeplitz(found))[0] > -1e-9


def test_distances_beyond_the_last_share_one_correlation():
    found, _ = read(toeplitz(CURVES["falling"]), 5)
    beyond = found[LAGS + 5 : 100]
    assert np.ptp(beyond) < 0.05


def test_noise_flattens_the_curve():
    truth = toeplitz(CURVES["falling"])
    clear, _ = read(truth, 5)
    noisy, _ = read(truth, 5, noise=1.0)
    assert np.square(noisy[1:20]).sum() < np.square(clear[1:20]).sum()
