"""Noise is as large as the promise asks, whatever the rows, and never smaller."""

import os
import warnings
from dataclasses import replace
from fractions import Fraction
from math import isqrt, sqrt

import mpmath
import numpy as np
import pytest

from privacy.releases import PHI, PROMISE, empty_sketch, plan_of, require_refused, steps
from sketchlearn.arithmetic.exact import Int128Array, lattice_round
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyError, PrivacyWarning
from sketchlearn.features.clipping import clip_rows, clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.privacy import planned
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_mu, gaussian_sigma
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.release import release
from sketchlearn.privacy.released import PrivateSketch

# How much noise.


@pytest.mark.parametrize(
    ("size", "sensitivity", "sigma", "count_std"),
    [
        (100, 1.02469507660, 3.82275986879, 17.0959018565),
        (1000, 1.00787468879, 3.76000919793, 29.9022525500),
        (10_000, 1.00249688279, 3.73994658473, 52.8908318268),
    ],
)
def test_the_joint_count_costs_what_was_computed(size, sensitivity, sigma, count_std):
    sketch = empty_sketch(size)
    plan = plan_of(sketch, epsilon=1.0, delta=1e-5)
    private = PrivateSketch(sketch.total, sketch.features, plan)

    assert plan.sensitivity == pytest.approx(sensitivity, rel=1e-9)
    assert private.noise_std == pytest.approx(sigma, rel=3e-9)
    assert private.count_noise_std == pytest.approx(count_std, rel=1e-8)
    assert plan.mu2 == pytest.approx((sensitivity / sigma) ** 2, rel=1e-8)


@pytest.mark.parametrize("bound", [1e-100, 1e-3, 1.0, sqrt(1000), 3e5, 1e100])
@pytest.mark.parametrize("promise", [(1e-6, 1e-30), (0.1, 1e-9), (1, 1e-5), (100, 0.1)])
@pytest.mark.filterwarnings("ignore::sketchlearn.errors.PrivacyWarning")
def test_noise_is_never_below_the_analytic_gaussian(bound, promise):
    sketch = empty_sketch(30, bound)
    plan = plan_of(sketch, epsilon=promise[0], delta=promise[1])
    noise = Fraction(plan.sigma_int) / Fraction(2) ** plan.frac_bits
    needed = gaussian_sigma(plan.sensitivity, *promise)

    assert plan.sensitivity >= bound
    assert -1e-13 <= float(noise / Fraction(needed)) - 1 < 5e-8
    assert gaussian_epsilon(sqrt(plan.mu2), promise[1]) <= promise[0]


@pytest.mark.parametrize("mode", ["joint", "laplace", "public"])
def test_replacing_a_row_costs_twice_the_bound(mode):
    sketch = empty_sketch(4)
    plan = plan_of(sketch, **PROMISE, neighbours="replace", count=mode)
    weight = plan.count_weight / 2**plan.frac_bits

    assert plan.sensitivity == pytest.approx(sqrt(4 + weight**2), rel=1e-9)
    assert plan.sensitivity >= 2.0


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("rows", [2, 10, 2**20])
def test_noise_grows_with_the_rows_of_one_person(neighbours, rows):
    sketch = empty_sketch(4)
    one = plan_of(sketch, **PROMISE, neighbours=neighbours)
    many = plan_of(sketch, **PROMISE, neighbours=neighbours, rows_per_unit=rows)

    assert many.sigma_int / one.sigma_int == pytest.approx(rows, rel=1e-12)
    assert (one.unit, many.unit, many.rows_per_unit) == ("record", "group", rows)
    assert many.mu2 == pytest.approx(one.mu2, rel=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rows", [np.int64(1), np.int64(2), np.int32(2), 2.0])
def test_numpy_integers_and_whole_floats_count_rows_as_well(rows):
    sketch = empty_sketch(4)
    plain = plan_of(sketch, **PROMISE, rows_per_unit=int(rows))

    assert plan_of(sketch, **PROMISE, rows_per_unit=rows) == plain


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", [np.float16(0.1), np.float32(0.1)])
def test_promises_in_low_precision_are_kept_as_well(number):
    assert gaussian_sigma(1.0, number, 1e-6) == gaussian_sigma(1.0, float(number), 1e-6)


def test_the_plan_does_not_depend_on_the_rows():
    rng = np.random.default_rng(0)
    plans = {
        plan_of(sketch_rows(rows, PHI), **PROMISE)
        for rows in (np.zeros((1, 4)), np.ones((999, 4)), rng.normal(size=(3000, 4)))
    }
    assert len(plans) == 1


ADVERSARIAL = [
    *(scale * np.ones(n) for n in (1, 4, 100) for scale in (1.0, -1.0, 10.0, 1e-3)),
    *(np.array([1e30, *np.full(n, 1e-30)]) for n in (1, 50)),
    *(np.array([np.nextafter(1.0, side)]) for side in (0, 2)),
    np.array([1e-320, 1e-310]),
    np.array([1e138, 1e139, 1e140, 1e141]),
    *np.random.default_rng(0).normal(size=(200, 30)),
    *(10.0 ** np.random.default_rng(1).uniform(-40, 40, (200, 7))),
]


def integer_norm2(row, bound):
    """Squared norm of a row's integer features, and the bound used to calibrate."""
    spec = empty_sketch(len(row), bound).features
    whole = lattice_round(clip_rows(row[None], bound), spec.frac_bits)[0].tolist()
    return sum(value * value for value in whole), spec.norm_steps**2


@pytest.mark.parametrize("bound", [1e-6, 1e-3, 1.0, 1.1, sqrt(1000), 3e5])
def test_no_row_moves_the_total_beyond_the_sensitivity(bound):
    for row in ADVERSARIAL:
        for scale in (1.0, bound, bound / max(np.linalg.norm(row), 1e-250)):
            found, allowed = integer_norm2(row * scale, bound)
            assert found <= allowed


@pytest.mark.parametrize("bound", [1.0, 1.1, 3e5])
@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("value", [1e154, 1e200, 1e308, 1.7e308])
def test_rows_whose_squares_overflow_are_clipped_as_well(bound, size, value):
    found, allowed = integer_norm2(np.full(size, value), bound)

    assert 0.999 * allowed < found <= allowed


@pytest.mark.parametrize(("bound", "size"), [(1e-3, 1), (1e-10, 1000), (1.4e-15, 4)])
def test_enormous_rows_and_small_bounds_do_not_exceed_the_sensitivity(bound, size):
    found, allowed = integer_norm2(np.full(size, 1e308), bound)

    assert found <= allowed


@pytest.mark.parametrize(
    "phi",
    [
        FourierFeatures(4, 64, seed=1),
        clipped(FourierFeatures(4, 64, seed=1), norm_bound=1.0),
        clipped(QuadraticFeatures(4, 16, value_bound=2.0**20), norm_bound=2.0),
        MomentFeatures(4, order="covariance"),
        clipped(MomentFeatures(4, order="covariance"), norm_bound=0.5),
        ConcatenatedFeatures([MomentFeatures(4), FourierFeatures(4, 8)]),
        PHI,
    ],
    ids=["fourier", "short", "quadratic", "moments", "short moments", "both", "mean"],
)
def test_one_row_moves_the_total_of_every_map_within_its_sensitivity(phi):
    rng = np.random.default_rng(0)
    others = sketch_rows(rng.normal(size=(100, 4)), phi)
    allowed = phi.spec.norm_steps**2
    corners = [[32.0] * 4, [-32.0] * 4, [32.0, 0, 0, 0], [1e-30] * 4]
    for row in [*np.array(corners), *(rng.normal(size=(100, 4)) * 9).clip(-32, 32)]:
        alone = sketch_rows(row[None], phi)
        change = ((others + alone).total - others.total).to_ints()
        assert sum(value * value for value in change) <= allowed


# Weak promises.


def test_a_large_delta_is_kept_with_a_warning(exact, ample):
    with pytest.warns(PrivacyWarning, match="delta=0.01 is the chance"):
        private = release(
            exact,
            epsilon=0.01,
            delta=0.01,
            ledger=Ledger.ephemeral(epsilon=1, delta=0.01),
        )
    assert private.noise_std == pytest.approx(
        27.70088245561 * private.statement.sensitivity, rel=1e-6
    )


def test_a_delta_near_one_over_the_rows_is_warned_of():
    with pytest.warns(PrivacyWarning, match="far below one over the number of rows"):
        plan_of(empty_sketch(4, count=100_000), epsilon=1.0, delta=1e-5)
    plan_of(empty_sketch(4, count=1000), epsilon=1.0, delta=1e-5)  # no warning


def test_the_sensitivity_is_rounded_up(exact):
    plan = plan_of(exact, **PROMISE)
    squared = exact.features.norm_steps**2 + plan.count_weight**2

    assert steps(plan.sensitivity, plan) == isqrt(squared) + 1


def test_noise_that_does_not_fit_is_refused_before_it_is_paid(ample):
    parts = [
        clipped(MomentFeatures(4, order="mean"), norm_bound=bound)
        for bound in (1.0, 2.0**64)
    ]
    sketch = sketch_rows(np.ones((50, 4)), ConcatenatedFeatures(parts))
    require_refused(
        ample, sketch, PrivacyError, "does not fit in 128 bits", rows_per_unit=2**20
    )


def test_what_is_drawn_from_other_bytes_is_a_test_double(exact):
    plan = plan_release(exact, **PROMISE)
    assert plan.draw(np.random.default_rng(0).bytes)[0].statement.seeded
    assert not plan.draw(os.urandom)[0].statement.seeded


# Constants.


def test_discrete_noise_has_the_odds_of_gaussian_noise_but_for_what_is_said():
    sigma, largest = 60, 0.0
    with mpmath.workdps(400):
        weights = [
            mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * sigma**2)) for n in range(3000)
        ]
        whole = weights[0] + 2 * mpmath.fsum(weights[1:])
        for n in (0, sigma, 10 * sigma, 40 * sigma):
            low, high = ((n + side) / (sigma * mpmath.sqrt(2)) for side in (-0.5, 0.5))
            rounded = (mpmath.erfc(low) - mpmath.erfc(high)) / 2
            odds = abs(mpmath.log(rounded) - mpmath.log(weights[n] / whole))
            largest = max(largest, odds * sigma**2)

    assert planned._DISCRETE_ODDS / 2 < largest <= planned._DISCRETE_ODDS


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 100.0])
def test_a_lattice_too_coarse_for_discrete_noise_is_refused(exact, epsilon):
    spec, delta = exact.features, 1e-6
    mu = gaussian_mu(epsilon * (1 - 2**-30), delta * (1 - 2**-30))
    for sensitivity in (2**power for power in range(1, 50)):
        sigma = sensitivity / mu
        eta = 67 * (spec.sketch_size + 1) / sigma**2
        share = eta / min(2**-31 * epsilon, 2**-32 * mu)
        if share > 1.01:
            with pytest.raises(PrivacyError, match="lattice is too coarse"):
                planned._noise_steps(spec, sensitivity, epsilon, epsilon, delta)
        elif share < 0.99:
            planned._noise_steps(spec, sensitivity, epsilon, epsilon, delta)


@pytest.mark.parametrize(("delta", "told"), [(1.1e-4, True), (0.9e-4, False)])
def test_a_delta_above_one_in_ten_thousand_is_warned_of_whatever_the_rows(delta, told):
    few = empty_sketch(4, count=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan_release(few, epsilon=1.0, delta=delta)
    assert bool(caught) is told


def test_noise_of_64_deviations_fits_beside_the_total():
    sketch = empty_sketch(4)
    sigma = plan_of(sketch, **PROMISE).sigma_int
    most = 2**127 - 1 - 64 * sigma
    for value, fits in ((most, True), (most + 1, False)):
        total = Int128Array.from_ints([value, 0, 0, 0])
        full = replace(sketch, total=total)
        if fits:
            planned._require_room(full, sigma)
        else:
            with pytest.raises(PrivacyError, match="128 bits"):
                planned._require_room(full, sigma)
