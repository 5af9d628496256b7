"""Principal components are an autoencoder whose threshold the moments know."""

import numpy as np
import pytest

from sketchlearn.decoders.autoencoders.directions import ClassMeans, CodeDirections
from sketchlearn.decoders.autoencoders.linear import LinearAutoencoder
from sketchlearn.decoders.autoencoders.thresholds import balanced_threshold
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.metrics import balanced_accuracy

RNG = np.random.default_rng(0)


def binary_rows(n, d, n_factors=3, share=0.3, seed=0):
    """Rows with a few common causes."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, n_factors)) @ (2 * rng.normal(size=(n_factors, d)))
    latent += rng.normal(size=(n, d))
    return (latent > np.quantile(latent, 1 - share, axis=0)).astype(float)


def moments_of(rows):
    d = rows.shape[1]
    covariance = np.cov(rows.T, bias=True).reshape(d, d)
    return Moments(len(rows), rows.mean(axis=0), DenseCovariance(covariance), 0.0, d)


def test_all_components_give_all_rows_back():
    rows = binary_rows(200, 9)
    coder = LinearAutoencoder(CodeDirections.of_moments(moments_of(rows), 9))
    assert np.array_equal(coder.reconstruct(rows), rows > 0.5)
    assert coder.n_codes == 9


def test_codes_are_projections_on_the_principal_components():
    rows = binary_rows(500, 8)
    known = CodeDirections.of_moments(moments_of(rows), 3)
    centred = rows - rows.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    codes = LinearAutoencoder(known).encode(rows)
    for number in range(3):
        expected = left[:, number] * size[number]
        same = np.abs(codes[:, number] @ expected) / (expected @ expected)
        assert same == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_threshold_of_the_moments_is_near_the_best_one_of_the_rows(share):
    rows = binary_rows(4000, 40, share=share)
    known = CodeDirections.of_moments(moments_of(rows[:2000]), 4)
    other = rows[2000:]
    linear = LinearAutoencoder(known)
    above = linear.decode(linear.encode(other)) / 4 + known.threshold
    best = max(balanced_accuracy(other, above > t) for t in np.linspace(0, 1, 101))
    found = balanced_accuracy(other, linear.reconstruct(other))
    assert found > best - 0.015
    assert found >= balanced_accuracy(other, above > 0.5) - 0.002


def test_the_threshold_of_alike_features_is_between_their_two_means():
    # One feature of mean 0.2: ones are around 0.2 + 0.8 r, zeros around 0.2 - 0.2 r,
    # equally wide, so that the best threshold is half way.
    found = balanced_threshold(np.array([0.2]), np.array([0.5]))
    assert found == pytest.approx(0.2 + 0.3 * 0.5, abs=0.011)


def test_features_that_never_vary_come_back_and_break_nothing():
    rows = binary_rows(300, 6)
    rows[:, 2], rows[:, 4] = 0.0, 1.0
    known = CodeDirections.of_moments(moments_of(rows), 2)
    found = LinearAutoencoder(known).reconstruct(rows)
    assert not found[:, 2].any()
    assert found[:, 4].all()
    assert np.isfinite(known.feature_inputs()).all()
    assert np.isfinite(known.component_inputs()).all()


def test_directions_within_classes_leave_out_what_lies_between_them():
    rows, labels = binary_rows(3000, 10), RNG.integers(0, 3, 3000)
    rows[:, :4] = RNG.random((3000, 4)) < np.array([0.1, 0.5, 0.9])[labels][:, None]
    parts = [rows[labels == c] for c in range(3)]
    shares = np.array([len(part) for part in parts]) / len(rows)
    means = ClassMeans(np.stack([part.mean(axis=0) for part in parts]), shares)
    known = CodeDirections.of_moments(moments_of(rows), 10, means)
    within = sum(s * np.cov(p.T, bias=True) for s, p in zip(shares, parts, strict=True))
    assert np.allclose(known.mean, rows.mean(axis=0))
    assert np.allclose(known.variances, np.linalg.eigvalsh(within)[::-1], atol=1e-12)


def test_codes_of_classes_end_with_their_weights_and_decode_alone():
    rows = np.concatenate(
        [binary_rows(400, 12, share=0.1), binary_rows(400, 12, 3, 0.8)]
    )
    means = ClassMeans(
        np.stack([rows[:400].mean(axis=0), rows[400:].mean(axis=0)]), np.full(2, 0.5)
    )
    coder = LinearAutoencoder(CodeDirections.of_moments(moments_of(rows), 2, means))
    codes = coder.encode(rows)
    assert codes.shape == (800, 4)
    assert np.allclose(codes[:, 2:].sum(axis=1), 1)
    assert codes[:400, 2].mean() > 0.8
    assert codes[400:, 3].mean() > 0.8
    assert np.array_equal(coder.decode(codes) > 0, coder.reconstruct(rows))
