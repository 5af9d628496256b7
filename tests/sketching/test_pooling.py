"""Each pooling merges like the paper's table says, and forgets where it can."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from sketchlearn import CountMinFeatures, FourierFeatures, MomentFeatures, sketch_rows
from sketchlearn.errors import FeatureMapMismatch, PoolingError, RemovalError
from sketchlearn.sketching.pooling.by_name import get_pooling

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(700, 3))
PHI = FourierFeatures(3, 8, seed=0)
NAMES = ["mean", "sum", "max", "min", "log-sum-exp", "soft-min"]
NAMES += ["p-norm:1", "p-norm:2.5", "p-norm:3", "p-norm:10"]


def reference(features, name):
    """The table of the paper, in float64 NumPy."""
    if name.startswith("p-norm:"):
        p = float(name.removeprefix("p-norm:"))
        return (np.abs(features) ** p).sum(axis=0) ** (1 / p)
    return {
        "mean": features.mean(axis=0),
        "sum": features.sum(axis=0),
        "max": features.max(axis=0),
        "min": features.min(axis=0),
        "log-sum-exp": logsumexp(features, axis=0),
        "soft-min": -logsumexp(-features, axis=0),
    }[name]


@pytest.mark.parametrize("name", NAMES)
def test_pooled_values_are_the_papers(name):
    pooled = sketch_rows(ROWS, PHI, pooling=name).pooled
    expected = reference(PHI(ROWS).astype(np.float64), name)
    assert np.allclose(pooled, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 699))
def test_merging_two_parts_equals_pooling_the_whole(name, cut):
    whole = sketch_rows(ROWS, PHI, pooling=name)
    left = sketch_rows(ROWS[:cut], PHI, pooling=name)
    right = sketch_rows(ROWS[cut:], PHI, pooling=name)
    assert left + right == whole
    assert right + left == whole


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("max", "min")])
def test_forgetting_leaves_the_rest_to_the_bit(name):
    whole = sketch_rows(ROWS, PHI, pooling=name)
    left = sketch_rows(ROWS[:699], PHI, pooling=name)
    assert whole - left == sketch_rows(ROWS[699:], PHI, pooling=name)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_refuse_to_forget(name):
    whole = sketch_rows(ROWS, PHI, pooling=name)
    with pytest.raises(PoolingError, match="cannot forget"):
        whole - sketch_rows(ROWS[:5], PHI, pooling=name)


def test_different_poolings_never_meet():
    mean, largest = (sketch_rows(ROWS, PHI, pooling=p) for p in ("mean", "max"))
    with pytest.raises(FeatureMapMismatch, match="pooled by 'mean', right by 'max'"):
        mean + largest
    with pytest.raises(PoolingError, match="has no mean"):
        _ = largest.mean


def test_log_sum_exp_is_stable_where_exp_overflows():
    phi = MomentFeatures(1, order="mean", reach=1024.0)
    big = sketch_rows([[1000.0], [1001.0]], phi, pooling="log-sum-exp")
    expected = 1001 + np.log1p(np.exp(-1.0))
    assert np.isclose(big.pooled[0], expected, rtol=0, atol=1e-9)


def test_log_sum_exp_far_below_the_bound_is_refused_not_wrong():
    phi = MomentFeatures(1, order="mean", reach=1024.0)
    tiny = sketch_rows([[-1000.0]], phi, pooling="log-sum-exp")
    with pytest.raises(PoolingError, match="value_bound"):
        _ = tiny.pooled


def test_p_norm_is_stable_for_large_values():
    phi = MomentFeatures(1, order="mean", reach=1024.0)
    pooled = sketch_rows([[1000.0], [-1000.0]], phi, pooling="p-norm:8").pooled
    assert np.isclose(pooled[0], 1000 * 2 ** (1 / 8))


def test_a_sum_is_the_mean_times_the_count_and_never_meets_it():
    phi = CountMinFeatures(4, width=8, depth=2)
    counts = sketch_rows(np.eye(4), phi, pooling="sum")
    assert counts.pooling == "sum"
    assert counts.pooled.sum() == 8
    mean = sketch_rows(np.eye(4), phi)
    assert np.array_equal(counts.pooled, 4 * mean.mean)
    with pytest.raises(FeatureMapMismatch, match="pooled by 'sum', right by 'mean'"):
        counts + mean
    with pytest.raises(PoolingError, match="has no mean"):
        _ = counts.mean


def test_more_than_there_was_cannot_be_taken_from_a_sum():
    whole = sketch_rows(np.ones((3, 3)), MomentFeatures(3), pooling="sum")
    other = sketch_rows(np.full((1, 3), 4.0), MomentFeatures(3), pooling="sum")
    with pytest.raises(RemovalError):
        whole - other


@pytest.mark.parametrize("power", range(1, 11))
def test_p_norms_of_the_paper_are_right_or_refused_and_never_zero(power):
    digits = mpmath.MPContext()
    digits.dps = 40
    for size in 2.0 ** -np.arange(0, 60, 3):
        phi = MomentFeatures(1, order="mean", reach=32.0, bits=38)
        rows = np.rint(np.array([[1.0], [0.5], [-0.75]]) * 32 * size * 2**38) / 2**38
        if not rows.any():
            continue
        sketch = sketch_rows(rows, phi, pooling=f"p-norm:{power}")
        exact = digits.mpf(0)
        for value in rows[:, 0]:
            exact += abs(digits.mpf(float(value))) ** power
        exact = digits.root(exact, power)
        if size**power < 2.0**-68:
            with pytest.raises(PoolingError, match="above"):
                _ = sketch.pooled
        if size**power > 2.0**-65:
            assert abs(sketch.pooled[0] / exact - 1) < 1e-6


@settings(max_examples=50, deadline=None)
@given(st.floats(1.0, 10.0), st.floats(1e-12, 32.0))
def test_what_is_not_zero_never_pools_to_zero(power, value):
    phi = MomentFeatures(1, order="mean", bits=39)
    sketch = sketch_rows([[value]], phi, pooling=f"p-norm:{power}")
    if phi(np.array([[value]]))[0, 0] == 0:
        assert sketch.pooled[0] == 0
    else:
        try:
            assert np.isclose(sketch.pooled[0], value, rtol=1e-5, atol=2.0**-39)
        except PoolingError:
            assert value / 32 < 2.0 ** (-66 / power)


def test_a_feature_that_is_zero_has_norm_zero():
    rows = np.array([[0.0, 1.0], [0.0, -1.0]])
    phi = MomentFeatures(2, order="mean", reach=1.0)
    pooled = sketch_rows(rows, phi, pooling="p-norm:10").pooled
    assert pooled[0] == 0
    assert np.isclose(pooled[1], 2**0.1)


def test_soft_min_is_stable_where_exp_overflows():
    phi = MomentFeatures(1, order="mean", reach=1024.0)
    rows = [[-1000.0], [-1001.0]]
    low = sketch_rows(rows, phi, pooling="soft-min").pooled
    assert np.isclose(low[0], -1001 - np.log1p(np.exp(-1.0)), rtol=0, atol=1e-9)
    with pytest.raises(PoolingError, match="value_bound"):
        _ = sketch_rows([[1000.0]], phi, pooling="soft-min").pooled


@pytest.mark.parametrize("name", ["median", "p-norm:0.5", "p-norm:x", "p-norm:inf", ""])
def test_unknown_poolings_are_refused(name):
    with pytest.raises(PoolingError, match="unknown pooling"):
        get_pooling(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_the_pooling_back(name):
    assert get_pooling(get_pooling(name).name) == get_pooling(name)
