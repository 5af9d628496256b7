"""Scales come from declared bounds or from rows, and plans say what they saw."""

import warnings

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    RowRangeError,
)
from sketchlearn.plans.moments import plan_second_moments
from sketchlearn.plans.scaling import (
    check_bounds,
    extremes_of,
    plan_scaling,
    varies,
    warn_of_late,
    warn_of_plan,
)

ROWS = np.array([[0.0, 5.0, 7.0], [1.0, -3.0, 7.0], [0.5, 1.0, 7.0]])


def plan(rows, sketch_size, bounds=None):
    scaling, reach = plan_scaling(bounds, rows.shape[1], rows)
    return plan_second_moments(
        n_features=rows.shape[1],
        sketch_size=sketch_size,
        scaling=scaling,
        reach=reach,
        rows=rows,
    )


def test_declared_bounds_are_as_far_as_values_may_go():
    scaling, reach = plan_scaling((-1.0, 1.0), 2)
    assert (reach, scaling.origin) == (1.0, "declared")
    assert plan_scaling(None, 3, ROWS)[0].origin == "data"


def test_values_may_lie_thirty_two_times_farther_out_than_those_seen():
    phi = plan(np.array([[-1.0], [1.0]]), 1)
    assert sl.sketch_rows([[31.9]], phi).count == 1
    with pytest.raises(RowRangeError, match="with bounds, or an array or files"):
        sl.sketch_rows([[32.1]], phi)


@pytest.mark.parametrize("bounds", ["ab", 3, (1,), (2, 1), (0, np.nan), ([0, [1]], 1)])
def test_what_is_no_pair_in_increasing_order_is_refused(bounds):
    with pytest.raises(FeatureMapError):
        check_bounds("bounds", bounds)


def test_bounds_whose_squares_are_no_numbers_are_refused():
    assert check_bounds("bounds", (0.0, 2.0**480)) == (0.0, 2.0**480)
    with pytest.raises(FeatureMapError, match="target_bounds reach beyond 3e"):
        check_bounds("target_bounds", (0.0, 2.0**481))


def test_extremes_and_features_that_vary():
    assert extremes_of(ROWS).tolist() == [[0.0, -3.0, 7.0], [1.0, 5.0, 7.0]]
    sketch = sl.sketch_rows(ROWS, sl.MomentFeatures(3))
    assert varies(sketch).tolist() == [True, True, False]


def test_only_a_feature_without_room_that_varies_later_is_warned_of():
    phi = plan(ROWS, 4)
    later = np.concatenate([ROWS, [[0.0, 1.0, 8.0]]])
    was_constant = np.array([False, False, True])
    with pytest.warns(ConvergenceWarning, match=r"1 features \(feature 2\) did not"):
        warn_of_late(sl.sketch_rows(later, phi), was_constant)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_late(sl.sketch_rows(ROWS, phi), was_constant)
        warn_of_late(sl.sketch_rows(later, sl.MomentFeatures(3)), was_constant)


def test_a_plan_that_saw_the_rows_remembers_them():
    with pytest.warns(DataPlanWarning, match="keep a trace"):
        warn_of_plan(plan(ROWS, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_plan(plan(ROWS, 6, bounds=(-9, 9)))
