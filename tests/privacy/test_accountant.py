"""Costs add up in one unit and one relation, and never to less than the truth."""

from fractions import Fraction
from functools import reduce
from itertools import product
from math import exp, inf, nan, sqrt

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchlearn.errors import BudgetExceeded, PrivacyError
from sketchlearn.privacy import accountant
from sketchlearn.privacy.accountant import Spending, Terms
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_mu, zcdp_rho

DELTA = 1e-5
RELATIONS = ["add_remove", "replace"]
MODES = [("add_remove", "joint"), ("add_remove", "laplace")]
MODES += [("replace", "joint"), ("replace", "laplace"), ("replace", "public")]


def spend(terms, *charges):
    return Spending().plus(charges, terms)


def grant(terms, charges):
    """The charges that fit, one after another, and what they come to."""
    spent, granted = Spending(), []
    for charge in charges:
        try:
            spent = terms.require_room(spent, charge, "here")
        except BudgetExceeded:
            continue
        granted.append(charge)
    return spent, granted


# One unit, one relation.


def true_cost(g, mode, r, relation):
    """Cost of a bounded sum with noise for g rows, of neighbours that differ in r.

    Rows have norm 1, a row is worth 0.3 in the count, sigma is 10, and a Laplace count
    has epsilon 0.1 for g rows.
    """
    numbers = r * (2 if relation == "replace" else 1)
    rows = 0 if relation == "replace" else r  # by how much the number of rows changes
    square = numbers**2 + (0.3 * rows) ** 2 * (mode == "joint")
    return square / 100, 0.1 * rows / g if mode == "laplace" else 0.0


@pytest.mark.parametrize(("neighbours", "mode"), MODES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_converted_charge_covers_what_the_release_really_costs(
    neighbours, mode, relation
):
    sizes = (1,) if mode == "public" else range(1, 9)
    for g, r in product(sizes, range(1, 9)):
        factor = 2 if neighbours == "replace" else 1
        mu2 = ((factor * g) ** 2 + (0.3 * g) ** 2 * (mode == "joint")) / 100
        charge = Charge(
            "x",
            mu2=mu2,
            pure_epsilon=0.1 if mode == "laplace" else 0.0,
            neighbours=neighbours,
            rows_per_unit=g,
            count_mode=mode,
        )
        terms = Terms(1.0, DELTA, 0.0, relation, r)
        if mode == "public" and (relation == "add_remove" or r > 1):
            with pytest.raises(PrivacyError, match='with neighbours="replace"'):
                terms.steps(charge)
            continue
        k = terms.steps(charge)
        true_mu2, true_pure = true_cost(g, mode, r, relation)
        assert k**2 * mu2 >= true_mu2 * (1 - 1e-12)
        assert k * charge.pure_epsilon >= true_pure * (1 - 1e-12)


@pytest.mark.parametrize(
    ("ours", "theirs", "steps"),
    [
        (("add_remove", 1), ("add_remove", 1), 1),
        (("add_remove", 1), ("add_remove", 100), 1),
        (("add_remove", 100), ("add_remove", 1), 100),
        (("add_remove", 100), ("add_remove", 30), 4),
        (("replace", 5), ("replace", 2), 3),
        (("replace", 1), ("add_remove", 1), 2),
        (("replace", 1), ("add_remove", 50), 2),
        (("replace", 5), ("add_remove", 2), 6),
        (("add_remove", 1), ("replace", 1), 1),
        (("add_remove", 5), ("replace", 2), 3),
    ],
)
def test_groups_and_replacements_are_that_many_steps(ours, theirs, steps):
    charge = Charge("x", mu2=0.01, neighbours=theirs[0], rows_per_unit=theirs[1])
    terms = Terms(1.0, DELTA, 0.0, *ours)

    assert terms.steps(charge) == steps
    assert spend(terms, charge).mu2 == steps**2 * spend(Terms(1.0, DELTA), charge).mu2


def test_steps_multiply_pure_epsilon_and_its_square():
    terms = Terms(50.0, DELTA, 5.0, "replace", 3)
    spent = spend(terms, Charge("x", mu2=0.01, pure_epsilon=0.25, count_mode="laplace"))

    assert Fraction(spent.pure, 2**1074) == 6 * Fraction(1, 4)
    assert spent.rho == (36 * Fraction(0.01) + Fraction(3, 2) ** 2) / 2


# Exact sums.


@given(st.lists(st.floats(5e-324, 1e4), max_size=20), st.integers(1, 2**20))
def test_sums_are_exact_in_any_order(values, rows):
    terms = Terms(1.0, DELTA, 0.0, "add_remove", rows)
    charges = [Charge("x", mu2=value) for value in values]
    spent = spend(terms, *charges)

    total = sum((Fraction(value) for value in values), Fraction(0)) * rows**2
    assert Fraction(spent.mu2, 2**1074) == total
    assert spend(terms, *reversed(charges)) == spent
    assert spend(terms, *charges[:3]).plus(charges[3:], terms) == spent


# Never less than the truth.


STEP = 1e-3
COARSE = {"value_discretization_interval": STEP}  # of dp-accounting's distributions


def random_history(rng):
    """Charges with and without a pure part, and their privacy loss distributions."""
    charges, losses = [], []
    for _ in range(rng.integers(1, 7)):
        sigma, epsilon = rng.uniform(1.5, 30), rng.uniform(0.01, 0.6)
        kind = rng.integers(4)
        if kind < 3:
            losses.append(pld.from_gaussian_mechanism(sigma, **COARSE))
        if kind in (1, 3):
            losses.append(pld.from_laplace_mechanism(1 / epsilon, **COARSE))
        if kind == 2:  # the worst of all mechanisms that keep epsilon
            p = 2 / (exp(epsilon) + 1)
            losses.append(pld.from_randomized_response(p, 2, **COARSE))
        mu2 = float(sigma**-2) if kind < 3 else 0.0
        pure = 0.0 if kind == 0 else epsilon
        charges.append(Charge("x", mu2=mu2, pure_epsilon=pure))
    return charges, losses


def require_above_pld(n, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        delta = 10.0 ** rng.uniform(-9, -2)
        charges, losses = random_history(rng)
        together = reduce(lambda a, b: a.compose(b), losses)
        truth = together.get_epsilon_for_delta(delta) - STEP * len(losses)
        found = spend(Terms(50.0, DELTA, 5.0), *charges).epsilon(delta)

        assert found >= truth, (charges, delta)
        assert found <= 5 * truth + 0.5  # no more than what zCDP is known to lose


def test_what_is_spent_is_never_below_dp_accounting():
    require_above_pld(30, seed=0)


@pytest.mark.full
def test_what_is_spent_is_never_below_dp_accounting_in_200_histories():
    require_above_pld(200, seed=1)


def test_a_single_release_is_as_good_as_the_sum_of_its_parts():
    charge = Charge("x", mu2=0.04, pure_epsilon=0.1)
    spent = spend(Terms(50.0, DELTA, 5.0), charge)
    parts = gaussian_epsilon(0.2, DELTA) + 0.1

    assert parts <= spent.epsilon(DELTA) <= parts * (1 + 1e-9)
    again = spent.plus([charge], Terms(50.0, DELTA, 5.0))
    assert again.epsilon(DELTA) > spent.epsilon(DELTA)


def test_without_pure_parts_spending_is_that_of_one_gaussian():
    charges = [Charge("x", mu2=mu2) for mu2 in (0.01, 0.02, 0.3)]
    for pure in (0.0, 0.5):
        found = spend(Terms(5.0, DELTA, pure), *charges).epsilon(DELTA)
        assert found == pytest.approx(gaussian_epsilon(sqrt(0.33), DELTA), rel=1e-9)
        assert found >= gaussian_epsilon(sqrt(0.33), DELTA) * (1 - 1e-12)


def test_more_than_was_verified_is_reported_as_infinite():
    many = [Charge("x", mu2=1e4, pure_epsilon=100.0)] * 3
    terms = Terms(1.0, DELTA, 0.5)

    assert spend(terms, *many).epsilon(DELTA) == inf
    assert spend(terms, *(Charge("x", mu2=1e4) for _ in range(3))).epsilon(DELTA) == inf
    assert terms.left_epsilon(spend(terms, *many)) == 0.0


# The caps.


@pytest.mark.parametrize("promise", [(1.0, 1e-6), (2.0, 1e-5), (0.1, 1e-9), (8, 1e-3)])
def test_what_is_granted_with_laplace_counts_keeps_the_cap(promise):
    rng = np.random.default_rng(0)
    epsilon, delta = promise
    terms = Terms(epsilon, delta, epsilon / 2)
    price = 2 * zcdp_rho(epsilon, delta)
    for _ in range(5):
        charges = [
            Charge(
                "x",
                mu2=float(rng.uniform(0.01, 0.6)) * price,
                pure_epsilon=float(rng.uniform(0, 0.3)) * epsilon,
            )
            for _ in range(20)
        ]
        spent, granted = grant(terms, charges)
        fine = {"value_discretization_interval": epsilon / 1000}
        losses = [
            loss
            for charge in granted
            for loss in (
                pld.from_gaussian_mechanism(charge.mu2**-0.5, **fine),
                pld.from_laplace_mechanism(1 / charge.pure_epsilon, **fine),
            )
        ]
        found = reduce(lambda a, b: a.compose(b), losses).get_epsilon_for_delta(delta)

        assert found <= epsilon * (1 + 1e-3 * len(losses))
        assert spent.epsilon(delta) <= epsilon * (1 + 1e-9)


def test_a_first_release_may_have_all_of_the_cap_and_is_then_the_last():
    terms = Terms(1.0, DELTA, 0.1)
    full = Charge("x", mu2=gaussian_mu(0.9, DELTA) ** 2 * 0.999999, pure_epsilon=0.1)
    tiny = Charge("y", mu2=1e-12)
    spent, granted = grant(terms, [full, tiny, full])

    assert spent.rho > Fraction(zcdp_rho(1.0, DELTA))
    assert granted == [full]
    assert terms.left_epsilon(spent) == 0.0
    assert spent.epsilon(DELTA) <= 1.0
    assert grant(terms, [tiny, full])[1] == [tiny]


def test_a_ledger_without_pure_epsilon_takes_no_laplace_count():
    charge = Charge("x", mu2=0.01, pure_epsilon=1e-9, count_mode="laplace")
    with pytest.raises(BudgetExceeded, match=r'set aside in here. Use count="joint"'):
        Terms(1.0, DELTA).require_room(Spending(), charge, "here")


@given(
    st.floats(-3, 1.9),
    st.floats(-20, -1.5),
    st.lists(st.floats(0.001, 0.7), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_what_is_said_to_be_left_is_granted_and_not_much_more(e, d, parts, laplace):
    epsilon, delta = 10.0**e, 10.0**d
    terms = Terms(epsilon, delta, epsilon / 4 if laplace else 0.0)
    charges = [Charge("x", mu2=p * 2 * zcdp_rho(epsilon, delta)) for p in parts]
    spent, _ = grant(terms, charges)
    left = terms.left_epsilon(spent)

    if left:
        last = Charge("y", mu2=gaussian_mu(left, delta) ** 2 * (1 - 2**-50))
        terms.require_room(spent, last, "here")
    more = max(left * 1.001, 1.001e-6)
    if more <= 100:
        too_much = Charge("z", mu2=gaussian_mu(more, delta) ** 2)
        with pytest.raises(BudgetExceeded):
            terms.require_room(spent, too_much, "here")


def test_of_a_fresh_ledger_all_is_left():
    for terms in (Terms(2.0, DELTA), Terms(2.0, DELTA, 0.5)):
        assert terms.left_epsilon(Spending()) == 2.0


# What a refusal says.


def refusal(terms, spent, charge):
    with pytest.raises(BudgetExceeded) as caught:
        terms.require_room(spent, charge, "study.ledger")
    return str(caught.value)


def test_a_refusal_is_in_the_words_of_who_asked():
    terms = Terms(2.0, DELTA)
    spent = spend(terms, Charge("x", mu2=0.2365))
    mu2 = gaussian_mu(0.5, 1e-5) ** 2
    charge = Charge("x", mu2=mu2, epsilon=0.5, delta=1e-5)

    assert refusal(terms, spent, charge) == (
        "nothing was released. epsilon=0.5 asked, about 0.42 is left of 2 "
        "(delta=1e-5) in study.ledger."
    )


def test_a_refusal_says_what_another_delta_or_unit_comes_to():
    terms = Terms(2.0, DELTA, 0.0, "add_remove", 100)
    mu2 = gaussian_mu(0.5, 1e-6) ** 2
    charge = Charge("x", mu2=mu2, epsilon=0.5, delta=1e-6, rows_per_unit=10)

    text = refusal(terms, Spending(), charge)
    cost = gaussian_epsilon(10 * sqrt(mu2), DELTA)
    assert text.startswith("nothing was released. epsilon=0.5 asked (delta=1e-6, ")
    assert "rows_per_unit=10, neighbours='add_remove'; in the terms of" in text
    assert f"epsilon={cost:.4g}), about 2 is left of 2 (delta=1e-5)" in text


# What makes no sense.


@pytest.mark.parametrize(
    "values",
    [
        {"mu2": 1.0001e4},
        {"mu2": 1e308},
        {"pure_epsilon": 101.0},
        {"release_id": 3},
        {"feature_map": None},
        {"lineage": ["a"]},
        {"lineage": ("a", 1)},
        {"lineage": 3},
        {"neighbours": "any"},
        {"rows_per_unit": 0},
        {"rows_per_unit": 1.5},
        {"rows_per_unit": True},
        {"count_mode": "exact"},
        {"count_mode": "public"},
        {"count_mode": "public", "neighbours": "replace", "rows_per_unit": 2},
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"epsilon": nan, "delta": 1e-5},
    ],
)
def test_a_charge_of_the_wrong_kind_is_refused(values):
    with pytest.raises(PrivacyError):
        Charge(**{"release_id": "x", "mu2": 0.1, **values})


@pytest.mark.parametrize(
    "values",
    [
        {"neighbours": "other"},
        {"neighbours": None},
        {"rows_per_unit": None},
        {"rows_per_unit": 0},
        {"rows_per_unit": 2**20 + 1},
        {"pure_epsilon": "0"},
        {"pure_epsilon": True},
    ],
)
def test_terms_of_the_wrong_kind_are_refused(values):
    with pytest.raises(PrivacyError):
        Terms(**{"epsilon": 1.0, "delta": DELTA, **values})


def test_what_is_set_aside_pays_for_the_discrete_noise_of_all_charges():
    most = 2 * accountant.LATTICE_ODDS * sqrt(accountant.MOST_CHARGES)

    assert most <= accountant._ASIDE <= 2 * most
    assert accountant.LATTICE_ODDS * 2**32 == 1
