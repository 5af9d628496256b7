"""A mixture that explains cells with second moments is the mixture of the rows."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from sketchlearn import sketch_rows
from sketchlearn.decoders.density.cell_mixture import CellMixtureDecoder
from sketchlearn.decoders.density.reading import read_sketch
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import MomentFeatures

RNG = np.random.default_rng(0)
MEANS = np.array([[-1.5, 0, 0], [1.5, 0, 0], [0, 2.0, 0]])
ROOTS = 0.5 * RNG.normal(size=(3, 3, 3)) + 0.4 * np.eye(3)
LABELS = RNG.choice(3, 30_000, p=[0.5, 0.3, 0.2])
NOISE = RNG.normal(size=(30_000, 3))
ROWS = MEANS[LABELS] + np.einsum("nab,nb->na", ROOTS[LABELS], NOISE)
CROSSING = np.array([[0.0, -1, 0], [0.0, 1, 0.5], [-1.0, 0, 1], [1.0, 0, -1]])


def sketch(rows, anchors=CROSSING, basis=None, **options):
    d = rows.shape[1]
    basis = np.eye(d) if basis is None else basis
    cells = CellFeatures(anchors, basis=basis, centre=np.zeros(d), **options)
    return sketch_rows(rows, ConcatenatedFeatures([MomentFeatures(d), cells]))


def score(density, rows):
    return density.score_samples(rows).mean()


def test_one_component_is_the_gaussian_of_the_moments():
    found = CellMixtureDecoder(1).decode(sketch(ROWS, n_crossed=3)).params
    assert np.allclose(found.component_means[0], ROWS.mean(axis=0), atol=1e-6)
    covariance = np.cov(ROWS.T, bias=True)
    assert np.allclose(found.component_covariances[0], covariance, atol=1e-6)


def test_without_cells_there_is_one_component():
    plain = sketch_rows(ROWS, MomentFeatures(3))
    assert read_sketch(plain).cells is None
    assert len(CellMixtureDecoder(3).decode(plain).params.weights) == 1


def test_cells_without_second_moments_are_not_taken_for_cells_with_them():
    assert not read_sketch(sketch(ROWS)).cells.has_second_moments
    assert read_sketch(sketch(ROWS, n_crossed=0)).cells.has_second_moments
    assert len(CellMixtureDecoder(3).decode(sketch(ROWS)).params.weights) == 3


def test_holding_the_mixture_against_cells_undoes_what_cells_blur():
    theirs = GaussianMixture(3, n_init=3, random_state=0).fit(ROWS).score(ROWS)
    one = sketch(ROWS, n_crossed=3)
    start, refined = (
        theirs - score(CellMixtureDecoder(3, n_rounds=n).decode(one).params, ROWS)
        for n in (0, 20)
    )
    assert start > 0.02
    assert refined < start / 2


@pytest.mark.parametrize("n_crossed", [0, 3])
def test_diagonal_components_are_found_from_squares(n_crossed):
    rows = MEANS[LABELS] + NOISE * [0.5, 0.3, 1.0]
    theirs = GaussianMixture(3, covariance_type="diag", random_state=0).fit(rows)
    decoder = CellMixtureDecoder(3, shape="diag")
    anchors = np.concatenate([CROSSING, 2 * CROSSING])
    found = decoder.decode(sketch(rows, anchors, n_crossed=n_crossed)).params
    assert score(found, rows) > theirs.score(rows) - 0.05
    covariances = found.component_covariances
    assert np.allclose(covariances * (1 - np.eye(3)), 0.0, atol=1e-4)


def test_directions_without_cells_follow_those_with_cells_linearly():
    x = ROWS[:, :1]
    rows = np.concatenate([x, 2 * x + 0.5 * NOISE[:, 1:2]], axis=1)
    anchors = np.linspace(-3, 3, 40)[:, None]
    one = sketch(rows, anchors, basis=np.eye(2)[:, :1], n_crossed=1)
    found = CellMixtureDecoder(2).decode(one).params
    assert len(found.weights) == 2
    means, covariances = found.component_means, found.component_covariances
    slope = covariances[:, 0, 1] / covariances[:, 0, 0]
    assert np.allclose(slope, 2.0, atol=0.02)
    assert np.allclose(means[:, 1], 2 * means[:, 0], atol=0.03)
    left = covariances[:, 1, 1] - slope * covariances[:, 0, 1]
    assert np.allclose(left, 0.25, atol=0.01)


def test_the_residual_is_the_share_of_rows_the_mixture_puts_in_the_wrong_cell():
    found = CellMixtureDecoder(3).decode(sketch(ROWS, n_crossed=3))
    points, _ = found.params.sample(200_000, np.random.default_rng(5))
    shares = [
        np.bincount(((z[:, None] - CROSSING) ** 2).sum(axis=2).argmin(axis=1)) / len(z)
        for z in (points, ROWS)
    ]
    assert found.residual == pytest.approx(
        np.abs(shares[0] - shares[1]).sum() / 2, abs=0.01
    )


def test_no_more_components_than_distinct_places_are_found():
    rows = np.repeat([[0.0, 0, 0], [1.0, 1, 1]], 50, axis=0)
    found = CellMixtureDecoder(5).decode(sketch(rows, n_crossed=3)).params
    assert len(found.weights) == 2
    assert np.isfinite(found.component_covariances).all()
