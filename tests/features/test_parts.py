"""A map knows the plain maps inside it, where they stand and how they are clipped."""

import numpy as np
import pytest

from sketchlearn import (
    CellFeatures,
    ConcatenatedFeatures,
    FourierFeatures,
    MomentFeatures,
    clipped,
)
from sketchlearn.features.parts import Clip, Part, all_clips

WAVES, MEANS = FourierFeatures(2, 4), MomentFeatures(2, order="mean")
SHORT = clipped(WAVES, norm_bound=2.0)
WHOLE = clipped(
    ConcatenatedFeatures([MEANS, ConcatenatedFeatures([MEANS, SHORT])]),
    norm_bound=1.0,
)
ROWS = np.random.default_rng(0).normal(size=(7, 2))


def test_a_plain_map_is_its_only_part():
    assert WAVES.parts() == (Part(WAVES, slice(0, 4)),)


def test_parts_of_nested_maps_have_their_place_in_the_whole_vector():
    assert [part.feature_map for part in WHOLE.parts()] == [MEANS, MEANS, WAVES]
    assert [part.where for part in WHOLE.parts()] == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 8),
    ]


def test_parts_tell_how_they_are_clipped_alone_and_with_others():
    first, _, last = WHOLE.parts()
    outer = Clip(slice(0, 8), 1.0)

    assert first.clips == (outer,)
    assert last.clips == (Clip(slice(4, 8), 2.0), outer)


def test_the_features_are_those_of_the_parts_clipped_in_order():
    parts = WHOLE.parts()
    features = np.concatenate([part.feature_map(ROWS) for part in parts], axis=1)
    for clip in all_clips(parts):
        norms = np.linalg.norm(features[:, clip.where], axis=1, keepdims=True)
        features[:, clip.where] *= np.minimum(1, clip.norm_bound / norms)

    np.testing.assert_allclose(WHOLE(ROWS), features, atol=1e-6)


def test_what_is_clipped_together_was_clipped_alone_before():
    both = clipped(ConcatenatedFeatures([SHORT, SHORT]), norm_bound=1.0)
    bounds = [clip.norm_bound for clip in all_clips(both.parts())]

    assert bounds == [2.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("classes", "starts"),
    [
        ([FourierFeatures], [4]),
        ([MomentFeatures], [0, 2]),
        ([FourierFeatures, MomentFeatures], [0, 2, 4]),
        ([CellFeatures], []),
    ],
)
def test_parts_are_found_by_class_in_order(classes, starts):
    assert [part.where.start for part in WHOLE.find(*classes)] == starts
