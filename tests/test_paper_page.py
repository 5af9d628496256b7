"""docs/paper.md has all of the paper, and what it names is there."""

import re
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.metrics import pca_reconstruction_error

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text("utf-8")
SOURCE = ROOT.parent / "shared" / "paper" / "compressive-meta-learning.tex"
FENCES = re.compile(r"^```.*?^```", flags=re.M | re.S)
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", FENCES.sub("", PAGE))))

HOME = Path(sl.__file__).parent
ROOMS = {path.stem for path in HOME.iterdir() if path.suffix in ("", ".py")}
PATHS = [
    name
    for name in QUOTED
    if re.fullmatch(r"\w+(\.\w+)*", name)
    if name.partition(".")[0] in ROOMS and not name.endswith(".png")
]
TESTS = [name for name in QUOTED if name.startswith(("tests/", "benchmarks/"))]
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def labels_of(source):
    """Labels of tables, figures and equations, not those of sections."""
    found = re.findall(r"\\(?:sub)*section\*?\{.*?\}\s*\\label\{(.*?)\}", source)
    return set(re.findall(r"\\label\{(.*?)\}", source)) - set(found)


def example():
    names = {}
    exec(EXAMPLE, names)
    return names


def test_every_table_figure_and_equation_of_the_paper_is_on_the_page():
    if not SOURCE.is_file():
        pytest.skip("the source of the paper is not here")
    labels = labels_of(SOURCE.read_text("utf-8"))
    assert len(labels) > 60
    assert labels - set(QUOTED) == set()


def test_labels_of_sections_are_no_labels_of_tables():
    source = r"\section{A} \label{sec:a} \begin{table} \label{tab:b} \end{table}"
    assert labels_of(source) == {"tab:b"}


def test_there_are_modules_and_tests_on_the_page():
    assert len(PATHS) > 60
    assert len(TESTS) > 15


@pytest.mark.parametrize("path", PATHS)
def test_every_module_and_name_exists(path):
    assert resolve_name(f"sketchlearn.{path}") is not None


@pytest.mark.parametrize("name", TESTS)
def test_every_file_exists(name):
    assert (ROOT / name).is_file()


def test_every_model_that_is_named_as_such_is_shipped():
    shipped = {model.name for model in sl.list_models()}
    kinds = ("pca-", "kmeans-", "frequency-", "membership-")
    named = [name for name in QUOTED if name.startswith(kinds)]
    assert named
    assert set(named) <= shipped


def test_the_example_of_the_bound_gives_what_the_page_says():
    names = example()
    printed = re.search(r"\]  # (.*)", EXAMPLE)[1].split(", ")
    assert np.round(names["bounds"], 3).tolist() == [float(text) for text in printed]
    assert np.isclose(names["rho"], 1, atol=1e-3)


def test_what_it_bounds_is_not_exceeded_when_a_row_is_replaced():
    names = example()
    phi, net, rho = names["phi"], names["net"], names["rho"]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, phi.n_features))
    other = np.concatenate([10 * rows[:1], rows[1:]])
    features = [sl.sketch_rows(part, phi, progress=False) for part in (rows, other)]
    left, right = (net.decoder_network(one.mean[None]) for one in features)
    moved = np.linalg.norm(left - right)
    assert 0 < moved <= rho * 2 * phi.norm_bound / len(rows)


def test_printed_errors_are_areas_over_196_and_no_means_over_features():
    """Balance-scale has four uncorrelated features; the paper prints 0.023."""
    error = pca_reconstruction_error(np.eye(4), np.eye(4))
    assert round(error, 3) == 0.023
    assert error == pytest.approx(4.5 / 196)
