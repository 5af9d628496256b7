"""Every task that is found in its folder can be trained, from a file in configs."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import sketchlearn
from contracts import check_task
from sketchlearn.meta.config import load_config
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.tasks.base import find_tasks

CONFIGS = sorted((Path(sketchlearn.__file__).parent / "configs").glob("*.toml"))


def dataset(name, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 20)) + rng.normal(size=20)
    return MetaDataset.from_arrays(name, rows.astype(np.float32))


DATASETS = [dataset(name, seed) for seed, name in enumerate("abcd")]


def named(path):
    return tomllib.loads(path.read_text("utf-8"))["task"]


def test_every_task_has_a_configuration_and_every_configuration_a_task():
    assert {named(path) for path in CONFIGS} == find_tasks().keys()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_is_configured_is_trained(path, tmp_path):
    config = load_config(path, "tiny")
    takes_datasets = find_tasks()[config.task].takes_datasets
    check_task(config, DATASETS if takes_datasets else [], tmp_path)
