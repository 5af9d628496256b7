"""Noise is as large as the promise needs, to 2e-9, and never smaller."""

from math import prod, sqrt

import mpmath
import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.errors import PrivacyError
from sketchlearn.privacy.mechanisms import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_sigma,
    require_budget,
    zcdp_epsilon,
    zcdp_rho,
)

# Analytic Gaussian, mpmath with 60 digits: epsilon, delta, sigma / S.
SIGMAS = [
    (0.01, 1e-2, 27.70088245561),
    (0.01, 1e-5, 243.7854376757),
    (0.1, 1e-5, 30.74956613198),
    (0.1, 1e-6, 36.30469042620),
    (0.5, 1e-5, 7.031826675582),
    (1, 1e-5, 3.730631634816),
    (1, 1e-6, 4.224678889327),
    (1, 1e-9, 5.495266157238),
    (1, 1e-12, 6.557822067459),
    (1, 1e-15, 7.487009467987),
    (1, 0.1, 1.085877765192),
    (2, 1e-5, 1.993812445644),
    (3, 1e-6, 1.543861417776),
    (5, 1e-6, 0.9800490003092),
    (8, 1e-5, 0.6002290721990),
    (10, 1e-6, 0.5410868318184),
    (20, 1e-6, 0.3090846812189),
    (50, 1e-8, 0.1690290610937),
    (100, 1e-8, 0.1035775552070),
    (1e-4, 1e-8, 30622.39453926),
    (1e-6, 1e-5, 38021.98146875),
]
DELTAS = [
    (1, 1, 0.1269367375066),
    (2, 0.5, 0.05244032328767),
    (4, 1, 2.924272104856e-6),
    (0.5, 4, 0.08495331867107),
    (10, 0.1, 0.008751768145810),
    (0.2, 30, 1.313262711134e-4),
    (100, 0.01, 8.373242674773e-4),
]
EPSILONS = [
    (1, 1e-5, 4.377178095681),
    (2, 1e-6, 2.254084650220),
    (5, 1e-5, 0.7255217508578),
    (10, 1e-5, 0.3406693646843),
    (0.5, 1e-6, 10.99715121422),
    (50, 1e-6, 0.07096068298543),
]
# k releases of (epsilon, delta): mu of all, epsilon of all at the same delta.
COMPOSITIONS = [
    (2, 1, 1e-5, 0.379081533855, 1.46516996036),
    (10, 1, 1e-5, 0.847652078714, 3.61859157433),
    (4, 0.5, 1e-6, 0.248212298061, 1.05252168982),
    (100, 0.1, 1e-6, 0.275446502438, 1.17774214164),
    (5, 2, 1e-6, 1.0025069562, 4.90049934037),
]
PROMISES = st.tuples(
    st.floats(-6, 2).map(lambda x: min(max(10.0**x, 1e-6), 100.0)),
    st.floats(-30, -1).map(lambda x: min(max(10.0**x, 1e-30), 0.1)),
)


def exact_delta(sigma, epsilon):
    """Theorem 8 of Balle and Wang as it stands, S = 1, in 120 digits."""
    with mpmath.workdps(120):
        mu, eps = 1 / mpmath.mpf(sigma), mpmath.mpf(epsilon)
        near, far = mu / 2 - eps / mu, -mu / 2 - eps / mu
        return mpmath.ncdf(near) - mpmath.exp(eps) * mpmath.ncdf(far)


def random_promises(n, seed):
    rng = np.random.default_rng(seed)
    epsilons = 10.0 ** rng.uniform(-6, 2, n)
    return list(
        zip(epsilons.tolist(), (10.0 ** rng.uniform(-30, -1, n)).tolist(), strict=True)
    )


@pytest.mark.parametrize(("epsilon", "delta", "reference"), SIGMAS)
def test_sigma_equals_the_reference_and_is_never_below(epsilon, delta, reference):
    # The reference has 13 digits, so it may itself be too large by half of the last.
    half_digit = 5e-13
    found = gaussian_sigma(1.0, epsilon, delta) / reference - 1

    assert -half_digit <= found <= 2e-9


@pytest.mark.parametrize(("sigma", "epsilon", "delta"), DELTAS)
def test_delta_equals_numerical_integration(sigma, epsilon, delta):
    assert gaussian_delta(1 / sigma, epsilon) == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize(("sigma", "delta", "epsilon"), EPSILONS)
def test_epsilon_inverts_delta(sigma, delta, epsilon):
    assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(epsilon, rel=1e-11)
    assert gaussian_delta(1 / sigma, gaussian_epsilon(1 / sigma, delta)) <= delta


@pytest.mark.parametrize(("k", "epsilon", "delta", "mu", "total"), COMPOSITIONS)
def test_releases_compose_by_adding_squares_of_mu(k, epsilon, delta, mu, total):
    together = sqrt(k) * gaussian_mu(epsilon, delta)

    assert together == pytest.approx(mu, rel=1e-10)
    assert gaussian_epsilon(together, delta) == pytest.approx(total, rel=1e-10)


def require_kept_and_tight(n, seed):
    """Delta is never above the promise, and dp-accounting asks for the same noise."""
    for epsilon, delta in random_promises(n, seed):
        sigma = gaussian_sigma(1.0, epsilon, delta)
        assert exact_delta(sigma, epsilon) <= delta, (epsilon, delta)
        assert exact_delta(sigma * (1 - 1e-8), epsilon) > delta, (epsilon, delta)
        reference = get_sigma_gaussian(epsilon, delta)
        # Its search works on epsilon with a tolerance of 1e-12, so tiny ones are blunt.
        tolerance = 1e-8 + 1e-11 / epsilon
        assert sigma == pytest.approx(reference, rel=tolerance), (epsilon, delta)


def test_500_random_promises_are_kept_in_high_precision():
    require_kept_and_tight(500, seed=0)


@pytest.mark.full
def test_5000_random_promises_are_kept_in_high_precision():
    require_kept_and_tight(5000, seed=1)


@given(PROMISES, st.floats(1.001, 100))
@settings(max_examples=200, deadline=None)
def test_a_weaker_promise_needs_less_noise(promise, factor):
    epsilon, delta = promise
    sigma = gaussian_sigma(1.0, epsilon, delta)

    if epsilon * factor <= 100:
        assert gaussian_sigma(1.0, epsilon * factor, delta) < sigma
    if delta * factor <= 0.1:
        assert gaussian_sigma(1.0, epsilon, delta * factor) < sigma


@given(PROMISES, st.sampled_from([sqrt(1000), 1e-3, 1e3, 1e-200, 1e200]))
@settings(max_examples=100, deadline=None)
def test_noise_is_linear_in_the_norm_bound(promise, bound):
    unit = gaussian_sigma(1.0, *promise)

    assert gaussian_sigma(bound, *promise) == pytest.approx(bound * unit, rel=1e-15)


@given(st.floats(-6, 2), st.floats(0, 1e4))
@settings(max_examples=300, deadline=None)
def test_delta_is_a_probability(exponent, epsilon):
    assert 0 <= gaussian_delta(10.0**exponent, epsilon) <= 1


@given(st.floats(-6, 1), st.floats(0, 30), st.floats(1.001, 10))
@settings(max_examples=300, deadline=None)
def test_delta_rises_with_mu_and_falls_with_epsilon(exponent, ratio, factor):
    mu = 10.0**exponent
    epsilon = mu * ratio
    delta = gaussian_delta(mu, epsilon)

    assert gaussian_delta(mu * factor, epsilon) >= delta * (1 - 1e-6)
    assert gaussian_delta(mu, epsilon * factor) <= delta * (1 + 1e-6)


def random_powers(rng, *exponents):
    return [10.0 ** rng.uniform(*pair) for pair in exponents]


def require_bounds(n, seed):
    """Largest mu and smallest epsilon err on the safe side only, and by little."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        epsilon, delta = random_powers(rng, (-9, 2), (-31, -1))
        found = exact_delta(1 / mpmath.mpf(gaussian_mu(epsilon, delta)), epsilon)
        assert delta * (1 - 1e-9) <= found <= delta, (epsilon, delta)
    for _ in range(n):
        # Below some mu nothing is spent: half of the values are close to where.
        delta, mu, near = random_powers(rng, (-30, -1), (-8, 2), (0.4, 4))
        mu = min(mu if rng.integers(2) else delta * near, 100.0)
        epsilon = gaussian_epsilon(mu, delta)
        found = exact_delta(1 / mpmath.mpf(mu), epsilon)
        assert found <= delta, (mu, delta)
        assert epsilon == 0 or found >= delta * (1 - 1e-9), (mu, delta)


def test_mu_is_never_too_large_and_epsilon_never_too_small():
    require_bounds(250, seed=0)


@pytest.mark.full
def test_mu_is_never_too_large_and_epsilon_never_too_small_in_5000_cases():
    require_bounds(5000, seed=1)


@pytest.mark.parametrize(
    ("mu", "delta"),
    [
        (1.880841484592429e-08, 9.848940597066163e-23),
        (3.8e-16, 8.3e-28),  # all digits of the difference used to cancel
        (1e-5, 1e-9),
        (100.0, 1e-30),
        (100.0, 0.1),
    ],
)
def test_epsilon_is_not_too_small_where_digits_cancel(mu, delta):
    assert exact_delta(1 / mpmath.mpf(mu), gaussian_epsilon(mu, delta)) <= delta


@pytest.mark.parametrize("promise", [(0.99e-9, 1e-5), (101, 1e-5), (1, 1e-32), (1, 1)])
def test_mu_is_refused_outside_of_what_was_verified(promise):
    with pytest.raises(PrivacyError, match="must be a real number in"):
        gaussian_mu(*promise)


@pytest.mark.parametrize(
    ("mu", "delta"), [(100.1, 1e-5), (-1, 1e-5), (1, 1e-31), (1, 0.2), ("1", 1e-5)]
)
def test_epsilon_is_refused_outside_of_what_was_verified(mu, delta):
    with pytest.raises(PrivacyError, match="must be a real number in"):
        gaussian_epsilon(mu, delta)


@pytest.mark.parametrize("bound", [0, -1.0, 1e251, 1e308, 1e-251, 5e-324, True, "1"])
def test_norm_bounds_are_refused_outside_of_what_was_verified(bound):
    with pytest.raises(PrivacyError, match="norm_bound must be a real number in"):
        gaussian_sigma(bound, 1.0, 1e-5)


@pytest.mark.parametrize("bound", [1e-250, 1e250])
@pytest.mark.parametrize("promise", [(1e-6, 1e-30), (100, 0.1)])
def test_sigma_is_never_too_small_at_the_ends(bound, promise):
    sigma = mpmath.mpf(gaussian_sigma(bound, *promise)) / mpmath.mpf(bound)
    assert exact_delta(sigma, promise[0]) <= promise[1]


def exact_zcdp(rho, delta):
    """The smallest epsilon over all orders, in 50 digits."""
    return max(sum(best_order(rho, delta)), 0)


def best_order(rho, delta):
    """The terms of the bound by the best order, which largely cancel near epsilon 0."""
    with mpmath.workdps(50):
        rho, delta = mpmath.mpf(rho), mpmath.mpf(delta)

        def terms(t):
            a = 1 + mpmath.exp(t)
            logs = (-mpmath.log(delta), -mpmath.log(a - 1), a * mpmath.log(1 - 1 / a))
            return [a * rho, *(one / (a - 1) for one in logs)]

        low, high, ratio = mpmath.mpf(-12), mpmath.mpf(200), (mpmath.sqrt(5) - 1) / 2
        for _ in range(150):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            if sum(terms(left)) <= sum(terms(right)):
                high = right
            else:
                low = left
        return terms(low)


def require_close_above(rho, delta):
    """The function adds 1e-13 of each term, and its search costs next to nothing."""
    found, terms = zcdp_epsilon(rho, delta), best_order(rho, delta)
    exact = max(sum(terms), 0)
    assert exact <= found <= exact + 1.1e-13 * sum(map(abs, terms))


@given(st.floats(-40, 3.9), st.floats(-30, -1))
@settings(max_examples=60, deadline=None)
def test_zcdp_becomes_epsilon_by_the_best_order_rounded_up(r, d):
    require_close_above(10.0**r, min(10.0**d, 0.1))


@given(st.floats(-38, -1.2), st.floats(-12, 0), st.sampled_from([-1, 1]))
@settings(max_examples=60, deadline=None)
def test_zcdp_is_rounded_up_where_epsilon_is_next_to_nothing(r, shift, sign):
    rho = 10.0**r
    free = sqrt(2 * rho / np.e)  # the best order has epsilon 0 at this delta
    require_close_above(rho, min(max(free * (1 + sign * 10.0**shift), 1e-30), 0.1))


@given(st.floats(-6, 2), st.floats(-30, -1))
@settings(max_examples=100, deadline=None)
def test_the_largest_rate_keeps_its_promise_and_is_the_largest(e, d):
    epsilon, delta = min(10.0**e, 100.0), min(10.0**d, 0.1)
    rho = zcdp_rho(epsilon, delta)

    assert exact_zcdp(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), delta) > epsilon


@given(st.floats(-6, 2), st.floats(-30, -1))
@settings(max_examples=100, deadline=None)
def test_a_gaussian_is_never_better_in_zcdp_than_it_is(m, d):
    mu, delta = min(10.0**m, 100.0), min(10.0**d, 0.1)
    assert zcdp_epsilon(mu**2 / 2, delta) >= gaussian_epsilon(mu, delta)


@pytest.mark.parametrize("rho", [0.01, 0.125, 1.0])
def test_zcdp_is_what_dp_accounting_says_of_renyi_orders(rho):
    orders = np.concatenate([1 + np.logspace(-3, 3, 20_000)])
    found, _ = compute_epsilon(orders, orders * rho, 1e-6)
    assert zcdp_epsilon(rho, 1e-6) == pytest.approx(found, rel=1e-6)
    assert zcdp_epsilon(rho, 1e-6) <= found * (1 + 1e-12)


def test_no_rate_costs_nothing():
    assert zcdp_epsilon(0.0, 1e-9) == 0.0
    for rho in (-1.0, float("nan"), 1.1e4):
        with pytest.raises(PrivacyError, match="rho must be"):
            zcdp_epsilon(rho, 1e-9)


def test_no_mu_costs_nothing():
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_epsilon(0.0, 1e-9) == 0.0


@pytest.mark.parametrize("epsilon", [700.0, 1000.0, 1e6])
def test_a_huge_epsilon_does_not_overflow(epsilon):
    # The script of the paper's authors raises OverflowError here.
    assert 0 <= gaussian_delta(prod([2, sqrt(epsilon)]), epsilon) <= 1


@pytest.mark.parametrize(
    "value",
    [0, -1, 0.99e-6, 100.1, float("nan"), float("inf"), True, "1", None, 1j, [1.0]],
)
def test_epsilon_must_be_a_real_number_in_range(value):
    with pytest.raises(PrivacyError, match=r"epsilon must be .* \[1e-06, 100\]; got"):
        require_budget(value, 1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        gaussian_sigma(1.0, value, 1e-5)


@pytest.mark.parametrize(
    "value",
    [0, -1e-5, 0.9e-30, 0.11, 1, float("nan"), float("inf"), True, "1e-5", None],
)
def test_delta_must_be_a_real_number_in_range(value):
    with pytest.raises(PrivacyError, match=r"delta must be .* \[1e-30, 0.1\]; got"):
        gaussian_sigma(1.0, 1.0, value)


@pytest.mark.parametrize("promise", [(1e-6, 1e-30), (1e-6, 0.1), (100, 1e-30)])
def test_the_ends_of_the_range_are_accepted(promise):
    assert gaussian_sigma(1.0, *promise) > 0
    assert exact_delta(gaussian_sigma(1.0, *promise), promise[0]) <= promise[1]
