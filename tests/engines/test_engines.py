"""Dask, Ray and Spark give the bits of one machine, each row once, or a clear error."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import sketchlearn as sl
from engines.clusters import pandas_frames
from sketchlearn.engines import dask_engine, ray_engine
from sketchlearn.errors import RowRangeError, RowsError

RNG = np.random.default_rng(14)
N = 2600
CENTRES = RNG.normal(size=(3, 4)) * 6
LABELS = RNG.integers(0, 3, N)
WHOLE = pd.DataFrame(
    CENTRES[LABELS] + RNG.normal(size=(N, 4)), columns=["a", "b", "c.d", "e"]
)
WHOLE["whole"] = RNG.integers(0, 50, N)
WHOLE["target"] = WHOLE["a"] - 2 * WHOLE["b"] + 3
WHOLE["label"] = LABELS
WHOLE["word"] = [f"w{i}" for i in RNG.zipf(1.5, N) % 100]
ROWS = WHOLE[["a", "b", "c.d", "e"]]
CUTS = [0, 13, 900, 900, 1700, 2599]
"""The first partition is empty, and so is the fourth."""


def spread(cluster, frame=ROWS, cuts=CUTS):
    return cluster.of(pandas_frames(frame, cuts))


def maps():
    learned = sl.load_model("pca-sqnet-100").feature_map()
    plan = sl.CompressiveKMeans(3, sketch_size=200, random_state=1)
    cells = plan.fit(ROWS).sketch_.feature_map
    fourier = sl.FourierFeatures(4, 64, scale=0.3)
    return {
        "moments": sl.MomentFeatures(4),
        "fourier": fourier,
        "cells": cells,
        "clipped": sl.clipped(fourier, norm_bound=2.0),
        "learned": learned,
    }


@pytest.mark.parametrize("name", ["moments", "fourier", "cells", "clipped"])
def test_a_sketch_has_the_digest_of_one_machine_and_one_run(cluster, name):
    phi = maps()[name]
    found = sl.sketch_rows(spread(cluster), phi)

    assert found == sl.sketch_rows(ROWS, phi)
    assert found.columns == tuple(ROWS.columns)
    assert len(found.lineage) == 1
    assert found.is_possible


def test_a_learned_map_has_the_digest_of_one_machine(cluster):
    phi = maps()["learned"]
    wide = pd.DataFrame(RNG.normal(size=(300, phi.n_features)))
    wide.columns = [f"f{i}" for i in range(phi.n_features)]
    found = sl.sketch_rows(spread(cluster, wide, [100, 250]), phi)
    assert found == sl.sketch_rows(wide, phi)


@pytest.mark.parametrize("pooling", ["max", "p-norm:3"])
def test_every_pooling_is_that_of_one_machine(cluster, pooling):
    phi = sl.FourierFeatures(4, 16, scale=0.3)
    found = sl.sketch_rows(spread(cluster), phi, pooling=pooling)
    assert found == sl.sketch_rows(ROWS, phi, pooling=pooling)


def test_counts_of_items_are_those_of_one_machine(cluster):
    data = spread(cluster, WHOLE[["word", "whole"]])
    table = {"width": 50, "depth": 3}
    for kind, pooling in ((sl.CountMinFeatures, "mean"), (sl.BloomFeatures, "max")):
        phi = kind(**table)
        found = sl.sketch_items(data, phi, column="word", pooling=pooling)
        here = sl.sketch_items(WHOLE, phi, column="word", pooling=pooling)
        assert found == here


def test_a_secret_key_goes_with_the_map_to_the_workers(cluster):
    key = sl.ItemKey(bytes(range(16)))
    make = sl.FrequencyEstimator(sketch_size=200, column="word", key=key)
    there, here = clone(make).fit(spread(cluster, WHOLE)), clone(make).fit(WHOLE)
    assert there.sketch_ == here.sketch_
    words = ["w1", "w2"]
    assert np.array_equal(there.query(words).counts, here.query(words).counts)
    plain = clone(make).set_params(key=None).fit(WHOLE).sketch_
    assert not np.array_equal(plain.mean, here.sketch_.mean)


@pytest.mark.parametrize("bounds", [None, (-60.0, 60.0)])
@pytest.mark.parametrize(
    "estimator",
    [
        sl.CompressivePCA(2),
        sl.CompressiveKMeans(3, sketch_size=300),
        sl.CompressiveGaussianMixture(3, sketch_size=300),
    ],
    ids=lambda one: type(one).__name__,
)
def test_estimators_fit_as_they_do_to_the_same_rows_here(cluster, estimator, bounds):
    estimator.set_params(bounds=bounds)
    there = estimator.fit(spread(cluster)).sketch_
    here = estimator.fit(ROWS).sketch_
    assert there == here  # planned from the rows, in one round or two


def test_regression_names_its_target(cluster):
    columns = ["a", "b", "e", "target"]
    there = sl.CompressiveRidge().fit(spread(cluster, WHOLE[columns]), y="target")
    here = sl.CompressiveRidge().fit(WHOLE[columns], y="target")
    assert there.sketch_ == here.sketch_
    assert list(there.feature_names_in_) == ["a", "b", "e"]


def test_classes_have_a_sketch_each_and_a_run_each(cluster):
    frame = WHOLE[["label", "a", "b"]]
    there = sl.CompressiveClassifier(sketch_size=100).fit(
        spread(cluster, frame), y="label"
    )
    here = sl.CompressiveClassifier(sketch_size=100).fit(frame, y="label")
    assert there.sketches_.keys() == here.sketches_.keys() == {0, 1, 2}
    runs = [run for part in there.sketches_.values() for run in part.lineage]
    assert len(set(runs)) == 3
    for label, sketch in there.sketches_.items():
        assert sketch == here.sketches_[label]


def test_codes_of_zeros_and_ones_are_made_where_the_rows_are(cluster):
    there = sl.CompressiveAutoencoder(2, binarize=0.0).fit(spread(cluster))
    here = sl.CompressiveAutoencoder(2, binarize=0.0).fit(ROWS)
    assert there.sketch_ == here.sketch_


def test_a_vocabulary_is_collected_in_the_order_of_the_rows(cluster):
    there = sl.FrequencyEstimator("fit", sketch_size=200, column="word")
    there.fit(spread(cluster, WHOLE[["whole", "word"]]))
    here = sl.FrequencyEstimator("fit", sketch_size=200, column="word").fit(WHOLE)
    assert there.sketch_ == here.sketch_
    assert there.vocabulary_.items == here.vocabulary_.items
    assert there.frequencies_.tolist() == here.frequencies_.tolist()


def test_columns_are_chosen_ordered_encoded_and_rows_dropped(cluster):
    frame = WHOLE[["word", "e", "a"]].copy()
    frame.loc[[5, 1000], "a"] = np.nan
    known = {"word": sorted(set(frame["word"]))}
    options = {"columns": ["a", "word"], "encodings": known, "on_invalid": "drop"}
    there = sl.open_rows(spread(cluster, frame), **options)
    here = sl.open_rows(frame, **options)
    assert there.names == here.names
    fit = sl.CompressivePCA(2).fit
    assert fit(there).sketch_ == fit(here).sketch_


def test_names_may_differ_in_case_alone(cluster):
    frame = ROWS[["a", "b"]].set_axis(["a", "A"], axis=1)
    phi = sl.FourierFeatures(1, 16, scale=0.3)
    found = sl.sketch_rows(spread(cluster, frame), phi, columns=["A"])
    assert found == sl.sketch_rows(ROWS[["b"]], phi)


def test_rows_come_and_go(cluster):
    model = sl.CompressivePCA(2, bounds=(-60, 60)).fit(spread(cluster))
    before = model.sketch_
    model.partial_fit(spread(cluster, ROWS[["e", "c.d", "b", "a"]], [50]))
    assert model.sketch_.count == 2 * N
    model.forget(spread(cluster, cuts=[700]))
    assert model.sketch_ == before


def test_a_worker_that_dies_is_replaced_and_no_row_counts_twice(cluster, tmp_path):
    marker, rows = tmp_path / "died", ROWS[["a", "b", "e"]]
    phi = sl.FourierFeatures(3, 64, scale=0.3)
    data = cluster.dying(pandas_frames(rows, [500, 1000, 1500]), str(marker), 2)
    assert sl.sketch_rows(data, phi) == sl.sketch_rows(rows, phi)
    assert marker.exists()


def test_a_bad_row_is_named_and_nothing_is_changed(cluster):
    model = sl.CompressivePCA(2, bounds=(-60, 60)).fit(spread(cluster))
    before = model.sketch_
    bad = ROWS.copy()
    bad.loc[905, "e"] = np.nan
    where = "partition: " if cluster.name == "ray" else r"partition \d: "
    with pytest.raises(RowsError, match=rf"{where}.*row 5 of the input"):
        model.partial_fit(spread(cluster, bad))
    bad.loc[905, "e"] = 1e9
    with pytest.raises(RowRangeError, match="row 5 lies outside .* feature 3"):
        model.partial_fit(spread(cluster, bad))
    assert model.sketch_ is before


def test_no_rows_at_all_are_refused(cluster):
    nothing = cluster.of([ROWS.iloc[:0], ROWS.iloc[:0]])
    for data in (nothing, sl.open_rows(nothing, on_invalid="drop")):
        with pytest.raises(RowsError, match="0 rows"):
            sl.sketch_rows(data, sl.FourierFeatures(4, 16))
        with pytest.raises(RowsError, match="0 rows"):
            sl.CompressivePCA(2).fit(data)


def test_text_and_missing_columns_are_refused_before_a_worker_starts(cluster):
    data = spread(cluster, WHOLE)
    with pytest.raises(RowsError, match="column 'word' of a"):
        sl.CompressivePCA(2).fit(data)
    with pytest.raises(RowsError, match="'nobody'"):
        sl.open_rows(data, columns=["nobody"])
    with pytest.raises(RowsError, match="name of the target"):
        sl.CompressiveRidge().fit(spread(cluster), np.zeros(N))


def test_rows_are_not_read_here(cluster):
    data = spread(cluster)
    with pytest.raises(RowsError, match="stay where they are"):
        next(iter(sl.open_rows(data)))
    with pytest.raises(RowsError, match="in memory"):
        sl.CompressivePCA(2).fit(ROWS).transform(data)
    for given in (data, sl.open_rows(data)):
        with pytest.raises(RowsError, match="map predict over"):
            sl.CompressiveKMeans(2).fit_predict(given)


def test_many_results_are_joined_by_workers(cluster, monkeypatch):
    for module in (dask_engine, ray_engine):
        monkeypatch.setattr(module, "SECOND_STAGE", 2)
    phi = sl.FourierFeatures(4, 16, scale=0.3)
    found = sl.sketch_rows(spread(cluster), phi)
    assert found == sl.sketch_rows(ROWS, phi)
    assert len(found.lineage) == 1
    items = sl.CountMinFeatures(width=50, depth=3)
    words = sl.sketch_items(spread(cluster, WHOLE[["word"]]), items)
    assert words == sl.sketch_items(WHOLE["word"], items)
