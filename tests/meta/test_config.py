"""A configuration is complete, understood key by key, or refused."""

import contextlib
import math
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import sketchlearn
from sketchlearn.errors import ConfigError, MissingFileError, SketchlearnError
from sketchlearn.meta.config import DataConfig, TrainConfig, list_configs, load_config
from sketchlearn.registry import list_models, load_card

CONFIGS = sorted((Path(sketchlearn.__file__).parent / "configs").glob("*.toml"))

TEXT = """
task = "median"
[problem]
n_features = 5
episodes = 4
[train]
learning_rate = 0.5
[cpu.train]
steps = 10
[paper.problem]
episodes = 64
[paper.train]
steps = 2000
learning_rate = 3e-5
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "median.toml"
    path.write_text(TEXT)
    return path


def test_a_preset_wins_over_what_all_presets_share(path):
    cpu, paper = load_config(path, "cpu"), load_config(path, "paper")
    assert (cpu.task, cpu.train.steps, cpu.train.learning_rate) == ("median", 10, 0.5)
    assert cpu.problem == {"n_features": 5, "episodes": 4}
    assert paper.train == TrainConfig(steps=2000, learning_rate=3e-5)
    assert paper.problem == {"n_features": 5, "episodes": 64}
    assert paper.model == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps = 10", "step = 10", "unknown key 'step' in .train.; known keys: steps"),
        ("[cpu.train]", "[cpu.trains]", "unknown key 'trains' in .cpu."),
        ('task = "median"', "", "has no key task"),
        ('task = "median"', 'task = "median"\nother = 1', "unknown key 'other'"),
        ("steps = 10", "steps = ", "is not a TOML file"),
        ("steps = 10", "steps = 0.5", "steps must be a whole number >= 0; got 0.5"),
        ("steps = 10", "", "set steps, seconds or both"),
        ("= 0.5", "= -1", "learning_rate must lie between 0 and inf; got -1"),
        ("= 0.5", "= nan", "learning_rate must be a finite number; got nan"),
        ("steps = 10", "steps = 1\nseed = true", "seed must be a whole number"),
        ("steps = 10", 'steps = 1\noptimizer = "sgd"', "one of adam, adamw, radam"),
    ],
)
def test_what_is_not_understood_is_refused(path, old, new, message):
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_config(path, "cpu")


def test_a_missing_preset_or_file_is_named(path):
    with pytest.raises(ConfigError, match="no preset 'gpu'; it has: cpu, paper"):
        load_config(path, "gpu")
    with pytest.raises(MissingFileError):
        load_config(path.with_name("none.toml"), "cpu")


def test_rates_follow_their_schedule():
    base = {"steps": 100, "learning_rate": 2.0}
    constant = TrainConfig(**base)
    cosine = TrainConfig(**base, schedule="cosine")
    linear = TrainConfig(**base, schedule="linear", warmup_steps=4)
    assert [constant.rate_at(p) for p in (0.0, 0.5, 1.0)] == [2.0, 2.0, 2.0]
    assert cosine.rate_at(1 / 3) == pytest.approx(1.5)
    assert cosine.rate_at(1.0) == pytest.approx(0.0)
    assert linear.rate_at(0.25) == 1.5
    warming = [linear.rate_at(0.0, step) for step in range(5)]
    assert warming == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert math.isclose(linear.rate_at(2.0), 0.0)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_every_shipped_configuration_has_both_presets(path, preset):
    """Several kinds of a model have one each: ``cpu-ae``, ``cpu-m`` and so on."""
    tables = tomllib.loads(path.read_text("utf-8"))
    found = [name for name in tables if name.partition("-")[0] == preset]
    assert found
    assert all(load_config(path, name).task for name in found)


def test_there_are_configurations():
    assert CONFIGS


def test_configurations_of_the_package_are_known_by_name():
    assert list(list_configs()) == [path.stem for path in CONFIGS]
    for path in CONFIGS:
        assert load_config(path.stem, "tiny") == load_config(path, "tiny")


def test_a_name_that_is_none_lists_those_there_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("pca-equivarant", "configs/pca.toml", "my/pca-sqnet.toml",
                  "pca-sqnet.toml", "../pca-sqnet", "configs/pca-sqnet"):  # fmt: skip
        with pytest.raises(MissingFileError, match=r"It\s+has: .*pca-equivariant"):
            load_config(wrong, "cpu")


@pytest.mark.parametrize("model", [model.name for model in list_models()])
def test_the_configuration_that_a_card_names_is_there(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = load_card(model)["command"].split()
    assert command[:2] == ["sketchlearn", "train"]
    named = Path(command[2]).stem
    assert load_config(command[2], "tiny") == load_config(named, "tiny")
    (tmp_path / "configs").mkdir()
    own = tmp_path / "configs" / f"{named}.toml"
    own.write_text(TEXT)
    assert load_config(f"configs/{named}.toml", "cpu").task == "median"


def test_a_file_beside_is_read_where_its_path_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pca-sqnet.toml").write_text(TEXT)
    assert load_config("pca-sqnet.toml", "cpu").task == "median"
    assert load_config("pca-sqnet", "cpu").task == "second-moment"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_presets_of_the_paper_name_their_schedule(path):
    content = tomllib.loads(path.read_text("utf-8"))
    shared = content.get("train", {})
    for preset, tables in content.items():
        if preset.startswith("paper"):
            assert "schedule" in {**shared, **tables["train"]}


LITERALS = ["-1", "1.5", "true", '"x"', "[]", "[1]", '["x"]', "{}", "{a = 1}", "nan"]
LITERALS += ["inf", "2020-01-01", "0x7fffffffffffffff", "99999999999999999999", "[[1]]"]


@pytest.mark.parametrize("literal", LITERALS)
def test_values_of_any_type_are_taken_or_refused_by_our_errors(path, literal):
    keys = [f.name for f in fields(TrainConfig) + fields(DataConfig)]
    tables = [
        f"[cpu.{table}]\n{key} = {literal}"
        for table in ("train", "data")
        for key in keys
    ]
    shared = ["task", "data", "model", "problem", "train", "cpu", "paper"]
    texts = [f'task = "median"\n{table}\n' for table in tables]
    texts += [f"{key} = {literal}\n[cpu.train]\nsteps = 1\n" for key in shared]
    texts += [f'task = "median"\n[cpu]\n{key} = {literal}' for key in shared]
    for text in [
        *texts,
        "[" * 3000,
        "a = " + "[" * 3000,
        f"cpu.train.steps = {literal}",
    ]:
        path.write_text(text)
        with contextlib.suppress(SketchlearnError):
            load_config(path, "cpu")
