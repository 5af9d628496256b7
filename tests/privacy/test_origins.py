"""What was read from rows is not released, whatever it went through on its way."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import sketchlearn as sl
from sketchlearn.decoders.counts.linear import principal_table
from sketchlearn.errors import (
    DataPlanWarning,
    FeatureMapError,
    FeatureMapMismatch,
    PrivacyError,
)
from sketchlearn.estimators import base, inputs
from sketchlearn.features.build import build_map
from sketchlearn.features.identity import AbstractIdentified
from sketchlearn.rows.kinds import is_learned, learned

RNG = np.random.default_rng(0)
N = 60
FRAME = pd.DataFrame(
    {"age": RNG.normal(40, 10, N).round(1), "city": RNG.choice(["A", "B", "C"], N)}
)
NUMBERS = RNG.uniform(0, 1, (N, 3))
LABELS = RNG.integers(0, 2, N)
BOUNDS = {"bounds": (-4.0, 4.0)}
DECLARED = {"thresholds": {"age": 30.0}, "categories": {"city": ["A", "B", "C"]}}
IDS = ["a", "b", "a", "c"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sketchlearn.errors.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:delta=:sketchlearn.errors.PrivacyWarning"),
]


def encoded(frame=FRAME, output="default", **declared):
    encoder = sl.BinaryEncoder(**declared).set_output(transform=output)
    return encoder.fit(frame).transform(frame)


def codes_of(rows):
    return sl.CompressiveAutoencoder(2).fit(rows).sketch_


def moments_of(rows):
    phi = sl.MomentFeatures(rows.shape[1], order="mean")
    return sl.sketch_rows(rows, phi)


def classes_of(rows):
    coder = sl.CompressiveAutoencoder(2).fit(rows, LABELS)
    return next(iter(coder.sketches_.values()))


def column_of_classes():
    frame = encoded(output="pandas").assign(kind=LABELS)
    frame = frame.rename(columns=lambda name: name.replace("=", "_"))
    return next(
        iter(sl.CompressiveAutoencoder(2).fit(frame, "kind").sketches_.values())
    )


def classifier_of(rows):
    model = sl.CompressiveClassifier(**BOUNDS, rounds=1).fit(rows, LABELS)
    return next(iter(model.sketches_.values()))


def end_of(*steps):
    return make_pipeline(*steps).fit(NUMBERS)[-1].sketch_


def counted(vocabulary):
    estimator = sl.FrequencyEstimator(vocabulary, sketch_size=50, row_items=1)
    return estimator.fit(IDS).sketch_


def found_vocabulary():
    finder = sl.FrequencyEstimator("fit", sketch_size=50, row_items=1)
    return finder.fit(IDS).vocabulary_


def prior_table():
    rows = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 25)
    table = principal_table(sl.ItemPrior.from_rows(rows), 2)
    return sl.sketch_rows(rows, sl.TableFeatures(table, row_items=3))


def landmarks():
    phi = sl.clipped(sl.NystromFeatures(NUMBERS[:4]), norm_bound=1.0)
    return sl.sketch_rows(NUMBERS, phi)


def scales():
    phi = sl.FourierFeatures(3, 8, scaling=sl.Scaling.from_rows(NUMBERS))
    return sl.sketch_rows(NUMBERS, phi)


READ = {
    "encoder": lambda: codes_of(encoded()),
    "encoder, pandas": lambda: codes_of(encoded(output="pandas")),
    "encoder, polars": lambda: codes_of(encoded(output="polars")),
    "encoder, pipeline": lambda: (
        make_pipeline(sl.BinaryEncoder(), sl.CompressiveAutoencoder(2))
        .fit(FRAME)[-1]
        .sketch_
    ),
    "encoder, only thresholds declared": lambda: codes_of(
        encoded(thresholds=DECLARED["thresholds"])
    ),
    "encoder, only categories declared": lambda: codes_of(
        encoded(categories=DECLARED["categories"])
    ),
    "encoder, pixels": lambda: codes_of(encoded(np.uint8(NUMBERS * 255))),
    "encoder, some rows": lambda: codes_of(train_test_split(encoded())[0]),
    "encoder, pandas, some rows": lambda: codes_of(encoded(output="pandas")[9:]),
    "encoder, put together": lambda: codes_of(np.vstack([encoded(), encoded()])),
    "encoder, as floats": lambda: codes_of(encoded().astype(float)),
    "encoder, batches": lambda: codes_of(iter(np.array_split(encoded(), 3))),
    "encoder, later batches": lambda: codes_of([np.eye(4), encoded()]),
    "encoder, opened": lambda: codes_of(sl.open_rows(encoded())),
    "encoder, a map of one's own": lambda: moments_of(encoded()),
    "encoder, classes": lambda: classes_of(encoded()),
    "encoder, pandas, classes": lambda: classes_of(encoded(output="pandas")),
    "encoder, column of classes": column_of_classes,
    "encoder, classifier": lambda: classifier_of(encoded()),
    "encoder, ridge": lambda: (
        (
            sl.CompressiveRidge(**BOUNDS, target_bounds=(0, 1)).fit(encoded(), LABELS)
        ).sketch_
    ),
    "encoder, pandas, ridge": lambda: (
        sl.CompressiveRidge(**BOUNDS, target_bounds=(0, 1))
        .fit(encoded(output="pandas"), LABELS)
        .sketch_
    ),
    "encoder, counts": lambda: (
        sl.FrequencyEstimator(sketch_size=50, row_items=4).fit(encoded()).sketch_
    ),
    "encoder, declared encoder": lambda: codes_of(
        encoded(encoded().astype(float), thresholds=0.5)
    ),
    "PCA, k-means": lambda: end_of(
        sl.CompressivePCA(2, **BOUNDS), sl.CompressiveKMeans(2, **BOUNDS)
    ),
    "PCA, pandas, k-means": lambda: end_of(
        sl.CompressivePCA(2, **BOUNDS).set_output(transform="pandas"),
        sl.CompressiveKMeans(2, **BOUNDS),
    ),
    "k-means, PCA": lambda: end_of(
        sl.CompressiveKMeans(2, **BOUNDS), sl.CompressivePCA(2, **BOUNDS)
    ),
    "autoencoder, PCA": lambda: end_of(
        sl.CompressiveAutoencoder(2, binarize=0.5),
        sl.CompressivePCA(1, bounds=(-99, 99)),
    ),
    "PCA and back": lambda: moments_of(
        sl.CompressivePCA(2, **BOUNDS).fit(NUMBERS).inverse_transform(np.eye(2))
    ),
    "reconstruction": lambda: codes_of(
        sl.CompressiveAutoencoder(2)
        .fit(LABELS[:, None] * [1, 1])
        .reconstruct(np.eye(2))
    ),
    "vocabulary": lambda: counted(found_vocabulary()),
    "table of an item prior": prior_table,
    "landmarks": landmarks,
    "scales": scales,
    "scales of an estimator": lambda: sl.CompressivePCA(2).fit(NUMBERS).sketch_,
    "cells": lambda: sl.CompressiveKMeans(2, rounds=2).fit(NUMBERS).sketch_,
}

SAID = {
    "encoder": lambda: codes_of(encoded(**DECLARED)),
    "encoder, pandas": lambda: codes_of(encoded(output="pandas", **DECLARED)),
    "encoder, polars": lambda: codes_of(encoded(output="polars", **DECLARED)),
    "encoder of public rows": lambda: codes_of(np.asarray(encoded())),
    "encodings": lambda: sl.sketch_rows(
        FRAME[["city"]],
        sl.MomentFeatures(3, order="mean"),
        encodings=DECLARED["categories"],
    ),
    "above": lambda: codes_of(sl.open_rows(NUMBERS, above=0.5)),
    "binarize": lambda: sl.CompressiveAutoencoder(2, binarize=0.5).fit(NUMBERS).sketch_,
    "bounds": lambda: sl.CompressivePCA(2, **BOUNDS).fit(NUMBERS).sketch_,
    "names of columns": lambda: codes_of(pd.DataFrame(NUMBERS > 0.5, columns=[*"abc"])),
    "an open vocabulary that is collected": lambda: counted("fit"),
    "a declared vocabulary": lambda: counted(["a", "b", "c"]),
}


def is_refused(make):
    sketch, book = make(), sl.Ledger.ephemeral(epsilon=1.0, delta=1e-5)
    try:
        sl.release(sketch, epsilon=1.0, delta=1e-5, ledger=book)
    except PrivacyError as error:
        return "from rows" in str(error) and not book.charges
    return False


@pytest.mark.parametrize("name", READ)
def test_what_was_read_from_rows_is_not_released(name):
    assert is_refused(READ[name])


@pytest.mark.parametrize("name", SAID)
def test_what_was_declared_is_released(name):
    assert not is_refused(SAID[name])


def test_what_a_release_says_is_public():
    flat = RNG.uniform(-4, 4, (4000, 1)) * np.ones(3)
    exact = sl.CompressivePCA(1, **BOUNDS).fit(flat).sketch_
    book = sl.Ledger.ephemeral(epsilon=100.0, delta=1e-5)
    private = sl.release(exact, epsilon=99.0, delta=1e-6, ledger=book)
    pca = sl.CompressivePCA(1, **BOUNDS).fit_sketch(private)
    assert not is_learned(pca.transform(NUMBERS))
    assert is_learned(pca.transform(learned(NUMBERS)))
    assert not is_refused(lambda: moments_of(pca.transform(NUMBERS)))


def test_a_refusal_says_what_to_declare_and_survives_files():
    sketch = READ["encoder"]()
    for found in (sketch, sl.loads(sl.dumps(sketch))):
        book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-5)
        with pytest.raises(PrivacyError, match="thresholds= and categories= of all"):
            sl.release(found, epsilon=1.0, delta=1e-5, ledger=book)
    described = sketch.feature_map.description
    assert build_map(described) == sketch.feature_map
    for wrong in ("declared", "rows", 3, None):
        with pytest.raises(FeatureMapError, match="columns_origin"):
            build_map({**described, "columns_origin": wrong})
    clipped = sl.clipped(sketch.feature_map, norm_bound=1.0)
    assert clipped.origin == clipped.spec.origin == "data"


def test_rows_of_learned_columns_are_added_and_forgotten():
    rows = encoded()
    model = sl.CompressiveAutoencoder(2).fit(rows[:40]).partial_fit(rows[40:])
    with pytest.warns(DataPlanWarning):
        model.forget(np.asarray(rows[40:]))
    assert model.sketch_ == codes_of(rows[:40])


def test_learned_arrays_look_and_count_like_others():
    marked = learned(np.array([[1.0, 2.0], [3.0, 5.0]]))
    assert repr(marked) == repr(np.asarray(marked))
    assert type(marked.sum()) is np.float64
    assert f"{marked.mean():.2f}" == "2.75"


DROPPED = {
    "by transform": (inputs, "learned", lambda rows: rows),
    "by an estimator": (base, "learned_like", lambda X, rows: rows),
    "by a sketch": (AbstractIdentified, "of_learned_columns", lambda self: self),
}


@pytest.mark.parametrize("where", DROPPED)
def test_an_origin_that_is_dropped_is_noticed(where, monkeypatch):
    monkeypatch.setattr(*DROPPED[where])
    assert not is_refused(READ["encoder"])


def test_rows_of_learned_columns_in_a_list_are_learned():
    marked = learned(np.eye(3))
    assert is_learned(list(marked))
    assert not is_learned(list(np.eye(3)))


def test_sketches_of_learned_and_of_plain_columns_say_what_to_do():
    phi = sl.MomentFeatures(3, order="mean")
    with pytest.raises(FeatureMapMismatch, match="np.asarray"):
        sl.sketch_rows(np.eye(3), phi) + sl.sketch_rows(learned(np.eye(3)), phi)
