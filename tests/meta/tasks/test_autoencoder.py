"""Autoencoders are trained as a file says, the paper's as the paper says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import sketchlearn
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import ConfigError
from sketchlearn.meta.config import load_config
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import build_run, train_run

CONFIG = Path(sketchlearn.__file__).parent / "configs" / "autoencoder-sqnet.toml"
RNG = np.random.default_rng(0)
DATASETS = [
    MetaDataset.from_arrays(name, (RNG.random((60, 20)) < 0.3).astype(np.uint8))
    for name in "ab"
]


def tiny(condition, **train):
    config = load_config(CONFIG, "tiny")
    sketched = condition == "sketch"
    size = {"condition": condition, "sketch_size": 4 if sketched else 0}
    settings = replace(config.train, **train)
    return replace(config, model={**config.model, **size}, train=settings)


@pytest.mark.parametrize(
    ("preset", "condition", "rows", "support", "rate", "patience"),
    [
        ("paper-specific", "none", 1024, None, 1e-4, 15),
        ("paper-ae", "none", 4096, None, 1e-5, 50),
        ("paper-m", "mean", 1152, [128], 1e-5, 50),
        ("paper-ms", "sketch", 1024, [64, 128], 1e-5, 50),
    ],
)
def test_the_papers_presets_are_the_papers(
    preset, condition, rows, support, rate, patience
):
    config = load_config(CONFIG, preset)
    spec = ConditionalSpec.from_dict(config.model)
    assert (spec.n_features, spec.n_components, spec.condition) == (1000, 50, condition)
    assert (spec.depth, spec.width) == (5, 4096)
    assert (spec.sketch_depth, spec.sketch_width) == (3, 4096)
    assert config.data.only == ["MNIST"]
    assert config.problem["n_rows"] == rows
    assert config.problem.get("support") == support
    assert config.problem.get("randomize", True) == (preset != "paper-specific")
    train = config.train
    assert (train.optimizer, train.learning_rate) == ("radam", rate)
    assert (train.validate_every, train.patience) == (1000, patience)


@pytest.mark.parametrize("kind", ["ae", "m", "ms"])
def test_the_small_presets_differ_in_their_condition_only(kind):
    config, plain = (load_config(CONFIG, f"cpu-{name}") for name in (kind, "ae"))
    known = {name: config.model[name] for name in plain.model}
    assert known == dict(plain.model)
    assert config.problem["episodes"] == plain.problem["episodes"]


@pytest.mark.parametrize("condition", ["none", "mean", "sketch"])
def test_every_condition_is_trained(condition):
    done = train_run(tiny(condition), DATASETS)
    assert done.result.steps == 2
    assert done.card["train_datasets"] == ["a", "b"]
    assert done.model.freeze().spec.condition == condition


def test_a_sketch_is_learned_from_where_the_mean_has_led(tmp_path):
    first = train_run(tiny("mean"), DATASETS, folder=tmp_path / "m")
    start = tmp_path / "m" / "checkpoint.pt"
    second = train_run(tiny("sketch", steps=0), DATASETS, start_from=start)
    rows = (
        torch.rand(2, 10, 40, generator=torch.Generator().manual_seed(0)) > 0.5
    ) * 1.0
    with torch.no_grad():
        one, two = (
            done.model(rows, done.model.condition(rows)) for done in (first, second)
        )
    assert torch.equal(one, two)


def test_held_out_datasets_are_judged_by_and_not_trained_on():
    config = tiny("mean")
    config = replace(config, data=replace(config.data, held_out=["b"]))
    tables = build_run(config, DATASETS).problem.tables
    assert [len(table) for table in tables.training] == [60]
    assert np.array_equal(tables.held_out[0], DATASETS[1].rows)


def test_a_tied_start_is_asked_for():
    config = tiny("mean")
    tied = replace(config, problem={**config.problem, "tied_start": True})
    models = [build_run(c, DATASETS).model.state_dict() for c in (config, tied)]
    name = "encoder.layers.first.bias"
    assert not torch.equal(models[0][name], models[1][name])


def test_a_tied_start_has_room_for_its_projections():
    config = tiny("mean")
    wide = replace(
        config,
        model={**config.model, "width": 50},
        problem={**config.problem, "tied_start": True},
    )
    with pytest.raises(ConfigError, match="needs a width between"):
        build_run(wide, DATASETS)
