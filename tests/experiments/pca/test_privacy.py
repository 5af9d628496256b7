"""Every decoder is measured on private sketches; constants are those of public rows."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from paper_folder import write_paper_folder
from sketchlearn.errors import RowsError
from sketchlearn.experiments.pca import public
from sketchlearn.experiments.pca.privacy import (
    SETTINGS,
    mean_curves,
    measure_privacy,
    noisy_moment,
    privacy_table,
)
from sketchlearn.experiments.pca.private_methods import (
    FULL,
    PRIVATE_METHODS,
    full_plan,
    sketch_plans,
)
from sketchlearn.experiments.pca.public import REACH, Knowledge, private_set
from sketchlearn.experiments.pca.training import train_networks
from sketchlearn.experiments.protocol import EPSILONS
from sketchlearn.meta.config import load_config
from sketchlearn.registry import load_model

SIZE = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_paper_folder(tmp_path_factory.mktemp("paper"))
    config = load_config(folder / "pca-sqnet.toml", "cpu")
    train_networks(config, folder, folder / "weights", sizes=(SIZE,))
    return folder


@pytest.fixture(scope="module")
def measured(folder):
    return measure_privacy(
        folder, "hapmap31", sizes=(SIZE,), n_releases=1, weights=folder / "weights"
    )


def test_every_method_is_measured_at_every_epsilon_and_without_noise(measured):
    assert set(measured.lre) == set(PRIVATE_METHODS)
    for method, scores in measured.lre.items():
        (values,) = scores.values()
        assert len(values) == len(EPSILONS) + 1
        assert np.isfinite(values).all()
        assert set(measured.norm_bounds[method]) == set(scores)


def test_all_of_r_without_noise_is_exact_and_noise_makes_it_worse(measured):
    *noisy, exact = measured.lre["full"][FULL]
    assert exact < 0.05 < measured.random
    assert max(noisy) > exact


def test_a_count_that_drowns_is_too_noisy_for_a_mean(folder):
    setting = "one row more or less, the count is private"
    assert setting in SETTINGS
    found = measure_privacy(folder, "hapmap31", sizes=(), n_releases=1, setting=setting)
    assert np.isnan(found.lre["full"][FULL][0])
    assert "too noisy" in privacy_table(found.lre, title="")


def test_means_are_taken_over_sets(measured):
    means = mean_curves([measured, measured])
    for method, scores in measured.lre.items():
        for size, values in scores.items():
            assert means[method][size] == pytest.approx(values)


def test_nothing_public_depends_on_private_rows(tmp_path):
    plans = []
    for name, flip in (("one", False), ("two", True)):
        folder = write_paper_folder(tmp_path / name)
        if flip:
            file = folder / "data" / "test" / "hapmap31.parquet"
            table = pq.read_table(file)
            labels = table.column("label")
            other = [1 - column.to_numpy() for column in table.columns[:-1]]
            pq.write_table(
                table.from_arrays([*other, labels], table.column_names), file
            )
        data = private_set(folder, "hapmap31")
        plans.append((data, [*sketch_plans(data, SIZE), full_plan(data)]))
    (one, first), (two, second) = plans
    assert np.abs(one.rows - two.rows).max() > 1
    np.testing.assert_array_equal(one.public_rows, two.public_rows)
    maps = [[plan.feature_map.spec for plan in found] for found in (first, second)]
    assert maps[0] == maps[1]


def test_rows_come_in_declared_units_or_in_those_of_the_twin(folder, monkeypatch):
    bounded = Knowledge("vowel", bounds=(-6, 6))
    monkeypatch.setitem(public.PUBLIC, "diabetes", bounded)
    raw = private_set(folder, "diabetes").rows * 12 / np.sqrt(12)
    table = pq.read_table(folder / "data" / "test" / "diabetes.parquet")
    columns = np.column_stack([column.to_numpy() for column in table.columns[:-1]])
    inside = np.abs(columns) < REACH * 12 / np.sqrt(12)
    np.testing.assert_allclose(raw[inside], columns[inside], atol=1e-6)
    monkeypatch.setitem(public.PUBLIC, "diabetes", Knowledge("vowel", aligned=True))
    twin = private_set(folder, "diabetes").public_rows
    np.testing.assert_allclose(twin.mean(axis=0), 0, atol=0.05)
    assert np.abs(twin).max() <= REACH


def test_a_twin_needs_the_features_of_the_private_set(folder, monkeypatch):
    monkeypatch.setitem(public.PUBLIC, "hapmap31", Knowledge("wdbc"))
    with pytest.raises(RowsError, match="fewer features"):
        private_set(folder, "hapmap31")


def test_the_papers_network_is_clipped_to_the_bound_of_its_training(folder):
    data = private_set(folder, "hapmap31")
    plan = sketch_plans(data, SIZE)[0]
    assert set(plan.decoders) == {"sqnet", "sqnet-clamped"}
    packaged = load_model(f"pca-sqnet-{SIZE}")
    assert plan.feature_map.norm_bound == packaged.prior.norm_bound
    seen, noisy = (noisy_moment(data, plan, "sqnet", e) for e in (None, 1.0))
    assert seen.shape == noisy.shape == (24, 24)
    assert np.abs(seen - noisy).max() > 0
