"""Codes are learned from tables of zeros and ones, and bring back more afterwards."""

from dataclasses import replace

import numpy as np
import pytest
from tests.decoders.autoencoders.test_linear import binary_rows

from sketchlearn.decoders.autoencoders.code_network import CodeNetwork
from sketchlearn.errors import ConfigError
from sketchlearn.meta.code_episodes import EpisodeLaw, draw_episode
from sketchlearn.meta.config import DataConfig, RunConfig, TrainConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import build_run, train_run

DATASETS = [
    MetaDataset.from_arrays(f"set{i}", binary_rows(300, 24, seed=i).astype(np.int8))
    for i in range(4)
]
CONFIG = RunConfig(
    task="codes",
    data=DataConfig(held_out=["set3"], leave_out=["set0"]),
    model={"width": 8, "n_steps": 4},
    problem={"episodes": 12, "batch": 4, "checked_rows": 100},
    train=TrainConfig(steps=30, learning_rate=2e-2, validate_every=10),
)


def test_training_lowers_the_share_of_wrong_entries():
    trained = train_run(CONFIG, DATASETS)
    first = trained.result.history[0]
    assert trained.result.best_score < first["score"]
    assert {"error_full", "error_small", "error_rows"} <= set(first)
    again = CodeNetwork.from_weights(trained.model.to_weights(trained.card))
    assert again.spec.n_steps == 4


def test_datasets_that_are_left_out_are_neither_trained_on_nor_held_out():
    run = build_run(CONFIG, DATASETS)
    assert run.datasets == ("set1", "set2")
    assert run.held_out == ("set3",)


def test_episodes_are_zeros_and_ones_of_rows_outside_of_the_sketch():
    rng = np.random.default_rng(0)
    table = np.arange(300)[:, None] // 2 ** np.arange(12) % 2  # rows say their number
    law = EpisodeLaw(flips=0.0, compressed=0.0, query_rows=20)
    for _ in range(10):
        episode = draw_episode([table.astype(np.uint8)], law, rng)
        if episode.rows.shape[1] == 12:  # all bits: which rows these are is known
            numbers = episode.rows @ 2 ** np.arange(12)
            inside = episode.known.mean * episode.known.count
            outside = table[np.unique(numbers)].sum(axis=0)
            assert (inside <= table.sum(axis=0) - outside + 1e-6).all()
        assert set(np.unique(episode.rows)) <= {0, 1}
        assert episode.rows.shape[1] == len(episode.known.spread)
        assert len(episode.rows) <= 20
        assert len(episode.known.variances) <= episode.rows.shape[1]


def test_names_that_do_not_exist_are_not_left_out():
    wrong = replace(CONFIG, data=DataConfig(leave_out=["set9"]))
    with pytest.raises(ConfigError, match="cannot leave out 'set9'"):
        build_run(wrong, DATASETS)
    with pytest.raises(ConfigError, match="leave_out must be a list"):
        DataConfig.from_dict({"leave_out": "set1"})


def test_narrow_datasets_teach_nothing_and_are_refused():
    narrow = [
        MetaDataset.from_arrays(f"set{i}", np.zeros((20, 3), np.int8)) for i in range(4)
    ]
    with pytest.raises(ConfigError, match="dozen columns"):
        build_run(CONFIG, narrow)
