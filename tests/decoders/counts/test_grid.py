"""A grid says of counts what summing over all of them says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.grid import CountGrid, GridTuning
from sketchlearn.decoders.counts.prior import CountLaws, PriorTuning
from sketchlearn.errors import ConfigError

LARGEST = 2000
GRID = CountGrid.up_to(LARGEST)


def every_count(prior):
    """The prior of the grid, written out for each count."""
    before = np.concatenate([[-1.0], GRID.tops[:-1]])
    return np.repeat(prior / (GRID.tops - before), (GRID.tops - before).astype(int))


@given(
    seen=st.floats(-50, LARGEST + 50),
    deviation=st.floats(1.0, 300.0),
    power=st.floats(0.0, 3.0),
)
def test_moments_are_those_of_all_counts(seen, deviation, power):
    widths = np.diff(np.concatenate([[-1.0], GRID.tops]))
    prior = widths * (1.0 + GRID.middles) ** -power
    known = Channel(GRID, prior, np.array([seen]), np.array([deviation**2]))

    mean, variance, presence = (float(number[0]) for number in known.summary())

    n = np.arange(LARGEST + 1)
    reach = 8 * deviation
    distance = n - np.clip(seen, -reach, LARGEST + reach)
    log = np.log(every_count(prior)) - distance**2 / (2 * deviation**2)
    exact = np.exp(log - log.max())
    exact /= exact.sum()
    assert mean == pytest.approx(exact @ n, abs=0.05 * deviation + 0.4)
    spread = exact @ n**2 - (exact @ n) ** 2
    assert variance == pytest.approx(spread, rel=0.05, abs=0.5)
    assert presence == pytest.approx(1 - exact[0], abs=0.02)
    for level in (0.05, 0.5, 0.95):
        found = known.quantile(level)
        assert known.below(found)[0] >= level - 0.02
        assert known.below(found - 1)[0] <= level + 0.02


def test_many_items_are_looked_up_as_well_as_worked_out():
    rng = np.random.default_rng(0)
    prior = CountLaws.build(GRID, 1000).at_mean(5.0)[8]
    seen = np.concatenate([rng.normal(5, 10, size=30_000), [1500.0]])
    known = Channel(GRID, prior, seen, np.full(len(seen), 9.0))
    some = np.arange(0, len(seen), 1000)

    for many, few in zip(known.summary(), known.take(some).summary(), strict=True):
        np.testing.assert_allclose(many[some], few, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("largest", [1, 20, 100, 10**6])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_laws_have_the_mean_that_is_asked_for(largest, share):
    grid = CountGrid.up_to(largest)
    laws, mean = CountLaws.build(grid, 1000), share * largest
    masses = laws.at_mean(mean)
    possible = (laws.means[:, 0] <= mean) & (mean <= laws.means[:, -1])
    np.testing.assert_allclose(masses.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(masses[possible] @ grid.middles, mean, rtol=0.02)


@given(largest=st.integers(1, 10**12))
def test_bins_are_all_counts_once(largest):
    grid = CountGrid.up_to(largest)
    assert grid.points[0] == 0
    assert grid.tops[-1] == largest
    assert (np.diff(grid.tops) >= 1).all()
    assert grid.n_bins < 250


@given(largest=st.integers(0, 10**6), exact=st.integers(0, 100))
def test_every_count_is_in_one_bin_however_few_have_their_own(largest, exact):
    grid = CountGrid.up_to(largest, GridTuning(exact=exact))

    assert grid.tops[-1] == largest
    assert (np.diff(grid.tops) >= 1).all()
    assert (grid.tops == np.floor(grid.tops)).all()


@pytest.mark.parametrize("filling", [0.0, 1.5, float("nan")])
def test_a_first_item_of_more_than_all_rows_is_refused(filling):
    with pytest.raises(ConfigError, match="fillings"):
        PriorTuning(fillings=(filling,))
