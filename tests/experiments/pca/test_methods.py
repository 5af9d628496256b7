"""Each method sees a set through its sketch only, and is exact if it holds all."""

import numpy as np
import pytest
import torch

from paper_folder import write_paper_folder
from sketchlearn import sketch_rows
from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.experiments.pca import methods
from sketchlearn.experiments.pca.methods import PCA_METHODS, pca_method, weights_file
from sketchlearn.experiments.pca.sets import load_sets
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.sqnet import SQNetSpec


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return load_sets(write_paper_folder(tmp_path_factory.mktemp("paper")))


@pytest.mark.parametrize(
    "name", ["pinv-gaussian", "pinv-chi", "pinv-unit", "nystrom", "learned"]
)
def test_a_sketch_that_holds_the_second_moment_loses_nothing(data, name):
    small = data[0]
    estimate = pca_method(name).estimate(small, 10, 1)
    assert small.pca_lre(estimate) == pytest.approx(0, abs=1e-4)
    assert small.ridge_lre(estimate) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("name", [name for name in PCA_METHODS if name != "sqnet"])
def test_every_method_gives_a_symmetric_matrix_that_depends_on_the_seed(data, name):
    wide = data[1]
    first, again, other = (
        pca_method(name).estimate(wide, 60, seed).second_moment for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(first, first.T, atol=1e-9)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_the_quadratic_sketch_of_few_rows_is_that_of_all_rows(data):
    wide = data[1]
    features = QuadraticFeatures(wide.n_features, 30, value_bound=2.0**20)
    means = [sketch_rows(rows, features).mean for rows in (wide.rows, wide.few_rows)]
    np.testing.assert_allclose(*means, rtol=1e-5)


@pytest.mark.parametrize("name", ["row-sample", "row-gaussian", "row-sparse"])
def test_methods_that_keep_rows_know_nothing_if_no_row_fits(data, name):
    wide = data[1]
    none = pca_method(name).estimate(wide, wide.n_features - 1, 0).second_moment
    one = pca_method(name).estimate(wide, wide.n_features, 0).second_moment
    np.testing.assert_array_equal(none, np.eye(wide.n_features))
    assert np.linalg.matrix_rank(one) == 1


def test_the_papers_network_sees_padded_rows_and_is_asked_for_the_features(
    data, tmp_path
):
    spec = SQNetSpec(
        26, 8, inputs="outer", output="symmetric", decoder={"head": "tanh"}
    )
    net = TrainableSQNet(spec, seed=1)
    net.freeze().save(tmp_path / weights_file(8))
    method, wide = pca_method("sqnet", tmp_path), data[1]
    padded = np.pad(wide.rows, ((0, 0), (0, 2))).astype(np.float32)
    with torch.no_grad():
        lower = net(torch.from_numpy(padded)).numpy()
    assert method.missing(8) is None
    found = method.estimate(wide, 8, 0).second_moment
    expected = symmetric_matrix(lower.astype(np.float64))[:24, :24]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_networks_of_all_sizes_are_one_file(data, tmp_path):
    width, wide = 26, data[1]
    n = width * (width + 1) // 2
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(n, 30)))[0].T
    mean = rng.normal(size=n)
    NestedSQNet.from_basis(basis, mean).save(tmp_path / weights_file())
    method = pca_method("sqnet", tmp_path)
    truth = wide.padded(width)[np.tril_indices(width)]
    for size in (1, 7, 30):
        rows = basis[:size]
        expected = symmetric_matrix(mean + rows.T @ (rows @ (truth - mean)))
        assert method.runs_at(size)
        found = method.estimate(wide, size, 0).second_moment
        np.testing.assert_allclose(found, expected[:24, :24], atol=0.02)
    assert not method.runs_at(31)


def test_a_basis_is_completed_until_nothing_is_lost(data, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "LARGEST_LEARNED", 30)
    width, wide = 26, data[1]
    n = width * (width + 1) // 2
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(n, 30)))[0].T
    NestedSQNet.from_basis(basis, rng.normal(size=n)).save(tmp_path / weights_file())
    method = pca_method("sqnet", tmp_path)
    found = [method.estimate(wide, size, 0).second_moment for size in (30, 200, n)]
    errors = [np.linalg.norm(moment - wide.second_moment) for moment in found]
    assert sorted(errors, reverse=True) == errors
    assert errors[-1] < 1e-9


def test_other_methods_are_shown_where_most_sets_do_not_fit():
    sizes = (1, 3, 4, 2000, 15000, 19306)
    shown = [pca_method("pinv-chi").runs_at(size) for size in sizes]
    assert shown == [False, False, True, True, False, False]
    assert pca_method("sqnet").runs_at(19306)
    assert not pca_method("sqnet").runs_at(19307)


def test_missing_weights_are_named_with_what_to_do(tmp_path):
    reason = pca_method("sqnet", tmp_path).missing(1999)
    assert "pca-sqnet-1999.safetensors" in reason
    assert "--train" in reason
    assert pca_method("pinv-chi").missing(7) is None
