"""A module is trained where it is: every batch comes to its device.

Torch's device "meta" computes shapes and no numbers, on any machine. Whatever meets a
tensor of the CPU on it raises, as it would on a GPU.
"""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from sketchlearn.meta.config import TrainConfig, list_configs, load_config
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.problems import AbstractProblem, beside, device_of
from sketchlearn.meta.runs import build_run
from sketchlearn.meta.steps import GradientSteps
from sketchlearn.meta.tasks.base import find_tasks

ELSEWHERE = "meta"


def dataset(name, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 20)) + rng.normal(size=20)
    return MetaDataset.from_arrays(name, rows.astype(np.float32))


DATASETS = [dataset(name, seed) for seed, name in enumerate("abcd")]
Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Episode:
    rows: torch.Tensor
    name: str


def built(name):
    config = load_config(name, "tiny")
    datasets = DATASETS if find_tasks()[config.task].takes_datasets else []
    return build_run(config, datasets)


def test_tensors_are_moved_wherever_they_are_in_a_batch():
    module = nn.Linear(1, 1, device=ELSEWHERE)
    one = torch.ones(2)
    batch = (one, [one], {"x": one}, Pair(one, "right"), Episode(one, "e"), 3, "text")
    alone, listed, named, pair, episode, number, text = beside(module, batch)
    found = [alone, listed[0], named["x"], pair.left, episode.rows]
    assert {tensor.device.type for tensor in found} == {ELSEWHERE}
    assert (pair.right, episode.name, number, text) == ("right", "e", 3, "text")
    assert device_of(nn.Identity()).type == "cpu"


def test_the_trainer_hands_batches_over_on_the_device_of_the_module():
    seen = []

    class Recording(AbstractProblem):
        def draw(self, rng):
            return torch.ones(3, 1), "name"

        def loss(self, model, batch):
            seen.append(batch[0].device.type)
            return model(batch[0]).sum()

        def validate(self, model):
            return {"score": 0.0}

    steps = GradientSteps(
        nn.Linear(1, 1), Recording(), TrainConfig(steps=1, device=ELSEWHERE)
    )
    with pytest.raises((RuntimeError, NotImplementedError), match="meta tensor"):
        steps.step(np.random.default_rng(0), 0.1)  # numbers are read last of all
    assert seen == [ELSEWHERE]


@pytest.mark.parametrize("name", list_configs())
def test_every_loss_is_computed_on_the_device_of_the_module(name):
    run = built(name)
    batch = run.problem.draw(np.random.default_rng(0))
    model = run.model.to(ELSEWHERE)
    loss = run.problem.loss(model, beside(model, batch))
    assert (loss.device.type, loss.shape) == (ELSEWHERE, ())


@pytest.mark.parametrize("name", list_configs())
def test_every_validation_is_computed_there_until_its_numbers_are_read(name):
    run = built(name)
    model = run.model.to(ELSEWHERE).eval()
    with torch.no_grad(), pytest.raises((RuntimeError, NotImplementedError)) as raised:
        run.problem.validate(model)
    assert "not on the expected device" not in str(raised.value)
    assert "meta" in str(raised.value)


@pytest.mark.parametrize("name", list_configs())
def test_what_was_trained_there_comes_back_to_be_finished_and_saved(name):
    run = built(name)
    model = run.model.to(ELSEWHERE)
    endings = [model.to_weights]
    if run.task.finish is not None:
        endings.append(lambda: run.task.finish(model, run.problem))
    for ending in endings:
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
            ending()  # numbers are copied to the CPU before anything reads them
