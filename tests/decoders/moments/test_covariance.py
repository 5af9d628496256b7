"""A covariance of few factors is the matrix it stands for, without writing it out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.decoders.moments.covariance import low_rank
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance


def structured(d, rank, n_targets, seed):
    rng = np.random.default_rng(seed)
    targets = np.sort(rng.permutation(d)[:n_targets])
    loadings, cross = rng.normal(size=(d, rank)), 0.1 * rng.normal(size=(d, n_targets))
    loadings[targets] = 0.0
    cross[targets] = np.tril(cross[targets], -1)
    own = rng.uniform(0.5, 2, d)
    return LowRankCovariance(loadings, own, targets, cross if n_targets else None)


shapes = st.tuples(
    st.integers(4, 30), st.integers(0, 4), st.integers(0, 3), st.integers(0, 99)
)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_factors_and_matrix_agree_in_all_they_answer(shape):
    low = structured(*shape)
    full, d = DenseCovariance(low.dense), shape[0]
    rng = np.random.default_rng(1)
    vectors, chosen = rng.normal(size=(d, 2)), rng.permutation(d)[: d - 1]
    factor, penalty = rng.uniform(0.5, 2, d), rng.uniform(0.1, 1, d)
    assert np.array_equal(low.dense, low.dense.T)
    assert np.allclose(low.variances, full.variances)
    assert np.allclose(low @ vectors, full @ vectors)
    assert np.allclose(low @ vectors[:, 0], full @ vectors[:, 0])
    assert np.allclose(low.columns(chosen), full.columns(chosen))
    assert np.allclose(low.quadratic(vectors), vectors.T @ low.dense @ vectors)
    assert np.allclose(full.quadratic(vectors), vectors.T @ low.dense @ vectors)
    for one, two in (
        (low.of_features(chosen), full.of_features(chosen)),
        (low.scaled(factor), full.scaled(factor)),
        (low.plus_outer(factor), full.plus_outer(factor)),
    ):
        assert np.allclose(one.dense, two.dense)
    assert np.allclose(low.solve(vectors, penalty), full.solve(vectors, penalty))


@pytest.mark.parametrize("n_targets", [0, 2])
@pytest.mark.parametrize("unit", [1e-140, 1.0, 1e140])
def test_eigenvalues_of_factors_are_those_of_the_matrix(monkeypatch, n_targets, unit):
    monkeypatch.setattr(low_rank, "DENSE_FEATURES", 10)
    low = structured(90, 5, n_targets, 3).scaled(np.full(90, unit))
    values, vectors = low.largest(7)
    again = low.largest(7)
    assert np.array_equal(vectors, again[1])
    expected = DenseCovariance(low.dense).largest(7)[0]
    assert np.allclose(values[:5], expected[:5], rtol=1e-6)
    assert (values <= expected * (1 + 1e-9)).all()  # those of the diagonal: from below
    assert (values >= 0.8 * expected).all()
    assert np.allclose(vectors.T @ vectors, np.eye(7), atol=1e-9)
    strong = vectors[:, :5]
    assert np.allclose(low @ strong, strong * values[:5], atol=1e-3 * values[0])


def test_a_matrix_without_any_variance_has_a_basis_too(monkeypatch):
    monkeypatch.setattr(low_rank, "DENSE_FEATURES", 10)
    low = LowRankCovariance(np.zeros((40, 2)), np.zeros(40))
    values, vectors = low.largest(3)
    assert np.array_equal(values, np.zeros(3))
    assert np.allclose(vectors.T @ vectors, np.eye(3))


def test_features_without_variance_of_their_own_are_no_trouble():
    loadings = np.array([[3.0], [4.0], [0.0]])
    low = LowRankCovariance(loadings, np.zeros(3))
    found = low.solve(low @ np.array([[1.0], [1.0], [1.0]]), np.zeros(3))
    assert np.isfinite(found).all()
    assert np.allclose(low @ found, [[21.0], [28.0], [0.0]], rtol=1e-3)
