"""Second moments come back exactly when they fit, and close when they are low-rank."""

import numpy as np
import pytest

from sketchlearn import (
    ConcatenatedFeatures,
    CrossMomentFeatures,
    FourierFeatures,
    MomentFeatures,
    Scaling,
    sketch_rows,
)
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.errors import ConvergenceWarning

RNG = np.random.default_rng(0)
D = 30
LOADINGS = RNG.normal(size=(4, D))
ROWS = RNG.normal(size=(5000, 4)) @ LOADINGS + 0.3 * RNG.normal(size=(5000, D)) + 2
COVARIANCE = np.cov(ROWS.T, bias=True)
SCALING = Scaling.from_bounds(-30.0, 40.0, n_features=D)


def decode(feature_map):
    return NystromDecoder().decode(sketch_rows(ROWS, feature_map))


@pytest.mark.parametrize("scaling", [None, SCALING])
def test_the_full_second_moment_is_exact(scaling):
    decoding = decode(MomentFeatures(D, scaling=scaling, bits=36))
    assert decoding.converged
    assert decoding.params.count == 5000
    assert np.allclose(decoding.params.mean, ROWS.mean(axis=0), atol=1e-9)
    assert np.allclose(decoding.params.covariance, COVARIANCE, atol=1e-8)


def test_a_low_rank_moment_comes_back_from_a_few_columns():
    errors = []
    for seed in range(5):
        decoding = decode(CrossMomentFeatures(D, 8, scaling=SCALING, seed=seed))
        errors.append(np.linalg.norm(decoding.params.covariance - COVARIANCE))
        assert decoding.residual < 0.02
    assert np.median(errors) < 0.02 * np.linalg.norm(COVARIANCE)


def test_variances_are_exact_whatever_the_columns():
    for columns in (1, 2, 5):
        covariance = decode(CrossMomentFeatures(D, columns)).params.covariance
        assert np.allclose(np.diag(covariance), np.diag(COVARIANCE), atol=1e-6)
        assert np.linalg.eigvalsh(covariance)[0] > -1e-9


def test_rows_of_22_bits_give_variances_to_a_millionth():
    found = decode(MomentFeatures(D, scaling=SCALING)).params.covariance
    assert np.allclose(np.diag(found), np.diag(COVARIANCE), rtol=1e-6)
    scale = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(found - COVARIANCE) < 1e-6 * np.outer(scale, scale)).all()


@pytest.mark.parametrize("bits", [22, 30])
def test_variances_of_rows_with_a_heavy_tail_are_right_to_a_thousandth(bits):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(50_000, 3))
    rows[0] = [1e4, -1e4, 2e3]  # ten thousand times the spread of the others
    phi = MomentFeatures(3, scaling=Scaling.from_rows(rows), bits=bits)
    most = sketch_rows(rows, phi) - sketch_rows(rows[:1], phi)
    found = NystromDecoder().decode(most).params.covariance
    assert np.allclose(np.diag(found), rows[1:].var(axis=0), rtol=1e-3)


def test_more_columns_are_better():
    errors = [
        np.mean(
            [
                np.linalg.norm(
                    decode(CrossMomentFeatures(D, n, seed=seed)).params.covariance
                    - COVARIANCE
                )
                for seed in range(5)
            ]
        )
        for n in (1, 4, 8, 16)
    ]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 0.05 * errors[0]


def test_features_left_out_keep_their_variance_and_no_correlation():
    kept = np.arange(0, D, 2)
    covariance = decode(CrossMomentFeatures(D, 8, kept=kept)).params.covariance
    assert covariance[1, 0] == 0
    assert np.isclose(covariance[1, 1], COVARIANCE[1, 1])


def test_the_part_with_second_moments_is_found_in_a_larger_sketch():
    parts = [FourierFeatures(D, 4), MomentFeatures(D, scaling=SCALING, bits=36)]
    both = decode(ConcatenatedFeatures(parts)).params.covariance
    assert np.allclose(both, COVARIANCE, atol=1e-8)


def test_constant_features_do_not_disturb_the_rest():
    rows = np.concatenate([ROWS, np.full((5000, 2), 3.0)], axis=1)
    sketch = sketch_rows(rows, CrossMomentFeatures(D + 2, 8))
    covariance = NystromDecoder().decode(sketch).params.covariance
    assert np.isfinite(covariance).all()
    assert np.abs(covariance[-2:]).max() < 1e-9
    constant = sketch_rows(np.full((10, 3), 3.0), CrossMomentFeatures(3, 2))
    with pytest.warns(ConvergenceWarning, match="no feature varies by more"):
        assert np.allclose(NystromDecoder().decode(constant).params.covariance, 0)
