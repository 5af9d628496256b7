"""Led by forced bytes, the sampler gives any value, exactly as often as its law says.

A cut at 5 σ is not seen in ten million draws. Here no value is drawn by chance: each is
forced, however far out, and the coins on the way to it are put just below and just
above the probabilities that they must have.
"""

from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from privacy.releases import PROMISE, empty_sketch
from sketchlearn.errors import PrivacyError
from sketchlearn.privacy import noise
from sketchlearn.privacy.forced_draws import MARGIN, Coins, forced_bytes, forced_fault
from sketchlearn.privacy.noise import VECTOR_LIMIT, discrete_gaussian
from sketchlearn.privacy.planned import plan_release

SIGMAS = [1, 2, 5, 10, 2**31, 2**46 - 1, VECTOR_LIMIT, VECTOR_LIMIT + 1, 2**60, 2**67]
MULTIPLES = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 25]


def sampler(sigma, size=1):
    return lambda source: discrete_gaussian(sigma, size, random_bytes=source)


def values(sigma, multiples=MULTIPLES):
    """Values on both sides of 0, none of which follows by itself (1, 2, 3, …)."""
    for k in multiples:
        for value in {k * sigma + sigma // 3 + 1, (k + 1) * sigma}:
            yield -value
            if value > sigma:
                yield value


def faults(sigma, draw, multiples=MULTIPLES):
    return [y for y in values(sigma, multiples) if forced_fault(sigma, draw, y)]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_every_value_is_drawn_as_often_as_the_law_says(sigma):
    assert faults(sigma, sampler(sigma)) == []


@pytest.mark.parametrize("sigma", [1, 10, 2**46, VECTOR_LIMIT])
def test_values_are_drawn_as_often_where_every_coin_is_decided_exactly(
    sigma, monkeypatch
):
    monkeypatch.setattr(noise, "WINDOW", 2.0)
    assert faults(sigma, sampler(sigma, 3), [0, 1, 5, 8, 12]) == []


@pytest.mark.parametrize("sigma", [3, 2**46, 2**60])
def test_values_beyond_the_table_of_geometric_draws_are_drawn(sigma):
    value = -50 * sigma
    coins = Coins.just_below(sigma, value)
    assert sampler(sigma)(forced_bytes(sigma, coins)) == [value]


def test_no_value_is_so_large_that_it_wraps_around():
    # 256 * 2**56 is 2**64, which int64 would take for 0 and often accept.
    coins = Coins.just_below(VECTOR_LIMIT, -256 * (VECTOR_LIMIT + 1))
    likely = replace(coins, accept=Fraction(1, 2))
    assert sampler(VECTOR_LIMIT)(forced_bytes(VECTOR_LIMIT, likely)) == [1]


@pytest.mark.parametrize("among", [None, (3, 2), (50, 10)])
def test_releases_and_shares_of_parties_have_the_same_tails(among):
    plan = plan_release(empty_sketch(4), **PROMISE, among=among)
    sigma = plan.shares.sigma if among else plan.statement.sigma_int
    exact = [0] * 4 + [plan.sketch.count * plan.statement.count_weight]

    def draw(source):
        total = plan.draw_share(source) if among else plan.draw(source)[0].total
        return [a - b for a, b in zip(total.to_ints(), exact, strict=True)]

    assert faults(sigma, draw, [1, 5, 8, 12]) == []


@pytest.mark.parametrize("sigma", [1, 3, 10, 2**46, 2**67])
def test_the_product_of_the_coins_is_the_law(sigma):
    logs = []
    with mpmath.workdps(60):
        for multiple in (0, 1, 2, 5, 8, 20, 40):
            y = multiple * sigma + sigma // 3
            coins, product = Coins.just_below(sigma, y), mpmath.mpf(1)
            for coin in (coins.keep, coins.steps, coins.accept):
                product *= mpmath.mpf(coin.numerator) / coin.denominator / (1 - MARGIN)
            logs.append(mpmath.log(product) + mpmath.mpf(y) ** 2 / (2 * sigma**2))
        assert max(abs(value - logs[0]) for value in logs) < 1e-30


@pytest.mark.parametrize("sigma", [5, 2**46])
def test_offsets_are_uniform_and_negative_zero_is_refused(sigma):
    t = sigma + 1
    coins = Coins.just_below(sigma, -t)  # v = 1
    for u in (0, 1, sigma // 2, sigma):
        sure = replace(coins, offset=u, keep=coins.keep / 4, accept=coins.accept / 1000)
        assert sampler(sigma)(forced_bytes(sigma, sure)) == [-(t + u)]
    beyond = replace(coins, offset=t, accept=coins.accept / 1000)
    assert sampler(sigma)(forced_bytes(sigma, beyond)) == [1]
    zero = replace(Coins.just_below(sigma, 0), negative=True)
    assert sampler(sigma)(forced_bytes(sigma, zero)) == [1]


def test_the_numbers_after_the_forced_one_are_known():
    coins = Coins.just_below(2**46, -(2**50))
    drawn = sampler(2**46, 6)(forced_bytes(2**46, coins))
    assert drawn == [-(2**50), 1, 2, 3, 4, 5]


def test_a_sampler_that_asks_for_more_bytes_is_told():
    source = forced_bytes(2**46, Coins.just_below(2**46, 2**50))
    sampler(2**46)(source)
    with pytest.raises(PrivacyError, match="threw the value away"):
        source(64)


def cut(limit):
    def draw(sigma, source):
        while True:
            value = discrete_gaussian(sigma, 1, random_bytes=source)
            if abs(value[0]) <= limit * sigma:
                return value

    return draw


BROKEN = {
    "cut at 5 sigma": cut(5),
    "cut at 12 sigma": cut(12),
    "cut at 20 sigma": cut(20),
    "clipped at 8 sigma": lambda sigma, source: [
        max(min(sampler(sigma)(source)[0], 8 * sigma), -8 * sigma)
    ],
    "never negative": lambda sigma, source: [abs(sampler(sigma)(source)[0])],
    "never positive": lambda sigma, source: [-abs(sampler(sigma)(source)[0])],
    "a float": lambda sigma, source: [int(np.float32(sampler(sigma)(source)[0]))],
    "not from these bytes": lambda sigma, _: discrete_gaussian(sigma, 1),
}


@pytest.mark.parametrize("sigma", [2**46, 2**60])
@pytest.mark.parametrize("name", BROKEN)
def test_a_sampler_without_far_tails_is_found(sigma, name):
    broken = BROKEN[name]
    assert faults(sigma, lambda source: broken(sigma, source), [3, 6, 10, 14, 22])
