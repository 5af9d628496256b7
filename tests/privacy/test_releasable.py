"""What is not sure to be bounded is not released, and nothing is charged."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from privacy.releases import PHI, PROMISE, ROWS, by_label, require_refused
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import FeatureMapMismatch, PrivacyError
from sketchlearn.features.base import AbstractFeatureMap, sum_features
from sketchlearn.features.clipping import clipped
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.release import release


def test_a_sketch_without_a_bound_is_refused(ample):
    unbounded = sketch_rows(np.ones((5, 2)), QuadraticFeatures(2, 8))
    require_refused(
        ample,
        unbounded,
        PrivacyError,
        r"no per-row bound \(clip=None\).*clipped\(feature_map, norm_bound=S\), S "
        r"fixed before looking at this data; a bound cannot be added afterwards",
    )


def test_a_map_planned_from_the_rows_is_refused(ample):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    inner = FourierFeatures(2, 8, scaling=Scaling.from_rows(rows))
    sketch = sketch_rows(rows, clipped(inner, norm_bound=1.0))
    for part in (sketch, replace(sketch, source_map=None)):
        require_refused(ample, part, PrivacyError, "planned from rows.*reveals them")


def test_a_map_of_unknown_origin_is_refused_until_it_is_attached(ample, exact):
    blind = replace(exact, features=replace(exact.features, text=""), source_map=None)
    require_refused(ample, blind, PrivacyError, r"not known: attach.*with_map")

    assert release(blind.with_map(PHI), **PROMISE, ledger=ample).count > 0


@pytest.mark.parametrize("pooling", ["max", "min", "p-norm:4", "log-sum-exp"])
def test_only_means_are_released(ample, pooling):
    phi = clipped(FourierFeatures(2, 8), norm_bound=1.0)
    sketch = sketch_rows(np.zeros((5, 2)), phi, pooling=pooling)
    require_refused(
        ample, sketch, PrivacyError, "only sketches pooled by mean are released"
    )


def test_what_is_released_is_not_released_again(ample, exact):
    private = release(exact, **PROMISE, ledger=ample)
    require_refused(ample, private, PrivacyError, "released already")


def test_rows_that_count_twice_are_refused(ample, exact):
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
    release(doubled, **PROMISE, ledger=ample)


def test_rows_of_unknown_runs_stay_unknown(ample, exact):
    for lineage in (None, frozenset()):
        unknown = replace(exact, lineage=lineage)
        for whole in (unknown + by_label("a")["a"], unknown - exact, exact - unknown):
            assert whole.lineage is None
        sums = unknown + unknown + exact
        require_refused(ample, sums, PrivacyError, "added twice.*with_new_lineage")


@pytest.mark.parametrize("lineage", [None, frozenset()])
def test_a_sketch_of_unknown_runs_is_released_on_the_holders_word_only(
    ample, exact, lineage
):
    unknown = replace(exact, lineage=lineage)
    require_refused(ample, unknown, PrivacyError, "added twice.*with_new_lineage")
    release(unknown.with_new_lineage(), **PROMISE, ledger=ample)


def test_a_total_that_no_rows_can_have_is_not_released(ample, exact):
    total = Int128Array.from_ints([exact.features.norm_steps * 4322, 0, 0, 0])
    forged = replace(exact, total=total)
    require_refused(ample, forged, PrivacyError, "cannot have this total")


@pytest.mark.parametrize(
    "claim", [{"norm_bound": 0.25}, {"value_bound": 0.5}, {"frac_bits": 20}]
)
def test_a_header_that_contradicts_its_map_is_not_released(ample, claim):
    phi = clipped(MomentFeatures(2, order="mean"), norm_bound=1.0)
    rows = np.array([[0.5, 0.5], [-0.5, -0.5]])
    honest = replace(sketch_rows(rows, phi), source_map=None)
    forged = replace(honest, features=replace(honest.features, **claim))
    with pytest.raises(
        FeatureMapMismatch, match="contradicts it in its description, sizes or"
    ):
        release(forged, **PROMISE, ledger=ample)
    assert not ample.charges


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
def test_the_bound_of_a_map_of_ones_own_is_not_believed(ample, stored):
    rows = np.zeros((4000, 4))
    rows[0] = 0.25
    mine = Boastful(stored)
    sketch = sketch_rows(rows, mine)
    require_refused(ample, sketch, PrivacyError, "your word only. Clip it")
    bounded = sketch_rows(rows, clipped(mine, norm_bound=1.0))
    assert release(bounded, **PROMISE, ledger=ample).statement.sensitivity < 1.3


def test_a_release_carries_the_map_that_was_verified(ample, exact):
    other = clipped(MomentFeatures(4, order="mean"), norm_bound=7.0)
    private = release(replace(exact, source_map=other), **PROMISE, ledger=ample)
    assert private.feature_map == PHI


@pytest.mark.parametrize("wrong", ["x", None, 3, PHI])
def test_what_is_no_sketch_is_not_released(ample, wrong):
    require_refused(ample, wrong, PrivacyError, "release takes a sketch")
