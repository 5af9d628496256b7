"""Packed counters are read exactly, merge and forget, and refuse what they cannot."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.decoders.counts.packed import (
    PackedReadingTuning,
    decode_packed,
    read_counters,
)
from sketchlearn.decoders.counts.packing import PackedCounters, place_digits
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapError,
    FeatureMapMismatch,
    PrivacyError,
    RowRangeError,
    RowsError,
)
from sketchlearn.features.table import TableFeatures
from sketchlearn.files.weights import load_weights, save_weights
from sketchlearn.plans.packed_counters import PackingTuning, pack_counters
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.release import release

N_ITEMS, MAX_ROWS = 60, 20


def binary_rows(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).normal(size=(4, N_ITEMS))
    score = rng.normal(size=(n_rows, 4)) @ mixing
    return (score + rng.normal(size=score.shape) > 1.0).astype(np.int64)


def plan(sketch_size, **options):
    rows = binary_rows(2000)
    return pack_counters(rows, sketch_size=sketch_size, max_rows=MAX_ROWS, **options)


def sketch(rows, packed):
    phi = TableFeatures(packed.table, row_items=N_ITEMS, origin="data")
    return sketch_rows(np.asarray(rows, float), phi)


SAFE, WRAPPED = plan(11), plan(9)
NARROW = plan(8, tuning=PackingTuning(spreads=(4.5,)))
PARTIAL = {"safe": plan(5, wrap=False), "wrapped": plan(5)}


def totals_of(rows, packed):
    return (np.asarray(rows).sum(axis=0) @ packed.table).tolist()


def test_plans_wrap_only_where_they_must():
    assert len(SAFE.order) == len(WRAPPED.order) == N_ITEMS
    assert (SAFE.bases == MAX_ROWS + 1).all()
    assert not SAFE.wraps
    assert WRAPPED.wraps
    assert not PARTIAL["safe"].wraps
    assert len(PARTIAL["safe"].order) == 4 * 7  # 21**7 < 2**32 < 21**8
    assert len(PARTIAL["wrapped"].order) > len(PARTIAL["safe"].order)


@pytest.mark.parametrize("packed", [SAFE, WRAPPED, *PARTIAL.values()])
def test_numbers_have_room_for_32_bits_and_no_more(packed):
    assert packed.capacities.max() <= 2**32
    assert packed.n_bytes == 4 * packed.sketch_size
    numbers, weights = packed.digits
    for number in range(packed.sketch_size - 1):
        bases = packed.bases[numbers == number]
        assert np.array_equal(weights[numbers == number][1:], np.cumprod(bases)[:-1])
        assert packed.capacities[number] == np.prod(bases)


@given(st.integers(0, 2**32), st.integers(1, MAX_ROWS))
@settings(max_examples=25, deadline=None)
def test_counters_that_never_wrap_are_right_for_rows_of_any_kind(seed, n_rows):
    rng = np.random.default_rng(seed)
    rows = rng.random((n_rows, N_ITEMS)) < rng.random(N_ITEMS)
    for packed in (SAFE, PARTIAL["safe"]):
        found = decode_packed(packed, sketch(rows, packed))
        assert found.converged
        exact = found.params.mean[packed.order]
        assert np.array_equal(exact, rows.sum(axis=0)[packed.order])
        assert (found.params.variance[packed.order] == 0).all()


@pytest.mark.parametrize("packed", [WRAPPED, NARROW])
def test_wrapped_counters_are_right_for_rows_like_the_training_rows(packed):
    for seed in range(1, 41):
        rows = binary_rows(MAX_ROWS, seed)
        found = read_counters(packed, totals_of(rows, packed), MAX_ROWS)
        assert found.converged
        assert np.array_equal(found.params.mean, rows.sum(axis=0))
        assert np.array_equal(found.params.presence, rows.max(axis=0))


def test_readings_that_do_not_fit_the_checksum_are_repaired():
    once = PackedReadingTuning(tries=1)
    repaired = 0
    for seed in range(1, 41):
        totals = totals_of(binary_rows(MAX_ROWS, seed), NARROW)
        try:
            read_counters(NARROW, totals, MAX_ROWS, tuning=once)
        except ConvergenceWarning:  # warnings are errors here
            repaired += read_counters(NARROW, totals, MAX_ROWS).converged
    assert repaired > 0


def test_totals_matter_modulo_their_capacities_alone():
    totals = totals_of(binary_rows(MAX_ROWS, 3), WRAPPED)
    small = [t % int(room) for t, room in zip(totals, WRAPPED.capacities, strict=True)]
    assert max(small) < 2**32
    assert np.array_equal(
        read_counters(WRAPPED, totals, MAX_ROWS).params.mean,
        read_counters(WRAPPED, small, MAX_ROWS).params.mean,
    )


def test_items_without_a_counter_are_predicted_with_honest_variances():
    packed = PARTIAL["wrapped"]
    errors, variances = [], []
    for seed in range(1, 101):
        rows = binary_rows(MAX_ROWS, seed)
        found = read_counters(packed, totals_of(rows, packed), MAX_ROWS).params
        others = packed.uncounted
        errors.append((found.mean - rows.sum(axis=0))[others] ** 2)
        variances.append(found.variance[others])
    assert np.mean(errors) == pytest.approx(np.mean(variances), rel=0.15)
    assert np.mean(errors) < 0.8 * MAX_ROWS * binary_rows(2000).var(axis=0).mean()


def test_predictions_are_the_conditional_means_of_the_prior():
    packed = PARTIAL["safe"]
    rows = binary_rows(MAX_ROWS, 5)
    found = read_counters(packed, totals_of(rows, packed), MAX_ROWS).params
    seen, others = packed.order, packed.uncounted
    cov, mean = packed.prior.covariance, packed.prior.mean * MAX_ROWS
    gain = cov[np.ix_(others, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    expected = mean[others] + gain @ (rows.sum(axis=0) - mean)[seen]
    assert np.allclose(found.mean[others], np.clip(expected, 0, MAX_ROWS))


@given(st.integers(0, 2**32), st.integers(1, MAX_ROWS - 1))
@settings(max_examples=10, deadline=None)
def test_merging_and_forgetting_equal_the_sketch_of_the_union(seed, cut):
    rows = binary_rows(MAX_ROWS, seed)
    first, second = sketch(rows[:cut], WRAPPED), sketch(rows[cut:], WRAPPED)
    whole = sketch(rows, WRAPPED)

    assert first + second == whole
    assert whole - second == first
    merged = decode_packed(WRAPPED, first + second)
    assert np.array_equal(merged.params.mean, decode_packed(WRAPPED, whole).params.mean)


def test_rows_unlike_the_training_rows_are_noticed():
    rows = 1 - binary_rows(MAX_ROWS, 1)
    with pytest.warns(ConvergenceWarning, match="unlike the training rows"):
        found = decode_packed(WRAPPED, sketch(rows, WRAPPED))
    assert not found.converged
    prior = WRAPPED.prior
    expected = prior.spread_of(MAX_ROWS) * np.diag(prior.covariance)
    assert np.allclose(found.params.variance, expected)


def test_items_that_training_rows_never_hold_are_counted_too():
    training = binary_rows(2000)
    training[:, 5] = 0
    packed = pack_counters(training, sketch_size=8, max_rows=MAX_ROWS)
    rows = binary_rows(MAX_ROWS, 9)
    rows[:, 5] = 0
    rows[2, 5] = 1
    found = decode_packed(packed, sketch(rows, packed))
    assert found.converged
    assert found.params.mean[5] == 1


def test_more_rows_than_planned_are_refused():
    rows = binary_rows(MAX_ROWS + 1, 2)
    merged = sketch(rows[:-1], SAFE) + sketch(rows[-1:], SAFE)
    with pytest.raises(RowRangeError, match=r"21 rows.*planned for 20"):
        decode_packed(SAFE, merged)
    with pytest.raises(RowsError, match="empty"):
        read_counters(SAFE, [0] * SAFE.sketch_size, 0)


def test_released_sketches_are_refused(tmp_path):
    phi = TableFeatures(np.asarray(SAFE.table), row_items=N_ITEMS)  # of public rows
    exact = sketch_rows(binary_rows(MAX_ROWS).astype(float), phi)
    ledger = Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-5)
    private = release(exact, epsilon=1.0, delta=1e-5, ledger=ledger)
    with pytest.raises(PrivacyError, match="do not survive the noise"):
        decode_packed(SAFE, private)


def test_sketches_of_another_plan_are_refused():
    with pytest.raises(FeatureMapMismatch, match="11 numbers of 60 items"):
        decode_packed(WRAPPED, sketch(binary_rows(5), SAFE))
    other = pack_counters(binary_rows(2000, 3), sketch_size=9, max_rows=MAX_ROWS)
    with pytest.raises(FeatureMapMismatch, match="made with the table of this plan"):
        decode_packed(WRAPPED, sketch(binary_rows(5), other))


def test_sets_of_one_kind_of_rows_are_read_too():
    # Rows near one row are unlike the average; the first items tell.
    rows = binary_rows(2000, 11)
    near = np.argsort((rows != rows[0]).sum(axis=1))[:MAX_ROWS]
    found = decode_packed(WRAPPED, sketch(rows[near], WRAPPED))
    assert found.converged
    assert np.array_equal(found.params.mean, rows[near].sum(axis=0))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sketch_size": 1}, FeatureMapError, "at least 2"),
        ({"max_rows": 0}, FeatureMapError, "from 1 to"),
        ({"max_rows": 2**25}, FeatureMapError, "from 1 to"),
        ({"rows": 2 * binary_rows(50)}, RowsError, "zeros and ones"),
        ({"rows": 2 * sp.csr_array(binary_rows(50))}, RowsError, "zeros and ones"),
    ],
)
def test_plans_without_sense_are_refused(options, error, message):
    given_options = {"rows": binary_rows(50), "sketch_size": 9, "max_rows": 20}
    given_options |= options
    with pytest.raises(error, match=message):
        pack_counters(given_options.pop("rows"), **given_options)


def test_a_saved_plan_reads_the_same(tmp_path):
    packed = PARTIAL["wrapped"]
    save_weights(packed.to_weights(), tmp_path / "packed.safetensors")
    again = PackedCounters.from_weights(load_weights(tmp_path / "packed.safetensors"))
    rows = binary_rows(MAX_ROWS, 3)
    before, after = (
        read_counters(one, totals_of(rows, one), MAX_ROWS).params
        for one in (packed, again)
    )
    assert np.array_equal(packed.table, again.table)
    assert np.array_equal(before.mean, after.mean)
    assert np.array_equal(before.variance, after.variance)


@given(st.lists(st.integers(2, 2**20), max_size=40), st.integers(1, 5))
@settings(deadline=None)
def test_digits_are_placed_within_32_bits(bases, n_numbers):
    numbers, weights, room = place_digits(np.array(bases, np.int64), n_numbers)
    assert room.max() <= 2**32
    for base, number, weight in zip(bases, numbers, weights, strict=True):
        assert number == -1 or weight * base <= 2**32
        assert number >= 0 or (room * base > 2**32).all()
