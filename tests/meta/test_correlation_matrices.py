"""Correlation matrices without data are correlation matrices, of many kinds."""

import numpy as np
import pytest

from sketchlearn.meta import correlation_matrices
from sketchlearn.meta.correlation_matrices import random_correlation


@pytest.mark.parametrize("d", [1, 2, 3, 12, 60])
def test_every_draw_is_a_correlation_matrix(d):
    for seed in range(30):
        found = random_correlation(d, np.random.default_rng(seed))
        assert found.shape == (d, d)
        assert found.dtype == np.float32
        assert np.abs(np.diag(found) - 1).max() < 1e-6
        assert np.abs(found - found.T).max() < 1e-6
        assert np.abs(found).max() < 1 + 1e-6
        assert np.linalg.eigvalsh(found.astype(np.float64))[0] > -1e-5


def test_the_generator_decides():
    one, two, other = (
        random_correlation(9, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_each_of_the_three_laws_has_an_equal_chance(monkeypatch):
    counts = dict.fromkeys(("_smooth_field", "_factor_model", "_clusters"), 0)

    def counted(name):
        def law(d, rng):
            counts[name] += 1
            return np.eye(d)

        return law

    for name in counts:
        monkeypatch.setattr(correlation_matrices, name, counted(name))
    rng = np.random.default_rng(0)
    for _ in range(900):
        random_correlation(2, rng)
    assert sum(counts.values()) == 900
    # Binomial with standard deviation 14.
    assert max(abs(count - 300) for count in counts.values()) < 70


def test_features_of_a_field_are_never_opposite():
    for seed in range(20):
        field = correlation_matrices._smooth_field(20, np.random.default_rng(seed))
        assert field.min() >= 0
        assert np.allclose(np.diag(field), 1)
