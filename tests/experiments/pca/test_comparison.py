"""The comparison takes means over seeds and sets, and says what it left out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from paper_folder import write_paper_folder
from sketchlearn.errors import ConfigError
from sketchlearn.experiments.pca.comparison import (
    PCAResults,
    SetInfo,
    dataset_table,
    evaluate_methods,
    summary_tables,
)
from sketchlearn.experiments.pca.figures import errors_by_rank
from sketchlearn.experiments.pca.methods import PCA_METHODS, Method, weights_file
from sketchlearn.experiments.pca.reproduction import PCAPlan, reproduce_pca
from sketchlearn.experiments.pca.sets import Estimate, EvaluationSet
from sketchlearn.experiments.pca.training import train_networks
from sketchlearn.experiments.protocol import mean_by_size
from sketchlearn.meta.config import load_config
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.sqnet import SQNet

HALF = EvaluationSet("half", np.sqrt([[1.5, 1.5], [0.5, 0.5]]) * [[1, 1], [1, -1]])
RESULTS = PCAResults(
    sets=(
        SetInfo("a", True, 10, 4),
        SetInfo("b", True, 10, 150),
        SetInfo("c", False, 10, 150),
    ),
    sizes=(20, 100),
    pca={
        "learned": {
            "a": {20: 0.1, 100: 0.0},
            "b": {20: 0.5, 100: 0.2},
            "c": {20: 0.9, 100: 0.7},
        },
        "sqnet": {},
    },
    ridge={"learned": {"a": {20: 0.01}, "b": {20: 0.03}}},
    printed={"b": {20: 0.6, 100: 0.4}, "c": {20: 0.8, 100: 0.8}},
)


@pytest.fixture
def folder(tmp_path):
    return write_paper_folder(tmp_path)


def row_of(table, label):
    (line,) = [line for line in table.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_scores_are_means_over_seeds_except_for_methods_that_draw_once():
    wrong = np.array([[1.0, -0.5], [-0.5, 1.0]])

    def every_other(data, size, seed):
        return Estimate(wrong if seed % 2 else data.second_moment)

    methods = [Method("nystrom", every_other), Method("robust", every_other, True)]
    results = evaluate_methods([HALF], methods, sizes=(20,), n_seeds=2)
    assert results.pca["nystrom"]["half"][20] == pytest.approx(np.log(3) / 2)
    assert results.pca["robust"]["half"][20] == pytest.approx(0)
    assert results.ridge["robust"]["half"][20] == pytest.approx(0)


def test_a_method_without_weights_is_left_out_at_that_size_only():
    method = Method(
        "sqnet",
        lambda data, size, seed: Estimate(data.second_moment),
        missing=lambda size: "no weights" if size == 20 else None,
    )
    said = []
    results = evaluate_methods([HALF], [method], sizes=(20, 100), say=said.append)
    assert results.skipped == ("sqnet at size 20: no weights",)
    assert list(results.pca["sqnet"]["half"]) == [100]
    assert said[0] == "skipped sqnet at size 20: no weights."


def test_means_are_taken_over_real_wide_all_and_printed_sets():
    tables = summary_tables(RESULTS).split("\n\n")
    ours = [row_of(table, PCA_METHODS["learned"]) for table in tables[:5]]
    assert ours == [
        ["0.300", "0.100"],
        ["0.500", "0.200"],
        ["0.500", "0.300"],
        ["0.500", "0.200"],
        ["0.500", "0.200"],
    ]
    assert PCA_METHODS["sqnet"] not in tables[0]
    assert row_of(tables[5], PCA_METHODS["learned"]) == ["0.020", "-"]


def test_printed_values_of_simulated_sets_are_not_compared_with():
    label = "SQNet, printed in the paper (1 sets)"
    for table in summary_tables(RESULTS).split("\n\n")[:5]:
        assert row_of(table, label) == ["0.600", "0.400"]


def test_the_table_of_datasets_marks_simulated_ones():
    table = dataset_table(RESULTS)
    assert row_of(table, "b") == ["150", "0.500", "0.200", "0.600", "0.400"]
    assert row_of(table, "c (simulated)") == ["150", "0.900", "0.700", "-", "-"]


def test_a_mean_needs_all_sets():
    assert mean_by_size({"a": {20: 1.0}}, ["a"], [20]) == [1.0]
    assert np.isnan(mean_by_size({"a": {20: 1.0}}, ["a", "b"], [20])[0])


def test_errors_by_rank_are_those_of_reconstructed_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3)) * [3.0, 2.0, 1.0]
    basis = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    expected = [
        ((rows - rows @ basis[:r].T @ basis[:r]) ** 2).sum() / (rows**2).sum()
        for r in (1, 2, 3)
    ]
    found = errors_by_rank(rows.T @ rows / 40, basis)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_networks_are_trained_on_the_training_split_alone_and_once(tmp_path):
    data = write_paper_folder(tmp_path, splits=("train",))
    config, weights = load_config(data / "pca-sqnet.toml", "cpu"), tmp_path / "weights"
    said = []
    assert train_networks(config, data, weights, sizes=(8,), say=said.append)
    file = weights / "pca-sqnet-8.safetensors"
    assert SQNet.load(file).spec.sketch_size == 8
    before = file.read_bytes()
    assert train_networks(config, data, weights, sizes=(8,), say=said.append)
    assert file.read_bytes() == before
    assert "not trained again" in said[-1]


def test_networks_of_all_sizes_are_trained_at_once(tmp_path):
    data = write_paper_folder(tmp_path, splits=("train",))
    config, weights = load_config(data / "pca-sqnet.toml", "nested"), tmp_path / "w"
    assert train_networks(config, data, weights, sizes=(2, 8, 15000))
    assert [path.name for path in weights.glob("*.safetensors")] == [weights_file()]
    assert NestedSQNet.load(weights / weights_file()).sketch_size == 8


def test_networks_of_all_sizes_with_too_few_are_trained_again(tmp_path):
    data = write_paper_folder(tmp_path, splits=("train",))
    config, weights = load_config(data / "pca-sqnet.toml", "nested"), tmp_path / "w"
    said, found = [], []
    for largest in (4, 8, 2):
        assert train_networks(config, data, weights, sizes=(largest,), say=said.append)
        found.append(NestedSQNet.load(weights / weights_file()).sketch_size)
    assert found == [4, 8, 8]
    assert "sizes up to 4 of 8: trained again" in said[1]
    assert "not trained again" in said[-1]


def test_the_reproduction_writes_results_tables_and_figures(folder):
    config, weights = load_config(folder / "pca-sqnet.toml", "cpu"), folder / "weights"
    train_networks(config, folder, weights, sizes=(20,))
    methods = ("sqnet", "pinv-chi", "learned")
    plan = replace(PCAPlan.quick(), sizes=(20, 100, 700), methods=methods)
    results = reproduce_pca(folder, folder / "out", plan, weights=weights)
    written = json.loads((folder / "out" / "results.json").read_text())
    assert written["pca"]["learned"]["diabetes"]["20"] == pytest.approx(0, abs=1e-4)
    assert written["printed"]["diabetes"]["20"] == pytest.approx(np.log(0.105 / 0.078))
    # 20 was trained above, 100 comes with the package, 700 is nowhere
    assert list(results.pca["sqnet"]["hapmap31"]) == [20, 100]
    assert "skipped sqnet at size 700" in (folder / "out" / "tables.txt").read_text()
    figures = sorted(path.name for path in (folder / "out").glob("*.png"))
    assert figures == [
        "components.png",
        "privacy.png",
        "scatter-private.png",
        "scatter.png",
        "sizes.png",
    ]
    (private,) = written["privacy"]
    assert private["name"] == "hapmap31"
    assert "private hapmap31" in (folder / "out" / "tables.txt").read_text()


def test_plans_refuse_what_does_not_exist():
    with pytest.raises(ConfigError, match="no method 'magic'"):
        PCAPlan(methods=("magic",))
    with pytest.raises(ConfigError, match="from 1 on"):
        PCAPlan(sizes=(0, 20))
