"""Shares of noise are as good together as the noise that one would draw alone."""

from math import exp, isqrt, log, pi, sqrt

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.releases import PROMISE, empty_sketch
from sketchlearn.errors import PrivacyError
from sketchlearn.privacy import planned
from sketchlearn.privacy.mechanisms import gaussian_epsilon
from sketchlearn.privacy.noise_shares import (
    NoiseShares,
    log_convolution_odds,
    share_noise,
)
from sketchlearn.privacy.planned import plan_release

dp_accounting = pytest.importorskip("dp_accounting")


@given(st.integers(1, 2**70), st.integers(1, 4095), st.integers(1, 4095))
def test_the_noise_of_the_honest_is_enough_and_hardly_more(sigma, honest, others):
    shares = share_noise(sigma, honest + others, honest)

    assert honest * shares.sigma**2 >= sigma**2
    assert honest * (shares.sigma - 1) ** 2 < sigma**2
    assert shares.sigma_of_all**2 >= (honest + others) * shares.sigma**2
    assert (shares.sigma_of_all - 1) ** 2 < (honest + others) * shares.sigma**2


def test_one_honest_party_draws_all_of_the_noise():
    assert share_noise(12345, n_parties=2, n_honest=1).sigma == 12345


def weights(variance, reach):
    """The discrete Gaussian of a variance, by its values."""
    raw = [mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * variance)) for n in range(reach + 1)]
    whole = raw[0] + 2 * mpmath.fsum(raw[1:])
    return {n: raw[abs(n)] / whole for n in range(-reach, reach + 1)}


@pytest.mark.parametrize(("sigma", "n"), [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3)])
def test_a_sum_is_within_the_bound_of_kairouz_liu_and_steinke(sigma, n):
    # At the odds that are compared, what is cut off is smaller than what is measured.
    reach, seen = 16 * sigma * n, 3 * sigma
    with mpmath.workdps(120):
        one = weights(sigma**2, reach)
        total = one
        for _ in range(n - 1):
            total = {
                m: mpmath.fsum(
                    total[m - k] * p for k, p in one.items() if m - k in total
                )
                for m in range(-reach, reach + 1)
            }
        single = weights(n * sigma**2, reach)
        largest = max(
            abs(mpmath.log(total[m] / single[m])) for m in range(-seen, seen + 1)
        )
        bound = mpmath.exp(log_convolution_odds(sigma, n))

    assert 0 < largest <= bound
    assert n > 2 or bound < 100 * largest  # for two of them it is nearly attained


def test_the_bound_is_the_sum_that_its_formula_says():
    for sigma, n in ((1, 2), (1, 10), (2, 7)):
        terms = [exp(-2 * pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n)]
        expected = log(10 * sum(terms))
        assert log_convolution_odds(sigma, n) == pytest.approx(expected, rel=1e-12)
    assert log_convolution_odds(5, 1) == -float("inf")


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 100.0])
@pytest.mark.parametrize("n", [2, 50, 4096])
@pytest.mark.filterwarnings("ignore::sketchlearn.errors.PrivacyWarning")
def test_at_our_lattice_the_correction_is_below_1e_300(epsilon, n):
    plan = plan_release(
        empty_sketch(2000), epsilon=epsilon, delta=1e-6, among=(n, max(n - 1, 1))
    )
    assert plan.shares.sigma > 2**30
    assert log_convolution_odds(plan.shares.sigma, n) < -1e18 < 300 * log(0.1)


def test_shares_too_small_to_add_up_to_gaussian_noise_are_refused():
    spec = empty_sketch(4).features
    planned._require_like_one(spec, share_noise(2**45, 5, 4), 2**43, 2**45, 1.0)
    with pytest.raises(PrivacyError, match="lattice is too coarse"):
        planned._require_like_one(spec, NoiseShares(2, 5, 4), 2**43, 2**45, 1.0)


@pytest.mark.parametrize("parties", [(2, 1), (3, 2), (50, 49), (50, 10)])
def test_the_promise_holds_with_the_noise_of_the_honest_alone(parties):
    sketch = empty_sketch(100)
    alone = plan_release(sketch, **PROMISE)
    part = plan_release(sketch, **PROMISE, among=parties)
    n, honest = parties

    assert part.statement.mu2 == alone.statement.mu2 == part.charge.mu2
    assert honest * part.shares.sigma**2 >= alone.statement.sigma_int**2
    assert part.statement.sigma_int == isqrt(n * part.shares.sigma**2 - 1) + 1
    assert part.statement.is_possible
    assert part.statement.is_about(sketch.features)
    step = 2.0**-part.statement.frac_bits
    known = sqrt(honest) * part.shares.sigma * step / part.statement.sensitivity
    epsilon = dp_accounting.get_epsilon_gaussian(known, PROMISE["delta"])
    assert epsilon <= PROMISE["epsilon"]
    assert epsilon == pytest.approx(PROMISE["epsilon"], rel=1e-6)
    stated = gaussian_epsilon(sqrt(part.statement.mu2), PROMISE["delta"])
    assert stated == pytest.approx(epsilon, rel=1e-6)


def test_a_plan_for_several_is_never_drawn_by_one():
    part = plan_release(empty_sketch(4), **PROMISE, among=(3, 2))
    with pytest.raises(AssertionError):
        part.draw(lambda n: bytes(n))
    with pytest.raises(AssertionError):
        plan_release(empty_sketch(4), **PROMISE).draw_share(lambda n: bytes(n))
