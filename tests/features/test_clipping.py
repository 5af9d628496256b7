"""Clipping bounds what is summed, and refuses what has no norm."""

import numpy as np
import pytest

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import RowRangeError
from sketchlearn.features.clipping import clip_rows, clipped
from sketchlearn.features.fourier import FourierFeatures


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_feature_that_is_no_number_has_no_norm_and_is_refused(bad):
    features = np.array([[0.5, 0.5], [0.1, bad], [0.0, 1.0]])
    with pytest.raises(RowRangeError, match="row 8 has a feature that is no finite"):
        clip_rows(features, 1.0, first_row=7)


@pytest.mark.parametrize("value", [1e15, 1e100, -1e308])
def test_rows_far_outside_the_plan_are_refused_before_they_are_clipped(value):
    phi = clipped(FourierFeatures(1, 4, scale=1e-25), norm_bound=1.0)
    with pytest.raises(RowRangeError):
        sketch_rows([[value]], phi)
