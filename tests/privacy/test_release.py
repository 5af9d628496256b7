"""A release is paid for first, once, and tells nothing of the rows but noisy sums."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.releases import PHI, PROMISE, ROWS, by_label, plan_of, require_refused
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    BudgetExceeded,
    FeatureMapMismatch,
    LedgerError,
    PrivacyError,
)
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy import planned
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.release import release, release_by_label
from sketchlearn.sketching.lineage import (
    Lineage,
    format_lineage,
    merged_lineage,
    parse_lineage,
    remaining_lineage,
)
from sketchlearn.storage.sketches import dumps, loads
from sketchlearn.testing import release_seeded

# Refusals: nothing is drawn and nothing is charged.


def test_a_public_count_needs_replacement_neighbours(ample, exact):
    require_refused(
        ample,
        exact,
        PrivacyError,
        'with neighbours="add_remove" the number of rows is itself private. Use '
        'count="joint"',
        count="public",
    )


@pytest.mark.parametrize("name", ["epsilon", "delta"])
@pytest.mark.parametrize("value", [0, -1, 1e9, float("nan"), True, "1", None])
def test_promises_out_of_range_are_refused(ample, exact, name, value):
    require_refused(
        ample, exact, ValueError, f"{name} must be a real number in", **{name: value}
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"neighbours": "swap"}, "neighbours must be one of"),
        ({"count": "exact"}, "count one of"),
        ({"rows_per_unit": 0}, "rows_per_unit must be"),
        ({"rows_per_unit": -3}, "rows_per_unit"),
        ({"rows_per_unit": True}, "rows_per_unit"),
        ({"rows_per_unit": 1.5}, "rows_per_unit must be"),
        ({"rows_per_unit": float("nan")}, "rows_per_unit"),
        ({"rows_per_unit": 2**21}, "rows_per_unit"),
        ({"count": "laplace", "count_share": 0.0}, "count_share must be in"),
        ({"count": "laplace", "count_share": 1.0}, "count_share must be in"),
        ({"count": "laplace", "count_share": float("nan")}, "count_share must be in"),
        ({"ledger": None}, r"ledger must be a Ledger or the path.*Ledger.ephemeral"),
        ({"ledger": 7}, "ledger must be a Ledger"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(ample, exact, changes, match):
    require_refused(ample, exact, PrivacyError, match, **changes)


def test_a_spent_budget_refuses_and_spends_nothing(exact, tmp_path):
    path = tmp_path / "people.ledger"
    Ledger(path, epsilon=1.4, delta=1e-6)
    release(exact, **PROMISE, ledger=path)
    before = path.read_bytes()

    with pytest.raises(
        BudgetExceeded,
        match=r"nothing was released. epsilon=1 asked, about 0.92 is left of 1.4 "
        r"\(delta=1e-6\) in .*people.ledger",
    ):
        release(exact, **PROMISE, ledger=path)
    assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="there is no ledger"):
        release(exact, **PROMISE, ledger=tmp_path / "missing")


def test_the_charge_comes_before_the_noise(exact, monkeypatch, ample):
    def fail(*arguments, **more):
        assert len(ample.charges) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(planned, "discrete_gaussian", fail)
    with pytest.raises(KeyboardInterrupt):
        release(exact, **PROMISE, ledger=ample)
    assert len(ample.charges) == 1  # budget is lost, privacy is not


def test_a_refused_charge_draws_no_noise(exact, monkeypatch):
    def fail(*arguments, **more):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(planned, "discrete_gaussian", fail)
    small = Ledger.ephemeral(epsilon=0.1, delta=1e-9)
    require_refused(small, exact, BudgetExceeded, "nothing was released")


# Lineage: nothing of it leaves, and no row counts twice.


def test_a_release_does_not_tell_how_many_runs_are_inside(ample):
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 4))
    devices = [sketch_rows(row[None], PHI) for row in rows]
    for n in (99, 100):
        private = release(sum(devices[:n]), **PROMISE, ledger=ample)
        (name,) = private.statement.lineage
        runs = {run[:32] for device in devices for run in device.lineage}
        assert name not in runs
        assert not any(run.encode() in dumps(private) for run in runs)
    (passes,) = ample.charges[-1].lineage  # the first and the one after the last
    assert int(passes[-16:], 16) - int(passes[32:48], 16) == 100


def test_two_releases_of_one_sketch_have_different_names(ample, exact):
    a, b = (release(exact, **PROMISE, ledger=ample) for _ in range(2))
    assert a.statement.lineage != b.statement.lineage
    assert [charge.release_id for charge in ample.charges] == [
        *a.statement.lineage,
        *b.statement.lineage,
    ]


def test_rows_are_not_forgotten_twice(exact):
    part = sketch_rows(ROWS[:5], PHI)
    with pytest.raises(PrivacyError, match=r"was taken out .*forgotten twice"):
        exact - part - part
    again = exact - part - part.with_new_lineage()
    assert again.count == exact.count - 10


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8))
def test_lineage_counts_runs_as_the_sums_do(steps):
    runs = [Lineage.of([f"{i:032x}"]) for i in range(4)]
    inside, counts = Lineage(), [0] * 4
    for run, add in steps:
        wanted = counts[run] + (1 if add else -1)
        act = merged_lineage if add else remaining_lineage
        if abs(wanted) > 1:
            with pytest.raises(PrivacyError):
                act(inside, runs[run])
        else:
            inside, counts[run] = act(inside, runs[run]), wanted
    expected = {("-" if c < 0 else "") + f"{i:032x}" for i, c in enumerate(counts) if c}
    assert set(inside) == expected
    assert parse_lineage(format_lineage(inside)) == inside


def test_what_was_forgotten_may_be_added_again(exact):
    other = by_label("a")["a"]
    part = sketch_rows(ROWS[:5], PHI)
    assert ((exact + other) - other).lineage == exact.lineage
    assert dumps((exact + other) - other) == dumps(exact)
    assert (exact + other) - other + other == exact + other
    assert (exact - part) + part == exact
    assert ((exact - part) + part).lineage == exact.lineage
    assert (exact - (exact - part)).lineage == part.lineage


def test_a_label_without_rows_looks_like_any_other(ample):
    private = release_by_label(by_label(), labels="abc", **PROMISE, ledger=ample)
    names = [part.statement.lineage for part in private.values()]
    plain = {replace(part.statement, lineage=None) for part in private.values()}

    assert len(set(names)) == 3
    assert all(len(name) == 1 for name in names)
    assert len(plain) == 1
    assert len({part.columns for part in private.values()}) == 1
    assert len({len(dumps(part)) for part in private.values()}) == 1
    assert len({part.source_map is None for part in private.values()}) == 1


@pytest.mark.parametrize("loaded", ["a", "b"])
def test_a_label_read_from_a_file_looks_like_any_other(ample, loaded):
    sketches = by_label()
    sketches[loaded] = loads(dumps(sketches[loaded]))
    private = release_by_label(sketches, labels="abc", **PROMISE, ledger=ample)
    assert len({part.source_map for part in private.values()}) == 1


def test_labels_with_and_without_column_names_are_not_released_together(ample):
    sketches = by_label()
    named = {**sketches, "b": replace(sketches["b"], columns=tuple("wxyz"))}
    with pytest.raises(PrivacyError, match="column names and others not"):
        release_by_label(named, labels="abc", **PROMISE, ledger=ample)
    both = {"a": replace(sketches["a"], columns=tuple("zyxw")), "b": named["b"]}
    with pytest.raises(FeatureMapMismatch, match="'z' where right has 'w'"):
        release_by_label(both, labels="abc", **PROMISE, ledger=ample)
    with pytest.raises(PrivacyError, match="hashable"):
        release_by_label(sketches, labels=[["a"], ["b"]], **PROMISE, ledger=ample)


def test_labels_of_unknown_runs_are_refused(ample, exact):
    unknown = replace(exact, lineage=None)
    with pytest.raises(PrivacyError, match="added twice"):
        release_by_label(
            dict.fromkeys("ab", unknown), labels="ab", **PROMISE, ledger=ample
        )
    assert ample.charges == ()


# By label.


def test_all_labels_are_released_for_the_price_of_one(ample):
    sketches = by_label()
    private = release_by_label(sketches, labels="abc", **PROMISE, ledger=ample)
    (spent,) = ample.charges
    single = plan_of(sketches["a"], **PROMISE)

    assert list(private) == ["a", "b", "c"]
    assert spent.mu2 == single.mu2
    assert {part.statement.sigma_int for part in private.values()} == {single.sigma_int}
    for label in "ab":
        noise = abs(private[label].mean - sketches[label].mean)
        assert noise.max() < 8 * private[label].noise_std / 2900
    assert private["c"].read_mean(allow_noisy=True).any()  # pure noise, but there


@pytest.mark.parametrize("labels", ["a", "", "aab", "xyz"])
def test_labels_that_were_not_declared_are_refused(ample, labels):
    with pytest.raises(PrivacyError, match="public list"):
        release_by_label(by_label(), labels=labels, **PROMISE, ledger=ample)
    assert ample.charges == ()


def test_sketches_of_different_maps_are_not_released_together(ample):
    other = clipped(MomentFeatures(4, order="mean"), norm_bound=2.0)
    sketches = {**by_label("a"), "b": sketch_rows(np.ones((9, 4)), other)}

    with pytest.raises(FeatureMapMismatch, match="norm_bound"):
        release_by_label(sketches, labels="ab", **PROMISE, ledger=ample)
    assert ample.charges == ()


def test_one_sketch_under_two_labels_is_refused(ample, exact):
    with pytest.raises(PrivacyError):
        release_by_label({0: exact, 1: exact}, labels=[0, 1], **PROMISE, ledger=ample)


# Test doubles.


def test_seeded_releases_are_repeatable_and_say_so(exact):
    a, b = (release_seeded(exact, 7, **PROMISE) for _ in range(2))
    other = release_seeded(exact, 8, **PROMISE)

    assert a.total.to_ints() == b.total.to_ints()
    assert a.total.to_ints() != other.total.to_ints()
    assert a.statement.seeded
    assert "SEEDED TEST DOUBLE" in repr(a)
    assert "SEEDED" not in repr(replace(a, statement=plan_of(exact, **PROMISE)))


def test_a_public_count_is_of_single_rows(swaps, exact):
    public = {"neighbours": "replace", "count": "public", "rows_per_unit": 2}
    require_refused(swaps, exact, PrivacyError, "replaced by somebody", **public)
