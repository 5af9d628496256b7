"""The closed form is PCA of weighted vectors, and its completion loses nothing."""

import numpy as np
import pytest

from sketchlearn.errors import ConfigError
from sketchlearn.meta.moment_basis import MomentBasis, fit_basis

RNG = np.random.default_rng(0)
VECTORS = (RNG.normal(size=(40, 6)) @ RNG.normal(size=(6, 25))).astype(np.float32)
WEIGHTS = RNG.uniform(0.5, 2.0, 40)


def projection(basis, size):
    """The matrix that takes a vector around the mean to what is known of it."""
    n = len(basis.mean)
    return np.array(
        [basis.project(basis.mean + e, size) - basis.mean for e in np.eye(n)]
    )


@pytest.mark.parametrize("size", [1, 4])
def test_the_closed_form_is_numpys_pca(size):
    shares = WEIGHTS / WEIGHTS.sum()
    mean = shares @ VECTORS
    centred = (VECTORS - mean) * np.sqrt(shares)[:, None]
    expected = np.linalg.svd(centred)[2][:size]
    basis = fit_basis(VECTORS, WEIGHTS, size)
    np.testing.assert_allclose(basis.mean, mean, atol=1e-5)
    np.testing.assert_allclose(
        basis.rows.T @ basis.rows, expected.T @ expected, atol=1e-4
    )


def test_whole_weights_are_repetitions():
    counts = np.arange(40) % 3 + 1
    repeated = fit_basis(np.repeat(VECTORS, counts, axis=0), np.ones(counts.sum()), 3)
    weighted = fit_basis(VECTORS, counts.astype(float), 3)
    np.testing.assert_allclose(weighted.rows, repeated.rows, atol=1e-4)


def test_the_basis_of_a_smaller_size_is_a_prefix():
    small, large = (fit_basis(VECTORS, WEIGHTS, size) for size in (2, 5))
    np.testing.assert_allclose(small.rows, large.rows[:2], atol=1e-4)


def test_no_other_basis_of_the_size_leaves_less():
    basis = fit_basis(VECTORS, np.ones(40), 3)
    other = MomentBasis(np.linalg.qr(RNG.normal(size=(25, 3)))[0].T, basis.mean)
    errors = [
        sum(np.sum((one.project(v, 3) - v) ** 2) for v in VECTORS)
        for one in (basis, other)
    ]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("size", [1, 5, 6, 12, 24])
def test_numbers_beyond_the_rows_complete_an_orthonormal_basis(size):
    basis = fit_basis(VECTORS, WEIGHTS, 5)
    matrix = projection(basis, size)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-12)
    assert np.trace(matrix) == pytest.approx(size)
    # What a smaller sketch knows a larger one knows.
    larger = projection(basis, size + 1)
    np.testing.assert_allclose(larger @ matrix, matrix, atol=1e-12)


def test_as_many_numbers_as_entries_lose_nothing():
    basis = fit_basis(VECTORS, WEIGHTS, 5)
    vector = RNG.normal(size=25)
    np.testing.assert_allclose(basis.project(vector, 25), vector, atol=1e-12)


def test_rounded_rows_are_made_orthonormal_again():
    rows = fit_basis(VECTORS, WEIGHTS, 5).rows
    rounded = MomentBasis(rows.astype(np.float16), np.zeros(25))
    vector = RNG.normal(size=25)
    np.testing.assert_allclose(rounded.project(vector, 25), vector, atol=1e-12)


def test_a_basis_can_begin_with_another():
    first = fit_basis(VECTORS, np.ones(40), 2)
    basis = fit_basis(VECTORS, WEIGHTS, 5, after=first)
    assert np.array_equal(basis.rows[:2], first.rows)
    assert np.array_equal(basis.mean, first.mean)
    np.testing.assert_allclose(basis.rows @ basis.rows.T, np.eye(5), atol=1e-4)
    centred = (VECTORS - first.mean) * np.sqrt(WEIGHTS)[:, None]
    rest = centred - centred @ first.rows.T @ first.rows
    expected = np.linalg.svd(rest)[2][:3]
    found = basis.rows[2:]
    np.testing.assert_allclose(found.T @ found, expected.T @ expected, atol=1e-4)


def test_too_few_and_too_similar_episodes_are_refused():
    with pytest.raises(ConfigError, match="draw more episodes"):
        fit_basis(VECTORS, WEIGHTS, 40)
    alike = np.repeat(VECTORS[:4], 10, axis=0)  # three directions around the mean
    with pytest.raises(ConfigError, match="too much alike"):
        fit_basis(alike, WEIGHTS, 10)
    with pytest.raises(ConfigError, match="from 1 to 25"):
        MomentBasis(np.eye(25)[:2], np.zeros(25)).project(np.zeros(25), 26)
