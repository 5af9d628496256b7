"""Each pooling merges like the paper's table says, and forgets where it can."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn import CountMinFeatures, FourierFeatures, MomentFeatures, sketch_rows
from sketchlearn.errors import FeatureMapMismatch, PoolingError
from sketchlearn.pooling import get_pooling

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(700, 3))
PHI = FourierFeatures(3, 8, seed=0)
NAMES = ["mean", "max", "min", "p-norm:1", "p-norm:3", "log-sum-exp"]


def reference(features, name):
    """The table of the paper, in float64 NumPy."""
    if name.startswith("p-norm:"):
        p = float(name.removeprefix("p-norm:"))
        return (np.abs(features) ** p).sum(axis=0) ** (1 / p)
    return {
        "mean": features.mean(axis=0),
        "max": features.max(axis=0),
        "min": features.min(axis=0),
        "log-sum-exp": np.log(np.exp(features).sum(axis=0)),
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


def test_bloom_filters_are_max_pooled_and_counts_are_summed():
    phi = CountMinFeatures(4, width=8, depth=2)
    counts = sketch_rows(np.eye(4), phi, pooling="sum")
    assert counts.pooling == "mean"
    assert counts.mean.sum() * 4 == 8


@pytest.mark.parametrize("name", ["median", "p-norm:0.5", "p-norm:x", "p-norm:inf", ""])
def test_unknown_poolings_are_refused(name):
    with pytest.raises(PoolingError, match="unknown pooling"):
        get_pooling(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_the_pooling_back(name):
    assert get_pooling(get_pooling(name).name) == get_pooling(name)
