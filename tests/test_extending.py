"""What docs/extending.md adds is short, and keeps the promises of what is built in."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.utils.estimator_checks import estimator_checks_generator

import sketchlearn as sl
from contracts import check_feature_map
from sketchlearn.cli import estimators
from sketchlearn.cli.app import main

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
RNG = np.random.default_rng(0)
X = RNG.exponential(size=(3000, 3)) * [1.0, 0.5, 2.0]

page = sys.modules["extending"] = ModuleType("extending")  # where pickle finds it
for block in BLOCKS:
    exec(block, vars(page))
PHI = page.HistogramFeatures(3, n_bins=160, low=0.0, high=8.0)
Quantile = page.CompressiveQuantile


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_a_map_a_decoder_and_an_estimator_are_under_sixty_lines():
    lines = [line for block in BLOCKS for line in block.splitlines() if line.strip()]
    assert len(lines) < 60


def test_the_map_passes_the_contract():
    check_feature_map(PHI, X[:400])


def test_its_sketches_merge_forget_and_come_back_from_files(tmp_path):
    left, right = sl.sketch_rows(X[:1000], PHI), sl.sketch_rows(X[1000:], PHI)
    whole = left + right
    assert whole == sl.sketch_rows(X, PHI)
    assert whole - right == left
    sl.save(whole, tmp_path / "a.sketch")
    loaded = sl.load(tmp_path / "a.sketch")
    assert loaded == whole
    assert loaded.feature_map == PHI


def test_the_decoder_finds_quantiles_to_the_width_of_a_bin():
    sketch = sl.sketch_rows(X, PHI)
    for share in (0.1, 0.5, 0.9):
        found = page.QuantileDecoder(share).decode(sketch).params
        assert np.abs(found - np.quantile(X, share, axis=0)).max() < 8.0 / 160


def test_the_estimator_fits_rows_one_part_after_the_other_and_forgets():
    settings = {"n_bins": 160, "bounds": (0.0, 8.0)}
    whole = Quantile(0.9, **settings).fit(X)
    parts = Quantile(0.9, **settings).fit(X[:1000]).partial_fit(X[1000:])
    assert parts.sketch_ == whole.sketch_
    assert np.array_equal(parts.quantiles_, whole.quantiles_)
    assert np.abs(whole.quantiles_ - np.quantile(X, 0.9, axis=0)).max() < 8.0 / 160
    parts.forget(X[1000:])
    assert parts.sketch_ == Quantile(0.9, **settings).fit(X[:1000]).sketch_
    stream = Quantile(0.9, **settings).fit(iter([X[:7], X[7:]]))
    assert stream.sketch_ == whole.sketch_


def test_the_estimator_is_on_the_command_line(tmp_path, monkeypatch):
    """As it would be in a file of the package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimators, "_estimators", lambda: {"quantile": Quantile})
    np.savetxt("a.csv", X, delimiter=",", header="a,b,c", comments="")
    bounds, out = ("--bounds", "0", "8"), ("-o", "a.sketch")
    made = run("sketch", "a.csv", *out, "--for", "quantile", *bounds)
    assert made.exit_code == 0, made.output
    fitted = json.loads(run("fit", "quantile", "a.sketch", "--set", "share=0.9").stdout)
    expected = Quantile(0.9, bounds=(0, 8)).fit(X)
    assert fitted["quantiles"] == expected.quantiles_.tolist()
    assert fitted["features"] == ["a", "b", "c"]
    assert run("sketch", "a.csv", *out, "--for", "quantile", "--size", "9").exit_code


CHECKS = list(estimator_checks_generator(Quantile()))


@pytest.mark.parametrize("number", range(len(CHECKS)))
def test_the_estimator_passes_the_checks_of_scikit_learn(number):
    estimator, check = CHECKS[number]
    check(estimator)
