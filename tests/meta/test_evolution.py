"""Evolution lowers the loss without gradients, over weights and settings."""

import errno
import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from nevergrad.optimization import optimizerlib
from torch import nn

from sketchlearn.errors import ConfigError, MissingExtraError, TrainingError
from sketchlearn.meta import evolution
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.evolution import evolve
from sketchlearn.meta.problems import AbstractProblem
from sketchlearn.meta.search_space import SearchSpace

ACTIVATIONS = {"tanh": torch.tanh, "identity": lambda value: value}


class Scaled(nn.Module):
    """gain · activation(W x): settings beside weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.activation, self.gain = "identity", 1.0

    def forward(self, rows):
        return self.gain * ACTIVATIONS[self.activation](rows @ self.weight)


def configure(model, settings):
    model.activation = settings.get("activation", model.activation)
    model.gain = settings.get("gain", model.gain)


class Fit(AbstractProblem):
    """y = gain · activation(x · w) for a given truth; rounding blocks gradients."""

    def __init__(self, truth=lambda rows: rows @ torch.tensor([0.3, -0.2])):
        self.truth = truth
        self.losses = 0

    def draw(self, rng):
        return torch.as_tensor(rng.normal(size=(32, 2)), dtype=torch.float32)

    def loss(self, model, batch):
        self.losses += 1
        assert not torch.is_grad_enabled()
        difference = model(batch) - self.truth(batch)
        return (difference * 1e4).round().abs().mean() / 1e4

    def validate(self, model):
        rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [-1.0, 3.0]])
        with torch.no_grad():
            return {"score": float((model(rows) - self.truth(rows)).abs().mean())}


def test_it_finds_weights_through_a_loss_without_gradients():
    model, problem = Scaled(), Fit()
    result = evolve(model, problem, TrainConfig(steps=300, validate_every=50))
    assert torch.allclose(model.weight, torch.tensor([0.3, -0.2]), atol=0.02)
    assert result.evaluations == problem.losses == 300
    assert result.best_score == problem.validate(model)["score"]
    assert result.history[0]["score"] > 10 * result.best_score
    assert torch.equal(model.frozen, torch.ones(2))
    assert not model.training


def test_same_seed_same_result():
    weights = []
    for seed in (0, 0, 1):
        model = Scaled()
        evolve(model, Fit(), TrainConfig(steps=40, seed=seed))
        weights.append(model.weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_choices_and_scalars_are_searched_beside_the_weights():
    def truth(rows):
        return 3 * torch.tanh(rows @ torch.tensor([1.0, -1.0]))

    space = SearchSpace(
        choices={"activation": ["identity", "tanh"]},
        log_scalars={"gain": (0.3, 30.0)},
        weight_scale=0.5,
    )
    model, problem = Scaled(), Fit(truth)
    config = TrainConfig(steps=500, validate_every=100)
    result = evolve(model, problem, config, space=space, configure=configure)
    assert result.settings["activation"] == model.activation == "tanh"
    assert result.settings["gain"] == model.gain == pytest.approx(3, rel=0.1)
    assert result.evaluations == 500
    assert result.best_score == problem.validate(model)["score"] < 0.2
    assert {record["activation"] for record in result.history} == {"identity", "tanh"}


def test_the_start_is_kept_when_nothing_is_better():
    model = Scaled()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([0.3, -0.2]))
    result = evolve(model, Fit(), TrainConfig(steps=5))
    assert result.best_score == pytest.approx(0, abs=1e-6)
    assert torch.equal(model.weight, torch.tensor([0.3, -0.2]))


def test_losses_that_are_not_finite_do_not_stop_the_search():
    class Holes(Fit):
        def loss(self, model, batch):
            bad = bool(model.weight[0] < 0)
            return super().loss(model, batch) + (math.nan if bad else 0.0)

    model = Scaled()
    evolve(model, Holes(), TrainConfig(steps=200))
    assert torch.allclose(model.weight, torch.tensor([0.3, -0.2]), atol=0.05)


def test_time_and_ctrl_c_end_a_search():
    result = evolve(Scaled(), Fit(), TrainConfig(seconds=0.2))
    assert 0.2 <= result.seconds < 5

    class Interrupted(Fit):
        def loss(self, model, batch):
            if self.losses == 9:
                os.kill(os.getpid(), signal.SIGINT)
            return super().loss(model, batch)

    result = evolve(Scaled(), Interrupted(), TrainConfig(steps=99))
    assert result.evaluations == 10
    assert result.is_interrupted


class Stopped(Fit):
    """Ctrl-C at one of the losses."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def loss(self, model, batch):
        if self.losses == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().loss(model, batch)


SPACE = SearchSpace(
    choices={"activation": ["identity", "tanh"]}, log_scalars={"gain": (0.3, 30.0)}
)
BUDGET = TrainConfig(steps=60, validate_every=7)


def search(problem, **options):
    model = Scaled()
    result = evolve(model, problem, BUDGET, space=SPACE, configure=configure, **options)
    return result, (model.activation, model.gain, model.weight.tolist())


@pytest.mark.parametrize("at", [3, 13, 29, 30, 41])
def test_a_search_that_was_ended_goes_on_as_if_it_had_not(tmp_path, at):
    whole, expected = search(Fit())
    ended, _ = search(Stopped(at), folder=tmp_path)
    assert ended.is_interrupted
    assert ended.evaluations == at + 1
    rest = Fit()
    found, model = search(rest, folder=tmp_path)
    assert model == expected
    assert rest.losses == 60 - at - 1
    assert found.evaluations == 60
    assert found.history == whole.history
    again = Fit()
    assert search(again, folder=tmp_path)[1] == expected
    assert again.losses == 0


def test_no_further_choice_is_tried_after_ctrl_c():
    result, _ = search(Stopped(4))
    assert [cell["activation"] for cell in result.tried] == ["identity"]


def test_every_choice_has_its_own_best_score():
    result, _ = search(Fit())
    for cell in result.tried:
        own = [r for r in result.history if r["activation"] == cell["activation"]]
        assert cell["score"] == min(record["score"] for record in own)
    assert result.best_score == min(cell["score"] for cell in result.tried)


def test_a_line_that_was_half_written_is_measured_again(tmp_path):
    _, expected = search(Fit(), folder=tmp_path)
    path = tmp_path / "search.jsonl"
    path.write_text(path.read_text()[:-20])
    assert search(Fit(), folder=tmp_path)[1] == expected
    assert path.read_text().endswith("}\n")


def test_a_record_is_mended_whole_or_not_at_all(tmp_path, monkeypatch):
    search(Fit(), folder=tmp_path)
    path = tmp_path / "search.jsonl"
    half = path.read_text()[:-20]
    path.write_text(half)

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="what was there before is unchanged"):
        search(Fit(), folder=tmp_path)
    assert path.read_text() == half
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_records_of_other_searches_are_refused(tmp_path):
    search(Fit(), folder=tmp_path)
    with pytest.raises(TrainingError, match="resume it, or choose another folder"):
        search(Fit(), folder=tmp_path, resume=False)
    with pytest.raises(TrainingError, match=r"other settings \(seed\)"):
        evolve(
            Scaled(), Fit(), replace(BUDGET, seed=1), space=SPACE,
            configure=configure, folder=tmp_path,
        )  # fmt: skip
    path = tmp_path / "search.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(TrainingError, match="of another search"):
        search(Fit(), folder=tmp_path)
    path.write_text(lines[0] + "no JSON\n")
    with pytest.raises(TrainingError, match="is damaged"):
        search(Fit(), folder=tmp_path)


def test_the_surrogate_of_nevergrad_is_left_as_it_was():
    """The search mends NGOpt while it runs, for nobody else."""
    before = optimizerlib.learn_on_k_best
    evolve(Scaled(), Fit(), TrainConfig(steps=30))
    assert optimizerlib.learn_on_k_best is before


def test_a_space_lies_between_its_bounds_on_a_log_scale():
    space = SearchSpace(log_scalars={"rate": (1e-4, 1.0), "scale": (1.0, 100.0)})
    assert space.scalars_at([-1, 1]) == pytest.approx({"rate": 1e-4, "scale": 100.0})
    assert space.scalars_at([-9, 0]) == pytest.approx({"rate": 1e-4, "scale": 10.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"log_scalars": {"rate": (0.0, 1.0)}}, "range of 'rate' must be 0 < low"),
        ({"choices": {"activation": []}}, "'activation' has no alternatives"),
        ({"weight_scale": 0.0}, "there is nothing to search"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SearchSpace(**settings)


def test_settings_need_somebody_to_apply_them():
    space = SearchSpace(choices={"activation": ["tanh"]})
    with pytest.raises(ConfigError, match="give configure"):
        evolve(Scaled(), Fit(), TrainConfig(steps=1), space=space)


def test_a_missing_extra_is_named(monkeypatch):
    real = evolution.import_extra
    monkeypatch.setattr(
        evolution, "import_extra", lambda module, extra: real("no_such", extra)
    )
    with pytest.raises(MissingExtraError, match=r"sketchlearn\[train\]"):
        evolve(Scaled(), Fit(), TrainConfig(steps=1))
