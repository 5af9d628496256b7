"""Every experiment that is found in its folder is a command with a quick plan."""

from dataclasses import fields

import pytest
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.experiments.base import find_experiments

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
