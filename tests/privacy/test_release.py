"""A release keeps its promise, says so, and carries nothing exact."""

import json
import os
import pickle
from dataclasses import fields, replace
from fractions import Fraction
from math import isqrt, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sketchlearn.arithmetic.exact import Int128Array, lattice_round
from sketchlearn.errors import (
    BudgetExceeded,
    FeatureMapMismatch,
    LedgerError,
    PrivacyError,
    PrivacyWarning,
    SketchFileError,
    TooNoisy,
)
from sketchlearn.features.base import AbstractFeatureMap, sum_features
from sketchlearn.features.clipping import clip_rows, clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.files.container import canonical_json, encode
from sketchlearn.privacy import planned
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_sigma
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.release import release, release_by_label
from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.sketching.lineage import (
    format_lineage,
    merged_lineage,
    parse_lineage,
    remaining_lineage,
)
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.sketch_rows import sketch_rows
from sketchlearn.storage.formats.private import PrivateSketchFormat
from sketchlearn.storage.sketches import dumps, load, loads, save
from sketchlearn.testing import release_seeded

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (4321, 4))


@pytest.fixture(scope="module")
def exact():
    return sketch_rows(ROWS, PHI)


@pytest.fixture
def book():
    return Ledger.ephemeral(epsilon=50.0, delta=1e-3, pure_epsilon=5.0)


@pytest.fixture
def swaps():
    """A ledger of replaced rows, whose number is public."""
    return Ledger.ephemeral(
        epsilon=50.0, delta=1e-3, pure_epsilon=5.0, neighbours="replace"
    )


def plan_of(sketch, **promise):
    """What a release would state."""
    return plan_release(sketch, **promise).statement


def empty_sketch(size, norm_bound=1.0, count=1000):
    """A sketch of a clipped map with this many features, without the rows."""
    phi = clipped(MomentFeatures(size, order="mean"), norm_bound=norm_bound)
    runs = frozenset({"0" * 32})
    total = Int128Array.zeros(size)
    return Sketch(total, count, phi.spec, lineage=runs, source_map=phi)


def steps(value, statement):
    """A number in lattice steps, exactly."""
    return Fraction(value) * Fraction(2) ** statement.frac_bits


# Refusals: nothing is drawn and nothing is charged.


def require_refused(book, sketch, error, match, **changes):
    before = book.charges
    with pytest.raises(error, match=match):
        release(sketch, **{**PROMISE, "ledger": book, **changes})
    assert book.charges == before


def test_a_sketch_without_a_bound_is_refused(book):
    unbounded = sketch_rows(np.ones((5, 2)), QuadraticFeatures(2, 8))
    require_refused(
        book,
        unbounded,
        PrivacyError,
        r"no per-row bound \(clip=None\).*clipped\(feature_map, norm_bound=S\), S "
        r"fixed before looking at this data; a bound cannot be added afterwards",
    )


def test_a_map_planned_from_the_rows_is_refused(book):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    inner = FourierFeatures(2, 8, scaling=Scaling.from_rows(rows))
    sketch = sketch_rows(rows, clipped(inner, norm_bound=1.0))
    for part in (sketch, replace(sketch, source_map=None)):
        require_refused(book, part, PrivacyError, "planned from rows.*reveals them")


def test_a_map_of_unknown_origin_is_refused_until_it_is_attached(book, exact):
    blind = replace(exact, features=replace(exact.features, text=""), source_map=None)
    require_refused(book, blind, PrivacyError, r"not known: attach.*with_map")

    assert release(blind.with_map(PHI), **PROMISE, ledger=book).count > 0


def test_a_public_count_needs_replacement_neighbours(book, exact):
    require_refused(
        book,
        exact,
        PrivacyError,
        'with neighbours="add_remove" the number of rows is itself private. Use '
        'count="joint"',
        count="public",
    )


@pytest.mark.parametrize("name", ["epsilon", "delta"])
@pytest.mark.parametrize("value", [0, -1, 1e9, float("nan"), True, "1", None])
def test_promises_out_of_range_are_refused(book, exact, name, value):
    require_refused(
        book, exact, ValueError, f"{name} must be a real number in", **{name: value}
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
def test_arguments_that_make_no_sense_are_refused(book, exact, changes, match):
    require_refused(book, exact, PrivacyError, match, **changes)


@pytest.mark.parametrize("pooling", ["max", "min", "p-norm:4", "log-sum-exp"])
def test_only_means_are_released(book, pooling):
    phi = clipped(FourierFeatures(2, 8), norm_bound=1.0)
    sketch = sketch_rows(np.zeros((5, 2)), phi, pooling=pooling)
    require_refused(
        book, sketch, PrivacyError, "only sketches pooled by mean are released"
    )


def test_what_is_released_is_not_released_again(book, exact):
    private = release(exact, **PROMISE, ledger=book)
    require_refused(book, private, PrivacyError, "released already")


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


def test_the_charge_comes_before_the_noise(exact, monkeypatch, book):
    def fail(*arguments, **more):
        assert len(book.charges) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(planned, "discrete_gaussian", fail)
    with pytest.raises(KeyboardInterrupt):
        release(exact, **PROMISE, ledger=book)
    assert len(book.charges) == 1  # budget is lost, privacy is not


def test_a_refused_charge_draws_no_noise(exact, monkeypatch):
    def fail(*arguments, **more):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(planned, "discrete_gaussian", fail)
    small = Ledger.ephemeral(epsilon=0.1, delta=1e-9)
    require_refused(small, exact, BudgetExceeded, "nothing was released")


# How much noise.


@pytest.mark.parametrize(
    ("size", "sensitivity", "sigma", "count_std"),
    [
        (100, 1.02469507660, 3.82275986879, 17.0959018565),
        (1000, 1.00787468879, 3.76000919793, 29.9022525500),
        (10_000, 1.00249688279, 3.73994658473, 52.8908318268),
    ],
)
def test_the_joint_count_costs_what_was_computed(size, sensitivity, sigma, count_std):
    sketch = empty_sketch(size)
    plan = plan_of(sketch, epsilon=1.0, delta=1e-5)
    private = PrivateSketch(sketch.total, sketch.features, plan)

    assert plan.sensitivity == pytest.approx(sensitivity, rel=1e-9)
    assert private.noise_std == pytest.approx(sigma, rel=3e-9)
    assert private.count_noise_std == pytest.approx(count_std, rel=1e-8)
    assert plan.mu2 == pytest.approx((sensitivity / sigma) ** 2, rel=1e-8)


@pytest.mark.parametrize("bound", [1e-100, 1e-3, 1.0, sqrt(1000), 3e5, 1e100])
@pytest.mark.parametrize("promise", [(1e-6, 1e-30), (0.1, 1e-9), (1, 1e-5), (100, 0.1)])
@pytest.mark.filterwarnings("ignore::sketchlearn.errors.PrivacyWarning")
def test_noise_is_never_below_the_analytic_gaussian(bound, promise):
    sketch = empty_sketch(30, bound)
    plan = plan_of(sketch, epsilon=promise[0], delta=promise[1])
    noise = Fraction(plan.sigma_int) / Fraction(2) ** plan.frac_bits
    needed = gaussian_sigma(plan.sensitivity, *promise)

    assert plan.sensitivity >= bound
    assert -1e-13 <= float(noise / Fraction(needed)) - 1 < 5e-8
    assert gaussian_epsilon(sqrt(plan.mu2), promise[1]) <= promise[0]


@pytest.mark.parametrize("mode", ["joint", "laplace", "public"])
def test_replacing_a_row_costs_twice_the_bound(mode):
    sketch = empty_sketch(4)
    plan = plan_of(sketch, **PROMISE, neighbours="replace", count=mode)
    weight = plan.count_weight / 2**plan.frac_bits

    assert plan.sensitivity == pytest.approx(sqrt(4 + weight**2), rel=1e-9)
    assert plan.sensitivity >= 2.0


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("rows", [2, 10, 2**20])
def test_noise_grows_with_the_rows_of_one_person(neighbours, rows):
    sketch = empty_sketch(4)
    one = plan_of(sketch, **PROMISE, neighbours=neighbours)
    many = plan_of(sketch, **PROMISE, neighbours=neighbours, rows_per_unit=rows)

    assert many.sigma_int / one.sigma_int == pytest.approx(rows, rel=1e-12)
    assert (one.unit, many.unit, many.rows_per_unit) == ("record", "group", rows)
    assert many.mu2 == pytest.approx(one.mu2, rel=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rows", [np.int64(1), np.int64(2), np.int32(2), 2.0])
def test_numpy_integers_and_whole_floats_count_rows_as_well(rows):
    sketch = empty_sketch(4)
    plain = plan_of(sketch, **PROMISE, rows_per_unit=int(rows))

    assert plan_of(sketch, **PROMISE, rows_per_unit=rows) == plain


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", [np.float16(0.1), np.float32(0.1)])
def test_promises_in_low_precision_are_kept_as_well(number):
    assert gaussian_sigma(1.0, number, 1e-6) == gaussian_sigma(1.0, float(number), 1e-6)


def test_the_plan_does_not_depend_on_the_rows():
    rng = np.random.default_rng(0)
    plans = {
        plan_of(sketch_rows(rows, PHI), **PROMISE)
        for rows in (np.zeros((1, 4)), np.ones((999, 4)), rng.normal(size=(3000, 4)))
    }
    assert len(plans) == 1


ADVERSARIAL = [
    *(scale * np.ones(n) for n in (1, 4, 100) for scale in (1.0, -1.0, 10.0, 1e-3)),
    *(np.array([1e30, *np.full(n, 1e-30)]) for n in (1, 50)),
    *(np.array([np.nextafter(1.0, side)]) for side in (0, 2)),
    np.array([1e-320, 1e-310]),
    np.array([1e138, 1e139, 1e140, 1e141]),
    *np.random.default_rng(0).normal(size=(200, 30)),
    *(10.0 ** np.random.default_rng(1).uniform(-40, 40, (200, 7))),
]


def integer_norm2(row, bound):
    """Squared norm of a row's integer features, and the bound used to calibrate."""
    spec = empty_sketch(len(row), bound).features
    whole = lattice_round(clip_rows(row[None], bound), spec.frac_bits)[0].tolist()
    return sum(value * value for value in whole), spec.norm_steps**2


@pytest.mark.parametrize("bound", [1e-6, 1e-3, 1.0, 1.1, sqrt(1000), 3e5])
def test_no_row_moves_the_total_beyond_the_sensitivity(bound):
    for row in ADVERSARIAL:
        for scale in (1.0, bound, bound / max(np.linalg.norm(row), 1e-250)):
            found, allowed = integer_norm2(row * scale, bound)
            assert found <= allowed


@pytest.mark.parametrize("bound", [1.0, 1.1, 3e5])
@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("value", [1e154, 1e200, 1e308, 1.7e308])
def test_rows_whose_squares_overflow_are_clipped_as_well(bound, size, value):
    found, allowed = integer_norm2(np.full(size, value), bound)

    assert 0.999 * allowed < found <= allowed


@pytest.mark.parametrize(("bound", "size"), [(1e-3, 1), (1e-10, 1000), (1.4e-15, 4)])
def test_enormous_rows_and_small_bounds_do_not_exceed_the_sensitivity(bound, size):
    found, allowed = integer_norm2(np.full(size, 1e308), bound)

    assert found <= allowed


@pytest.mark.parametrize(
    "phi",
    [
        FourierFeatures(4, 64, seed=1),
        clipped(FourierFeatures(4, 64, seed=1), norm_bound=1.0),
        clipped(QuadraticFeatures(4, 16, value_bound=2.0**20), norm_bound=2.0),
        MomentFeatures(4, order="covariance"),
        clipped(MomentFeatures(4, order="covariance"), norm_bound=0.5),
        ConcatenatedFeatures([MomentFeatures(4), FourierFeatures(4, 8)]),
        PHI,
    ],
    ids=["fourier", "short", "quadratic", "moments", "short moments", "both", "mean"],
)
def test_one_row_moves_the_total_of_every_map_within_its_sensitivity(phi):
    rng = np.random.default_rng(0)
    others = sketch_rows(rng.normal(size=(100, 4)), phi)
    allowed = phi.spec.norm_steps**2
    corners = [[32.0] * 4, [-32.0] * 4, [32.0, 0, 0, 0], [1e-30] * 4]
    for row in [*np.array(corners), *(rng.normal(size=(100, 4)) * 9).clip(-32, 32)]:
        alone = sketch_rows(row[None], phi)
        change = ((others + alone).total - others.total).to_ints()
        assert sum(value * value for value in change) <= allowed


# What a statement says.


def test_the_statement_says_what_was_done(exact, book):
    statement = release(exact, **PROMISE, ledger=book).statement
    (spent,) = book.charges

    assert (statement.epsilon, statement.delta) == (1.0, 1e-6)
    assert statement.neighbours == "add_remove"
    assert (statement.unit, statement.rows_per_unit) == ("record", 1)
    assert statement.mechanism == "discrete Gaussian"
    assert statement.count_mode == "joint"
    assert statement.count_epsilon == 0.0
    assert statement.frac_bits == exact.features.frac_bits
    assert statement.feature_map == exact.features.fingerprint == spent.feature_map
    assert statement.lineage == (spent.release_id,)
    assert spent.lineage == tuple(exact.lineage)
    assert statement.seeded is False
    assert spent.mu2 == statement.mu2
    true = Fraction(statement.sensitivity) * 2**statement.frac_bits
    assert Fraction(statement.mu2) >= (true / statement.sigma_int) ** 2


def test_a_statement_is_rebuilt_from_its_description_only(exact):
    plan = plan_of(exact, **PROMISE)
    values = json.loads(canonical_json(plan.describe()))

    assert PrivacyStatement.from_description(values) == plan
    for wrong in ({**values, "extra": 1}, {"epsilon": 1.0}):
        with pytest.raises(PrivacyError, match="unknown or missing fields"):
            PrivacyStatement.from_description(wrong)


# Lineage: nothing of it leaves, and no row counts twice.


def test_a_release_does_not_tell_how_many_runs_are_inside(book):
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 4))
    devices = [sketch_rows(row[None], PHI) for row in rows]
    for n in (99, 100):
        private = release(sum(devices[:n]), **PROMISE, ledger=book)
        (name,) = private.statement.lineage
        runs = {run for device in devices for run in device.lineage}
        assert name not in runs
        assert not any(run.encode() in dumps(private) for run in runs)
    assert len(book.charges[-1].lineage) == 100


def test_two_releases_of_one_sketch_have_different_names(book, exact):
    a, b = (release(exact, **PROMISE, ledger=book) for _ in range(2))
    assert a.statement.lineage != b.statement.lineage
    assert [charge.release_id for charge in book.charges] == [
        *a.statement.lineage,
        *b.statement.lineage,
    ]


def test_rows_that_count_twice_are_refused(book, exact):
    copy = pickle.loads(pickle.dumps(exact))
    other, laundry = by_label("a")["a"], sketch_rows(ROWS, PHI)
    for act in (
        lambda: exact + exact,
        lambda: exact + copy,
        lambda: (exact + other) + copy,
        lambda: sum([exact, other, exact]),
        lambda: (exact - sketch_rows(ROWS[:5], PHI)) + exact,
        lambda: exact + ((exact + other) - other),
        lambda: exact + (laundry - (laundry - exact)),
    ):
        with pytest.raises(PrivacyError, match=r"share the run .*with_new_lineage"):
            act()
    doubled = exact + exact.with_new_lineage()
    assert doubled.count == 2 * exact.count
    release(doubled, **PROMISE, ledger=book)


def test_rows_are_not_forgotten_twice(exact):
    part = sketch_rows(ROWS[:5], PHI)
    with pytest.raises(PrivacyError, match=r"was taken out .*forgotten twice"):
        exact - part - part
    again = exact - part - part.with_new_lineage()
    assert again.count == exact.count - 10


def test_rows_of_unknown_runs_stay_unknown(book, exact):
    for lineage in (None, frozenset()):
        unknown = replace(exact, lineage=lineage)
        for whole in (unknown + by_label("a")["a"], unknown - exact, exact - unknown):
            assert whole.lineage is None
        sums = unknown + unknown + exact
        require_refused(book, sums, PrivacyError, "added twice.*with_new_lineage")


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8))
def test_lineage_counts_runs_as_the_sums_do(steps):
    runs = [frozenset({f"{i:032x}"}) for i in range(4)]
    inside, counts = frozenset(), [0] * 4
    for run, add in steps:
        wanted = counts[run] + (1 if add else -1)
        act = merged_lineage if add else remaining_lineage
        if abs(wanted) > 1:
            with pytest.raises(PrivacyError):
                act(inside, runs[run])
        else:
            inside, counts[run] = act(inside, runs[run]), wanted
    expected = {("-" if c < 0 else "") + f"{i:032x}" for i, c in enumerate(counts) if c}
    assert inside == expected
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


@pytest.mark.parametrize("lineage", [None, frozenset()])
def test_a_sketch_of_unknown_runs_is_released_on_the_holders_word_only(
    book, exact, lineage
):
    unknown = replace(exact, lineage=lineage)
    require_refused(book, unknown, PrivacyError, "added twice.*with_new_lineage")
    release(unknown.with_new_lineage(), **PROMISE, ledger=book)


def test_a_label_without_rows_looks_like_any_other(book):
    private = release_by_label(by_label(), labels="abc", **PROMISE, ledger=book)
    names = [part.statement.lineage for part in private.values()]
    plain = {replace(part.statement, lineage=None) for part in private.values()}

    assert len(set(names)) == 3
    assert all(len(name) == 1 for name in names)
    assert len(plain) == 1
    assert len({part.columns for part in private.values()}) == 1
    assert len({len(dumps(part)) for part in private.values()}) == 1
    assert len({part.source_map is None for part in private.values()}) == 1


@pytest.mark.parametrize("loaded", ["a", "b"])
def test_a_label_read_from_a_file_looks_like_any_other(book, loaded):
    sketches = by_label()
    sketches[loaded] = loads(dumps(sketches[loaded]))
    private = release_by_label(sketches, labels="abc", **PROMISE, ledger=book)
    assert len({part.source_map for part in private.values()}) == 1


def test_labels_with_and_without_column_names_are_not_released_together(book):
    sketches = by_label()
    named = {**sketches, "b": replace(sketches["b"], columns=tuple("wxyz"))}
    with pytest.raises(PrivacyError, match="column names and others not"):
        release_by_label(named, labels="abc", **PROMISE, ledger=book)
    both = {"a": replace(sketches["a"], columns=tuple("zyxw")), "b": named["b"]}
    with pytest.raises(FeatureMapMismatch, match="'z' where right has 'w'"):
        release_by_label(both, labels="abc", **PROMISE, ledger=book)
    with pytest.raises(PrivacyError, match="hashable"):
        release_by_label(sketches, labels=[["a"], ["b"]], **PROMISE, ledger=book)


def test_labels_of_unknown_runs_are_refused(book, exact):
    unknown = replace(exact, lineage=None)
    with pytest.raises(PrivacyError, match="added twice"):
        release_by_label(
            dict.fromkeys("ab", unknown), labels="ab", **PROMISE, ledger=book
        )
    assert book.charges == ()


def test_a_total_that_no_rows_can_have_is_not_released(book, exact):
    total = Int128Array.from_ints([exact.features.norm_steps * 4322, 0, 0, 0])
    forged = replace(exact, total=total)
    require_refused(book, forged, PrivacyError, "cannot have this total")


# The count.


def test_the_noisy_count_is_near_and_not_equal(exact, book):
    private = release(exact, **PROMISE, ledger=book)

    assert abs(private.count - exact.count) < 7 * private.count_noise_std
    assert private.count != exact.count
    assert abs(private.mean - exact.mean).max() < 8 * private.noise_std / 4000


def test_laplace_counts_split_epsilon(exact, book):
    private = release(exact, **PROMISE, ledger=book, count="laplace", count_share=0.2)
    statement, (spent,) = private.statement, book.charges

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


def test_a_mean_drowned_by_noise_is_refused_unless_asked_for(book):
    sketch = sketch_rows(np.full((5, 4), 0.1), PHI)
    private = release(sketch, epsilon=0.01, delta=1e-6, ledger=book)

    with pytest.raises(TooNoisy, match=r"too large for a mean.*allow_noisy=True"):
        _ = private.mean
    assert np.isfinite(private.read_mean(allow_noisy=True)).all()


# Weak promises.


def test_a_large_delta_is_kept_with_a_warning(exact, book):
    with pytest.warns(PrivacyWarning, match="delta=0.01 is the chance"):
        private = release(
            exact,
            epsilon=0.01,
            delta=0.01,
            ledger=Ledger.ephemeral(epsilon=1, delta=0.01),
        )
    assert private.noise_std == pytest.approx(
        27.70088245561 * private.statement.sensitivity, rel=1e-6
    )


def test_a_delta_near_one_over_the_rows_is_warned_of():
    with pytest.warns(PrivacyWarning, match="far below one over the number of rows"):
        plan_of(empty_sketch(4, count=100_000), epsilon=1.0, delta=1e-5)
    plan_of(empty_sketch(4, count=1000), epsilon=1.0, delta=1e-5)  # no warning


# By label.


def by_label(labels="ab"):
    rng = np.random.default_rng(0)
    return {x: sketch_rows(rng.uniform(-1, 1, (3000, 4)), PHI) for x in labels}


def test_all_labels_are_released_for_the_price_of_one(book):
    sketches = by_label()
    private = release_by_label(sketches, labels="abc", **PROMISE, ledger=book)
    (spent,) = book.charges
    single = plan_of(sketches["a"], **PROMISE)

    assert list(private) == ["a", "b", "c"]
    assert spent.mu2 == single.mu2
    assert {part.statement.sigma_int for part in private.values()} == {single.sigma_int}
    for label in "ab":
        noise = abs(private[label].mean - sketches[label].mean)
        assert noise.max() < 8 * private[label].noise_std / 2900
    assert private["c"].read_mean(allow_noisy=True).any()  # pure noise, but there


@pytest.mark.parametrize("labels", ["a", "", "aab", "xyz"])
def test_labels_that_were_not_declared_are_refused(book, labels):
    with pytest.raises(PrivacyError, match="public list"):
        release_by_label(by_label(), labels=labels, **PROMISE, ledger=book)
    assert book.charges == ()


def test_sketches_of_different_maps_are_not_released_together(book):
    other = clipped(MomentFeatures(4, order="mean"), norm_bound=2.0)
    sketches = {**by_label("a"), "b": sketch_rows(np.ones((9, 4)), other)}

    with pytest.raises(FeatureMapMismatch, match="norm_bound"):
        release_by_label(sketches, labels="ab", **PROMISE, ledger=book)
    assert book.charges == ()


def test_one_sketch_under_two_labels_is_refused(book, exact):
    with pytest.raises(PrivacyError):
        release_by_label({0: exact, 1: exact}, labels=[0, 1], **PROMISE, ledger=book)


# Merging releases.


def two_releases(book, **changes):
    return tuple(
        release(part, **{**PROMISE, "ledger": book, **changes})
        for part in by_label().values()
    )


def test_disjoint_releases_merge_to_the_weaker_promise(book):
    left, right = by_label().values()
    a = release(left, epsilon=1.0, delta=1e-6, ledger=book)
    b = release(right, epsilon=0.5, delta=1e-5, ledger=book)
    n_charges = len(book.charges)
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
    assert len(book.charges) == n_charges
    assert merge_disjoint(b, a).total.to_ints() == merged.total.to_ints()


def test_public_counts_add_up(swaps):
    a, b = two_releases(swaps, neighbours="replace", count="public")
    assert merge_disjoint(a, b).count == 6000


def test_the_noise_of_merged_laplace_counts_adds_up(book):
    a, b = two_releases(book, count="laplace")
    merged = merge_disjoint(a, b)
    assert merged.count_noise_std == pytest.approx(sqrt(2) * a.count_noise_std)


def test_a_release_is_not_merged_twice(book):
    a, b = two_releases(book)
    unknown = replace(b, statement=replace(b.statement, lineage=None))
    for parts in ((a, a), (merge_disjoint(a, b), a), (a, unknown), (unknown, a)):
        with pytest.raises(PrivacyError, match="share rows, or may.*one call"):
            merge_disjoint(*parts)


def test_any_number_of_releases_merge_and_are_saved(book):
    a, b = two_releases(book)
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


def test_releases_remember_their_columns_and_other_columns_never_merge(book):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (2000, 4)), columns=list("abcd"))
    other = pd.DataFrame(rng.uniform(-1, 1, (2000, 4)), columns=list("badc"))
    a, b = (
        release(sketch_rows(x, PHI), **PROMISE, ledger=book) for x in (frame, other)
    )
    nameless = release(sketch_rows(other.to_numpy(), PHI), **PROMISE, ledger=book)

    assert loads(dumps(a)).columns == ("a", "b", "c", "d")
    with pytest.raises(FeatureMapMismatch, match="'a' where right has 'b'"):
        merge_disjoint(loads(dumps(a)), loads(dumps(b)))
    assert merge_disjoint(nameless, a).columns == a.columns
    with pytest.raises(FeatureMapMismatch, match="'a' where right has 'b'"):
        merge_disjoint(nameless, a, b)


def test_releases_of_different_kinds_are_not_merged(book):
    (left, right) = by_label().values()
    a = release(left, **PROMISE, ledger=book)
    for changes, name in (
        ({"neighbours": "replace"}, "neighbours"),
        ({"count": "laplace"}, "count_mode"),
        ({"rows_per_unit": 2}, "rows_per_unit"),
    ):
        b = release(right, **PROMISE, ledger=book, **changes)
        with pytest.raises(PrivacyError, match=f"differ in {name}"):
            merge_disjoint(a, b)
    seeded = release_seeded(right, 0, **PROMISE)
    with pytest.raises(PrivacyError, match="differ in seeded"):
        merge_disjoint(a, seeded)


def test_releases_of_different_maps_are_not_merged(book, exact):
    a = release(exact, **PROMISE, ledger=book)
    b = release(empty_sketch(4, 2.0), **PROMISE, ledger=book)
    with pytest.raises(FeatureMapMismatch, match="norm_bound"):
        merge_disjoint(a, b)


def test_arithmetic_on_a_release_is_refused(book, exact):
    a, b = two_releases(book)
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
        book = Ledger.ephemeral(epsilon=2.0, delta=1e-9, pure_epsilon=0.5)
        private = release(exact, epsilon=1.0, delta=1e-9, ledger=book, count=mode)
    again = pickle.loads(pickle.dumps(private))
    _ = again.mean, again.count, again.feature_map
    everything = [
        dumps(private),
        pickle.dumps(private),
        pickle.dumps(again),
        repr(private).encode(),
        str(private).encode(),
        canonical_json(private.statement.describe()).encode(),
        repr(book.charges).encode(),
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


def test_a_pickle_gives_the_same_release(book, exact):
    private = release(exact, **PROMISE, ledger=book)
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


def test_two_releases_are_different(book, exact):
    a, b = (release(exact, **PROMISE, ledger=book) for _ in range(2))
    pairs = zip(a.total.to_ints(), b.total.to_ints(), strict=True)
    assert all(x != y for x, y in pairs)
    assert book.charges[0].release_id != book.charges[1].release_id


def test_decoding_a_thousand_times_costs_nothing(exact, tmp_path):
    path = tmp_path / "people.ledger"
    Ledger(path, epsilon=1.0, delta=1e-6)
    private = release(exact, **PROMISE, ledger=path)
    before = path.read_bytes()
    means = {private.read_mean().tobytes() for _ in range(1000)}

    assert len(means) == 1
    assert path.read_bytes() == before


# Files.


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


def tampered(private, **changes):
    metadata, tensors = PrivateSketchFormat().pack(private)
    statement = {**json.loads(metadata["privacy"]), **changes}
    text = canonical_json({k: v for k, v in statement.items() if v != "missing"})
    return encode(({**metadata, "privacy": text}, tensors), None, "")


@pytest.fixture(scope="module")
def private(exact):
    book = Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    return release(exact, **PROMISE, ledger=book)


@pytest.mark.parametrize(
    "changes",
    [
        {"frac_bits": 3},
        {"feature_map": "ab" * 32},
        {"lineage": []},
        {"lineage": ["ab" * 16]},
        {"lineage": None},
        {"lineage": 7},
        {"count_mode": "laplace"},
        {"count_mode": "other"},
        {"seeded": True},
        {"note": "trust me"},
        {"epsilon": "missing"},
        {"seeded": "missing"},
    ],
    ids=str,
)
def test_a_file_whose_statement_was_changed_is_refused(private, changes):
    assert loads(tampered(private)).statement == private.statement  # digest is right
    with pytest.raises(SketchFileError):
        loads(tampered(private, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.1},
        {"epsilon": -1},
        {"epsilon": "0.1"},
        {"delta": 1e-9},
        {"delta": None},
        {"mu2": 1e-9},
        {"neighbours": "replace"},
        {"neighbours": "none"},
        {"unit": "group"},
        {"rows_per_unit": 7},
        {"rows_per_unit": 0},
        {"sensitivity": 0.5},
        {"sigma_int": 5},
        {"sigma_int": -1},
        {"count_weight": 3},
        {"count_weight": 0},
        {"count_epsilon": 0.5},
        {"seeded": None},
        {"library_version": 7},
    ],
    ids=str,
)
def test_a_file_whose_statement_contradicts_itself_is_refused(private, changes):
    with pytest.raises(SketchFileError):
        loads(tampered(private, **changes))


def test_a_test_double_cannot_pass_for_a_release(exact):
    data = dumps(release_seeded(exact, 0, **PROMISE))
    metadata, tensors = PrivateSketchFormat().pack(release_seeded(exact, 0, **PROMISE))

    assert b'"kind":"test"' in data
    with pytest.raises(SketchFileError):
        loads(encode(({**metadata, "kind": "private"}, tensors), None, ""))


def test_an_exact_file_cannot_pass_for_a_release(exact, private):
    metadata, tensors = PrivateSketchFormat().pack(private)
    for change in ({"privacy": ""}, {"kind": "exact"}, {"pooling": "max"}):
        with pytest.raises(SketchFileError):
            loads(encode(({**metadata, **change}, tensors), None, ""))


def test_a_release_is_rejoined_with_its_map_only(private):
    blind = replace(
        private, features=replace(private.features, text=""), source_map=None
    )
    with pytest.raises(FeatureMapMismatch, match="only by its fingerprint"):
        _ = blind.feature_map
    assert blind.with_map(PHI).feature_map is PHI
    with pytest.raises(FeatureMapMismatch):
        blind.with_map(FourierFeatures(4, 4))


# Test doubles.


def test_seeded_releases_are_repeatable_and_say_so(exact):
    a, b = (release_seeded(exact, 7, **PROMISE) for _ in range(2))
    other = release_seeded(exact, 8, **PROMISE)

    assert a.total.to_ints() == b.total.to_ints()
    assert a.total.to_ints() != other.total.to_ints()
    assert a.statement.seeded
    assert "SEEDED TEST DOUBLE" in repr(a)
    assert "SEEDED" not in repr(replace(a, statement=plan_of(exact, **PROMISE)))


def test_the_sensitivity_is_rounded_up(exact):
    plan = plan_of(exact, **PROMISE)
    squared = exact.features.norm_steps**2 + plan.count_weight**2

    assert steps(plan.sensitivity, plan) == isqrt(squared) + 1


@pytest.mark.parametrize(
    "claim", [{"norm_bound": 0.25}, {"value_bound": 0.5}, {"frac_bits": 20}]
)
def test_a_header_that_contradicts_its_map_is_not_released(book, claim):
    phi = clipped(MomentFeatures(2, order="mean"), norm_bound=1.0)
    rows = np.array([[0.5, 0.5], [-0.5, -0.5]])
    honest = replace(sketch_rows(rows, phi), source_map=None)
    forged = replace(honest, features=replace(honest.features, **claim))
    with pytest.raises(
        FeatureMapMismatch, match="contradicts it in its description, sizes or"
    ):
        release(forged, **PROMISE, ledger=book)
    assert not book.charges


class Boastful(AbstractFeatureMap):
    """A map of a user, whose norm bound is not true."""

    kind = "boastful"

    def __init__(self, stored):
        self._stored = stored
        super().__init__(
            n_features=4, sketch_size=4, scaling=None, value_bound=1e4, norm_bound=1.0
        )

    @property
    def stored_weights(self):
        return ("w",) if self._stored else ()

    def describe(self):
        return {"n_features": 4}

    def weights(self):
        return {"w": np.ones(1)}

    def evaluate(self, rows, first_row=0):
        return rows * 1000.0

    def batch_sum(self, rows, first_row=0):
        return sum_features(self, rows, first_row)


@pytest.mark.parametrize("stored", [False, True])
def test_the_bound_of_a_map_of_ones_own_is_not_believed(book, stored):
    rows = np.zeros((4000, 4))
    rows[0] = 0.25
    mine = Boastful(stored)
    sketch = sketch_rows(rows, mine)
    require_refused(book, sketch, PrivacyError, "your word only. Clip it")
    bounded = sketch_rows(rows, clipped(mine, norm_bound=1.0))
    assert release(bounded, **PROMISE, ledger=book).statement.sensitivity < 1.3


def test_noise_that_does_not_fit_is_refused_before_it_is_paid(book):
    parts = [
        clipped(MomentFeatures(4, order="mean"), norm_bound=bound)
        for bound in (1.0, 2.0**64)
    ]
    sketch = sketch_rows(np.ones((50, 4)), ConcatenatedFeatures(parts))
    require_refused(
        book, sketch, PrivacyError, "does not fit in 128 bits", rows_per_unit=2**20
    )


def test_a_release_carries_the_map_that_was_verified(book, exact):
    other = clipped(MomentFeatures(4, order="mean"), norm_bound=7.0)
    private = release(replace(exact, source_map=other), **PROMISE, ledger=book)
    assert private.feature_map == PHI


def test_a_public_count_is_of_single_rows(swaps, exact):
    public = {"neighbours": "replace", "count": "public", "rows_per_unit": 2}
    require_refused(swaps, exact, PrivacyError, "replaced by somebody", **public)


@pytest.mark.parametrize("wrong", ["x", None, 3, PHI])
def test_what_is_no_sketch_is_not_released(book, wrong):
    require_refused(book, wrong, PrivacyError, "release takes a sketch")


def test_what_is_drawn_from_other_bytes_is_a_test_double(exact):
    plan = plan_release(exact, **PROMISE)
    assert plan.draw(np.random.default_rng(0).bytes)[0].statement.seeded
    assert not plan.draw(os.urandom)[0].statement.seeded


@pytest.mark.parametrize(
    "claim",
    [
        {"sensitivity": 1.0},
        {"mechanism": "no noise"},
        {"mu2": 1e300},
        {"sigma_int": 2**200},
    ],
)
def test_a_statement_that_its_header_refutes_is_refused(book, exact, claim):
    private = release(exact, **PROMISE, ledger=book)
    with pytest.raises(SketchFileError):
        loads(tampered(private, **claim))


def test_a_laplace_count_cannot_claim_less_noise(book, exact):
    private = release(exact, **PROMISE, ledger=book, count="laplace")
    with pytest.raises(SketchFileError):
        loads(tampered(private, count_std=1e-9))
