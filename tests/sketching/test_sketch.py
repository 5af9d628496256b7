"""A sketch is exact: order, batches and partition never change a bit of it."""

import multiprocessing
import pickle
import resource
import sys
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn import (
    ConcatenatedFeatures,
    CrossMomentFeatures,
    FourierFeatures,
    MomentFeatures,
    NystromFeatures,
    Scaling,
    Sketch,
    clipped,
    open_rows,
    sketch_rows,
)
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import (
    FeatureMapMismatch,
    PrivacyError,
    RemovalError,
    RowRangeError,
    RowsError,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2000, 4)).astype(np.float32)
PHI = FourierFeatures(4, 16, seed=0)
MAPS = [
    PHI,
    MomentFeatures(4, order="covariance"),
    CrossMomentFeatures(4, 2),
    clipped(PHI, norm_bound=1.0),
]


@pytest.mark.parametrize("phi", MAPS, ids=lambda phi: phi.kind)
def test_fifty_partitions_orders_and_batch_sizes_give_one_digest(phi):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(20_000 if phi is PHI else 4000, 4)).astype(np.float32)
    digests = set()
    for trial in range(50 if phi is PHI else 10):
        shuffled = rows[rng.permutation(len(rows))]
        cuts = np.sort(rng.choice(len(rows), int(rng.integers(1, 20)), replace=False))
        parts = [part for part in np.split(shuffled, cuts) if len(part)]
        if trial % 2:  # one stream of uneven batches
            digests.add(sketch_rows((part for part in parts), phi).digest)
        else:  # separate sketches, merged
            sketches = [sketch_rows(part, phi) for part in parts]
            digests.add(sum(sketches[1:], start=sketches[0]).digest)
    assert len(digests) == 1


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(1, 1999))
def test_merging_and_forgetting_are_inverse(cut):
    whole, left = sketch_rows(ROWS, PHI), sketch_rows(ROWS[:cut], PHI)
    right = sketch_rows(ROWS[cut:], PHI)
    assert left + right == whole
    assert whole - left == right
    assert (whole - right).digest == left.digest


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_trees_of_a_thousand_merges_and_removals_stay_exact(seed):
    rng = np.random.default_rng(seed)
    pieces = [sketch_rows(ROWS[i * 20 : i * 20 + 20], PHI) for i in range(100)]
    inside: set[int] = {0}
    total = pieces[0]
    for _ in range(1000):
        index = int(rng.integers(100))
        if index in inside:
            if len(inside) > 1:
                total, inside = total - pieces[index], inside - {index}
        else:
            total, inside = total + pieces[index], inside | {index}
    rows = np.concatenate([ROWS[i * 20 : i * 20 + 20] for i in sorted(inside)])
    assert total == sketch_rows(rows, PHI)


def test_a_long_run_of_adding_and_removing_changes_nothing():
    base, block = sketch_rows(ROWS[:1500], PHI), sketch_rows(ROWS[1500:], PHI)
    total = base
    for _ in range(10_000):
        total = (total + block) - block
    assert total == base


@pytest.mark.full
def test_a_million_cycles_change_nothing():
    base, block = sketch_rows(ROWS[:1500], PHI), sketch_rows(ROWS[1500:], PHI)
    total = base
    for _ in range(1_000_000):
        total = (total + block) - block
    assert total == base


def test_removing_almost_everything_leaves_exactly_the_rest():
    rows = RNG.normal(size=(200_000, 4)).astype(np.float32)
    rest = sketch_rows(rows, PHI) - sketch_rows(rows[10:], PHI)
    assert rest.count == 10
    assert rest == sketch_rows(rows[:10], PHI)


def test_totals_are_the_exact_sum_of_the_features():
    features = PHI(ROWS)
    sketch = sketch_rows(ROWS, PHI)
    for j in range(PHI.sketch_size):
        exact = sum(Fraction(float(value)) for value in features[:, j])
        assert Fraction(sketch.total.to_ints()[j], 2**PHI.frac_bits) == exact


def test_merging_ten_thousand_sketches_is_order_free():
    once = [sketch_rows(ROWS[i : i + 4], PHI) for i in range(0, 2000, 4)]
    pieces = [piece.with_new_lineage() for piece in once * 20]
    forward = sum(pieces[1:], start=pieces[0])
    backward = sum(pieces[-2::-1], start=pieces[-1])
    assert forward == backward
    assert forward.count == 40_000


def test_threads_sketching_at_once_agree_with_one():
    results: dict[int, Sketch] = {}

    def work(index):
        results[index] = sketch_rows(ROWS[index::8], PHI)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    merged = sum([results[i] for i in range(1, 8)], start=results[0])
    assert merged == sketch_rows(ROWS, PHI)


@pytest.mark.full
@pytest.mark.parametrize("phi", MAPS, ids=lambda phi: phi.kind)
def test_no_row_of_sixty_thousand_changes_bits(phi):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(61_440, 4)).astype(np.float32)
    features = phi(rows)
    order = rng.permutation(len(rows))
    for size in (1, 5, 64, 100, 192, 512, 1024, len(rows)):
        limit = 2000 * size if size < 64 else len(rows)
        for start in range(0, min(len(rows), limit), size):
            chosen = order[start : start + size]
            assert np.array_equal(phi(rows[chosen]), features[chosen])


def test_mean_is_the_mean_of_the_features():
    mean = sketch_rows(ROWS, PHI).mean
    assert mean.dtype == np.float64
    assert np.allclose(mean, PHI(ROWS).astype(np.float64).mean(axis=0), atol=1e-12)


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda rows: rows.astype(np.float64),
        lambda rows: rows.tolist(),
        lambda rows: np.repeat(rows, 2, axis=0)[::2],
    ],
)
def test_the_layout_of_the_rows_does_not_matter(convert):
    for phi in MAPS:
        assert sketch_rows(convert(ROWS), phi) == sketch_rows(ROWS, phi)


def test_minus_zero_and_denormals_are_ordinary_rows():
    phi = MomentFeatures(1, order="mean")
    zero, minus = sketch_rows([[0.0]], phi), sketch_rows([[-0.0]], phi)
    assert zero == minus == sketch_rows([[5e-324]], phi)


def test_different_maps_never_merge_and_the_error_says_why():
    other = sketch_rows(ROWS, FourierFeatures(4, 16, seed=1))
    with pytest.raises(FeatureMapMismatch, match=r"cannot merge.*seed 0 vs 1"):
        sketch_rows(ROWS, PHI) + other
    with pytest.raises(FeatureMapMismatch, match="cannot subtract"):
        sketch_rows(ROWS, PHI) - other


def test_removing_more_rows_than_there_are_is_refused():
    small, large = sketch_rows(ROWS[:100], PHI), sketch_rows(ROWS[:120], PHI)
    with pytest.raises(RemovalError, match="removing 120 rows from a sketch of 100"):
        small - large


def test_removing_rows_that_were_never_there_is_refused_where_it_shows():
    phi = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
    a = sketch_rows(ROWS[:100], phi)
    b = sketch_rows(-np.abs(ROWS[100:199]) - 5, phi)
    with pytest.raises(RemovalError, match="cannot all have been in this sketch"):
        a - b
    with pytest.raises(RemovalError, match="cannot all have been in this sketch"):
        a - sketch_rows(ROWS[100:200], phi)  # nothing may remain of zero rows


def test_an_empty_remainder_is_a_sketch_of_nothing():
    whole = sketch_rows(ROWS, PHI)
    empty = whole - whole
    assert empty.count == 0
    assert empty + whole == whole
    assert whole + empty == whole
    with pytest.raises(RowsError, match="0 rows"):
        _ = empty.mean


def test_nothing_is_added_when_a_later_batch_is_bad():
    good = ROWS[:600].astype(np.float64)
    bad = good.copy()
    bad[17, 1] = np.nan
    with pytest.raises(RowsError, match="NaN"):
        sketch_rows((batch for batch in (good, bad)), PHI)
    bad[17, 1] = 1e9
    phi = MomentFeatures(4, order="mean")
    with pytest.raises(RowRangeError, match="row 617 lies outside"):
        sketch_rows((batch for batch in (good, bad)), phi)


def test_an_interrupt_leaves_the_sketch_as_it_was():
    before = sketch_rows(ROWS[:100], PHI)
    digest = before.digest

    def batches():
        yield ROWS[100:700]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        before + sketch_rows(batches(), PHI)
    assert Sketch(before.total, before.count, before.features).digest == digest


@pytest.mark.parametrize("step", range(0, 400, 7))
def test_an_interrupt_at_any_line_leaves_before_or_after(step):
    left, right = sketch_rows(ROWS[:100], PHI), sketch_rows(ROWS[100:200], PHI)
    before, after = left.digest, (left + right).digest
    state, remaining = {"sketch": left}, step

    def interrupt(frame, event, argument):
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise KeyboardInterrupt
        return interrupt

    sys.settrace(interrupt)
    try:
        state["sketch"] = state["sketch"] + right
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    assert state["sketch"].digest in (before, after)
    assert Sketch(left.total, left.count, left.features).digest == before


@pytest.mark.full
def test_ten_million_rows_stream_in_constant_memory_and_exactly():
    phi = FourierFeatures(16, 1000, scale=4.0)
    block = np.random.default_rng(2).normal(size=(8192, 16)).astype(np.float32)
    sketch_rows((block for _ in range(20)), phi)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = 10_000_000 // 8192
    sketch = sketch_rows((block for _ in range(times)), phi)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 50 * 1024  # kilobytes
    expected = phi(block).astype(np.float64).mean(axis=0)
    assert np.abs(sketch.mean - expected).max() < 1e-12


def test_no_rows_is_an_error():
    with pytest.raises(RowsError, match="0 rows|no rows"):
        sketch_rows(np.empty((0, 4)), PHI)


def test_lineage_is_united_however_many_passes_there_are():
    one = sketch_rows(ROWS[:1], PHI)
    pieces = [one.with_new_lineage() for _ in range(4100)]
    two = pieces[0] + pieces[1]
    assert two.lineage == pieces[0].lineage | pieces[1].lineage
    many = sum(pieces[1:], start=pieces[0])
    assert two.lineage <= many.lineage
    with pytest.raises(PrivacyError, match="share the run"):
        many + two
    assert (many - two) + two == many
    assert ((many - two) + two).lineage == many.lineage


def test_forged_totals_are_impossible():
    sketch = sketch_rows(ROWS[:10], PHI)
    huge = Int128Array.from_ints([11 << 44] * PHI.sketch_size)
    assert sketch.is_possible
    assert not Sketch(huge, 10, PHI.spec).is_possible


def test_a_sketch_knows_its_map():
    scaled = FourierFeatures(4, 8, scaling=Scaling.from_bounds(-9, 9, n_features=4))
    sketch = sketch_rows(ROWS, scaled)
    bare = Sketch(sketch.total, sketch.count, sketch.features)
    assert bare.feature_map == scaled
    with pytest.raises(FeatureMapMismatch, match="cannot attach"):
        bare.with_map(PHI)


def test_a_sketch_without_a_description_asks_for_its_map():
    sketch = sketch_rows(ROWS, PHI)
    bare = Sketch(sketch.total, sketch.count, replace(sketch.features, text=""))
    with pytest.raises(FeatureMapMismatch, match="only by its fingerprint"):
        _ = bare.feature_map
    assert bare.with_map(PHI).feature_map is PHI


def test_batches_of_any_length_add_up():
    phi = FourierFeatures(1, 2)
    batches = open_rows(np.zeros((600_000, 1)), batch_rows=600_000)
    assert sketch_rows(batches, phi).mean.tolist() == [1.0, 0.0]


def test_rows_whose_features_would_not_be_numbers_are_refused():
    with pytest.raises(RowRangeError, match="outside the planned range"):
        sketch_rows(np.full((3, 2), 1e15), FourierFeatures(2, 4, scale=1e-25))
    with pytest.raises(RowRangeError):
        MomentFeatures(1).batch_sum(np.array([[np.nan]]))


def test_honest_sketches_of_mixed_lattices_are_possible():
    parts = [clipped(PHI, norm_bound=bound) for bound in (0.3, 1e-6)]
    for start in range(20):
        rows = ROWS[start : start + 1 + start % 3]
        assert sketch_rows(rows, ConcatenatedFeatures(parts)).is_possible


def test_sketches_of_a_forked_child_agree():
    expected = sketch_rows(ROWS, PHI).digest
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(digest_of_rows).get(timeout=60) == expected


def digest_of_rows():
    return sketch_rows(ROWS, PHI).digest


def test_sketches_add_up_with_sum_and_know_their_columns():
    frame = pd.DataFrame(ROWS, columns=list("abcd"))
    parts = [sketch_rows(frame[i::3], PHI) for i in range(3)]
    assert sum(parts) == sketch_rows(ROWS, PHI)
    assert sum(parts).columns == ("a", "b", "c", "d")
    other = sketch_rows(frame[list("dcba")], PHI)
    with pytest.raises(FeatureMapMismatch, match="column 'a' where right has 'd'"):
        parts[0] + other


def test_landmarks_stay_out_of_the_sketch():
    phi = NystromFeatures(ROWS[:5])
    sketch = sketch_rows(ROWS, phi)
    assert "landmarks" in sketch.features.text  # named, not stored
    assert len(sketch.features.text) < 200


def test_sketches_pickle_and_describe_themselves():
    sketch = sketch_rows(ROWS, PHI)
    again = pickle.loads(pickle.dumps(sketch))
    assert again == sketch
    assert "count=2000" in repr(sketch)
    assert "2,000" in sketch._repr_html_()
    assert hash(again) == hash(sketch)
    assert (sketch == 3) is False


def test_a_sketch_adds_only_to_sketches():
    with pytest.raises(TypeError):
        sketch_rows(ROWS, PHI) + 1
    with pytest.raises(TypeError):
        sketch_rows(ROWS, PHI) - ROWS
