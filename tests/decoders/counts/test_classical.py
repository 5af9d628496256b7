"""Classical sketches keep the promises that their bounds and sizes make."""

from math import exp, sqrt

import datasketches
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchlearn
from sketchlearn.decoders.counts.classical import (
    decode_bloom,
    decode_count_min,
    decode_count_sketch,
)
from sketchlearn.decoders.counts.table_sizes import suggest_size
from sketchlearn.decoders.counts.zipf import draw_zipf_counts
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.rows.items import ItemRows

N_ITEMS = 300
ITEMS = np.arange(N_ITEMS, dtype=np.uint64)


def zipf_counts(seed=0, **options):
    rng = np.random.default_rng(seed)
    return draw_zipf_counts(rng, N_ITEMS, 100, 1.0, **options)[0]


def answers_of(feature_map, counts):
    """What each table says of each item, by a loop over items."""
    found = np.zeros((feature_map.depth, len(counts)))
    for table in range(feature_map.depth):
        buckets, signs = feature_map.buckets[table], feature_map.signs[table]
        if feature_map.first_signed is None:
            signs = np.ones_like(signs)
        cells = np.zeros(feature_map.width)
        for bucket, sign, count in zip(buckets, signs, counts, strict=True):
            cells[bucket] += sign * count
        found[table] = signs * cells[buckets]
    return found


def test_estimates_are_minimum_median_and_mean_of_what_tables_say():
    counts = zipf_counts()
    low = CountMinFeatures(N_ITEMS, width=20, depth=4, seed=3)
    signed = CountSketchFeatures(N_ITEMS, width=20, depth=4, seed=3)
    columns = low.columns_of(ITEMS)
    found = decode_count_min(columns, counts @ columns, width=20)
    np.testing.assert_array_equal(found.estimates, answers_of(low, counts).min(axis=0))
    columns, answers = signed.columns_of(ITEMS), answers_of(signed, counts)
    for combine, reduce in (("median", np.median), ("mean", np.mean)):
        found = decode_count_sketch(
            columns, counts @ columns, width=20, combine=combine
        )
        np.testing.assert_allclose(found.estimates, reduce(answers, axis=0))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_count_min_and_bloom_never_miss(counts, width, depth, seed):
    counts = np.array(counts)
    items = np.arange(len(counts), dtype=np.uint64)
    table = CountMinFeatures(len(counts), width=width, depth=depth, seed=seed)
    columns = table.columns_of(items)
    found = decode_count_min(columns, counts @ columns, width=width)
    assert (found.estimates >= counts).all()
    assert (found.lower <= found.estimates).all()
    presence = decode_bloom(columns, counts @ columns, width=width)
    assert presence.present[counts > 0].all()
    assert presence.present.tolist() == (found.estimates > 0).tolist()


def test_many_sketches_are_decoded_as_each_alone():
    counts = draw_zipf_counts(np.random.default_rng(1), N_ITEMS, 50, 0.8, n_sets=7)
    columns = CountSketchFeatures(N_ITEMS, width=16, depth=6).columns_of(ITEMS)
    totals = counts @ columns
    decoders = [
        lambda z: decode_count_sketch(columns, z, width=16),
        lambda z: decode_count_sketch(columns, z, width=16, combine="mean"),
        lambda z: decode_count_min(abs(columns), abs(z), width=16),
    ]
    for decode in decoders:
        together = decode(totals)
        for number, one in enumerate(totals):
            alone = decode(one)
            for name in ("estimates", "lower", "upper"):
                ours = getattr(together, name)[number]
                np.testing.assert_allclose(ours, getattr(alone, name))
    bits = decode_bloom(abs(columns), counts @ abs(columns), width=16)
    assert bits.present.shape == (7, N_ITEMS)
    assert bits.false_positive_rate.shape == (7,)


def failures(feature_map_type, decode, *, width, depth, n_hashes=200, **options):
    """Share of items outside of their bounds, over draws of the hash."""
    counts = zipf_counts(5)
    outside = []
    for seed in range(n_hashes):
        phi = feature_map_type(N_ITEMS, width=width, depth=depth, seed=seed)
        columns = phi.columns_of(ITEMS)
        found = decode(columns, counts @ columns, width=width, **options)
        outside.append((counts < found.lower) | (counts > found.upper))
        assert np.isfinite(found.upper).all()
    return float(np.mean(outside)), found.confidence


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_count_min_exceeds_its_bound_no_more_often_than_it_says(depth):
    share, confidence = failures(
        CountMinFeatures, decode_count_min, width=40, depth=depth
    )
    assert confidence == pytest.approx(1 - exp(-depth))
    assert share <= exp(-depth)
    share, _ = failures(
        CountMinFeatures, decode_count_min, width=40, depth=depth, confidence=0.3
    )
    assert 0 < share <= 0.7


@pytest.mark.parametrize("combine", ["median", "mean"])
@pytest.mark.parametrize("depth", [1, 4, 5])
def test_count_sketch_leaves_its_bounds_no_more_often_than_it_says(depth, combine):
    share, confidence = failures(
        CountSketchFeatures,
        decode_count_sketch,
        width=200,
        depth=depth,
        combine=combine,
        confidence=0.8,
    )
    assert confidence == pytest.approx(0.8)
    assert share <= 0.2


def test_tables_too_narrow_to_bound_the_energy_promise_nothing():
    counts = zipf_counts()
    columns = CountSketchFeatures(N_ITEMS, width=5, depth=1).columns_of(ITEMS)
    found = decode_count_sketch(columns, counts @ columns, width=5, confidence=0.99)
    assert np.isinf(found.upper).all()
    assert (found.lower == 0).all()


def test_the_count_min_bound_is_that_of_cormode_and_muthukrishnan():
    counts = zipf_counts()
    columns = CountMinFeatures(N_ITEMS, width=50, depth=3).columns_of(ITEMS)
    found = decode_count_min(columns, counts @ columns, width=50)
    expected = np.maximum(found.estimates - np.e / 50 * counts.sum(), 0)
    np.testing.assert_allclose(found.lower, expected)


def test_false_positives_of_a_bloom_filter_are_as_many_as_its_fill_says():
    held = np.arange(100, dtype=np.uint64)
    others = np.arange(10**6, 10**6 + 2000, dtype=np.uint64)
    wrong, rates, sizes = [], [], []
    for seed in range(60):
        phi = BloomFeatures(width=150, depth=3, seed=seed)
        bits = phi.columns_of(held).sum(axis=0) > 0
        found = decode_bloom(phi.columns_of(others), bits, width=150)
        wrong.append(found.present.mean())
        rates.append(float(found.false_positive_rate))
        sizes.append(float(found.n_items))
    assert np.mean(wrong) == pytest.approx(np.mean(rates), rel=0.1)
    assert np.mean(sizes) == pytest.approx(100, rel=0.05)


def test_a_full_and_an_empty_filter():
    columns = BloomFeatures(10, width=1, depth=2).columns_of(ITEMS[:10])
    full = decode_bloom(columns, np.ones(2), width=1)
    assert full.false_positive_rate == 1
    assert full.n_items == np.inf
    empty = decode_bloom(columns, np.zeros(2), width=1)
    assert not empty.present.any()
    assert empty.n_items == 0


def test_bits_pooled_by_max_and_counts_pooled_by_mean_say_the_same():
    rng = np.random.default_rng(0)
    rows = (rng.random((30, N_ITEMS)) < 0.03).astype(float)
    phi = BloomFeatures(N_ITEMS, width=60, depth=3)
    columns = phi.columns_of(ITEMS)
    pooled = [
        sketchlearn.sketch_rows(rows, phi, pooling=pooling, progress=False).pooled
        for pooling in ("max", "mean")
    ]
    bits, counts = (decode_bloom(columns, z, width=60) for z in pooled)
    np.testing.assert_array_equal(bits.present, counts.present)
    assert bits.present[rows.any(axis=0)].all()


def test_keys_of_an_open_vocabulary_are_queried_alone():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, size=400, dtype=np.uint64)
    stream = np.repeat(keys, rng.integers(1, 30, size=400))
    width, depth = suggest_size(0.01, 0.99)
    phi = CountMinFeatures(width=width, depth=depth, row_items=1)
    steps = phi.sum_items(ItemRows(stream, len(stream))).to_ints()
    totals = np.array(steps) // 2**phi.frac_bits
    true = (stream[:, None] == keys[None, :50]).sum(axis=0)
    found = decode_count_min(phi.columns_of(keys[:50]), totals, width=width)
    assert (true <= found.estimates).all()
    assert (found.estimates <= true + 0.01 * len(stream)).mean() > 0.9


def test_guarantees_are_those_of_datasketches_on_the_same_stream():
    """Its hash is another one: the same promises, and errors of the same size."""
    counts = zipf_counts(7)
    width, depth, ours, theirs = 30, 3, [], []
    for seed in range(1, 41):
        phi = CountMinFeatures(N_ITEMS, width=width, depth=depth, seed=seed)
        columns = phi.columns_of(ITEMS)
        found = decode_count_min(columns, counts @ columns, width=width)
        ours.append(found.estimates - counts)
        peer = datasketches.count_min_sketch(depth, width, seed)
        for item, count in enumerate(counts.tolist()):
            peer.update(item, count)
        estimates = np.array([peer.get_estimate(item) for item in range(N_ITEMS)])
        theirs.append(estimates - counts)
        # Its relative error is e / width, its bound from below that of ours.
        assert peer.get_relative_error() == pytest.approx(np.e / width)
    assert np.min(ours) >= 0
    assert np.min(theirs) >= 0
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.15)
    bound = np.e / width * counts.sum()
    for excess in (ours, theirs):
        assert np.mean(np.array(excess) > bound) <= exp(-depth)


@pytest.mark.parametrize("error", [0.5, 0.1, 0.01, 0.003])
@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.9, 0.99, 0.9999])
def test_sizes_of_count_min_are_those_of_datasketches(error, confidence):
    peer = datasketches.count_min_sketch
    expected = peer.suggest_num_buckets(error), peer.suggest_num_hashes(confidence)
    assert suggest_size(error, confidence) == expected


@pytest.mark.parametrize(("error", "confidence"), [(0.2, 0.9), (0.1, 0.99)])
def test_a_suggested_count_sketch_keeps_its_promise(error, confidence):
    width, depth = suggest_size(error, confidence, kind="count-sketch")
    counts = zipf_counts(2)
    limit, outside = error * sqrt(float(counts @ counts)), []
    for seed in range(40):
        phi = CountSketchFeatures(N_ITEMS, width=width, depth=depth, seed=seed)
        columns = phi.columns_of(ITEMS)
        found = decode_count_sketch(columns, counts @ columns, width=width)
        outside.append(abs(found.estimates - counts) > limit)
    assert np.mean(outside) <= 1 - confidence


def test_a_suggested_bloom_filter_keeps_its_rate_and_is_the_smallest_that_does():
    width, depth = suggest_size(0.02, kind="bloom", n_items=200)
    filled = [1 - (1 - 1 / w) ** 200 for w in (width, width - 1)]
    assert filled[0] ** depth <= 0.02 < filled[1] ** depth
    # Bloom's own size is n log2(1/p) / ln 2, of one table that all hashes share.
    assert width * depth == pytest.approx(200 * np.log2(50) / np.log(2), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((0.0, 0.9), {}, "error must be between 0 and 1"),
        ((0.1, 1.0), {}, "confidence must be between 0 and 1"),
        ((0.1,), {}, "needs a confidence"),
        ((0.1, 0.9), {"kind": "magic"}, "no kind 'magic'"),
        ((0.1, 0.9), {"n_items": 5}, "n_items is for a Bloom filter"),
        ((0.1,), {"kind": "bloom"}, "needs n_items"),
        ((0.1, 0.9), {"kind": "bloom", "n_items": 5}, "has no confidence"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_in_one_sentence(arguments, options, said):
    with pytest.raises(FeatureMapError, match=said) as caught:
        sketchlearn.suggest_size(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_columns_of_other_tables_are_refused():
    columns = sp.csr_array(np.ones((3, 6), int))
    with pytest.raises(FeatureMapError, match="columns_of of its map"):
        decode_count_min(columns, np.ones(6), width=3)
