"""Every task that is found in its folder can be trained, from a file in configs."""

import contextlib
import datetime
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sketchlearn
from contracts import check_task
from sketchlearn.errors import SketchlearnError
from sketchlearn.meta.config import load_config
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.runs import build_run
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


WRONG = [-1, 0, True, "x", [], {}, 1.5, math.nan, math.inf, [1], ["x"], {"a": 1}, 1e300]
WRONG += [[[1, 2]], datetime.date(2020, 1, 1), [-1, -1], [2, 1]]


def check_values(path, values):
    """Each setting takes a value, or refuses it by an error of ours."""
    config = load_config(path, "tiny")
    datasets = DATASETS if find_tasks()[config.task].takes_datasets else []
    for table in ("model", "problem"):
        settings = getattr(config, table)
        changed = [{**settings, key: value} for key in settings for value in values]
        changed += [{k: v for k, v in settings.items() if k != key} for key in settings]
        for one in changed:
            with contextlib.suppress(SketchlearnError):
                build_run(replace(config, **{table: one}), datasets)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_settings_of_wrong_types_are_refused_by_our_errors(path):
    check_values(path, ["x", -1, [[1, 2]]])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_settings_of_any_value_are_taken_or_refused_by_our_errors(path):
    check_values(path, WRONG)
