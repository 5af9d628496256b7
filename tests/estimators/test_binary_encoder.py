"""The encoder keeps scikit-learn's contract and reads numbers and text of frames."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import sketchlearn as sl
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.datasets import MetaDataset

RNG = np.random.default_rng
TABLE = {
    "age": [20.0, 31.5, 64.0, 40.25],
    "city": ["Rome", "Oslo", "Rome", None],
    "kind": [1, 2, 3, 3],
}
NAMES = ["age>35.875", "city=Oslo", "city=Rome", "kind=1", "kind=2", "kind=3"]
BITS = [[0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 1, 0], [1, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 1]]


@parametrize_with_checks(
    [sl.BinaryEncoder(), sl.BinaryEncoder(n_columns=3, thresholds=0.5)]
)
def test_encoder_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_have_names_and_text(make):
    encoder = sl.BinaryEncoder(max_categories=3).fit(make(TABLE))
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.transform(make(TABLE)).tolist() == BITS
    assert encoder.n_features_in_ == 3


def test_lists_and_arrays_of_objects_have_text():
    listed = [list(row) for row in zip(*TABLE.values(), strict=True)][:3]
    encoder = sl.BinaryEncoder(max_categories=2).fit(listed)
    names = encoder.get_feature_names_out().tolist()
    assert names == ["x0>31.5", "x1=Oslo", "x1=Rome", "x2>2"]
    array = np.array(listed, object)
    assert np.array_equal(encoder.transform(listed), encoder.transform(array))


def test_the_encoder_and_the_experiments_have_the_same_bits():
    rows = RNG(0).integers(7, size=(50, 9)).astype(float) ** 2
    encoder = sl.BinaryEncoder(n_columns=20, random_state=4)
    expected = binary_rows(MetaDataset.from_arrays("a", rows), n_columns=20, seed=4)
    assert np.array_equal(encoder.fit_transform(rows), expected)


def test_new_rows_have_the_columns_of_the_old_ones():
    encoder = sl.BinaryEncoder(max_categories=3).fit(pd.DataFrame(TABLE))
    new = pd.DataFrame({"age": [99.0], "city": ["Bonn"], "kind": [2]})
    assert encoder.transform(new).tolist() == [[1, 0, 0, 0, 1, 0]]
    strict = clone(encoder).set_params(handle_unknown="error")
    strict.fit(pd.DataFrame(TABLE))
    with pytest.raises(RowsError, match="column 1: holds a category"):
        strict.transform(new)


def test_declared_columns_learn_nothing():
    declared = sl.BinaryEncoder(
        thresholds={"age": 30}, categories={"city": ["Oslo", "Bonn"], "kind": [1, 2]}
    )
    other = {"age": [1.0], "city": ["Rome"], "kind": [9]}
    fitted = [clone(declared).fit(pd.DataFrame(rows)) for rows in (TABLE, other)]
    assert fitted[0].columns_.rules == fitted[1].columns_.rules
    assert fitted[0].get_feature_names_out().tolist() == [
        "age>30", "city=Oslo", "city=Bonn", "kind=1", "kind=2",
    ]  # fmt: skip
    same = sl.BinaryEncoder(thresholds=0.5, categories={1: [0, 1]})
    assert same.fit([[0.2, 1], [0.9, 0]]).transform([[0.7, 1]]).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"thresholds": {"size": 1.0}}, RowsError, "names the column 'size'"),
        ({"thresholds": {"age": 1.0}, "categories": {"age": [1]}}, RowsError, "one of"),
        ({"categories": {"age": []}}, RowsError, "at least one category"),
        ({"thresholds": 1.0}, RowsError, "column 1 is one of numbers"),
        ({"n_columns": 0}, FeatureMapError, "n_columns"),
        ({"handle_unknown": "guess"}, FeatureMapError, "handle_unknown"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        sl.BinaryEncoder(**given).fit_transform(pd.DataFrame(TABLE))


def test_files_and_streams_are_refused_and_pipelines_work(tmp_path):
    with pytest.raises(RowsError, match="rows in memory"):
        sl.BinaryEncoder().fit(str(tmp_path / "rows.csv"))
    pipeline = make_pipeline(sl.BinaryEncoder(), FunctionTransformer(np.negative))
    assert pipeline.fit_transform(np.array([[1.0], [2.0]])).shape == (2, 1)
    framed = sl.BinaryEncoder(max_categories=3).set_output(transform="pandas")
    assert list(framed.fit_transform(pd.DataFrame(TABLE)).columns)[1] == "city=Oslo"


def test_other_columns_are_named_and_not_blamed_for_their_type():
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "city": ["Oslo", "Rome", "Oslo"]})
    encoder = sl.BinaryEncoder().fit(frame)
    with pytest.raises(ValueError, match="order as they were in fit"):
        encoder.transform(frame[["city", "age"]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        encoder.transform(frame.assign(more=1.0))
    with pytest.raises(RowsError, match="must be a list"):
        sl.BinaryEncoder(categories={"city": "Rome"}).fit(frame)
    with pytest.raises(RowsError, match="takes rows in memory"):
        sl.BinaryEncoder().fit("rows.parquet")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", [0.3, 0.6], None])
def test_a_threshold_is_one_finite_number(value):
    with pytest.raises(RowsError, match="one finite number"):
        sl.BinaryEncoder(thresholds={0: value}).fit(np.eye(3))
