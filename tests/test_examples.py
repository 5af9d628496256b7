"""Every example runs from start to end."""

import runpy
from pathlib import Path

import pytest

SLOW = {"learn_the_median"}
EXAMPLES = sorted(Path(__file__).parents[1].glob("examples/*.py"))


CASES = [
    pytest.param(
        path, id=path.stem, marks=[pytest.mark.full] if path.stem in SLOW else []
    )
    for path in EXAMPLES
]


@pytest.mark.parametrize("path", CASES)
def test_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_there_are_examples():
    assert EXAMPLES
