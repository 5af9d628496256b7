"""All counts are decoded together, with laws that hold their own error bars."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.decoders.counts.classical import decode_count_sketch
from sketchlearn.decoders.counts.joint import best_depth, decode_counts
from sketchlearn.decoders.counts.message_passing import JointTuning
from sketchlearn.decoders.counts.zipf import draw_zipf_counts
from sketchlearn.features.joint_counts import JointCountFeatures


def hashed_columns(rng, n_items, width, depth, *, signed=True):
    places = rng.integers(width, size=(n_items, depth)) + width * np.arange(depth)
    shape = (n_items, depth)
    values = rng.choice([-1.0, 1.0], shape) if signed else np.ones(shape)
    starts = np.arange(0, n_items * depth + 1, depth)
    data = (values.ravel(), places.ravel(), starts)
    return sp.csr_array(data, shape=(n_items, width * depth))


def decode(columns, counts, n_rows, **options):
    return decode_counts(columns, columns.T @ counts / n_rows, n_rows, **options)


def zipf_case(alpha, seed=0, *, signed=True, n_items=300, width=16, depth=5, rows=50):
    rng = np.random.default_rng(seed)
    counts = draw_zipf_counts(rng, n_items, rows, alpha)[0]
    return hashed_columns(rng, n_items, width, depth, signed=signed), counts, rows


def coverage(posterior, counts, level, rng):
    """Share of counts inside, those on an end in part as chance decides."""
    low, high = posterior.below(counts - 1), posterior.below(counts)
    rank = low + rng.random(len(counts)) * (high - low)
    return np.mean(np.abs(rank - 0.5) <= level / 2)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_joint_decoding_beats_the_mean_and_least_squares(alpha, signed):
    joint, mean, squares = [], [], []
    for seed in range(4):
        columns, counts, rows = zipf_case(alpha, seed, signed=signed)
        found = decode(columns, counts, rows).params.mean
        dense = columns.T.toarray()
        ridge = np.linalg.lstsq(dense, columns.T @ counts, rcond=None)[0]
        joint.append(np.mean((found - counts) ** 2))
        mean.append(counts.var())
        squares.append(np.mean((ridge - counts) ** 2))
    assert np.mean(joint) < 0.9 * np.mean(mean)
    assert np.mean(joint) < np.mean(squares)


@pytest.mark.parametrize("n_rows", [7, 1000, 10**6])
def test_items_with_numbers_of_their_own_are_exact(n_rows):
    rng = np.random.default_rng(0)
    counts = rng.integers(n_rows + 1, size=20)
    columns = sp.csr_array(np.eye(20)[rng.permutation(20)])

    posterior = decode(columns, counts, n_rows).params

    assert np.abs(posterior.mean - counts).max() < 0.3
    low, high = posterior.interval(0.9)
    assert (low <= counts).all()
    assert (counts <= high).all()
    assert np.abs(posterior.presence - (counts > 0)).max() < 1e-3


def test_fewer_items_than_numbers_are_exact():
    rng = np.random.default_rng(1)
    columns = hashed_columns(rng, 60, 20, 5)
    counts = rng.integers(101, size=60)
    found = decode(columns, counts, 100)
    np.testing.assert_allclose(found.params.mean, counts, atol=0.3)


def test_the_order_of_items_does_not_matter():
    columns, counts, rows = zipf_case(0.75)
    order = np.random.default_rng(5).permutation(len(counts))

    given_order = decode(columns, counts, rows).params
    other_order = decode(columns[order], counts[order], rows).params

    np.testing.assert_allclose(
        other_order.mean, given_order.mean[order], rtol=1e-3, atol=1e-3
    )


def test_noise_of_a_release_widens_the_error_bars():
    columns, counts, rows = zipf_case(1.0)
    z = columns.T @ counts / rows
    noisy = z + np.random.default_rng(0).normal(scale=0.2, size=z.shape)

    exact = decode_counts(columns, z, rows).params
    blurred = decode_counts(columns, noisy, rows, noise_variance=0.04).params

    assert blurred.variance.mean() > 2 * exact.variance.mean()


def test_a_tiny_problem_agrees_with_all_its_solutions():
    """Pairs of items share a number each; every other item has its own."""
    columns = sp.csr_array(np.kron(np.eye(6), [[1.0], [1.0]]))
    counts = np.array([1, 0, 0, 0, 2, 2, 0, 3, 1, 1, 0, 0])
    posterior = decode(columns, counts, 3, total=counts.sum() / 3).params
    pairs = columns.T @ counts
    for place, total in enumerate(pairs):
        solutions = [
            (one, other)
            for one, other in itertools.product(range(4), repeat=2)
            if one + other == total
        ]
        both = posterior.mean[2 * place : 2 * place + 2]
        assert both[0] == pytest.approx(both[1], abs=1e-6)  # nothing tells them apart
        most = max(max(solution) for solution in solutions)
        assert (both >= 0).all()
        assert (both <= most + 0.5).all()


def test_a_known_sum_of_counts_is_kept():
    rng = np.random.default_rng(2)
    counts = rng.multinomial(2000, np.full(400, 1 / 400))
    columns = hashed_columns(rng, 400, 16, 5)
    found = decode(columns, counts, 2000, total=1.0).params
    assert found.mean.sum() == pytest.approx(2000, rel=0.02)


def test_one_heavy_item_among_light_ones_is_found():
    rng = np.random.default_rng(3)
    counts = rng.poisson(3.0, size=2000)
    counts[77] = 10**6
    columns = hashed_columns(rng, 2000, 60, 5)
    found = decode(columns, counts, int(counts.sum()), total=1.0).params
    assert found.mean[77] == pytest.approx(10**6, abs=100)
    assert np.delete(found.mean, 77).max() < 100


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("alpha", [0.75, 1.5])
def test_intervals_hold_about_what_they_say(alpha, level):
    rng = np.random.default_rng(0)
    found = []
    for seed in range(5):
        columns, counts, rows = zipf_case(alpha, seed, signed=False)
        found.append(coverage(decode(columns, counts, rows).params, counts, level, rng))
    assert np.mean(found) == pytest.approx(level, abs=0.1)


def test_intervals_grow_with_confidence_and_hold_the_middle():
    columns, counts, rows = zipf_case(0.5)
    posterior = decode(columns, counts, rows).params
    low, high = posterior.interval(0.5)
    lower, higher = posterior.interval(0.95)
    assert (lower <= low).all()
    assert (low <= high).all()
    assert (high <= higher).all()
    few = posterior.take([3, 5])
    np.testing.assert_array_equal(few.interval(0.95)[1], higher[[3, 5]])
    np.testing.assert_array_equal(few.mean, posterior.mean[[3, 5]])


@settings(max_examples=15, deadline=None)
@given(
    values=st.sampled_from(["zeros", "equal", "one", "full"]),
    n_rows=st.sampled_from([1, 10, 1000]),
    depth=st.integers(1, 5),
    signed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_extreme_counts_give_finite_answers_in_range(
    values, n_rows, depth, signed, seed
):
    rng = np.random.default_rng(seed)
    counts = np.zeros(50)
    if values == "equal":
        counts[:] = n_rows // 2
    elif values == "one":
        counts[7] = n_rows
    elif values == "full":
        counts[:] = n_rows
    columns = hashed_columns(rng, 50, 4, depth, signed=signed)

    posterior = decode(columns, counts, n_rows).params

    for numbers in (posterior.mean, posterior.variance, posterior.presence):
        assert np.isfinite(numbers).all()
        assert (numbers >= 0).all()
    assert posterior.mean.max() <= n_rows + 1
    assert posterior.presence.max() <= 1


def test_numbers_no_counts_can_have_are_said_not_to_be_explained():
    rng = np.random.default_rng(0)
    columns = hashed_columns(rng, 50, 4, 5, signed=False)
    found = decode_counts(columns, rng.normal(size=20) * 1e6, 10)
    assert np.isfinite(found.params.mean).all()
    assert found.residual > 0.5


def test_an_empty_sketch_has_no_items():
    rng = np.random.default_rng(0)
    columns = hashed_columns(rng, 500, 16, 5)
    posterior = decode_counts(columns, np.zeros(80), 100).params
    assert posterior.mean.max() < 0.05
    assert posterior.presence.max() < 0.05


def test_items_of_one_column_have_one_law():
    rng = np.random.default_rng(0)
    columns = hashed_columns(rng, 100, 16, 5)
    columns = sp.csr_array(sp.vstack([columns, columns[:1]]))
    counts = np.append(draw_zipf_counts(rng, 100, 50, 1.0)[0], 5)
    posterior = decode(columns, counts, 50).params
    assert posterior.mean[0] == pytest.approx(posterior.mean[-1])


def test_depth_leaves_buckets():
    assert best_depth(100) == 5
    assert [best_depth(m) for m in (1, 10)] == [1, 2]


def test_a_smallest_count_is_kept_and_sharpens_what_is_said():
    rng = np.random.default_rng(0)
    counts = 1 + draw_zipf_counts(rng, 400, 60, 1.0)[0]
    columns = hashed_columns(rng, 400, 16, 5)
    known = decode(columns, counts, 61, smallest=1).params
    free = decode(columns, counts, 61).params
    assert known.mean.min() >= 1
    assert known.interval(0.99)[0].min() >= 1
    assert (known.presence == 1).all()
    assert (known.below(np.zeros(400)) == 0).all()
    assert np.mean((known.mean - counts) ** 2) < np.mean((free.mean - counts) ** 2)


def test_a_known_sum_makes_small_sketches_as_good_as_the_mean():
    rng = np.random.default_rng(1)
    errors, spread = [], []
    for _ in range(5):
        counts = rng.binomial(100, 0.3, size=1000)
        columns = hashed_columns(rng, 1000, 5, 2)
        found = decode(columns, counts, 100, total=counts.sum() / 100).params
        errors.append(np.mean((found.mean - counts) ** 2))
        spread.append(counts.var())
    assert np.mean(errors) < 1.2 * np.mean(spread)


def test_numbers_that_hold_other_items_are_not_explained():
    rng = np.random.default_rng(2)
    counts = draw_zipf_counts(rng, 600, 100, 0.5)[0]
    columns = hashed_columns(rng, 600, 60, 5)
    assert decode(columns, counts, 100).converged
    known = sp.csr_array(columns[:150])
    assert not decode_counts(known, columns.T @ counts / 100, 100).converged


def zipf_stream(seed, *, numbers, n_items=20_000, n_events=10**6, exponent=1.1):
    """A sketch of a stream like a text, its columns and its counts."""
    rng = np.random.default_rng(seed)
    law = np.arange(1, n_items + 1.0) ** -exponent
    counts = rng.permutation(rng.multinomial(n_events, law / law.sum()))
    phi = JointCountFeatures(n_items, width=numbers // 5, depth=5, seed=seed)
    return phi.columns_of(np.arange(n_items, dtype=np.uint64)), counts


def table_answers(columns, counts):
    """What the signed tables of a joint sketch say of each item alone."""
    width = columns.shape[1] // 5
    totals = columns.T @ counts
    signed = sp.csr_array(columns[:, width:])
    found = decode_count_sketch(signed, totals[width:], width=width).estimates
    return np.maximum(found, 0.0)


@pytest.mark.parametrize("numbers", [200, 500, 2000])
def test_streams_are_decoded_better_than_by_their_tables(numbers):
    inside = {"all": [], "chosen": [], "largest": []}
    for seed in range(3):
        columns, counts = zipf_stream(seed, numbers=numbers)
        posterior = decode(columns, counts, 10**6, total=1.0).params
        gaps = np.abs(posterior.mean - counts)
        others = np.abs(table_answers(columns, counts) - counts)
        largest = np.argsort(-counts)[:50]
        assert gaps.mean() < 0.3 * others.mean()
        assert np.square(gaps).mean() < 0.3 * np.square(others).mean()
        assert gaps[largest[:5]].mean() < 1.5 * others[largest[:5]].mean()
        low, high = posterior.interval(0.95)
        covers = (low <= counts) & (counts <= high)
        inside["all"].append(covers)
        inside["chosen"].append(covers[np.argsort(-posterior.mean)[:50]])
        inside["largest"].append(covers[largest])
    assert np.mean(inside["all"]) > 0.93
    assert np.mean(inside["chosen"]) > 0.88  # 150 items: seven would be outside of .95
    assert np.mean(inside["largest"]) > 0.88


@pytest.mark.parametrize("numbers", [200, 2000, 10_000])
def test_rounds_that_get_lost_leave_the_answers_of_the_tables(numbers):
    columns, counts = zipf_stream(0, numbers=numbers)
    lost = JointTuning(lost=0.0)
    found = decode(columns, counts, 10**6, total=1.0, tuning=lost)
    gaps = np.abs(found.params.mean - counts)
    others = np.abs(table_answers(columns, counts) - counts)
    assert not found.converged
    assert gaps.mean() <= 1.01 * others.mean()
    assert np.square(gaps).mean() <= 1.01 * np.square(others).mean()
    low, high = found.params.interval(0.95)
    covers = (low <= counts) & (counts <= high)
    assert covers.mean() > 0.93
    assert covers[np.argsort(-counts)[:50]].mean() > 0.93


def test_no_count_is_above_what_a_number_without_signs_holds():
    rng = np.random.default_rng(0)
    columns = JointCountFeatures(300, width=40, depth=5).columns_of(
        np.arange(300, dtype=np.uint64)
    )
    counts = np.where(rng.random(300) < 0.05, rng.integers(1, 50, 300), 0)
    held = (columns.T @ counts)[columns.indices.reshape(300, 5)[:, 0]]
    posterior = decode(columns, counts, int(counts.sum()), total=1.0).params
    assert (posterior.mean <= held).all()
    assert (posterior.interval(0.999)[1] <= held).all()
    assert (posterior.presence[held == 0] == 0).all()
    assert (posterior.below(held) == 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_sparse_streams_that_their_largest_items_explain_are_exact(seed):
    rng, shares = np.random.default_rng(seed), np.arange(1, 2001) ** -2.0
    counts = rng.multinomial(3000, shares / shares.sum())
    phi = JointCountFeatures(2000, width=200, depth=5, seed=seed)
    columns = phi.columns_of(np.arange(2000, dtype=np.uint64))

    decoding = decode_counts(columns, columns.T @ counts / 3000, 3000, total=1.0)

    assert np.abs(decoding.params.mean - counts).max() < 0.5
