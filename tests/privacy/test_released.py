"""A released sketch carries nothing exact, and merges with other people's only."""

import os
import pickle
from dataclasses import fields, replace
from math import sqrt

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from privacy.releases import (
    PHI,
    PROMISE,
    ROWS,
    by_label,
    empty_sketch,
    plan_of,
    require_refused,
)
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    BudgetExceeded,
    FeatureMapMismatch,
    PrivacyError,
    TooNoisy,
)
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.files.container import canonical_json
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_sigma
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.release import release
from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
from sketchlearn.storage.sketches import dumps, load, loads, save
from sketchlearn.testing import release_seeded

# The count.


def test_the_noisy_count_is_near_and_not_equal(exact, ample):
    private = release(exact, **PROMISE, ledger=ample)

    assert abs(private.count - exact.count) < 7 * private.count_noise_std
    assert private.count != exact.count
    assert abs(private.mean - exact.mean).max() < 8 * private.noise_std / 4000


def test_laplace_counts_split_epsilon(exact, ample):
    private = release(exact, **PROMISE, ledger=ample, count="laplace", count_share=0.2)
    statement, (spent,) = private.statement, ample.charges

    assert statement.count_epsilon == spent.pure_epsilon == pytest.approx(0.2)
    gaussian = gaussian_epsilon(sqrt(statement.mu2), 1e-6)
    assert gaussian + statement.count_epsilon <= 1.0
    assert gaussian == pytest.approx(0.8, rel=1e-6)
    assert private.noise_std == pytest.approx(gaussian_sigma(1.0, 0.8, 1e-6), rel=1e-6)
    assert type(private.noisy_count) is int
    assert "Laplace" in statement.mechanism
    decay = np.exp(-0.2)
    assert private.count_noise_std == pytest.approx(np.sqrt(2 * decay) / (1 - decay))


def test_laplace_counts_have_the_promised_spread(exact):
    plan = plan_release(
        exact, **PROMISE, count="laplace", count_share=0.5, rows_per_unit=3
    )
    counts = [drawn.count for drawn in plan.draw(os.urandom, 2000)]
    std = PrivateSketch(exact.total, exact.features, plan.statement, 1).count_noise_std

    assert np.mean(counts) == pytest.approx(exact.count, abs=5 * std / sqrt(2000))
    assert np.std(counts) == pytest.approx(std, rel=5 * sqrt(5.5 / 4 / 2000))


def test_laplace_counts_need_a_part_of_the_ledger(exact):
    plain = Ledger.ephemeral(epsilon=10.0, delta=1e-3)
    require_refused(plain, exact, BudgetExceeded, "pure epsilon", count="laplace")


def test_a_public_count_is_exact_under_replacement(exact, swaps):
    private = release(
        exact, **PROMISE, ledger=swaps, neighbours="replace", count="public"
    )

    assert private.count == exact.count
    assert private.count_noise_std == 0.0
    assert private.statement.count_weight == 0


@pytest.mark.parametrize("noisy", [-50, 0, 1])
def test_a_count_is_at_least_one(exact, noisy):
    plan = plan_of(exact, **PROMISE, count="laplace")
    assert PrivateSketch(exact.total, exact.features, plan, noisy).count == 1.0


def test_a_mean_drowned_by_noise_is_refused_unless_asked_for(ample):
    sketch = sketch_rows(np.full((5, 4), 0.1), PHI)
    private = release(sketch, epsilon=0.01, delta=1e-6, ledger=ample)

    with pytest.raises(TooNoisy, match=r"too large for a mean.*allow_noisy=True"):
        _ = private.mean
    assert np.isfinite(private.read_mean(allow_noisy=True)).all()


# Merging releases.


def two_releases(ample, **changes):
    return tuple(
        release(part, **{**PROMISE, "ledger": ample, **changes})
        for part in by_label().values()
    )


def test_disjoint_releases_merge_to_the_weaker_promise(ample):
    left, right = by_label().values()
    a = release(left, epsilon=1.0, delta=1e-6, ledger=ample)
    b = release(right, epsilon=0.5, delta=1e-5, ledger=ample)
    n_charges = len(ample.charges)
    merged = merge_disjoint(a, b)

    assert (merged.statement.epsilon, merged.statement.delta) == (1.0, 1e-5)
    assert merged.statement.mu2 == max(a.statement.mu2, b.statement.mu2)
    assert merged.noise_std**2 == pytest.approx(a.noise_std**2 + b.noise_std**2)
    assert merged.count_noise_std**2 == pytest.approx(
        a.count_noise_std**2 + b.count_noise_std**2
    )
    names = {*a.statement.lineage, *b.statement.lineage}
    assert set(merged.statement.lineage) == names
    assert merged.count == pytest.approx(a.count + b.count)
    assert merged.total.to_ints() == (a.total + b.total).to_ints()
    assert len(ample.charges) == n_charges
    assert merge_disjoint(b, a).total.to_ints() == merged.total.to_ints()


def test_public_counts_add_up(swaps):
    a, b = two_releases(swaps, neighbours="replace", count="public")
    assert merge_disjoint(a, b).count == 6000


def test_the_noise_of_merged_laplace_counts_adds_up(ample):
    a, b = two_releases(ample, count="laplace")
    merged = merge_disjoint(a, b)
    assert merged.count_noise_std == pytest.approx(sqrt(2) * a.count_noise_std)


def test_a_release_is_not_merged_twice(ample):
    a, b = two_releases(ample)
    unknown = replace(b, statement=replace(b.statement, lineage=None))
    for parts in ((a, a), (merge_disjoint(a, b), a), (a, unknown), (unknown, a)):
        with pytest.raises(PrivacyError, match="share rows, or may.*one call"):
            merge_disjoint(*parts)


def test_any_number_of_releases_merge_and_are_saved(ample):
    a, b = two_releases(ample)
    parts = [
        replace(a, statement=replace(a.statement, lineage=(f"{i:032x}",)))
        for i in range(5000)
    ]
    for n in (1, 2, 257, 4096, 5000):
        merged = loads(dumps(merge_disjoint(*parts[:n])))
        inside = tuple(f"{i:032x}" for i in range(n)) if n <= 4096 else None
        assert merged.statement.lineage == inside
        assert merged.total.to_ints() == [n * value for value in a.total.to_ints()]
        assert merged.noise_std == pytest.approx(sqrt(n) * a.noise_std)
    with pytest.raises(PrivacyError, match="one call"):
        merge_disjoint(merged, b)
    assert merge_disjoint(a) is not None
    for wrong in ((), (a, sketch_rows(ROWS, PHI))):
        with pytest.raises(PrivacyError, match="takes released sketches"):
            merge_disjoint(*wrong)


def test_releases_remember_their_columns_and_other_columns_never_merge(ample):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (2000, 4)), columns=list("abcd"))
    other = pd.DataFrame(rng.uniform(-1, 1, (2000, 4)), columns=list("badc"))
    a, b = (
        release(sketch_rows(x, PHI), **PROMISE, ledger=ample) for x in (frame, other)
    )
    nameless = release(sketch_rows(other.to_numpy(), PHI), **PROMISE, ledger=ample)

    assert loads(dumps(a)).columns == ("a", "b", "c", "d")
    with pytest.raises(FeatureMapMismatch, match="'a' where right has 'b'"):
        merge_disjoint(loads(dumps(a)), loads(dumps(b)))
    assert merge_disjoint(nameless, a).columns == a.columns
    with pytest.raises(FeatureMapMismatch, match="'a' where right has 'b'"):
        merge_disjoint(nameless, a, b)


def test_releases_of_different_kinds_are_not_merged(ample):
    (left, right) = by_label().values()
    a = release(left, **PROMISE, ledger=ample)
    for changes, name in (
        ({"neighbours": "replace"}, "neighbours"),
        ({"count": "laplace"}, "count_mode"),
        ({"rows_per_unit": 2}, "rows_per_unit"),
    ):
        b = release(right, **PROMISE, ledger=ample, **changes)
        with pytest.raises(PrivacyError, match=f"differ in {name}"):
            merge_disjoint(a, b)
    seeded = release_seeded(right, 0, **PROMISE)
    with pytest.raises(PrivacyError, match="differ in seeded"):
        merge_disjoint(a, seeded)


def test_releases_of_different_maps_are_not_merged(ample, exact):
    a = release(exact, **PROMISE, ledger=ample)
    b = release(empty_sketch(4, 2.0), **PROMISE, ledger=ample)
    with pytest.raises(FeatureMapMismatch, match="norm_bound"):
        merge_disjoint(a, b)


def test_arithmetic_on_a_release_is_refused(ample, exact):
    a, b = two_releases(ample)
    for act in (lambda: a + b, lambda: sum([a, b])):
        with pytest.raises(PrivacyError, match=r"merged with merge_disjoint\(a, b\)"):
            act()
    for act in (lambda: a + exact, lambda: exact + a):
        with pytest.raises(PrivacyError, match="cannot merge an exact sketch into a"):
            act()
    for act in (lambda: a - exact, lambda: exact - a, lambda: a - b):
        with pytest.raises(
            PrivacyError, match="rows cannot be removed from a released"
        ):
            act()


# Nothing exact.


DISTINCTIVE = [0.123456789, -0.2345678912, 0.3456789123, -0.0456789123]


@pytest.mark.parametrize("mode", ["joint", "laplace"])
def test_a_release_carries_nothing_exact(mode):
    count = 7_654_321
    one = sketch_rows([DISTINCTIVE], PHI)
    sums = [value * count for value in one.total.to_ints()]
    exact = replace(one, total=Int128Array.from_ints(sums), count=count)
    private = None
    while private is None or round(private.count) == count:  # noise may be zero
        ample = Ledger.ephemeral(epsilon=2.0, delta=1e-9, pure_epsilon=0.5)
        private = release(exact, epsilon=1.0, delta=1e-9, ledger=ample, count=mode)
    again = pickle.loads(pickle.dumps(private))
    _ = again.mean, again.count, again.feature_map
    everything = [
        dumps(private),
        pickle.dumps(private),
        pickle.dumps(again),
        repr(private).encode(),
        str(private).encode(),
        canonical_json(private.statement.describe()).encode(),
        repr(ample.charges).encode(),
    ]
    secrets = [exact.digest.encode(), bytes.fromhex(exact.digest)]
    weighted = [count * private.statement.count_weight] if mode == "joint" else []
    for number in (count, *sums, *weighted):
        secrets.append(str(number).encode())
        secrets += [number.to_bytes(16, e, signed=True) for e in ("little", "big")]
        secrets.append((number % 2**64).to_bytes(8, "little"))
        secrets.append(float(number).hex().encode())
    secrets += [np.float64(value).tobytes() for value in exact.mean]
    for data in everything:
        for secret in secrets:
            assert secret not in data
    names = {field.name for field in fields(private)}
    assert set(private.__getstate__()) == names


def test_a_pickle_gives_the_same_release(ample, exact):
    private = release(exact, **PROMISE, ledger=ample)
    again = pickle.loads(pickle.dumps(private))

    assert again.total.to_ints() == private.total.to_ints()
    assert again.statement == private.statement
    assert np.array_equal(again.mean, private.mean)


def test_every_released_number_is_a_lattice_point(exact):
    low = []
    for drawn in plan_release(exact, **PROMISE).draw(os.urandom, 2000):
        values = drawn.total.to_ints()
        assert all(type(value) is int for value in values)
        low += [value & 1 for value in values]

    # The attack of section 2.8 needs points off the lattice: there are none, and the
    # lowest bit says nothing of the row that was added.
    assert stats.binomtest(sum(low), len(low)).pvalue > 1e-6


def test_the_noise_has_the_promised_spread(exact):
    plan = plan_release(exact, **PROMISE)
    true = [*exact.total.to_ints(), exact.count * plan.statement.count_weight]
    noise = np.array(
        [
            [a - b for a, b in zip(drawn.total.to_ints(), true, strict=True)]
            for drawn in plan.draw(os.urandom, 4000)
        ],
        float,
    )
    scaled = noise / plan.statement.sigma_int

    assert abs((scaled**2).mean() - 1) < 5 * sqrt(2 / scaled.size)
    assert stats.kstest(scaled.ravel(), "norm").pvalue > 1e-6
    correlations = np.corrcoef(scaled, rowvar=False) - np.eye(5)
    assert np.abs(correlations).max() < 6 / sqrt(len(scaled))


def test_two_releases_are_different(ample, exact):
    a, b = (release(exact, **PROMISE, ledger=ample) for _ in range(2))
    pairs = zip(a.total.to_ints(), b.total.to_ints(), strict=True)
    assert all(x != y for x, y in pairs)
    assert ample.charges[0].release_id != ample.charges[1].release_id


def test_decoding_a_thousand_times_costs_nothing(exact, tmp_path):
    path = tmp_path / "people.ledger"
    Ledger(path, epsilon=1.0, delta=1e-6)
    private = release(exact, **PROMISE, ledger=path)
    before = path.read_bytes()
    means = {private.read_mean().tobytes() for _ in range(1000)}

    assert len(means) == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["joint", "laplace", "public"])
@pytest.mark.parametrize("seeded", [False, True])
def test_a_file_gives_back_the_release(exact, swaps, tmp_path, mode, seeded):
    changes = {"neighbours": "replace", "count": mode}
    if seeded:
        private = release_seeded(exact, 5, **PROMISE, **changes)
    else:
        private = release(exact, **PROMISE, ledger=swaps, **changes)
    save(private, tmp_path / "private.sketch")
    again = load(tmp_path / "private.sketch")

    assert type(again) is PrivateSketch
    assert again.statement == private.statement
    assert again.total.to_ints() == private.total.to_ints()
    assert again.count == private.count
    assert np.array_equal(again.mean, private.mean)
    assert dumps(again) == dumps(private)
    kind = b'"kind":"test"' if seeded else b'"kind":"private"'
    assert kind in dumps(private)
    assert again.feature_map == PHI


def test_a_release_is_rejoined_with_its_map_only(private):
    blind = replace(
        private, features=replace(private.features, text=""), source_map=None
    )
    with pytest.raises(FeatureMapMismatch, match="only by its fingerprint"):
        _ = blind.feature_map
    assert blind.with_map(PHI).feature_map is PHI
    with pytest.raises(FeatureMapMismatch):
        blind.with_map(FourierFeatures(4, 4))


@pytest.mark.parametrize(("deviations", "readable"), [(3.5, False), (4.5, True)])
def test_a_mean_is_read_from_four_deviations_of_the_count_on(
    ample, exact, deviations, readable
):
    private = release(exact, **PROMISE, ledger=ample, count="laplace")
    count = round(deviations * private.count_noise_std)
    private = replace(private, noisy_count=count)
    if readable:
        assert np.isfinite(private.mean).all()
    else:
        with pytest.raises(TooNoisy):
            _ = private.mean
