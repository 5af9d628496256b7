"""No row moves a total by more than the map claims, whatever is in it."""

from fractions import Fraction
from functools import cache

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from portable.maps import (
    CROWDED,
    MAPS,
    NAMES,
    built_in_kinds,
    crowded_rows,
    feature_map,
    golden_rows,
    unscaled,
)
from portable.reference import norm_squared
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import FeatureMapError, RowRangeError, RowsError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.hashing import CountMinFeatures
from sketchlearn.features.items import AbstractItemMap
from sketchlearn.features.registry import map_class
from sketchlearn.features.table import TableFeatures

SMALL = [name for name in NAMES if feature_map(name).n_features <= 12]
BOUNDED = [name for name in SMALL if feature_map(name).norm_bound is not None]
INNER = [name for name in SMALL if feature_map(name).kind != "clipped"]
BOUNDS = (1e-6, 1e-3, 0.7, 1.0, 3.0, 1e3, 1e6)
TINY = (0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-300, 1e-30)
HUGE = (1e15, -1e15, 1e30, 1e154, 1e300, -1.7976931348623157e308)
RULES = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@cache
def clipped_map(name, bound):
    return clipped(feature_map(name), norm_bound=bound)


def values(name):
    """Scaled values: at the edges of the range, around lattice points, ordinary."""
    case = MAPS[name]
    unit, reach = 2.0**-case.bits, case.limit * 2.0**-case.bits
    edges = [reach, -reach, np.nextafter(reach, 0), reach - unit / 2, unit / 2, unit]
    far = st.one_of(
        st.sampled_from([*edges, *TINY, 1.0, -1.0]),
        st.floats(-reach, reach),
        st.integers(-case.limit, case.limit).map(lambda q: q * unit),
    )
    near = st.one_of(
        st.sampled_from([*TINY, unit / 2, unit, case.span, -case.span]),
        st.floats(-case.span, case.span),
    )
    return far, near, st.one_of(near, st.sampled_from(HUGE))


def draw_row(data, name):
    width = feature_map(name).n_features
    chosen = data.draw(st.sampled_from([0, 0, 1, 1, 1, 2]), "kind of values")
    one = values(name)[chosen]
    alike = st.builds(lambda value: [value] * width, one)
    mixed = st.lists(one, min_size=width, max_size=width)
    scaled = data.draw(st.one_of(alike, mixed), "scaled row")
    with np.errstate(over="ignore"):
        row = unscaled(feature_map(name), np.array([scaled]))
    return np.clip(row, -1.7e308, 1.7e308)


def check_sensitivity(phi, row, others):
    """What a row adds, alone and among others, is within the bounds, or refused."""
    try:
        alone = phi.batch_sum(row)
    except RowRangeError:
        with pytest.raises(RowRangeError):
            phi.batch_sum(np.concatenate([others, row]))
        return
    among = phi.batch_sum(np.concatenate([others[:5], row, others[5:]]))
    assert (among - phi.batch_sum(others)).to_ints() == alone.to_ints()
    found, steps = alone.to_ints(), phi.spec.norm_steps
    assert norm_squared(found) <= steps**2
    largest = Fraction(phi.value_bound) * Fraction(2) ** phi.frac_bits
    assert max(abs(value) for value in found) <= largest


@pytest.mark.parametrize("name", BOUNDED)
@RULES
@given(data=st.data())
def test_a_row_moves_a_total_by_the_norm_bound_at_most(name, data):
    others = golden_rows(name)[:9]
    check_sensitivity(feature_map(name), draw_row(data, name), others)


@pytest.mark.parametrize("name", INNER)
@RULES
@given(data=st.data())
def test_a_row_moves_a_clipped_total_by_the_norm_bound_at_most(name, data):
    phi = clipped_map(name, data.draw(st.sampled_from(BOUNDS), "bound"))
    check_sensitivity(phi, draw_row(data, name), golden_rows(name)[:9])


@pytest.mark.parametrize(
    ("name", "bound"),
    [(name, None) for name in BOUNDED]
    + [(name, bound) for name in INNER for bound in (1e-6, 0.7, 1e3)],
)
def test_climbing_to_the_longest_row_stays_within_the_norm_bound(name, bound):
    phi = feature_map(name) if bound is None else clipped_map(name, bound)
    case = MAPS[name]
    unit, reach = 2.0**-case.bits, case.limit * 2.0**-case.bits
    sizes = [reach, reach - unit / 2, case.span, case.span / 3, unit / 2, 0.0]
    row, longest = np.zeros((1, phi.n_features)), -1
    for column in [*range(phi.n_features)] * 2:
        for value in sizes + [-size for size in sizes]:
            tried = row.copy()
            tried[0, column] = value
            try:
                found = phi.batch_sum(unscaled(phi, tried)).to_ints()
            except RowRangeError:
                continue
            if norm_squared(found) > longest:
                row, longest = tried, norm_squared(found)
    assert 0 < longest <= phi.spec.norm_steps**2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", SMALL)
def test_what_is_no_number_is_refused(name, value):
    phi, rows = feature_map(name), golden_rows(name)[:9].copy()
    rows[4, -1] = value
    with pytest.raises(RowsError, match="NaN or infinity"):
        sketch_rows(rows, phi)
    if phi.kind != "bloom":
        with pytest.raises(RowRangeError, match="row 4 "):
            phi.batch_sum(rows)
        with pytest.raises(RowRangeError, match="row 4 "):
            phi(rows)


@pytest.mark.parametrize("value", [v for v in HUGE if abs(v) > 1e20])
@pytest.mark.parametrize("name", SMALL)
def test_what_is_much_too_large_is_refused(name, value):
    phi, rows = feature_map(name), golden_rows(name)[:9].copy()
    rows[4, -1] = value
    if phi.kind == "bloom":
        assert phi.batch_sum(rows).within(0, 9 << phi.frac_bits)
    else:
        with pytest.raises(RowRangeError, match="row 4 "):
            sketch_rows(rows, phi)


@pytest.mark.parametrize(
    "phi",
    [
        clipped(FourierFeatures(784, 1000), norm_bound=1.0),
        HarmonicFeatures(784, 1000, octaves=1, scale=28.0),
    ],
    ids=["clipped", "harmonics"],
)
def test_one_row_among_large_rows_moves_the_total_within_the_bound(phi):
    signs = np.where(np.arange(129 * 784).reshape(129, 784) % 7 < 3, -1.0, 1.0)
    rows = 1e6 * signs * (1 + np.arange(129)[:, None] / 1024)
    moved = (phi.batch_sum(rows) - phi.batch_sum(rows[:128])).to_ints()
    assert norm_squared(moved) <= phi.spec.norm_steps**2
    assert moved == phi.batch_sum(rows[128:]).to_ints()
    with_one = sketch_rows(rows, phi)
    without = sketch_rows(rows[:128], phi)
    assert (with_one - sketch_rows(rows[128:], phi)).digest == without.digest


def test_a_row_beyond_the_phases_of_a_map_is_refused():
    phi = clipped(FourierFeatures(1, 4, scale=1e-25), norm_bound=1.0)
    with pytest.raises(RowRangeError, match="row 0 lies outside"):
        phi.batch_sum(np.array([[1e15]]))


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("bound", BOUNDS)
def test_golden_rows_stay_within_every_bound(name, bound):
    phi = clipped_map(name, bound)
    for row in golden_rows(name)[:6]:
        found = phi.batch_sum(row[None]).to_ints()
        assert norm_squared(found) <= phi.spec.norm_steps**2


@pytest.mark.full
@pytest.mark.parametrize("name", INNER)
@settings(RULES, max_examples=500)
@given(data=st.data())
def test_a_long_search_finds_no_row_that_moves_more(name, data):
    bound = data.draw(st.sampled_from([None, *BOUNDS]), "bound")
    if bound is None and feature_map(name).norm_bound is None:
        bound = 1.0
    phi = feature_map(name) if bound is None else clipped_map(name, bound)
    check_sensitivity(phi, draw_row(data, name), golden_rows(name)[:9])


def overlong_rows(phi, rows):
    """How many rows, dense or sparse, add more than their map's norm bound."""
    found = 0
    for row in rows:
        for form in (row[None], sp.csr_array(row[None])):
            try:
                moved = sketch_rows(form, phi).total.to_ints()
            except RowRangeError:
                continue
            found += norm_squared(moved) > phi.spec.norm_steps**2
    return found


def test_every_kind_of_map_is_searched():
    kinds = set(built_in_kinds())
    assert {feature_map(name).kind for name in SMALL} == kinds
    bounded = {kind for kind in kinds if "row_items" in map_class(kind).fields}
    assert bounded == CROWDED.keys() - {"concatenated"}


@pytest.mark.parametrize("kind", CROWDED)
def test_what_a_row_may_hold_is_a_bound_of_the_whole_numbers_that_are_added(kind):
    phi = CROWDED[kind]()
    assert not overlong_rows(phi, crowded_rows(phi, 150))


def test_a_bound_that_is_checked_before_rounding_is_noticed(monkeypatch):
    def checked_first(self, rows, first_row):
        steps = np.rint(rows * 2.0**self.frac_bits)
        held = np.abs(rows).sum(axis=1)
        if self.row_items is not None and (held > self.row_items).any():
            raise RowRangeError("too much")
        return steps, float(np.abs(steps).max())

    monkeypatch.setattr(AbstractItemMap, "in_whole_steps", checked_first)
    phi = CROWDED["table"]()
    assert overlong_rows(phi, crowded_rows(phi, 150))


@pytest.mark.parametrize("kind", CROWDED)
def test_items_are_bounded_as_they_are_written_out(kind):
    phi = CROWDED[kind]()
    if not isinstance(phi, AbstractItemMap):
        return
    rng = np.random.default_rng(0)
    for _ in range(20):
        counts = rng.multinomial(
            rng.integers(1, 2 * min(phi.row_items, 40)), [1 / 41] * 41
        )
        try:
            alone = phi.batch_sum(counts[None].astype(float)).to_ints()
        except RowRangeError:
            with pytest.raises(RowRangeError):
                sketch_rows(sp.csr_array(counts[None]), phi)
            continue
        assert sketch_rows(sp.csr_array(counts[None]), phi).total.to_ints() == alone
        assert norm_squared(alone) <= phi.spec.norm_steps**2


def test_counts_of_items_that_leave_64_bits_are_refused():
    phi = TableFeatures([[2**40], [1]], value_bound=2.0**44)
    with pytest.raises(RowRangeError, match="row 0 has a feature of magnitude"):
        sketch_rows(sp.csr_array([[2**24, 1]]), phi)
    with pytest.raises(FeatureMapError, match="beyond 2\\*\\*44"):
        CountMinFeatures(width=4, depth=1, row_items=2**45)
