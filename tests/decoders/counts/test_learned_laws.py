"""Learned laws: shapes that move, files that are checked, and what squares say."""

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.decoders.counts.fitted_prior import Energy, FittedPrior
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.learned_laws import LearnedLaws, relative_odds
from sketchlearn.decoders.counts.prior import CountLaws
from sketchlearn.errors import FeatureMapError
from sketchlearn.files.weights import Weights


def bell(width, absent=0.0):
    shape = np.exp(-0.5 * (relative_odds(97) / width) ** 2)
    return LearnedLaws((shape / shape.sum())[None], np.array([absent]), np.ones(1))


def test_a_law_moves_along_the_log_odds():
    places = np.linspace(-10, 6, 161)
    laws = bell(0.8, absent=0.25).odds(places, np.array([-4.0, 0.0]))[0]
    np.testing.assert_allclose(laws.sum(axis=1), 1)
    np.testing.assert_allclose(laws[:, 0], 0.25)
    assert laws[:, -1].tolist() == [0, 0]
    middles = laws[:, 1:-1] @ places / 0.75
    np.testing.assert_allclose(middles, [-4, 0], atol=0.01)


def test_the_laws_of_the_package_are_probabilities():
    laws = sl.load_model("count-laws")
    np.testing.assert_allclose(laws.shapes.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(laws.weights.sum(), 1)
    assert ((laws.absent >= 0) & (laws.absent < 1)).all()


def test_what_is_saved_is_what_is_loaded():
    laws = bell(1.0, 0.1)
    again = LearnedLaws.from_weights(laws.to_weights())
    np.testing.assert_allclose(again.shapes, laws.shapes, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "tensors", "message"),
    [
        ("sqnet", {}, "of kind 'sqnet'"),
        ("count-laws", {"absent": np.zeros(3, np.float32)}, "'absent' has shape"),
        ("count-laws", {"weights": -np.ones(1, np.float32)}, "negative"),
    ],
)
def test_what_are_no_laws_is_refused(kind, tensors, message):
    good = bell(1.0).to_weights().tensors
    with pytest.raises(FeatureMapError, match=message):
        LearnedLaws.from_weights(Weights(kind, {}, {**good, **tensors}))


def test_squares_tell_the_variance_of_counts():
    """Of two laws of one mean, numbers of that variance favour the right one."""
    rng = np.random.default_rng(0)
    wide = np.array([0.5, 0, 0, 0, 0.5])  # variance 4
    narrow = np.array([0, 0.0, 1, 0, 0])  # variance 0
    masses, counts = np.stack([wide, narrow]) + 1e-9, np.arange(5.0)
    load = 10.0
    for variance, better in ((4.0, 0), (0.1, 1)):
        numbers = rng.normal(scale=np.sqrt(1.0 + load * variance), size=100)
        energy = Energy(float(np.mean(numbers**2)), 100.0, load, 1.0, True)
        found = energy.log_likelihood(masses, counts, 1000.0)
        assert found.argmax() == better
        assert abs(found[0] - found[1]) > 5


@pytest.mark.parametrize("rare", [0.001, 0.5])
def test_few_heavy_items_make_squares_say_less(rare):
    law, second = np.array([[1 - rare, 0, 0, 0, rare]]), 16 * rare

    def found(times):
        energy = Energy(times * second, 100.0, 1.0, 0.0, False)
        return energy.log_likelihood(law, np.arange(5.0), 500.0)[0]

    drop = found(1.0) - found(2.0)
    assert drop > 10 if rare == 0.5 else drop < 2


def test_a_prior_is_fitted_to_learned_laws_too():
    grid = CountGrid.up_to(100)
    laws = CountLaws.build(grid, 1000, learned=bell(2.5, 0.3))
    plain = CountLaws.build(grid, 1000)
    assert laws.n_shapes < plain.n_shapes
    means = [20.0]
    prior = FittedPrior.start(laws, means)
    truth = laws.at_mean(20.0)[-1]
    counts = np.random.default_rng(1).choice(101, 2000, p=truth / truth.sum())
    likelihood = np.eye(101)[counts] + 1e-12
    fitted = prior.refit(laws, means, likelihood)
    assert fitted.shares[-1] == fitted.shares.max()
