"""All that is asked of rows is their range and their sketch: an engine needs no more.

The engine of this test has its rows in two places, sketches each of them there, and
never hands out a row.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import sketchlearn as sl
from sketchlearn.engines.open_source import open_row_source
from sketchlearn.errors import FeatureMapMismatch, RowsError
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.row_source import AbstractRowSource

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(900, 3)) + 6.0 * RNG.integers(0, 2, (900, 1))
TARGET = (ROWS @ [1.0, 2.0, -1.0]).round(2)
WHOLE = np.column_stack([ROWS, TARGET])
NAMES = ("a", "b", "c", "t")


class TwoPlaces(AbstractRowSource):
    source = "two places"
    is_repeatable = True
    names = None

    def __init__(self, parts, names):
        self.parts, self.names = parts, tuple(names)

    @property
    def n_features(self):
        return len(self.names)

    def _local(self):
        return [LocalRows(open_rows(part[list(self.names)])) for part in self.parts]

    def select(self, names):
        return TwoPlaces(self.parts, names)

    def extremes(self):
        left, right = (rows.extremes() for rows in self._local())
        ends = [np.minimum(left[0], right[0]), np.maximum(left[1], right[1])]
        return np.stack([*ends, *(left + right)[2:] / 2])

    def sketch(self, feature_map, *, pooling="mean"):
        left, right = self._local()
        return left.sketch(feature_map) + right.sketch(feature_map)


@pytest.fixture
def places():
    frame = pd.DataFrame(WHOLE, columns=list(NAMES))
    return TwoPlaces([frame[:500], frame[500:]], NAMES)


LOW, HIGH = ROWS.min(axis=0), ROWS.max(axis=0)
MODELS = [
    sl.CompressivePCA(2, bounds=(LOW, HIGH)),
    sl.CompressivePCA(2),
    sl.CompressiveKMeans(2, bounds=(LOW, HIGH)),
    sl.CompressiveKMeans(2),
    sl.CompressiveGaussianMixture(2, bounds=(LOW, HIGH)),
]


@pytest.mark.parametrize("model", MODELS)
def test_models_of_an_engine_are_those_of_an_array(model, places):
    found = clone(model).fit(places.select(["a", "b", "c"]))
    assert found.sketch_.count == 900
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    if model.bounds is not None:
        assert found.sketch_ == clone(model).fit(ROWS).sketch_
    found.partial_fit(places.select(["c", "b", "a"]))
    assert found.sketch_.count == 1800


def test_a_regression_takes_its_target_from_an_engine_by_name(places):
    ridge = sl.CompressiveRidge(bounds=(LOW, HIGH), target_bounds=(-99, 99))
    assert ridge.fit(places, "t").sketch_ == clone(ridge).fit(ROWS, TARGET).sketch_


def test_an_engine_is_sketched_like_any_other_rows(places):
    phi = sl.MomentFeatures(4)
    assert sl.sketch_rows(places, phi) == sl.sketch_rows(WHOLE, phi)
    with pytest.raises(RowsError, match="two places is open already"):
        sl.sketch_rows(places, phi, on_invalid="drop")
    with pytest.raises(RowsError, match="two places have 4 features, but 3"):
        sl.sketch_rows(places, sl.MomentFeatures(3))
    with pytest.raises(FeatureMapMismatch, match="no 'z'"):
        sl.sketch_rows(places, sl.MomentFeatures(2).with_columns(("a", "z")))
    assert open_row_source(places) is places


def test_rows_of_an_engine_are_never_read_here(places):
    rows = places.select(["a", "b", "c"])
    with pytest.raises(RowsError, match="not read here"):
        sl.CompressiveKMeans(2, bounds=(LOW, HIGH)).fit_predict(rows)
    with pytest.raises(RowsError, match="takes rows in memory"):
        sl.CompressivePCA(2).fit_transform(rows)


def test_local_rows_say_what_batches_say():
    batches = open_rows(WHOLE, batch_rows=100)
    rows = LocalRows(batches, source="rows and targets")
    assert (rows.source, rows.n_features, rows.names) == ("rows and targets", 4, None)
    assert rows.is_repeatable
    assert not LocalRows(open_rows(iter([WHOLE]))).is_repeatable
    ends = rows.extremes()[:2]
    assert np.array_equal(ends, [WHOLE.min(axis=0), WHOLE.max(axis=0)])


def test_a_stream_is_all_there_after_a_look_at_its_range():
    rows = LocalRows(open_rows(iter([WHOLE[:10], WHOLE[10:]])))
    rows.extremes()
    phi = sl.MomentFeatures(4)
    assert rows.sketch(phi) == sl.sketch_rows(WHOLE, phi)


@pytest.mark.parametrize(("row", "seen"), [(65_535, True), (65_536, False)])
def test_of_a_stream_so_many_rows_are_looked_at(row, seen):
    rows = np.zeros((70_000, 1))
    rows[row] = 9.0
    assert (LocalRows(open_rows(iter([rows]))).extremes()[1] == 9.0) == seen
    assert LocalRows(open_rows(rows)).extremes()[1] == 9.0
