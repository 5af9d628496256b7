"""Every experiment that is found in its folder is a command with a quick plan."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.experiments.base import Experiment, find_experiments
from sketchlearn.experiments.commands import _command
from sketchlearn.experiments.protocol import read_printed

EXPERIMENTS = find_experiments()
ALL = pytest.mark.parametrize("name", sorted(EXPERIMENTS))


def help_of(*arguments):
    done = CliRunner().invoke(main, [*arguments, "--help"])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_every_experiment_is_listed():
    shown = help_of("reproduce")
    assert {"kmeans", "pca"} <= EXPERIMENTS.keys()
    assert all(f" {name} " in shown for name in EXPERIMENTS)


@ALL
def test_an_experiment_says_what_it_does_and_what_is_quick(name):
    shown, experiment = help_of("reproduce", name), EXPERIMENTS[name]
    assert experiment.summary in shown
    assert experiment.quick in shown
    for option in experiment.options:
        assert option.opts[0] in shown


@ALL
def test_a_quick_plan_is_a_part_of_the_whole(name):
    plan = EXPERIMENTS[name].plan
    whole, quick = plan(), plan.quick()
    assert {field.name for field in fields(whole)} >= {
        "sizes", "n_seeds", "methods", "datasets",
    }  # fmt: skip
    assert whole.datasets is None
    assert len(quick.datasets) <= 2
    assert len(quick.sizes) < len(whole.sizes)
    assert set(quick.methods) <= set(whole.methods)
    assert quick.n_seeds == 1


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    n_seeds: int = 1
    datasets: tuple[str, ...] | None = None

    @classmethod
    def quick(cls):
        return cls(datasets=("here", "b2"))


def write_plan(data, output, plan, *, say):
    Path(output).mkdir(exist_ok=True)
    content = {"data": str(data), "datasets": plan.datasets}
    Path(output, "results.json").write_text(json.dumps(content))
    return "shown"


SMALL = Experiment(
    name="small",
    summary="A summary.",
    quick="Less.",
    sets=lambda: ["here", "b1", "b2", "c"],
    plan=Plan,
    run=write_plan,
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder" / "data"
    folder.mkdir(parents=True)
    here = {"name": "here", "file": "here", "split": "test", "real": True}
    manifest = {"datasets": [{**here, "rows": 4, "features": 2}]}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    return folder


def small(*arguments):
    return CliRunner().invoke(_command(SMALL), [str(word) for word in arguments])


def test_what_the_folder_lacks_is_said_once_and_kept_with_the_results(data):
    done = small("--data", data, "--output", "out", "--json")
    assert done.exit_code == 0, done.output
    assert done.stderr == f"not in {data}: 3 of the paper's sets (b1..2, c)\n"
    written = json.loads(done.stdout)
    assert written["missing_sets"] == ["b1", "b2", "c"]
    assert written["data"] == str(data)


def test_the_parent_of_the_data_means_the_same_and_says_so(data):
    done = small("--data", data.parent, "--output", "out", "--json")
    assert f"data: {data}\n" in done.stderr
    assert json.loads(done.stdout)["data"] == str(data)
    wrong = small("--data", data.parent.parent, "--output", "other")
    assert wrong.exit_code == 2
    assert "no MANIFEST.json in" in wrong.stderr


def test_a_quick_plan_is_content_with_the_sets_that_are_there(data):
    done = small("--data", data, "--quick", "--output", "out", "--json")
    written = json.loads(done.stdout)
    assert (written["datasets"], written["missing_sets"]) == (["here"], ["b2"])
    asked = ("--datasets", "b2", "--output", "asked", "--json")
    assert json.loads(small("--data", data, *asked).stdout)["datasets"] == ["b2"]


@pytest.mark.parametrize("name", ["pca", "kmeans"])
def test_the_sets_of_an_experiment_are_those_the_paper_prints(name):
    printed = read_printed("pca_reconstruction_error")["rows"]
    assert sorted(EXPERIMENTS[name].sets()) == sorted(printed)
