"""Training lowers the loss, keeps the best weights, and resumes to the bit."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from sketchlearn.errors import MissingExtraError, SketchFileError, TrainingError
from sketchlearn.meta import progress
from sketchlearn.meta.checkpoint import read_checkpoint
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.problems import AbstractProblem, AbstractStagedProblem
from sketchlearn.meta.trainer import MAX_SKIPPED, train

TARGET = torch.tensor([[2.0, -1.0]])


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


class Regression(AbstractProblem):
    """Learn y = x · (2, −1); ``trouble`` happens at the draw of a given number."""

    def __init__(self, trouble=None):
        self.trouble = trouble or {}
        self.drawn = 0

    def draw(self, rng):
        rows = torch.as_tensor(rng.normal(size=(16, 2)), dtype=torch.float32)
        self.drawn += 1
        if self.drawn in self.trouble:
            return self.trouble[self.drawn](rows)
        return rows

    def loss(self, model, batch):
        return ((model(batch) - batch @ TARGET.T) ** 2).mean()

    def validate(self, model):
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"score": float(self.loss(model, torch.eye(2)))}


class Stages(AbstractStagedProblem):
    """Three stages with batches of 2, 4 and 8 rows; nothing is ever better."""

    def __init__(self, stage=0, kill_at=None, drawn=None):
        self.stage, self.kill_at = stage, kill_at
        self.drawn = [] if drawn is None else drawn

    def at_stage(self, stage):
        return Stages(stage, self.kill_at, self.drawn) if stage < 3 else None

    def draw(self, rng):
        self.drawn.append(2 << self.stage)
        if len(self.drawn) == self.kill_at:
            raise Killed
        return torch.as_tensor(rng.normal(size=(2 << self.stage, 2))).float()

    def loss(self, model, batch):
        return ((model(batch) - batch @ TARGET.T) ** 2).mean()

    def validate(self, model):
        return {"score": 1.0}


def network(seed=0):
    """Every kind of state: weights, batch statistics, and random layers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(8, 1),
        )  # fmt: skip


def linear():
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def kill(rows):
    raise Killed


def interrupt(rows):
    os.kill(os.getpid(), signal.SIGINT)
    return rows


def spoil(rows):
    return rows * torch.nan


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "radam"])
def test_each_optimizer_finds_the_solution(optimizer):
    model = linear()
    config = TrainConfig(
        steps=200, learning_rate=0.1, schedule="cosine", optimizer=optimizer
    )
    result = train(model, Regression(), config)
    assert torch.allclose(model.weight, TARGET, atol=0.05)
    assert (result.stopped, result.steps, result.skipped) == ("steps", 200, 0)
    assert result.history[0]["score"] == pytest.approx(2.5)
    assert result.best_score == min(record["score"] for record in result.history)


def test_a_step_of_adam_is_the_one_done_by_hand():
    """The first step of Adam moves each weight by the rate, against its gradient."""
    model = linear()
    train(model, Regression(), TrainConfig(steps=1, learning_rate=0.25))
    assert torch.allclose(model.weight, 0.25 * TARGET.sign(), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam", "ema": 0.9},
        {"optimizer": "radam", "schedule": "cosine", "warmup_steps": 5},
        {"optimizer": "adamw", "weight_decay": 0.1, "accumulate": 2, "clip_norm": 0.5},
    ],
)
@pytest.mark.parametrize("at", [4, 7])
def test_a_killed_run_resumes_to_the_bit(tmp_path, settings, at):
    config = TrainConfig(steps=12, validate_every=3, seed=3, **settings)
    careful = replace(config, checkpoint_every_seconds=0)
    whole, halves = network(), network()
    expected = train(whole, Regression(), config, folder=tmp_path / "whole")
    with pytest.raises(Killed):
        train(halves, Regression({at: kill}), careful, folder=tmp_path / "halves")
    halves = network(seed=1)
    result = train(halves, Regression(), config, folder=tmp_path / "halves")

    assert same(whole.state_dict(), halves.state_dict())
    paths = [tmp_path / name / "checkpoint.pt" for name in ("whole", "halves")]
    one, two = (read_checkpoint(path) for path in paths)
    assert same(one["model"], two["model"])
    timeless = [
        [{**record, "seconds": 0} for record in run.history]
        for run in (expected, result)
    ]
    assert repr(timeless[0]) == repr(timeless[1])
    assert result.best_step == expected.best_step


def test_patience_used_up_leads_to_the_next_stage_and_ends_after_the_last():
    problem = Stages()
    config = TrainConfig(steps=100, validate_every=1, patience=2)
    result = train(linear(), problem, config)
    assert problem.drawn == [2, 2, 4, 4, 8, 8]
    assert (result.stopped, result.steps) == ("patience", 6)


def test_without_patience_there_is_one_stage():
    problem = Stages()
    train(linear(), problem, TrainConfig(steps=5, validate_every=1))
    assert problem.drawn == [2] * 5


@pytest.mark.parametrize("at", [2, 4, 5, 9])
def test_a_run_killed_in_any_stage_resumes_to_the_bit(tmp_path, at):
    config = TrainConfig(steps=100, validate_every=2, patience=2, seed=3)
    careful = replace(config, checkpoint_every_seconds=0)
    train(linear(), Stages(), config, folder=tmp_path / "whole")
    with pytest.raises(Killed):
        train(linear(), Stages(kill_at=at), careful, folder=tmp_path / "halves")
    problem = Stages()
    train(linear(), problem, config, folder=tmp_path / "halves")
    one, two = (
        read_checkpoint(tmp_path / name / "checkpoint.pt")
        for name in ("whole", "halves")
    )
    assert same(one["model"], two["model"])
    assert one["state"]["stage"] == two["state"]["stage"] == 2
    assert one["state"]["step"] == two["state"]["step"] == 12
    assert problem.drawn == ([2] * 4 + [4] * 4 + [8] * 4)[at - 1 :]


def test_the_global_generator_neither_matters_nor_moves():
    models = [network(), network()]
    for model in models:
        before = torch.random.get_rng_state()
        train(model, Regression(), TrainConfig(steps=5, learning_rate=0.1))
        assert torch.equal(before, torch.random.get_rng_state())
        torch.rand(3)
    assert same(models[0].state_dict(), models[1].state_dict())


def test_the_seed_decides_the_batches():
    models = [linear(), linear()]
    for seed, model in enumerate(models):
        train(model, Regression(), TrainConfig(steps=5, seed=seed))
    assert not same(models[0].state_dict(), models[1].state_dict())


def test_ctrl_c_ends_cleanly_and_can_be_resumed(tmp_path):
    config = TrainConfig(steps=20, validate_every=5, learning_rate=0.1)
    whole, model = linear(), linear()
    train(whole, Regression(), config)
    handler = signal.getsignal(signal.SIGINT)
    result = train(model, Regression({8: interrupt}), config, folder=tmp_path)

    assert (result.stopped, result.steps, result.best_step) == ("interrupt", 8, 5)
    assert signal.getsignal(signal.SIGINT) is handler
    assert same(read_checkpoint(tmp_path / "checkpoint.pt")["best"], model.state_dict())
    assert train(model, Regression(), config, folder=tmp_path).stopped == "steps"
    assert same(model.state_dict(), whole.state_dict())


def test_a_second_ctrl_c_ends_at_once():
    def insist(rows):
        interrupt(rows)
        return interrupt(rows)

    with pytest.raises(KeyboardInterrupt):
        train(linear(), Regression({3: insist}), TrainConfig(steps=20))


def test_training_works_outside_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            train(linear(), Regression(), TrainConfig(steps=3))
        )
    )
    thread.start()
    thread.join()
    assert results[0].stopped == "steps"


def test_a_step_that_is_not_finite_changes_nothing_but_the_count():
    config = TrainConfig(steps=5, learning_rate=0.1)
    model = network()
    result = train(model, Regression({5: spoil}), config)
    short = network()
    train(short, Regression(), TrainConfig(steps=4, learning_rate=0.1))
    assert (result.skipped, result.steps) == (1, 5)
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert same(model.state_dict(), short.state_dict())


def test_a_run_of_steps_that_are_not_finite_is_an_error():
    always = dict.fromkeys(range(1, 100), spoil)
    with pytest.raises(TrainingError, match=f"{MAX_SKIPPED} steps in a row"):
        train(network(), Regression(always), TrainConfig(steps=99))
    almost = dict.fromkeys(range(1, MAX_SKIPPED), spoil)
    result = train(network(), Regression(almost), TrainConfig(steps=MAX_SKIPPED))
    assert result.skipped == MAX_SKIPPED - 1


def test_the_best_weights_are_kept_and_patience_ends_the_run():
    """Too large a rate only makes things worse: the start stays the best."""
    model = linear()
    nn.init.constant_(model.bias, 0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = TrainConfig(steps=99, learning_rate=50.0, validate_every=1, patience=3)
    result = train(model, Regression(), config)
    assert (result.stopped, result.steps, result.best_step) == ("patience", 3, 0)
    assert same(model.state_dict(), before)


def test_a_score_that_is_not_a_number_is_never_the_best():
    class Blind(Regression):
        def validate(self, model):
            return {"score": float("nan")}

    model = linear()
    result = train(model, Blind(), TrainConfig(steps=3, validate_every=1))
    assert result.best_score == float("inf")
    assert not model.weight.any()


def test_time_ends_a_run_and_drives_its_schedule():
    class Slow(Regression):
        def draw(self, rng):
            time.sleep(0.01)
            return super().draw(rng)

    config = TrainConfig(seconds=0.1, schedule="linear", validate_every=1)
    result = train(linear(), Slow(), config)
    assert result.stopped == "time"
    assert result.seconds >= 0.1
    rates = [record["learning_rate"] for record in result.history]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0


def test_averaged_weights_are_what_is_validated():
    """With decay 1/2 the mean of w0 = 0 and w1 is w1 / 2."""
    config = {"steps": 1, "learning_rate": 0.25}
    plain, averaged = linear(), linear()
    train(plain, Regression(), TrainConfig(**config))
    train(averaged, Regression(), TrainConfig(**config, ema=0.5))
    assert torch.equal(averaged.weight, plain.weight / 2)


def test_a_step_takes_as_many_different_batches_as_asked():
    seen = []

    class Spy(Regression):
        def loss(self, model, batch):
            seen.append(batch)
            return super().loss(model, batch)

        def validate(self, model):
            return {"score": 0.0}

    train(linear(), Spy(), TrainConfig(steps=1, accumulate=3))
    assert len(seen) == 3
    assert not torch.equal(seen[0], seen[1])


def test_clipped_gradients_have_the_norm_asked_for(tmp_path):
    config = TrainConfig(steps=1, clip_norm=0.01)
    train(linear(), Regression(), config, folder=tmp_path)
    moments = read_checkpoint(tmp_path / "checkpoint.pt")["optimizer"]["state"]
    squares = sum(float(state["exp_avg"].square().sum()) for state in moments.values())
    assert squares**0.5 / 0.1 == pytest.approx(0.01, rel=1e-3)  # (1 - beta1) gradient


def test_fine_tuning_starts_from_a_checkpoint_or_given_weights(tmp_path):
    model = linear()
    config = TrainConfig(steps=20, learning_rate=0.1)
    train(model, Regression(), config, folder=tmp_path)
    for source in (tmp_path / "checkpoint.pt", model.state_dict()):
        tuned = linear()
        train(tuned, Regression(), TrainConfig(steps=0), start_from=source)
        assert same(tuned.state_dict(), model.state_dict())
        with pytest.raises(TrainingError, match="do not fit this Sequential"):
            train(network(), Regression(), TrainConfig(steps=0), start_from=source)


@pytest.mark.parametrize("content", [b"not a checkpoint", b""])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(SketchFileError, match="damaged or is not a checkpoint"):
        train(linear(), Regression(), TrainConfig(steps=1), folder=tmp_path)


def test_a_checkpoint_never_runs_code(tmp_path):
    torch.save({"format": kill}, tmp_path / "checkpoint.pt")
    with pytest.raises(SketchFileError, match="damaged or is not a checkpoint"):
        train(linear(), Regression(), TrainConfig(steps=1), folder=tmp_path)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(TrainingError, match="cannot train on device 'nowhere'"):
        train(linear(), Regression(), TrainConfig(steps=1, device="nowhere"))


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    config = TrainConfig(steps=2)
    train(linear(), Regression(), config, folder=tmp_path)
    with pytest.raises(TrainingError, match="has the checkpoint of a run already"):
        train(linear(), Regression(), config, folder=tmp_path, resume=False)


def test_only_the_length_of_a_run_may_change_when_it_is_resumed(tmp_path):
    train(linear(), Regression(), TrainConfig(steps=2), folder=tmp_path)
    longer = train(linear(), Regression(), TrainConfig(steps=4), folder=tmp_path)
    assert longer.steps == 4
    with pytest.raises(TrainingError, match="with seed = 0, now it is 1"):
        train(linear(), Regression(), TrainConfig(steps=9, seed=1), folder=tmp_path)


def test_the_log_has_one_object_per_record(tmp_path):
    trouble = {3: spoil}
    config = TrainConfig(steps=4, validate_every=2)
    result = train(linear(), Regression(trouble), config, folder=tmp_path)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    events = [record["event"] for record in records]
    expected = ["start", "validation", "validation", "skipped", "validation", "stop"]
    assert events == expected
    assert records[0]["config"]["validate_every"] == 2
    assert records[1]["loss"] is None  # nothing was trained yet
    assert records[-1] == {
        "event": "stop", "reason": "steps", "step": 4, "best_score": result.best_score,
    }  # fmt: skip


def test_the_picture_is_a_png_and_only_needs_its_extra(tmp_path, monkeypatch):
    train(linear(), Regression(), TrainConfig(steps=4), folder=tmp_path / "a")
    assert (tmp_path / "a" / "loss.png").read_bytes().startswith(b"\x89PNG")

    def missing(module, extra):
        raise MissingExtraError(module)

    monkeypatch.setattr(progress, "import_extra", missing)
    train(linear(), Regression(), TrainConfig(steps=4), folder=tmp_path / "b")
    assert not (tmp_path / "b" / "loss.png").exists()
    last = (tmp_path / "b" / "log.jsonl").read_text().splitlines()[-1]
    assert "matplotlib" in json.loads(last)["text"]


def test_progress_is_shown_on_a_terminal_only(capsys, monkeypatch):
    train(linear(), Regression(), TrainConfig(steps=4))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_SHOW_EVERY", 0.0)
    train(linear(), Regression(), TrainConfig(steps=4))
    err = capsys.readouterr().err
    assert "step 2 (50%)" in err
    assert "steps/s" in err
    assert "0:00 left" in err


@pytest.mark.full
def test_a_run_that_is_really_killed_resumes_to_the_bit(tmp_path):
    code = textwrap.dedent(
        """
        import os, signal, sys
        sys.path.insert(0, {here!r})
        import test_trainer as t
        def kill(rows):
            os.kill(os.getpid(), signal.SIGKILL)
        config = t.TrainConfig(steps=20, checkpoint_every_seconds=0)
        t.train(t.network(), t.Regression({{11: kill}}), config, folder={folder!r})
        """
    ).format(here=os.path.dirname(__file__), folder=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_checkpoint(tmp_path / "checkpoint.pt")["state"]["step"] == 10
    whole, resumed = network(), network(seed=1)
    config = TrainConfig(steps=20, checkpoint_every_seconds=0)
    train(whole, Regression(), config)
    train(resumed, Regression(), config, folder=tmp_path)
    assert same(whole.state_dict(), resumed.state_dict())
