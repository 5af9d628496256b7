"""A plan may carry the names of its columns: part of the map, at its outermost."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch
from sketchlearn.features.clipping import clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.storage.sketches import dumps, loads

NAMES = ("age", "bmi")
PLAIN = MomentFeatures(2, order="mean")
NAMED = PLAIN.with_columns(NAMES)
MAPS = [
    NAMED,
    clipped(NAMED, norm_bound=1.0),
    clipped(PLAIN, norm_bound=1.0).with_columns(NAMES),
    ConcatenatedFeatures([NAMED, FourierFeatures(2, 4)]),
    clipped(ConcatenatedFeatures([NAMED, FourierFeatures(2, 4)]), norm_bound=1.0),
]


@pytest.mark.parametrize("phi", MAPS, ids=lambda phi: phi.kind)
def test_names_come_back_from_files_and_pickles(phi):
    sketch = sketch_rows(np.zeros((3, 2)), phi)
    for back in (
        loads(dumps(phi)),
        pickle.loads(pickle.dumps(phi)),
        loads(dumps(sketch)).feature_map,
    ):
        assert back == phi
        assert back.columns == NAMES


def test_names_stand_at_the_outermost_map_only():
    assert MAPS[1] == MAPS[2]
    assert MAPS[1].inner == PLAIN
    assert MAPS[1].inner.columns is None


def test_the_map_without_names_is_as_it_was():
    assert PLAIN.columns is None
    assert NAMED.with_columns(None) == PLAIN
    assert PLAIN.with_columns(None) is PLAIN
    assert "columns" not in PLAIN.description


def test_other_names_are_another_map():
    other = PLAIN.with_columns(["bmi", "age"])
    rows = np.zeros((3, 2))
    assert len({NAMED, PLAIN, other}) == 3
    with pytest.raises(FeatureMapMismatch, match="columns"):
        sketch_rows(rows, NAMED) + sketch_rows(rows, other)


@pytest.mark.parametrize(
    "columns", ["ab", ["a"], ["a", "a"], ["a", 1], 7, [["a"], ["b"]], ["a", "b", "c"]]
)
def test_names_that_do_not_fit_are_refused(columns):
    with pytest.raises(FeatureMapError, match="2 different names"):
        PLAIN.with_columns(columns)


def test_parts_of_different_names_do_not_stand_side_by_side():
    with pytest.raises(FeatureMapError, match="different columns"):
        ConcatenatedFeatures([NAMED, PLAIN.with_columns(["x", "y"])])


FRAME = pd.DataFrame({"age": [1.0, 2.0], "bmi": [-1.0, 3.0]})


@pytest.mark.parametrize(
    "rows",
    [
        FRAME,
        FRAME[["bmi", "age"]],
        FRAME.assign(extra=9.0),
        pa.table(FRAME[["bmi", "age"]]),
        FRAME.to_numpy(),
    ],
    ids=["frame", "reordered", "more columns", "Arrow", "without names"],
)
def test_rows_are_taken_by_name(rows):
    sketch = sketch_rows(rows, NAMED)
    assert sketch == sketch_rows(FRAME.to_numpy(), NAMED)
    assert sketch.columns == NAMES


def test_rows_of_a_generator_are_taken_by_name():
    frames = (FRAME[["bmi", "age"]].iloc[i : i + 1] for i in range(2))
    assert sketch_rows(frames, NAMED) == sketch_rows(FRAME, NAMED)


def test_rows_of_other_names_are_refused():
    other = FRAME.rename(columns={"bmi": "weight"})
    match = "the plan has columns age, bmi; these rows have age, weight, and no 'bmi'"
    with pytest.raises(FeatureMapMismatch, match=match):
        sketch_rows(other, NAMED)
