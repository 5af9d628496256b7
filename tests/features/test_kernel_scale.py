"""The size of a Fourier sketch tells how wide clusters are, whatever the units."""

import numpy as np
import pytest

from sketchlearn import FourierFeatures
from sketchlearn.errors import RowsError
from sketchlearn.features.kernel_scale import estimate_scale, estimate_spread


def clustered_rows(seed, spread=3.0, count=20_000, d=10, k=10):
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(k, d))
    return centres[rng.integers(k, size=count)] + rng.normal(size=(count, d))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("spread", [1.37, 3.0])
def test_the_variances_of_a_mixture_are_found(seed, spread):
    rows = clustered_rows(seed, spread)
    phi = FourierFeatures(10, 1000, scale=1.2, law="adapted", seed=seed)
    mean = phi(rows).mean(axis=0, dtype=np.float64)
    found = estimate_spread(phi.frequencies, mean, noise=0.005, n_clusters=10)
    between = rows.var(axis=0).mean() - 1
    assert found.within == pytest.approx(1, rel=0.1)
    assert found.between == pytest.approx(between, rel=0.4)
    assert found.concentration == 0.1


def test_the_effective_number_of_clusters_is_found():
    for k in (2, 10):
        rows = clustered_rows(3, k=k)
        phi = FourierFeatures(10, 2000, scale=1.2, law="adapted")
        mean = phi(rows).mean(axis=0, dtype=np.float64)
        found = estimate_spread(phi.frequencies, mean, noise=0.005)
        assert 1 / found.concentration == pytest.approx(k, rel=0.35)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_the_scale_is_the_width_of_a_cluster_in_the_units_of_the_rows(unit):
    rows = clustered_rows(0, count=5000)
    scale = estimate_scale(rows * unit, n_clusters=10)
    assert scale == pytest.approx(unit, rel=0.1)


def test_one_gaussian_has_the_scale_of_its_spread():
    rows = np.random.default_rng(0).normal(size=(5000, 5)) * 3
    assert estimate_scale(rows, n_clusters=1) == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("rows", [np.ones((5, 2)), np.empty((0, 2))])
def test_rows_without_spread_are_refused(rows):
    with pytest.raises(RowsError, match="without spread"):
        estimate_scale(rows)
