"""A model depends on the rows, not on what they come in: fit(array) == fit(file)."""

import gzip
import json
import warnings

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from sklearn.base import clone

import sketchlearn as sl
from sketchlearn.errors import (
    ConvergenceWarning,
    DataPlanWarning,
    FeatureMapError,
    RemovalError,
    RowRangeError,
    RowsError,
)
from sketchlearn.sketching import local_rows

RNG = np.random.default_rng(0)
N, D = 1500, 4
ROWS = RNG.normal(size=(N, D)) * [1.0, 30.0, 0.01, 5.0]
ROWS += 6 * RNG.integers(0, 2, (N, 1)) * [1.0, 30.0, 0.01, 5.0]
ROWS[:, 3] = np.sort(ROWS[:, 3])  # sorted by one column
ROWS[: N // 2, 2] = 0.5  # and another begins to vary in the middle
ROWS = ROWS.astype(np.float32).astype(float)
TARGET = (ROWS @ [1.0, 0.1, 20.0, -0.5])[:, None].round(3)
WHOLE = np.concatenate([ROWS, TARGET], axis=1)
NAMES = ["a", "b", "c", "d", "t"]

SIMPLE = {
    "pca": lambda: sl.CompressivePCA(2),
    "small pca": lambda: sl.CompressivePCA(1, sketch_size=6, decoder="nystrom"),
    "k-means 1": lambda: sl.CompressiveKMeans(2, sketch_size=60, rounds=1, n_init=1),
    "k-means 2": lambda: sl.CompressiveKMeans(2, sketch_size=60, rounds=2, n_init=1),
    "mixture 1": lambda: sl.CompressiveGaussianMixture(2, sketch_size=60, rounds=1),
    "mixture 2": lambda: sl.CompressiveGaussianMixture(2, sketch_size=60, rounds=2),
}
RIDGES = {
    "ridge": lambda: sl.CompressiveRidge(),
    "small ridge": lambda: sl.CompressiveRidge(sketch_size=10, decoder="nystrom"),
}
FITTED = [
    "components_",
    "explained_variance_",
    "coef_",
    "intercept_",
    "cluster_centers_",
    "inertia_",
    "means_",
    "covariances_",
    "weights_",
]


@pytest.fixture(autouse=True)
def _quiet():
    """Small sketches may say that they are small."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def table(rows, names):
    return pa.table({name: rows[:, i] for i, name in enumerate(names)})


def chunks(rows, size):
    return (rows[start : start + size] for start in range(0, len(rows), size))


def write(folder, rows, names):
    """Files of all kinds, some in several pieces."""
    data = table(rows, names)
    folder.mkdir()
    pa.parquet.write_table(data, folder / "1.parquet", row_group_size=200)
    pa.parquet.write_table(data, folder / "2.pq", write_statistics=False)
    pa.csv.write_csv(data, folder / "3.csv")
    pa.feather.write_feather(data, folder / "4.arrow", chunksize=301)
    lines = "".join(json.dumps(row) + "\n" for row in data.to_pylist())
    (folder / "6.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "5").mkdir()
    for i, start in enumerate(range(0, len(rows), 400)):
        part = data.slice(start, 400)
        pa.parquet.write_table(part, folder / "5" / f"{i}.parquet")
    return sorted(folder.iterdir())


def same(model, other):
    assert model.sketch_.digest == other.sketch_.digest
    assert model.n_features_in_ == other.n_features_in_
    for name in FITTED:
        if hasattr(model, name):
            assert np.array_equal(getattr(model, name), getattr(other, name)), name
    return True


def is_twice(name):
    return name.endswith("2")


@pytest.mark.parametrize("name", SIMPLE)
def test_files_and_frames_give_the_model_of_the_array(name, tmp_path):
    make, names = SIMPLE[name], NAMES[:D]
    model = make().fit(ROWS)
    data = table(ROWS, names)
    frame = data.to_pandas()
    memory = [ROWS.astype(np.float32), frame, pl.from_pandas(frame), data]
    memory += [frame.set_axis(range(D), axis=1), torch.tensor(ROWS), sl.open_rows(data)]
    memory += [list(chunks(ROWS, 444)), duckdb.from_arrow(data)]
    for rows in [*memory, *write(tmp_path / "files", ROWS, names)]:
        assert same(make().fit(rows), model)


@pytest.mark.parametrize("name", [name for name in SIMPLE if not is_twice(name)])
def test_short_streams_give_the_model_of_the_array(name):
    make, data = SIMPLE[name], table(ROWS, NAMES[:D])
    model = make().fit(ROWS)
    reader = pa.RecordBatchReader.from_batches(data.schema, data.to_batches(333))
    for rows in (chunks(ROWS, 256), chunks(data.to_pandas(), 1), reader):
        assert same(make().fit(rows), model)
    assert same(make().fit(sl.open_rows(chunks(ROWS, 99))), model)


class ArrowStream:
    """What a library that knows Arrow's interface, and no more, would pass."""

    def __init__(self, data):
        self._data = data

    def __arrow_c_stream__(self, requested_schema=None):
        return self._data.__arrow_c_stream__(requested_schema)


class NamedArrowStream(ArrowStream):
    @property
    def columns(self):
        return self._data.column_names


class Reread:
    """A collection of batches that is no list."""

    def __init__(self, rows):
        self._rows = rows

    def __iter__(self):
        return iter(chunks(self._rows, 200))


def all_forms(rows, names, folder):
    """The same rows in all that they may come in, with names."""
    data = table(rows, names)
    frame = data.to_pandas()
    yield from (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), data)
    yield from (chunks(frame, 100), [frame[:700], frame[700:]], Reread(frame))
    yield from (ArrowStream(data), NamedArrowStream(data), [ArrowStream(data)])
    yield from (data.to_reader(), [data.to_reader()], pa.dataset.dataset(data))
    for path in write(folder, rows, names):
        yield from (path, sl.open_rows(path), str(path))
    yield from map(sl.open_rows, (frame, chunks(frame, 99), ArrowStream(data)))


LOW, HIGH = ROWS.min(axis=0) - 1, ROWS.max(axis=0) + 1
DECLARED = {
    "pca": sl.CompressivePCA(2, bounds=(LOW, HIGH)),
    "k-means": sl.CompressiveKMeans(2, sketch_size=60, n_init=1, bounds=(LOW, HIGH)),
    "mixture": sl.CompressiveGaussianMixture(2, sketch_size=60, bounds=(LOW, HIGH)),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_plan_gives_one_model_for_all_forms_of_rows(name, tmp_path):
    model = clone(DECLARED[name]).fit(ROWS)
    nameless = [ROWS.tolist(), torch.tensor(ROWS), memoryview(ROWS), chunks(ROWS, 64)]
    nameless += [list(chunks(ROWS, 444)), Reread(ROWS), map(np.asarray, [ROWS])]
    named = all_forms(ROWS, NAMES[:D], tmp_path / "files")
    for rows in [*nameless, *map(sl.open_rows, (ROWS, chunks(ROWS, 99))), *named]:
        assert same(clone(DECLARED[name]).fit(rows), model)


def test_a_declared_plan_gives_one_regression_for_all_forms_of_rows(tmp_path):
    declared = sl.CompressiveRidge(bounds=(LOW, HIGH), target_bounds=(-500, 500))
    model = clone(declared).fit(ROWS, TARGET[:, 0])
    for rows in all_forms(WHOLE, NAMES, tmp_path / "files"):
        assert same(clone(declared).fit(rows, "t"), model)


@pytest.mark.parametrize(
    "declared", [{"bounds": (LOW, HIGH)}, {"rounds": 1}], ids=["bounds", "rounds"]
)
def test_one_pass_gives_one_classifier_for_all_forms_of_rows(declared, tmp_path):
    make = sl.CompressiveClassifier(sketch_size=60, **declared)
    codes = np.arange(N) % 3
    model = clone(make).fit(ROWS, codes)
    whole = np.column_stack([ROWS, codes])
    for rows in all_forms(whole, NAMES, tmp_path / "files"):
        assert clone(make).fit(rows, "t").sketches_ == model.sketches_


def test_what_is_no_table_of_rows_is_refused_alike_by_sketches_and_models():
    phi = sl.MomentFeatures(D)
    column = pl.Series("a", [1.0, 2.0])
    for rows in ({"a": [1.0]}, {1.0, 2.0}, [], 3, b"rows", column, column.to_arrow()):
        with pytest.raises(RowsError) as told:
            sl.sketch_rows(rows, phi)
        with pytest.raises(RowsError) as again:
            sl.CompressivePCA().fit(rows)
        assert str(again.value) == str(told.value)


@pytest.mark.parametrize("name", [name for name in SIMPLE if is_twice(name)])
def test_two_rounds_refuse_a_stream_before_reading_it(name):
    def untouched():
        yield ROWS[:5]
        raise AssertionError("was read")

    with pytest.raises(RowsError, match="rounds=2 needs the rows twice"):
        SIMPLE[name]().fit(untouched())


@pytest.mark.parametrize("name", RIDGES)
def test_targets_by_name_give_the_model_of_arrays(name, tmp_path):
    make = RIDGES[name]
    model = make().fit(ROWS, TARGET[:, 0])
    shuffled = ["c", "t", "a", "d", "b"]
    data = table(WHOLE, NAMES)
    frame = data.to_pandas()
    for rows in [data, frame, *write(tmp_path / "files", WHOLE, NAMES)]:
        assert same(make().fit(rows, "t"), model)
    assert same(make().fit(frame.drop(columns="t"), frame["t"]), model)
    assert same(make().fit(frame[shuffled], ["t"]).fit(frame, ("t",)), model)
    path = tmp_path / "files" / "1.parquet"
    assert same(make().fit(sl.open_rows(path, on_invalid="drop"), "t"), model)
    reader = pa.RecordBatchReader.from_batches(data.schema, data.to_batches(333))
    for rows in (chunks(frame, 100), reader, sl.open_rows(chunks(frame, 99))):
        assert same(make().fit(rows, "t"), model)


def test_a_target_in_the_middle_loses_no_row_of_a_generator():
    frame = table(WHOLE, NAMES).to_pandas()[["t", "b", "a"]]
    model = sl.CompressiveRidge().fit(chunks(frame, 100), y="t")
    assert model.sketch_.count == N
    assert model.feature_names_in_.tolist() == ["b", "a"]
    assert same(model, sl.CompressiveRidge().fit(ROWS[:, [1, 0]], TARGET))
    part = frame[:400][["a", "t", "b"]]  # in another order
    with pytest.warns(DataPlanWarning):
        model.forget(chunks(part, 100), y="t")
    assert model.sketch_.count == N - 400


def test_columns_chosen_when_opening_are_those_of_the_regression():
    batches = sl.open_rows(table(WHOLE, NAMES), columns=["t", "d", "a"])
    model = sl.CompressiveRidge().fit(batches, y="t")
    assert model.feature_names_in_.tolist() == ["d", "a"]
    with pytest.raises(RowsError, match="no column 'u'"):
        sl.CompressiveRidge().fit(batches, y="u")


@pytest.mark.parametrize("name", SIMPLE)
def test_rows_may_come_in_pieces_and_go_in_pieces(name):
    feature_map = SIMPLE[name]().fit(ROWS).sketch_.feature_map
    model = SIMPLE[name]().fit_sketch(sl.sketch_rows(ROWS[:900], feature_map))
    whole = sl.sketch_rows(ROWS, feature_map)
    model.partial_fit(chunks(ROWS[900:], 100))
    assert model.sketch_ == whole
    with pytest.warns(DataPlanWarning):
        model.forget(chunks(ROWS[900:], 130))
    assert model.sketch_ == sl.sketch_rows(ROWS[:900], feature_map)
    frame = table(ROWS, NAMES[:D]).to_pandas()
    named = SIMPLE[name]().fit(frame)
    more = chunks(frame[["d", "b", "a", "c"]], 500)  # another order
    again = sl.sketch_rows(ROWS, feature_map)
    assert named.partial_fit(more).sketch_ == whole + again


def test_the_classifier_takes_rows_in_memory_and_says_so(tmp_path):
    labels = np.repeat([0, 1], N // 2)
    frame = table(ROWS, NAMES[:D]).to_pandas()
    model = sl.CompressiveClassifier(sketch_size=60).fit(ROWS, labels)
    other = sl.CompressiveClassifier(sketch_size=60).fit(frame, labels)
    for label in (0, 1):
        assert model.sketches_[label] == other.sketches_[label]
    pa.parquet.write_table(table(ROWS, NAMES[:D]), tmp_path / "rows.parquet")
    for rows in (str(tmp_path / "rows.parquet"), chunks(ROWS, 100)):
        with pytest.raises((ValueError, TypeError)):
            sl.CompressiveClassifier().fit(rows, labels)


def late(n_rows, constant):
    """Rows one of whose features varies only after some of them."""
    rows = np.random.default_rng(1).normal(size=(n_rows, 5))
    rows[:constant, 3] = 2.0
    return rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_all_rows_of_a_file_are_looked_at(kind, tmp_path):
    rows = late(70_000, 67_000)
    rows[:, 0] = np.linspace(-1, 1, len(rows)) ** 9  # sorted, and farthest at its ends
    rows[:67_000, 0] *= 1e-3
    path = tmp_path / f"rows.{kind}"
    writer = pa.csv.write_csv if kind == "csv" else pa.parquet.write_table
    writer(table(rows, "abcde"), path)
    small = sl.CompressivePCA(1, sketch_size=10, decoder="nystrom")
    assert same(small.fit(path), clone(small).fit(rows))
    assert 3 in small.sketch_.feature_map.kept


@pytest.mark.parametrize("y", [None, "e"])
def test_a_feature_that_varies_late_in_a_stream_is_named(monkeypatch, y):
    monkeypatch.setattr(local_rows, "PLANNING_ROWS", 1000)
    frame = pd.DataFrame(late(3000, 1500), columns=list("abcde"))
    model = sl.CompressivePCA if y is None else sl.CompressiveRidge
    small = model(sketch_size=10, decoder="nystrom")
    with pytest.warns(ConvergenceWarning, match=r"1 features \(d\) did not vary"):
        small.fit(chunks(frame, 100), y)
    assert small.sketch_.count == 3000


@pytest.mark.filterwarnings("ignore:.*have no room in this sketch")
def test_a_feature_that_varies_in_rows_added_later_is_named():
    rows = late(3000, 1500)
    model = sl.CompressivePCA(1, sketch_size=10, decoder="nystrom").fit(rows[:1500])
    with pytest.warns(ConvergenceWarning, match=r"\(feature 3\) did not vary"):
        model.partial_fit(rows[1500:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the sketch saw")
        warnings.filterwarnings("ignore", ".*have no room in this sketch")
        model.partial_fit(rows[1500:])  # it was said once


def test_a_stream_that_leaves_its_range_says_what_to_do(monkeypatch):
    monkeypatch.setattr(local_rows, "PLANNING_ROWS", 100)
    rows = np.linspace(0, 1, 1000)[:, None] ** 4 * [1.0, 2.0]
    with pytest.raises(RowRangeError, match=r"row \d+ .*bounds.* an array or files"):
        sl.CompressivePCA().fit(chunks(rows, 50))
    assert sl.CompressivePCA().fit(rows).sketch_.count == 1000


@pytest.mark.parametrize("name", [*SIMPLE, *RIDGES])
@pytest.mark.parametrize("size", [1e150, 1e200, 1e300])
def test_values_whose_squares_are_no_numbers_are_named(name, size):
    rows = table(WHOLE, NAMES).to_pandas()
    rows.loc[7, "c"] = size
    model, y = {**SIMPLE, **RIDGES}[name](), "t" if name in RIDGES else None
    with pytest.raises(RowRangeError, match=r"row 7 of .*column 'c'"):
        model.fit(rows, y)
    with pytest.raises(FeatureMapError, match="bounds reach beyond"):
        model.set_params(bounds=(-size, size)).fit(rows, y)


@pytest.mark.parametrize(
    "labels", [[3, 1, 2, 0], [2019, 2020, 2021, 2022], [0, "b", 2, 3]]
)
def test_names_that_are_no_text_are_read_as_text(labels):
    frame = pd.DataFrame(ROWS, columns=labels)
    model = sl.CompressivePCA(2).fit(frame)
    assert model.feature_names_in_.tolist() == list(map(str, labels))
    assert model.transform(frame).shape == (N, 2)
    model.partial_fit(frame)
    ridge = sl.CompressiveRidge().fit(frame, TARGET[:, 0])
    assert ridge.predict(frame).shape == (N,)
    assert same(ridge, sl.CompressiveRidge().fit(ROWS, TARGET[:, 0]))


def test_names_that_are_the_same_as_text_are_refused():
    frame = pd.DataFrame(ROWS, columns=["a", "1", 1, "b"])
    with pytest.raises(RowsError, match="several columns named '1'"):
        sl.CompressivePCA().fit(frame)


def test_a_random_state_gives_the_same_seed_every_time():
    state = np.random.RandomState(3)
    model = sl.CompressivePCA(1, sketch_size=4, random_state=state)
    assert model.plan(D) == model.plan(D)
    assert same(
        model.fit(ROWS),
        sl.CompressivePCA(1, sketch_size=4)
        .set_params(random_state=np.random.RandomState(3))
        .fit(ROWS),
    )
    model.partial_fit(ROWS)


ALL = [
    sl.CompressivePCA,
    sl.CompressiveRidge,
    sl.CompressiveKMeans,
    sl.CompressiveGaussianMixture,
    sl.CompressiveClassifier,
]


@pytest.mark.parametrize("kind", ALL)
def test_every_parameter_says_what_it_may_be(kind):
    given = kind().get_params()
    assert kind._parameter_constraints.keys() == given.keys()
    for name in given.keys() - {"bounds", "target_bounds"}:
        with pytest.raises(
            FeatureMapError, match=f"{name!r} parameter of {kind.__name__}"
        ):
            kind(**{name: object()}).plan(D)
    for name, value in given.items():
        if not isinstance(value, bool):  # which Python takes for a number
            with pytest.raises(FeatureMapError, match=name):
                kind(**{name: True}).plan(D)


@pytest.mark.parametrize("name", [*SIMPLE, *RIDGES])
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("sketch_size", 0),
        ("sketch_size", "many"),
        ("sketch_size", 2.5),
        ("random_state", -1),
        ("random_state", "x"),
        ("bounds", "abc"),
        ("bounds", "ab"),
        ("bounds", ("0", "1")),
        ("bounds", (0,)),
        ("bounds", 3),
        ("bounds", (None, 1)),
        ("bounds", (0, np.nan)),
        ("bounds", (object(), 1)),
        ("bounds", ([0, [1, 2]], 1)),
        ("bounds", ({}, 1)),
        ("bounds", (1j, 2)),
        ("bounds", (1, 0)),
    ],
)
def test_parameters_are_checked_before_a_row_is_read(name, parameter, value):
    def untouched():
        raise AssertionError("was read")
        yield

    model = {**SIMPLE, **RIDGES}[name]().set_params(**{parameter: value})
    with pytest.raises(FeatureMapError):
        model.fit(untouched(), "t")
    with pytest.raises(FeatureMapError):
        model.partial_fit(untouched(), "t")
    with pytest.raises(FeatureMapError):
        model.plan(D)


@pytest.mark.parametrize("model", [sl.CompressivePCA(2), sl.CompressiveKMeans(2)])
def test_what_cannot_be_read_again_is_refused_before_fitting(model, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    for rows in (tmp_path / "rows.npy", chunks(ROWS, 100)):
        with pytest.raises(RowsError, match="fit_transform takes rows in memory"):
            model.fit_transform(rows)
        assert not hasattr(model, "sketch_")


def test_rows_that_were_never_there_cannot_be_forgotten():
    model = sl.CompressivePCA(bounds=(-500, 500)).fit(ROWS)
    before = model.sketch_
    with pytest.raises(RemovalError, match="no 1499 rows add up"):
        model.forget(np.full((1, D), 499.0))
    with pytest.raises(RemovalError, match="removing 3000 rows"):
        model.forget(np.concatenate([ROWS, ROWS]))
    assert model.sketch_ is before


@pytest.mark.parametrize("name", SIMPLE)
def test_sketching_alone_changes_nothing_and_is_what_fit_decodes(name):
    model = SIMPLE[name]()
    sketch = model.sketch(ROWS)
    assert vars(model) == vars(SIMPLE[name]())
    assert sketch == SIMPLE[name]().fit(ROWS).sketch_
    fitted = SIMPLE[name]().fit(ROWS)
    before = dict(vars(fitted))
    fitted.sketch(ROWS[:, :2])
    assert {k: id(v) for k, v in vars(fitted).items()} == {
        k: id(v) for k, v in before.items()
    }


def test_a_classifier_has_a_sketch_for_each_class():
    with pytest.raises(FeatureMapError, match="a sketch for each class"):
        sl.CompressiveClassifier().sketch(ROWS, np.repeat([0, 1], N // 2))


@pytest.mark.parametrize("name", ["k-means", "mixture"])
def test_two_rounds_of_a_stream_are_refused_before_a_batch_is_pulled(name):
    def unread():
        raise AssertionError
        yield

    models = {
        "k-means": sl.CompressiveKMeans(2, rounds=2),
        "mixture": sl.CompressiveGaussianMixture(2, rounds=2),
    }
    with pytest.raises(RowsError, match=r"rounds=2 needs the rows twice.*Nothing was"):
        models[name].fit(unread())


def test_an_estimator_sees_the_width_of_rows_before_they_are_read(monkeypatch):
    seen = []
    model = sl.CompressivePCA(2)
    monkeypatch.setattr(sl.CompressivePCA, "_check_width", lambda _, d: seen.append(d))
    monkeypatch.setattr(sl.CompressivePCA, "_sketch", lambda _, batches: 1 / 0)
    for call in (model.fit, model.sketch):
        with pytest.raises(ZeroDivisionError):
            call(ROWS)
    assert seen == [D, D]


SUPERVISED = {
    "ridge": sl.CompressiveRidge,
    "classifier": lambda: sl.CompressiveClassifier(sketch_size=60),
}


@pytest.mark.parametrize("name", SUPERVISED)
def test_messages_blame_the_rows_as_they_were_given(name):
    target = np.arange(N) % 2
    rows = ROWS.copy()
    rows[7, 1] = 1e300
    with pytest.raises(RowRangeError, match=r"row 7 of an array of shape \(1500, 4\)"):
        SUPERVISED[name]().fit(rows, target)
    frame = pd.DataFrame(ROWS, columns=NAMES[:4]).assign(b="word")
    with pytest.raises(
        RowsError, match=r"column 'b' of a pandas.*not a number"
    ) as told:
        SUPERVISED[name]().fit(frame, target)
    assert "word" not in str(told.value)
    with pytest.raises(RowsError, match=r"got 1-D: a pandas Series.* Reshape"):
        SUPERVISED[name]().fit(frame["a"], target)


@pytest.mark.parametrize("kind", ["U", "S", object])
def test_a_target_of_text_is_blamed_and_not_the_rows(kind):
    with pytest.raises(RowsError, match="the target y is text"):
        sl.CompressiveRidge().fit(ROWS, np.array(["a", "b", "c"] * 500).astype(kind))


def test_whole_numbers_beside_decimal_targets_are_not_rounded():
    rows = np.array([[2**53 + 1], [3], [4]])
    with pytest.raises(RowsError, match="represented exactly"):
        sl.CompressiveRidge().fit(rows, [0.5, 1.5, 2.5])


@pytest.mark.parametrize("name", ["pca", "classifier"])
def test_only_forgetting_that_was_done_warns_of_the_plan(name):
    target = np.arange(N) % 2
    make = {"pca": lambda: sl.CompressivePCA(2), **SUPERVISED}[name]
    model = make().fit(ROWS, target)
    with pytest.raises((RemovalError, RowsError)):  # and no warning, which is an error
        model.forget(ROWS, target)
    with pytest.warns(DataPlanWarning):
        model.forget(ROWS[:9], target[:9])


def test_rows_with_holes_say_how_to_leave_them_out(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({"a": [1.0, None, 3.0], "b": [1.0, 5.0, 2.0]}).to_csv(
        path, index=False
    )
    with pytest.raises(RowsError, match=r"open_rows\(data, on_invalid='drop'\)"):
        sl.CompressivePCA(1).fit(path)
    model = sl.CompressivePCA(1).fit(sl.open_rows(path, on_invalid="drop"))
    assert model.n_samples_seen_ == 2
