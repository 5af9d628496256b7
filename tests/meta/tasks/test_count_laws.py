"""Laws of counts are learned from tables and streams, and lower the surprise."""

import numpy as np
import pytest
import torch

from sketchlearn.decoders.counts.learned_laws import LearnedLaws
from sketchlearn.errors import ConfigError
from sketchlearn.meta.config import RunConfig, TrainConfig
from sketchlearn.meta.count_tables import count_tables
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import build_run, train_run
from sketchlearn.meta.tasks.count_laws import CountLawProblem
from sketchlearn.meta.trainer import train

RNG = np.random.default_rng(0)


def binary_set(name, frequencies):
    rows = RNG.random((200, len(frequencies))) < frequencies
    return MetaDataset.from_arrays(name, rows.astype(np.int8))


DATASETS = [
    binary_set("flat", np.full(40, 0.3)),
    binary_set("steep", 1 / np.arange(1, 61)),
    binary_set("two", np.repeat([0.02, 0.8], 25)),
    MetaDataset.from_arrays("codes", RNG.integers(0, 5, (300, 6)).astype(np.float32)),
]
CONFIG = RunConfig(
    task="count-laws",
    model={"n_laws": 3, "n_odds": 49},
    problem={"sizes": [10, 50], "episodes": 4, "checked": 2},
    train=TrainConfig(steps=40, learning_rate=2e-2, validate_every=10),
)


def test_tables_of_categories_are_streams_as_well():
    tables = {table.name: table for table in count_tables(DATASETS)}
    assert set(tables) == {"flat", "steep", "two", "codes", "codes, joined"}
    joined = tables["codes, joined"].draw(np.random.default_rng(0), [100])
    assert joined.n_rows == 100
    assert joined.counts.sum() <= 100
    flat = tables["flat"].draw(np.random.default_rng(0), [1000])  # all there are
    assert flat.n_rows == 200
    assert flat.counts.max() <= 200


def test_training_lowers_the_surprise_of_counts():
    model = build_run(CONFIG, DATASETS).model
    problem = CountLawProblem(DATASETS, DATASETS, **CONFIG.problem)
    with torch.no_grad():
        before = problem.validate(model)["score"]
    assert train(model, problem, CONFIG.train).best_score < before


def test_what_was_trained_is_saved():
    trained = train_run(CONFIG, DATASETS)
    laws = LearnedLaws.from_weights(trained.model.to_weights(trained.card))
    assert laws.shapes.shape == (3, 49)


def test_the_mean_of_a_law_is_that_of_the_counts():
    run = build_run(CONFIG, DATASETS)
    from_laws = run.model.freeze()
    places = np.arange(-14.0, 7.0, 0.12)
    found = run.model._places_of(0.2, *(part for part in _tensors(run.model))).numpy()
    odds = from_laws.odds(places, found)
    p = 1 / (1 + np.exp(-places))
    means = [odds[k, k, 1:-1] @ p for k in range(3)]
    np.testing.assert_allclose(means, 0.2, rtol=0.02)


def _tensors(model):
    shapes = model.shapes.detach().softmax(dim=1)
    return shapes, model.absent.detach().sigmoid()


def test_narrow_tables_show_no_law():
    narrow = [MetaDataset.from_arrays(f"{k}", np.eye(4)) for k in range(4)]
    with pytest.raises(ConfigError, match="enough items"):
        build_run(CONFIG, narrow)
