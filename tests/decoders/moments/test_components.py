"""Principal components are those of the covariance, or of the correlations."""

import numpy as np
import pytest

from sketchlearn.decoders.moments.components import principal_components
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.moments import Moments

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(50, 6)) @ RNG.normal(size=(6, 6)) + 3


def moments(structure=None):
    structure = structure or DenseCovariance(np.cov(ROWS.T, bias=True))
    return Moments(50.0, ROWS.mean(axis=0), structure, np.zeros(6), 6)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_full_basis_diagonalises_what_it_is_of(standardize):
    found = principal_components(moments(), None, standardize=standardize)
    scaled = (ROWS - found.mean) / found.scale
    assert np.allclose(found.components @ found.components.T, np.eye(6))
    covariance = found.components @ np.cov(scaled.T) @ found.components.T
    assert np.allclose(covariance, np.diag(found.variances))
    assert found.ratio.sum() == pytest.approx(1.0)
    assert found.noise_variance == 0.0
    assert np.allclose(
        found.singular_values,
        np.linalg.svd(scaled, compute_uv=False),
    )


def test_the_largest_entry_of_a_component_is_positive():
    found = principal_components(moments(), None).components
    assert (found[np.arange(6), np.abs(found).argmax(axis=1)] > 0).all()


def test_a_share_asks_for_as_few_components_as_reach_it():
    whole = np.cumsum(principal_components(moments(), None).ratio)
    found = principal_components(moments(), 0.9)
    k = len(found.components)
    assert whole[k - 2] < 0.9 <= whole[k - 1]
    left = principal_components(moments(), None).variances[k:]
    assert found.noise_variance == pytest.approx(left.mean())


def test_rows_that_never_vary_have_components_of_no_variance():
    nothing = moments(LowRankCovariance(np.zeros((6, 1)), np.zeros(6)))
    found = principal_components(nothing, 2, standardize=True)
    assert np.array_equal(found.scale, np.ones(6))
    assert not found.variances.any()
    assert not found.ratio.any()
