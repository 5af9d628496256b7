"""Plans keep all second moments where there is room, else what tells most of them."""

import numpy as np
import pytest

from sketchlearn.features.scaling import Scaling
from sketchlearn.plans.moments import auto_size, plan_second_moments


def test_no_directions_are_given_up_to_save_a_tenth_of_the_numbers():
    for d in range(1, 3000):
        size, exact = auto_size(d), d * (d + 1) // 2
        assert size <= 1.1 * 2**19
        assert size == exact or 1.1 * size < exact


def test_narrow_features_keep_the_least_weight_that_test_vectors_can_hold():
    width = 2.0 ** -np.array([0, 3, 12, 13, 40])
    phi = plan_second_moments(
        n_features=5,
        sketch_size=10,
        scaling=Scaling.from_bounds(-width, width),
        reach=1.0,
        by_spread=True,
    )
    expected = 2.0 ** -np.array([0, 3, 12, 12, 12])
    assert phi.importance == pytest.approx(expected[phi.kept])
    assert len(phi.kept) == 5
