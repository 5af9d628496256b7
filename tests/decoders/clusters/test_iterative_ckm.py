"""Iterative CKM draws its units by a law and descends from where the rows are."""

import numpy as np
import pytest

from sketchlearn import FourierFeatures, Scaling, sketch_rows
from sketchlearn.decoders.clusters.ckm_descent import CKMSpec
from sketchlearn.decoders.clusters.ckm_units import MatrixLaw, draw_units
from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.testing import release_seeded

CENTRES = np.array([[0.1, 0.3], [0.8, 0.2], [0.5, 0.9]])


def make_model(numbers=None, **spec):
    first = IterativeCKM.initial(CKMSpec(**spec))
    own = {f"numbers.{name}": np.array(x) for name, x in (numbers or {}).items()}
    return IterativeCKM(first.spec, {**first.tensors, **own})


def clusters(centres, std, n_rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(len(centres), size=n_rows)]
    return rows + std * rng.normal(size=rows.shape)


def farthest(centres, found):
    return np.linalg.norm(centres[:, None] - found, axis=2).min(axis=1).max()


def test_axes_come_first_up_to_four_fifths_and_the_other_radii_follow_their_law():
    law = {"radius": 0.3, "spread": -0.4, "by_features": 0.7, "by_size": -0.2}
    model = make_model({**law, "axis": 0.5}, activation="tanh", atoms="point")
    _, positions = draw_units(10, 64, np.random.default_rng(5))
    matrix = model.feature_map(10, 64, seed=5).matrix
    radii = np.exp(
        0.3 + 0.7 * np.log(10 / 32) - 0.2 * np.log(64 / 512)
        + np.exp(-0.4) * positions
    )  # fmt: skip
    assert np.allclose(matrix[:, :10], np.exp(0.5) * np.eye(10))
    assert np.allclose(np.linalg.norm(matrix[:, 10:], axis=0), radii[10:], rtol=1e-5)
    few = model.feature_map(10, 10).matrix
    assert np.count_nonzero((few != 0).sum(axis=0) == 1) == 8


@pytest.mark.parametrize("atoms", ["gaussian", "point"])
def test_the_objective_is_the_one_written_in_the_docstring(atoms):
    """No step at all, so that the fit is where the descent would start."""
    numbers = {"initial_std": -0.5, "atom": -0.7, "pull": 0.3}
    numbers |= {"pull_by_features": 0.5, "pull_by_size": 0.8}
    model = make_model(numbers, n_steps=0, atoms=atoms)
    rng = np.random.default_rng(0)
    matrix, start = rng.normal(size=(3, 8)), rng.normal(size=(2, 3))
    target = rng.normal(size=16)
    fit = model.fit(target, matrix, start)
    unit = 0.4 if atoms == "gaussian" else 1.0  # the frame before its first step
    u = np.exp(-0.5) * start
    theta, squares = (unit * u).clip(-1, 1), (matrix**2).sum(axis=0)
    variance = (unit * np.exp(-0.7)) ** 2 if atoms == "gaussian" else 0.0
    damping = np.exp(-0.5 * variance * squares)
    phases = theta @ matrix
    model_sketch = np.concatenate(
        [damping * np.cos(phases).mean(axis=0), damping * np.sin(phases).mean(axis=0)]
    )
    misfit = ((model_sketch - target) ** 2).sum()
    pull = np.exp(0.3 + 0.5 * np.log(3 / 32) + 0.8 * np.log(16 / 512))
    pull *= 1 - np.exp(-(unit**2) * squares).mean()
    assert np.allclose(fit.centroids, theta, atol=1e-6)
    assert np.allclose(fit.variances, variance)
    assert float(fit.misfit) == pytest.approx(misfit, rel=1e-5)
    assert float(fit.objective - fit.misfit) == pytest.approx(
        pull * (u**2).mean(), rel=1e-3
    )


def test_centres_and_common_variances_of_gaussian_clusters_are_found():
    rows = clusters(CENTRES, np.array([0.03, 0.1]))
    model = make_model()
    sketch = sketch_rows(rows, model.feature_map(2, 200, seed=1))
    found = model.decoder(3).decode(sketch)
    assert farthest(CENTRES, found.params.centers) < 0.02
    assert np.allclose(found.params.variances**0.5, [[0.03, 0.1]] * 3, rtol=0.3)
    assert np.array_equal(found.params.weights, np.full(3, 1 / 3))
    assert found.residual < 0.05
    assert found.converged


def test_the_same_clusters_in_a_corner_of_the_range_are_found_as_well():
    """The start follows the rows: a tenth of the range, far from its middle."""
    rows = clusters(0.85 + 0.1 * CENTRES, 0.003)
    model = make_model({"radius": 2.0})
    sketch = sketch_rows(rows, model.feature_map(2, 300, seed=1))
    found = model.decoder(3).decode(sketch).params.centers
    assert farthest(0.85 + 0.1 * CENTRES, found) < 0.01


def test_a_strong_pull_leaves_all_centroids_at_the_mean():
    rows = clusters(CENTRES, 0.02)
    model = make_model({"pull": 20.0})
    sketch = sketch_rows(rows, model.feature_map(2, 100))
    found = model.decoder(3, n_starts=1).decode(sketch).params.centers
    assert np.ptp(found, axis=0).max() < 1e-3
    assert np.allclose(found, rows.mean(axis=0), atol=0.06)


def test_rows_in_other_units_give_the_same_centres_in_those_units():
    rows, model = clusters(CENTRES, 0.05), make_model()
    moved = Scaling.from_bounds(100.0, 104.0, n_features=2)
    maps = [model.feature_map(2, 100), model.feature_map(2, 100, scaling=moved)]
    found = [
        model.decoder(3).decode(sketch_rows(x, phi)).params
        for x, phi in zip((rows, 4 * rows + 100), maps, strict=True)
    ]
    assert np.allclose(4 * found[0].centers + 100, found[1].centers, atol=0.02)
    assert np.allclose(16 * found[0].variances, found[1].variances, rtol=0.05)


def test_private_centres_stay_in_the_declared_range_however_noisy():
    rows, model = clusters(CENTRES, 0.02).clip(0, 1), make_model()
    sketch = sketch_rows(rows, model.feature_map(2, 100))
    private = release_seeded(
        sketch, 0, epsilon=0.05, delta=1e-6, neighbours="replace", count="public"
    )
    found = model.decoder(3).decode(private)
    assert found.residual > 0.1
    assert found.params.centers.min() >= 0
    assert found.params.centers.max() <= 1


def test_weights_bring_back_the_same_map_and_decoder():
    spec = {"activation": "tanh", "optimiser": "sgd", "n_steps": 7, "atoms": "point"}
    model = make_model({"radius": 0.123}, **spec)
    again = IterativeCKM.from_weights(model.to_weights())
    maps = [one.feature_map(3, 9) for one in (model, again)]
    assert np.array_equal(maps[0].matrix, maps[1].matrix)
    sketch = sketch_rows(np.random.default_rng(0).uniform(size=(50, 3)), maps[0])
    found = [one.decoder(4).decode(sketch).params.centers for one in (model, again)]
    assert np.array_equal(*found)


def test_numbers_of_another_model_are_refused():
    model = make_model()
    less = {n: a for n, a in model.tensors.items() if n != "numbers.rate"}
    with pytest.raises(FeatureMapError, match="'numbers.rate' has shape missing"):
        IterativeCKM(model.spec, less)
    with pytest.raises(FeatureMapError, match=r"'weight' .* expected \(196, 10\)"):
        IterativeCKM(CKMSpec(sketch_size=20), model.tensors)


def test_columns_of_the_matrix_have_the_radii_of_their_law():
    law = MatrixLaw(radius=3.0, spread=0.5)
    lengths = np.linalg.norm(law.draw(4000, np.random.default_rng(0)), axis=0)
    assert np.median(lengths) == pytest.approx(3, rel=0.05)
    assert np.log(lengths).std() == pytest.approx(0.5, rel=0.05)


def test_few_units_are_the_first_of_many():
    few, many = (MatrixLaw().draw(n, np.random.default_rng(1)) for n in (5, 50))
    assert np.array_equal(few, many[:, :5])


def test_early_features_weigh_more_and_neighbours_of_the_smooth_part_are_alike():
    rng = np.random.default_rng(2)
    sizes = np.square(MatrixLaw(falloff=1.0, share=1e-9).draw(3000, rng)).mean(axis=1)
    ratios = (sizes[30:] / sizes[30]) ** 0.5
    assert np.allclose(ratios, 31 / np.arange(31, 197), rtol=0.15)
    smooth = MatrixLaw(falloff=0.0, share=1e9, length=8.0).draw(3000, rng)
    for step in (1, 8):
        together = np.mean(smooth[step:] * smooth[:-step]) / np.mean(smooth**2)
        assert together == pytest.approx(np.exp(-step / 8), rel=0.1)


def test_sketches_and_settings_that_do_not_fit_are_refused():
    with pytest.raises(FeatureMapError, match="must be even"):
        make_model().feature_map(3, 9)
    with pytest.raises(FeatureMapError, match="atoms='point'"):
        CKMSpec(activation="relu")
    decoder = make_model().decoder(2)
    for other in (
        FourierFeatures(2, 20),
        ActivationFeatures(np.ones((2, 3)), activation="tanh"),
    ):
        with pytest.raises(FeatureMapError, match="'fourier' units"):
            decoder.decode(sketch_rows([[0.1, 0.2]], other))
    with pytest.raises(FeatureMapError, match="n_starts"):
        make_model().decoder(2, n_starts=0)
