"""Attacks on the arithmetic: every promise is kept exactly, floats or not.

Noise, μ and ε of 249 promises are checked in 150 digits, with many values where digits
cancel; histories of Gaussian and Laplace releases against dp-accounting.

usage: python3 dev.py run benchmarks/attacks/calibration.py
"""

from functools import reduce
from math import exp

import mpmath
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from tally import run

from sketchlearn.privacy.accountant import Spending, Terms
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_mu, gaussian_sigma

PAIRS, HISTORIES, STEP = 249, 200, 1e-3


def exact_delta(mu, epsilon):
    """Theorem 8 of Balle and Wang as it stands, in 150 digits."""
    with mpmath.workdps(150):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return mpmath.ncdf(near) - mpmath.exp(epsilon) * mpmath.ncdf(far)


def promises(seed, lowest):
    """Random pairs over the whole range, and its corners."""
    rng = np.random.default_rng(seed)
    epsilons = 10.0 ** rng.uniform(np.log10(lowest), 2, PAIRS - 4)
    deltas = 10.0 ** rng.uniform(-30, -1, PAIRS - 4)
    corners = [(lowest, 1e-30), (lowest, 0.1), (100.0, 1e-30), (100.0, 0.1)]
    return [*zip(epsilons.tolist(), deltas.tolist(), strict=True), *corners]


def noise_is_too_small_for_its_promise():
    breaks = 0
    for number, (epsilon, delta) in enumerate(promises(0, 1e-6)):
        bound = (1.0, 1e-250, 1e250, 3.7e30)[number % 4]
        sigma = gaussian_sigma(bound, epsilon, delta)
        breaks += exact_delta(mpmath.mpf(bound) / mpmath.mpf(sigma), epsilon) > delta
    return PAIRS, breaks


def mu_is_too_large_for_its_promise():
    pairs = promises(1, 1e-9)
    return PAIRS, sum(
        exact_delta(gaussian_mu(*pair), pair[0]) > pair[1] for pair in pairs
    )


def epsilon_is_reported_too_low():
    breaks, rng = 0, np.random.default_rng(2)
    for number in range(PAIRS):
        delta = 10.0 ** rng.uniform(-30, -1)
        mu = 10.0 ** rng.uniform(-8, 2)
        if number % 2:  # close to where nothing is spent
            mu = min(delta * 10.0 ** rng.uniform(0.4, 4), 100.0)
        breaks += exact_delta(mu, gaussian_epsilon(mu, delta)) > delta
    return PAIRS, breaks


def histories_of_gaussian_and_pure_releases_cost_more_than_reported():
    rng, breaks = np.random.default_rng(3), 0
    terms, coarse = Terms(50.0, 1e-5, 5.0), {"value_discretization_interval": STEP}
    for _ in range(HISTORIES):
        charges, losses = [], []
        for _ in range(rng.integers(1, 7)):
            sigma, epsilon = rng.uniform(1.5, 30), rng.uniform(0.01, 0.6)
            losses.append(pld.from_gaussian_mechanism(sigma, **coarse))
            worst = 2 / (exp(epsilon) + 1)  # of all mechanisms that keep epsilon
            losses.append(pld.from_randomized_response(worst, 2, **coarse))
            charges.append(Charge("x", float(sigma**-2), epsilon))
        delta = 10.0 ** rng.uniform(-9, -2)
        together = reduce(lambda a, b: a.compose(b), losses)
        # Theirs is rounded up, by at most a step for each.
        truth = together.get_epsilon_for_delta(delta) - STEP * len(losses)
        breaks += Spending().plus(charges, terms).epsilon(delta) < truth
    return HISTORIES, breaks


if __name__ == "__main__":
    run(
        noise_is_too_small_for_its_promise,
        mu_is_too_large_for_its_promise,
        epsilon_is_reported_too_low,
        histories_of_gaussian_and_pure_releases_cost_more_than_reported,
    )
