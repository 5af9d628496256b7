"""A configuration file and a folder of datasets become a weight file with a card."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.errors import ConfigError, TrainingError
from sketchlearn.files.models import packaged_weights, read_index
from sketchlearn.files.weights import load_weights, save_weights
from sketchlearn.meta.config import list_configs, load_config
from sketchlearn.meta.datasets import MetaDataset, load_folder
from sketchlearn.meta.runs import _thawed_state, build_run, load_datasets, train_run
from sketchlearn.meta.tasks.base import find_tasks
from sketchlearn.meta.tasks.second_moment import PaddedMomentProblem
from sketchlearn.sqnet import SQNet

TEXT = """
task = "second-moment"
[data]
held_out = ["d"]
[model]
inputs = "outer"
output = "symmetric"
decoder = { head = "tanh" }
[cpu.model]
sketch_size = 4
[cpu.problem]
n_features = 3
episodes = 2
[cpu.train]
steps = 6
validate_every = 2
"""

COUNTS = """
task = "frequency"
[model]
sketch_size = 4
[problem]
n_features = 10
batch = 4
max_rows = 3
[tiny.model]
decoder = { head = "sigmoid" }
[tiny.train]
steps = 2
"""

ROWS = "feature.layers.last.weight"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    entries = []
    for name in "abcd":
        rows = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4))
        columns = {f"f{i}": rows[:, i].astype(np.float32) for i in range(4)}
        pq.write_table(pa.table({**columns, "label": [0] * 50}), tmp_path / name)
        entries.append(
            {
                "name": name, "file": name, "split": "train", "real": name != "a",
                "rows": 50, "features": 4,
            }
        )  # fmt: skip
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"datasets": entries}))
    (tmp_path / "pca.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["train", *arguments])


ARGUMENTS = ("pca.toml", "--data", ".", "-o", "pca.safetensors")


def test_the_command_writes_weights_with_their_card(folder):
    done = run(*ARGUMENTS, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["stopped"], shown["steps"]) == ("steps", 6)
    weights = load_weights("pca.safetensors")
    assert weights.card["train_datasets"] == ["a", "b", "c"]
    assert weights.card["held_out_datasets"] == ["d"]
    assert weights.card["settings"]["train"]["steps"] == 6
    assert weights.card["validation"]["score"] == shown["best_score"]
    assert weights.card["preset"] == "cpu"
    config = load_config("pca.toml", "cpu")
    expected = train_run(config, load_folder(".")).model.freeze().tensors
    found = SQNet.load("pca.safetensors").tensors
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert (folder / "pca.safetensors.run" / "log.jsonl").exists()


def test_an_interrupted_command_is_resumed_to_the_same_weights(folder, monkeypatch):
    assert run(*ARGUMENTS).exit_code == 0
    whole = load_weights("pca.safetensors").tensors
    draw = PaddedMomentProblem.draw
    calls = []

    def interrupted(self, rng):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return draw(self, rng)

    monkeypatch.setattr(PaddedMomentProblem, "draw", interrupted)
    again = ("pca.toml", "--data", ".", "-o", "again.safetensors")
    stopped = run(*again)
    assert stopped.exit_code == 130
    assert "interrupted after 3 steps; go on with --resume" in stopped.stderr
    assert not (folder / "again.safetensors").exists()
    refused = run(*again)
    assert refused.exit_code == 1
    assert "resume it, or choose another folder" in refused.stderr
    assert run(*again, "--resume").exit_code == 0
    found = load_weights("again.safetensors").tensors
    assert all(np.array_equal(found[name], whole[name]) for name in whole)


def test_fine_tuning_starts_where_another_run_ended(folder):
    run(*ARGUMENTS)
    (folder / "pca.toml").write_text(TEXT.replace("steps = 6", "steps = 0"))
    checkpoint = "pca.safetensors.run/checkpoint.pt"
    tuned = ("pca.toml", "--data", ".", "-o", "t.safetensors")
    assert run(*tuned, "--start-from", checkpoint).exit_code == 0
    one, two = (load_weights(f"{name}.safetensors").tensors for name in ("pca", "t"))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_an_existing_output_and_a_wrong_configuration_are_refused(folder):
    (folder / "pca.safetensors").write_text("mine")
    assert run(*ARGUMENTS).exit_code == 1
    assert (folder / "pca.safetensors").read_text() == "mine"
    assert run(*ARGUMENTS, "--force", "--preset", "gpu").exit_code == 1
    assert not (folder / "pca.safetensors.run").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("second-moment", "k-medians", "no task 'k-medians'; the tasks are"),
        ("n_features = 3", "n_features = 3\npad = false", "unknown key 'pad'"),
        ("held_out =", "hold_out =", "unknown key 'hold_out' in .data."),
        ("n_features = 3", "features = 3", "unknown key 'features' in .problem."),
    ],
)
def test_what_a_task_does_not_understand_is_refused(folder, old, new, message):
    (folder / "pca.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        build_run(load_config("pca.toml", "cpu"), load_folder("."))


def test_simulated_datasets_can_be_left_out(folder):
    (folder / "pca.toml").write_text(TEXT.replace("[data]", "[data]\nreal_only = true"))
    made = build_run(load_config("pca.toml", "cpu"), load_folder("."))
    assert made.datasets == ("b", "c")


def test_datasets_can_be_named_of_either_split(folder):
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    manifest["datasets"][2]["split"] = "test"
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    text = TEXT.replace("[data]", "[data]\nonly = ['d', 'c']")
    (folder / "named.toml").write_text(text)
    named, plain = (load_config(f"{name}.toml", "cpu") for name in ("named", "pca"))
    assert [data.name for data in load_datasets(named, ".")] == ["d", "c"]
    assert [data.name for data in load_datasets(plain, ".")] == ["a", "b", "d"]
    (folder / "wrong.toml").write_text(text.replace("'c'", "'z'"))
    with pytest.raises(ConfigError, match="no dataset 'z'"):
        load_datasets(load_config("wrong.toml", "cpu"), ".")


def test_a_task_that_draws_from_a_law_takes_no_datasets(folder):
    (folder / "counts.toml").write_text(COUNTS)
    done = run("counts.toml", "-o", "counts.safetensors", "--preset", "tiny", "--json")
    assert done.exit_code == 0, done.output
    weights = load_weights("counts.safetensors")
    assert weights.card["train_datasets"] == []
    assert SQNet.load("counts.safetensors").spec.sketch_size == 4
    given = run("counts.toml", "--data", ".", "-o", "b.safetensors", "--preset", "tiny")
    assert given.exit_code == 1
    assert "takes no datasets" in given.stderr
    missing = run("pca.toml", "-o", "c.safetensors")
    assert missing.exit_code == 1
    assert "learns from datasets: give datasets (--data)" in missing.stderr


def fine_tune(source, *more, output="t.safetensors"):
    tuned = ("pca.toml", "--data", ".", "-o", output, "--steps", "0")
    return run(*tuned, "--start-from", source, *more)


def test_fine_tuning_starts_from_a_file_of_weights(folder):
    run(*ARGUMENTS)
    done = fine_tune("pca.safetensors")
    assert done.exit_code == 0, done.output
    one, two = (load_weights(f"{name}.safetensors") for name in ("pca", "t"))
    assert all(np.array_equal(one.tensors[n], two.tensors[n]) for n in one.tensors)
    assert two.card["started_from"] == {"model": "", "checksum": one.digest}


def test_weights_of_another_kind_or_size_and_names_of_nothing_are_refused(folder):
    run(*ARGUMENTS)
    wrong = fine_tune("kmeans-ckm")
    assert wrong.exit_code == 1
    assert "weights of kind 'iterative-ckm': this configuration" in wrong.stderr
    larger = TEXT.replace("sketch_size = 4", "sketch_size = 5")
    (folder / "pca.toml").write_text(larger)
    wider = fine_tune("pca.safetensors")
    assert wider.exit_code == 1
    assert "their sketch_size is 4, and this configuration makes 5" in wider.stderr
    for nothing in ("pca-equivarant", "none.safetensors", "none.pt"):
        missing = fine_tune(nothing)
        assert missing.exit_code == 1
        assert "no such file, and it is none of the models: " in missing.stderr
    assert not (folder / "t.safetensors").exists()


def wide_dataset(name, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 20)) + rng.normal(size=20)
    return MetaDataset.from_arrays(name, rows.astype(np.float32))


@pytest.mark.parametrize(
    "name", ["autoencoder-codes", "count-laws", "kmeans-ckm", "pca-equivariant"]
)
def test_shipped_weights_are_fine_tuned_by_their_name(name):
    tiny, shipped = load_config(name, "tiny"), packaged_weights(name)
    model, ended = load_config(name, "cpu").model, replace(tiny.train, steps=0)
    datasets = [wide_dataset(one, seed) for seed, one in enumerate("abcd")]
    problem = {k: v for k, v in tiny.problem.items() if k != "search_steps"}
    config = replace(tiny, model=model, problem=problem, train=ended)
    done = train_run(config, datasets, start_from=name)
    assert done.card["started_from"] == {"model": name, "checksum": shipped.digest}
    found = done.model.to_weights().tensors
    for tensor in shipped.tensors:
        assert np.allclose(found[tensor], shipped.tensors[tensor], atol=2e-6)


def built(config):
    datasets = [wide_dataset(one, seed) for seed, one in enumerate("abcd")]
    takes = find_tasks()[config.task].takes_datasets
    return build_run(config, datasets if takes else [])


@pytest.mark.parametrize("name", list_configs())
def test_what_a_configuration_trains_is_thawed_from_its_own_weights(name):
    config = load_config(name, "tiny")
    model = built(config).model
    seeded = replace(config, train=replace(config.train, seed=7))
    weights = built(seeded).model.to_weights()
    model.load_state_dict(_thawed_state(model, weights))
    found = model.to_weights().tensors
    for tensor, array in weights.tensors.items():
        assert np.allclose(found[tensor], array, atol=2e-6)


@pytest.mark.parametrize("name", list_configs())
def test_shipped_weights_fit_a_configuration_or_are_refused_in_words(name):
    model = built(load_config(name, "tiny")).model
    for shipped in read_index():
        with suppress(TrainingError):
            model.load_state_dict(_thawed_state(model, packaged_weights(shipped)))


def test_networks_of_all_sizes_are_fine_tuned_from_their_file(tmp_path):
    config = load_config("pca-sqnet", "tiny")
    ended = replace(config, train=replace(config.train, steps=0))
    datasets = [wide_dataset(one, seed) for seed, one in enumerate("abcd")]
    start = tmp_path / "start.safetensors"
    first = train_run(replace(ended, train=replace(ended.train, seed=7)), datasets)
    save_weights(first.model.to_weights(), start)
    done = train_run(ended, datasets, start_from=start)
    found, expected = done.model.to_weights().tensors, load_weights(start).tensors
    assert not np.allclose(built(ended).model.freeze().basis, expected[ROWS], atol=0.01)
    for tensor in (ROWS, "feature.layers.last.bias", "decoder.layers.last.bias"):
        assert np.allclose(found[tensor], expected[tensor], atol=2e-6)
    smaller = replace(ended, model={**ended.model, "sketch_size": 3})
    with pytest.raises(
        TrainingError, match=r"basis is of shape \(4, 36\), .* \(3, 36\)"
    ):
        train_run(smaller, datasets, start_from=start)


def test_steps_and_seconds_are_changed_on_the_command_line(folder):
    done = run(*ARGUMENTS, "--steps", "3", "--json")
    assert json.loads(done.stdout)["steps"] == 3
    card = load_weights("pca.safetensors").card
    assert card["settings"]["train"]["steps"] == 3
    assert card["command"] == "sketchlearn train pca.toml --data DATA --steps 3"
    assert card["seed"] == 0
    short = ("pca.toml", "--data", ".", "-o", "s.safetensors", "--seconds", "0")
    assert json.loads(run(*short, "--json").stdout)["stopped"] == "time"
    card = load_weights("s.safetensors").card
    assert card["settings"]["train"]["steps"] is None


def test_the_report_says_file_score_and_best_step_and_reading_is_announced(folder):
    done = run(*ARGUMENTS, "--json")
    shown = json.loads(done.stdout)
    assert shown["file"] == "pca.safetensors"
    assert shown["checksum"] == load_weights("pca.safetensors").digest
    assert {"best_score", "best_step", "kind"} <= shown.keys()
    assert done.stderr == "reading 4 datasets ...\n"


def test_the_parent_of_a_folder_of_datasets_means_the_folder(folder):
    (folder / "data").mkdir()
    for name in ("MANIFEST.json", *"abcd"):
        (folder / name).rename(folder / "data" / name)
    done = run(*ARGUMENTS)
    assert done.exit_code == 0, done.output
    assert "data: data\n" in done.stderr
    refused = run("pca.toml", "--data", "data/none", "-o", "n.safetensors")
    assert "no MANIFEST.json in" in refused.stderr


def test_the_configurations_of_the_package_are_listed(folder):
    shown = run("--list")
    assert shown.exit_code == 0
    assert "pca-equivariant" in shown.stdout
    assert "no such configuration" in run("pca", "-o", "x.safetensors").stderr


@pytest.mark.filterwarnings("default:not in the folder")
def test_held_out_sets_that_the_folder_lacks_are_said_and_one_must_be_there(folder):
    named = TEXT.replace('held_out = ["d"]', 'held_out = ["d", "letters1"]')
    (folder / "pca.toml").write_text(named)
    done = run(*ARGUMENTS)
    assert done.exit_code == 0, done.output
    assert "not in the folder, and so not held out: letters1." in done.stderr
    assert load_weights("pca.safetensors").card["held_out_datasets"] == ["d"]
    none = TEXT.replace('held_out = ["d"]', 'held_out = ["e", "letters1"]')
    (folder / "pca.toml").write_text(none)
    refused = run("pca.toml", "--data", ".", "-o", "n.safetensors")
    assert refused.exit_code == 1
    assert "cannot hold out 'e'" in refused.stderr


def test_the_sets_of_the_paper_may_be_left_out_of_a_folder_that_lacks_them(folder):
    text = TEXT.replace("[data]", '[data]\nleave_out = ["quickdraw", "a"]')
    (folder / "pca.toml").write_text(text)
    made = build_run(load_config("pca.toml", "cpu"), load_folder("."))
    assert made.datasets == ("b", "c")
