"""Privacy bugs of real libraries and of attacks, put into ours, are each found.

A checker is a short form of the tests of this folder: it says whether what it looks at
is right. All of them pass on the code as it is; a mutant is killed when those named
with it (the ones meant to find it) all fail. ``BY_AUDIT`` says which part of
``sl.audit`` finds it too; the others are outside of its scope, as docs/privacy.md says.
"""

import importlib
import os
from dataclasses import replace
from fractions import Fraction
from math import ceil, isqrt, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from privacy.ledgers import in_a_child
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyError
from sketchlearn.features import clipping
from sketchlearn.features.clipping import ClippedFeatures, clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.privacy import inspection, noise
from sketchlearn.privacy import planned as planning
from sketchlearn.privacy.forced_draws import forced_count_fault, forced_fault
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, gaussian_mu
from sketchlearn.privacy.noise import discrete_gaussian, discrete_laplace

audit = importlib.import_module("sketchlearn.privacy.audit")  # not the function
releases = importlib.import_module("sketchlearn.privacy.release")

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
WIDE = clipped(MomentFeatures(999, order="mean"), norm_bound=1.0)
GAME = clipped(MomentFeatures(16, order="mean"), norm_bound=1.0)
ONE = clipped(MomentFeatures(1, order="mean"), norm_bound=1.0)
ROWS = np.vstack([np.eye(4) * 0.5, np.full((1, 4), -0.25)])
PROMISE = {"epsilon": 1.0, "delta": 1e-5}
SIGMA = 3.730631634816
"""sigma / sensitivity at this promise, from mpmath."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


# Checkers: True if all is well.


def draw(sketch, **changes):
    """One release by the front door."""
    relation = changes.get("neighbours", "add_remove")
    book = Ledger.ephemeral(
        epsilon=5.0, delta=1e-2, pure_epsilon=2.0, neighbours=relation
    )
    return releases.release(sketch, **{**PROMISE, "ledger": book, **changes})


def noise_of(sketch, n):
    """Noise of n releases over the sigma that S = 1 and the promise ask for."""
    size = sketch.features.sketch_size
    count_weight = sqrt(0.5 / sqrt(size))
    sigma = SIGMA * sqrt(1 + count_weight**2) * 2.0**sketch.features.frac_bits
    true = sketch.total.to_ints()
    drawn = [draw(sketch).total.to_ints()[:size] for _ in range(n)]
    noise = [[a - b for a, b in zip(row, true, strict=True)] for row in drawn]
    return np.array(noise, float) / sigma


def check_spread():
    """Variance, tails and independence of the noise itself."""
    noise = noise_of(sketch_rows(np.zeros((5, 999)), WIDE), 40)
    n = noise.size
    spread = abs((noise**2).mean() - 1) < 5 * sqrt(2 / n) + 1e-6
    tails = abs((noise**4).mean() - 3) < 5 * sqrt(96 / n)
    means = np.abs(noise.mean(axis=1)).max() < 6 / sqrt(999)
    return bool(spread and tails and means)


def game(canary):
    # Many rows, or an unclipped canary alone would make the total an impossible one.
    rows = np.repeat(np.eye(16)[:5] / 2, 9, axis=0)
    releaser = audit.released_totals(GAME, **PROMISE)
    return audit.audit(
        releaser, rows=rows, canary=canary, n_releases=10_000, **PROMISE
    ).passed


def check_game_long():
    """A canary ten times as long as the bound, all in one coordinate."""
    return game(10 * np.eye(16)[0])


def check_game_equal():
    """A canary of equal coordinates, ten times as long as the bound."""
    return game(np.full(16, 2.5))


def check_game_difference():
    """A canary that moves two coordinates apart."""
    return game((np.eye(16)[0] - np.eye(16)[1]) / sqrt(2))


def check_game_front():
    """The game played through release() itself, count included."""

    def releaser(rows, n):
        sketch = sketch_rows(rows, PHI)
        return np.array([draw(sketch).total.to_ints() for _ in range(n)], float)

    report = audit.audit(
        releaser, rows=ROWS, canary=np.full(4, 5.0), n_releases=1000, **PROMISE
    )
    return report.passed


def check_lattice():
    """Every released number is an integer whose lowest bits are fair."""
    sketch = sketch_rows(ROWS, PHI)
    values = [v for _ in range(300) for v in draw(sketch).total.to_ints()]
    if not all(type(value) is int for value in values):
        return False
    ones = sum(value & 1 for value in values)
    return stats.binomtest(ones, len(values)).pvalue > 1e-6


def check_fresh():
    """Two releases, and two forked children, share no noise."""
    sketch = sketch_rows(ROWS, PHI)
    draws = [draw(sketch).total.to_ints() for _ in range(2)]
    draws += [in_a_child(lambda: draw(sketch).total.to_ints()) for _ in range(2)]
    columns = zip(*draws, strict=True)
    return all(len(set(column)) == 4 for column in columns)


def check_calibration():
    """Noise equals the published table, for every kind of neighbours and count."""
    sketch = sketch_rows(ROWS, PHI)
    weight = sqrt(0.5 / 2)
    for changes, needed in (
        ({}, sqrt(1 + weight**2)),
        ({"neighbours": "replace", "count": "public"}, 2.0),
        ({"neighbours": "replace"}, sqrt(4 + weight**2)),
        ({"rows_per_unit": 3}, 3 * sqrt(1 + weight**2)),
    ):
        statement = draw(sketch, **changes).statement
        sigma = statement.sigma_int / 2**statement.frac_bits
        if not 0 <= sigma / (SIGMA * needed) - 1 <= 1e-8:
            return False
    return True


def check_sensitivity():
    """Adding or replacing an adversarial row never exceeds what the plan says."""
    rng = np.random.default_rng(0)
    canaries = [
        *(scale * np.eye(4)[0] for scale in (1.0, -1.0, 10.0, -10.0)),
        np.full(4, 5.0),
        np.full(4, -5.0),
        *rng.normal(size=(50, 4)),
    ]
    some = sketch_rows(ROWS, PHI)
    plan = planning.plan_release(some, **PROMISE).statement
    swap = planning.plan_release(
        some, **PROMISE, neighbours="replace", count="public"
    ).statement
    for base in (ROWS, np.eye(4)[:1], -np.eye(4)[:1]):
        total = sketch_rows(base, PHI).total
        for canary in canaries:
            after = sketch_rows(np.vstack([base, canary]), PHI).total
            moved = norm2(after - total) + plan.count_weight**2
            if moved > lattice_steps(plan) ** 2:
                return False
            other = sketch_rows(np.vstack([base, -canary]), PHI).total
            if norm2(after - other) > lattice_steps(swap) ** 2:
                return False
    return True


def norm2(total):
    return sum(value * value for value in total.to_ints())


def lattice_steps(plan):
    return Fraction(plan.sensitivity) * Fraction(2) ** plan.frac_bits


def check_public_plan():
    """The plan of a release is the same for every dataset."""
    plans = {
        replace(draw(sketch_rows(rows, PHI)).statement, lineage=None)
        for rows in (ROWS, ROWS[:1], np.vstack([ROWS, np.full(4, 20.0)]))
    }
    return len(plans) == 1


def check_ledger():
    """What the ledger was charged covers the noise, and both cover the promise."""
    sketch = sketch_rows(ROWS, PHI)
    for changes in ({}, {"count": "laplace"}, {"rows_per_unit": 2}):
        book = Ledger.ephemeral(epsilon=5.0, delta=1e-2, pure_epsilon=2.0)
        statement = draw(sketch, ledger=book, **changes).statement
        if len(book.charges) != 1:
            return False
        (spent,) = book.charges
        true = (lattice_steps(statement) / statement.sigma_int) ** 2
        total = gaussian_epsilon(sqrt(true), 1e-5) + statement.count_epsilon
        paid = Fraction(spent.mu2) >= true
        if not paid or spent.pure_epsilon != statement.count_epsilon:
            return False
        if total > statement.epsilon:
            return False
    return True


def check_no_leak():
    """The count that is read from releases of one dataset is never the exact one."""
    sketch = sketch_rows(ROWS, PHI)
    counts = [draw(sketch).total.to_ints()[-1] for _ in range(5)]
    weight = draw(sketch).statement.count_weight
    return len(set(counts)) == 5 and sketch.count * weight not in counts


def check_far_tails():
    """Led by bytes, every door draws far values exactly as often as its law says."""
    swap = {"neighbours": "replace", "count": "public"}
    one = sketch_rows(np.zeros((1, 1)), ONE)
    plans = [
        planning.plan_release(sketch_rows(ROWS, PHI), **PROMISE),
        planning.plan_release(sketch_rows(ROWS, PHI), **PROMISE, among=(3, 2)),
        planning.plan_release(one, epsilon=1e-6, delta=1e-30, **swap),
    ]
    for plan in plans:
        sigma = plan.shares.sigma if plan.shares else plan.statement.sigma_int

        def draw(source, plan=plan):
            shared = plan.shares is not None
            total = plan.draw_share(source) if shared else plan.draw(source)[0].total
            return minus_exact(total, plan)

        values = [sign * (k * sigma + 99) for k in (1, 6, 9, 13) for sign in (1, -1)]
        if any(forced_fault(sigma, draw, value) for value in values):
            return False
    plan = planning.plan_release(one, **PROMISE, count="laplace")
    rate = Fraction(plan.statement.count_epsilon)
    return not any(
        forced_count_fault(rate, lambda source: plan.draw_count(source) - 1, value)
        for value in (-500, -99, 99, 500)
    )


def minus_exact(total, plan):
    exact = plan.sketch.total.to_ints()
    if plan.statement.count_mode == "joint":
        exact.append(plan.sketch.count * plan.statement.count_weight)
    return [a - b for a, b in zip(total.to_ints(), exact, strict=True)]


def check_pairs():
    """No two numbers of a release have noise in common, nor do two releases."""
    sketch, n = sketch_rows(ROWS, PHI), 300
    noise = np.array([draw(sketch).total.to_ints() for _ in range(n)], float)
    noise -= noise.mean(axis=0)
    noise /= noise.std(axis=0)
    pairs = noise.T @ noise / n - np.eye(noise.shape[1])
    series = (noise[1:] * noise[:-1]).mean()
    return bool(np.abs(pairs).max() < 7 / sqrt(n) and abs(series) < 7 / sqrt(5 * n))


def check_laplace_count():
    """The noise of a Laplace count has the mean size that its part of epsilon asks."""
    sketch, n = sketch_rows(ROWS, PHI), 400
    drawn = [draw(sketch, count="laplace").noisy_count for _ in range(n)]
    sizes = [abs(count - sketch.count) for count in drawn]
    return abs(sum(sizes) / n - 10) < 7 * 10 / sqrt(n)  # epsilon is 0.1


def check_kept_back():
    """Noise is rounded up by all that is kept back for its being discrete."""
    plan = planning.plan_release(sketch_rows(ROWS, PHI), **PROMISE).statement
    shrink = 1 - 2.0**-30
    mu = gaussian_mu(PROMISE["epsilon"] * shrink, PROMISE["delta"] * shrink)
    needed = lattice_steps(plan) / Fraction(mu) * (1 + Fraction(1, 2**30))
    return ceil(needed) == plan.sigma_int


def check_shares():
    """The noise of the honest parties alone is that of a release."""
    sketch = sketch_rows(ROWS, PHI)
    alone = planning.plan_release(sketch, **PROMISE).statement.sigma_int
    part = planning.plan_release(sketch, **PROMISE, among=(5, 3)).shares
    return 3 * part.sigma**2 >= alone**2


CHECKERS = [
    check_calibration,
    check_far_tails,
    check_fresh,
    check_game_difference,
    check_game_equal,
    check_game_front,
    check_game_long,
    check_kept_back,
    check_laplace_count,
    check_lattice,
    check_ledger,
    check_no_leak,
    check_pairs,
    check_public_plan,
    check_sensitivity,
    check_shares,
    check_spread,
]


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_code_as_it_is_passes(checker):
    assert checker()


# Mutants: each puts one bug into the library.


def swap_noise(patch, sampler):
    patch.setattr(planning, "discrete_gaussian", sampler)


def swap_plan(patch, change):
    """Put ``change(plan, sketch, arguments)`` after the real plan."""
    real = planning.plan_release

    def plan_release(sketch, **arguments):
        planned = real(sketch, **arguments)
        changed = change(planned.statement, sketch, arguments)
        return replace(planned, statement=changed)

    for module in (planning, releases, audit, inspection):
        patch.setattr(module, "plan_release", plan_release)


def swap_draw(patch, change):
    """Put ``change(drawn, planned)`` after the one door."""
    real = planning.PlannedRelease.draw

    def draw(self, random_bytes, n=1):
        return [change(drawn, self) for drawn in real(self, random_bytes, n)]

    patch.setattr(planning.PlannedRelease, "draw", draw)


def scaled(plan, factor):
    """The plan of somebody who believes the sensitivity to be ``factor`` as large."""
    return replace(
        plan,
        sensitivity=plan.sensitivity * factor,
        sigma_int=max(1, int(plan.sigma_int * factor)),
    )


def noise_forgotten(patch):
    swap_noise(patch, lambda sigma, size, **_: [0] * size)


def sigma_halved(patch):
    real = planning.gaussian_mu
    patch.setattr(planning, "gaussian_mu", lambda *promise: 2 * real(*promise))


def scale_squared(patch):
    # The scale is handed over where a variance is expected.
    def sampler(sigma, size, **source):
        return discrete_gaussian(isqrt(sigma), size, **source)

    swap_noise(patch, sampler)


def not_clipped(patch):
    patch.setattr(clipping, "clip_rows", lambda rows, *_: rows.astype(float))


def clipped_by_coordinate(patch):
    patch.setattr(
        clipping,
        "clip_rows",
        lambda rows, bound, _: rows.clip(-bound, bound).astype(float),
    )


def sum_clipped(patch):
    real = clipping.clip_rows

    def batch_sum(self, rows, first_row=0):
        total = self.inner.evaluate(rows, first_row)[: len(rows)].sum(axis=0)[None]
        whole = np.rint(real(total, self.norm_bound)[0] * 2.0**self.frac_bits)
        return clipping.Int128Array.from_ints([int(value) for value in whole])

    patch.setattr(ClippedFeatures, "batch_sum", batch_sum)


def bound_from_data(patch):
    # S is the longest row; here it is told from the total, as good as from the rows.
    def change(plan, sketch, arguments):
        length = sqrt(norm2(sketch.total)) / 2**plan.frac_bits
        return scaled(plan, max(length / sketch.count, 1e-6))

    swap_plan(patch, change)


def lower_bound_twice(patch):
    patch.setattr(FeatureSpec, "norm_steps", 0)


def replacing_costs_too_little(patch):
    def change(plan, sketch, arguments):
        return scaled(plan, 1 / sqrt(2)) if plan.neighbours == "replace" else plan

    swap_plan(patch, change)


def exact_count(patch):
    def change(drawn, planned):
        if planned.statement.count_mode != "joint":
            return drawn
        values = drawn.total.to_ints()
        values[-1] = planned.sketch.count * planned.statement.count_weight
        return replace(drawn, total=clipping.Int128Array.from_ints(values))

    swap_draw(patch, change)


def epsilon_twice(patch):
    # The sum is calibrated at epsilon, and the count at a part of it on top.
    def change(plan, sketch, arguments):
        if plan.count_mode != "laplace":
            return plan
        full = planning.gaussian_mu(plan.epsilon, plan.delta)
        sigma = int(lattice_steps(plan) / Fraction(full)) + 1
        mu2 = float((lattice_steps(plan) / sigma) ** 2)
        return replace(plan, sigma_int=sigma, mu2=mu2 * (1 + 2**-50))

    swap_plan(patch, change)


class FloatTotal:
    """A total as other libraries release it: a float sum plus float noise."""

    def __init__(self, values):
        self.values = values

    def to_ints(self):
        return list(self.values)


def float_noise(patch):
    def change(drawn, planned):
        rng = np.random.default_rng()
        sketch, plan = planned.sketch, planned.statement
        true = [*sketch.total.to_ints(), sketch.count * plan.count_weight]
        noise = rng.normal(size=len(true)) * plan.sigma_int
        return replace(
            drawn, total=FloatTotal((np.array(true, float) + noise).tolist())
        )

    swap_draw(patch, change)


def float_noise_on_the_lattice(patch):
    # torch.randn in float32, rounded to the lattice: the low bits are all zero.
    def sampler(sigma, size, **_):
        noise = np.random.default_rng().standard_normal(size, np.float32)
        return [int(value) for value in noise * np.float32(sigma)]

    swap_noise(patch, sampler)


def seeded_source(patch):
    def urandom(n):
        return np.random.default_rng(0).bytes(n)

    fake = SimpleNamespace(urandom=urandom, PathLike=os.PathLike)
    for module in (planning, releases):
        patch.setattr(module, "os", fake)


def forked_source(patch):
    # A generator well seeded at import: every child of a fork continues it alike.
    fake = SimpleNamespace(urandom=np.random.default_rng().bytes, PathLike=os.PathLike)
    for module in (planning, releases):
        patch.setattr(module, "os", fake)


def shared_noise(patch):
    def sampler(sigma, size, **source):  # the audit draws many of 17 at once
        each = size if size % 17 else 17
        return np.repeat(discrete_gaussian(sigma, size // each, **source), each)

    swap_noise(patch, lambda *sizes, **source: sampler(*sizes, **source).tolist())


def noise_truncated(patch):
    def sampler(sigma, size, **source):
        kept = []
        while len(kept) < size:
            drawn = discrete_gaussian(sigma, size, **source)
            kept += [value for value in drawn if abs(value) <= 3 * sigma]
        return kept[:size]

    swap_noise(patch, sampler)


def divided_by_the_rows(patch):
    def change(plan, sketch, arguments):
        return scaled(plan, 1 / sketch.count)

    swap_plan(patch, change)


# Mutants of the second attack.


def after_noise(patch, change):
    """Put ``change(noise, sigma)`` after the real sampler."""

    def sampler(sigma, size, **source):
        return change(discrete_gaussian(sigma, size, **source), sigma)

    swap_noise(patch, sampler)


def cut(sampler, limit):
    """A sampler of one number that throws far ones away."""

    def kept(sigma, *arguments):
        while abs(value := sampler(sigma, *arguments)) > limit * sigma:
            pass
        return value

    return kept


def noise_cut_at_five_sigma(patch):
    real = noise._accept_gaussian

    def accept(candidates, sigma, random_bytes):
        kept = real(candidates, sigma, random_bytes)
        return kept[np.abs(kept) <= 5 * sigma]

    patch.setattr(noise, "_accept_gaussian", accept)


def large_noise_cut(patch):
    patch.setattr(noise, "_gaussian_scalar", cut(noise._gaussian_scalar, 5))


def noise_clipped(patch):
    after_noise(
        patch, lambda drawn, sigma: [max(-6 * sigma, min(v, 6 * sigma)) for v in drawn]
    )


def geometric_table_cut(patch):
    patch.setattr(noise, "_THRESHOLDS", noise._THRESHOLDS[-8:])


def coins_of_64_bits(patch):
    # No coin is ever close enough to its threshold to be decided exactly.
    patch.setattr(noise, "WINDOW", 0.0)


def acceptance_without_the_square(patch):
    def accept(candidates, sigma, random_bytes):
        away = np.abs(np.abs(candidates) - sigma) / (2 * sigma)
        coins = noise._words(len(candidates), random_bytes)
        return candidates[coins * 2.0**-64 < np.exp(-away)]

    patch.setattr(noise, "_accept_gaussian", accept)


def never_negative(patch):
    after_noise(patch, lambda drawn, sigma: [abs(value) for value in drawn])


def sigma_three_percent_less(patch):
    def sampler(sigma, size, **source):
        return discrete_gaussian(sigma * 97 // 100, size, **source)

    swap_noise(patch, sampler)


def two_numbers_share_noise(patch):
    def change(drawn, planned):
        values, noises = drawn.total.to_ints(), minus_exact(drawn.total, planned)
        if len(values) > 1:
            values[1] += noises[0] - noises[1]
        return replace(drawn, total=clipping.Int128Array.from_ints(values))

    swap_draw(patch, change)


def noise_drawn_for_two_releases(patch):
    kept = {}

    def sampler(sigma, size, **source):
        if (sigma, size) in kept:
            return kept.pop((sigma, size))
        return kept.setdefault((sigma, size), discrete_gaussian(sigma, size, **source))

    swap_noise(patch, sampler)


def laplace_count_without_noise(patch):
    patch.setattr(planning, "discrete_laplace", lambda *rate, random_bytes: 0)


def laplace_count_cut(patch):
    def sampler(s, t, random_bytes):
        while abs(k := discrete_laplace(s, t, random_bytes=random_bytes)) > 20 * t / s:
            pass
        return k

    patch.setattr(planning, "discrete_laplace", sampler)


def swap_sensitivity(patch, change):
    """Ask for the sensitivity of ``change(neighbours, count, rows_per_unit)``."""
    real = planning.sensitivity_steps
    patch.setattr(
        planning, "sensitivity_steps", lambda spec, *asked: real(spec, *change(*asked))
    )


def replaced_as_added(patch):
    swap_sensitivity(patch, lambda relation, count, rows: ("add_remove", count, rows))


def count_left_out(patch):
    swap_sensitivity(patch, lambda relation, count, rows: (relation, "public", rows))


def one_row_per_unit(patch):
    swap_sensitivity(patch, lambda relation, count, rows: (relation, count, 1))


def nothing_kept_back(patch):
    whole = 1 / (1 - 2.0**-30)
    patch.setattr(
        planning,
        "gaussian_mu",
        lambda epsilon, delta: gaussian_mu(epsilon * whole, delta * whole),
    )


def clipped_before_rounding(patch):
    def clip_rows(rows, bound, _):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))

    patch.setattr(clipping, "clip_rows", clip_rows)


def all_parties_honest(patch):
    real = planning.share_noise
    patch.setattr(planning, "share_noise", lambda sigma, n, honest: real(sigma, n, n))


def half_the_price(patch):
    real = planning.PlannedRelease.charge.fget
    charge = property(lambda self: replace(real(self), mu2=real(self).mu2 / 2))
    patch.setattr(planning.PlannedRelease, "charge", charge)


def never_charged(patch):
    patch.setattr(Ledger, "charge", lambda self, charge, once=False: None)


# The bug, where it comes from, and who must find it.
MUTANTS = [
    (1, noise_forgotten, "", [check_spread, check_game_front, check_game_equal]),
    (2, sigma_halved, "SmartNoise core 316", [check_calibration, check_spread]),
    (3, scale_squared, "SmartNoise core 316", [check_spread, check_game_equal]),
    (4, not_clipped, "", [check_sensitivity, check_game_long, check_game_front]),
    (5, clipped_by_coordinate, "", [check_sensitivity, check_game_equal]),
    (6, sum_clipped, "", [check_sensitivity]),
    (7, bound_from_data, "paper: largest norm", [check_public_plan, check_game_long]),
    (8, lower_bound_twice, "diffprivlib 104", [check_sensitivity, check_spread]),
    (9, replacing_costs_too_little, "pycle", [check_sensitivity, check_calibration]),
    (10, exact_count, "paper: optional noise", [check_game_front, check_no_leak]),
    (11, epsilon_twice, "", [check_ledger]),
    (12, float_noise, "numpy, diffprivlib, Opacus", [check_lattice]),
    (12, float_noise_on_the_lattice, "torch", [check_lattice]),
    (13, seeded_source, "", [check_fresh, check_no_leak]),
    (13, forked_source, "", [check_fresh]),
    (14, shared_noise, "", [check_game_difference, check_spread]),
    (15, noise_truncated, "", [check_spread]),
    (16, divided_by_the_rows, "Tramer et al. 2022", [check_public_plan, check_spread]),
    (17, noise_cut_at_five_sigma, "attack", [check_far_tails]),
    (17, large_noise_cut, "attack", [check_far_tails]),
    (17, noise_clipped, "attack", [check_far_tails]),
    (18, geometric_table_cut, "attack", [check_far_tails]),
    (18, coins_of_64_bits, "attack", [check_far_tails]),
    (19, acceptance_without_the_square, "attack", [check_far_tails, check_spread]),
    (20, never_negative, "attack", [check_far_tails, check_spread]),
    (21, sigma_three_percent_less, "attack", [check_far_tails, check_spread]),
    (22, two_numbers_share_noise, "attack", [check_far_tails, check_pairs]),
    (23, noise_drawn_for_two_releases, "attack", [check_fresh, check_pairs]),
    (24, laplace_count_without_noise, "attack", [check_laplace_count, check_far_tails]),
    (24, laplace_count_cut, "attack", [check_far_tails]),
    (25, replaced_as_added, "attack", [check_calibration, check_sensitivity]),
    (26, count_left_out, "attack", [check_calibration, check_sensitivity]),
    (27, one_row_per_unit, "attack", [check_calibration]),
    (28, nothing_kept_back, "attack", [check_kept_back]),
    (29, clipped_before_rounding, "attack", [check_sensitivity]),
    (30, all_parties_honest, "attack", [check_shares]),
    (31, half_the_price, "attack", [check_ledger]),
    (31, never_charged, "attack", [check_ledger]),
]

# Which part of the audit finds it; what is not here is outside of its scope.
BY_AUDIT = {
    noise_forgotten: inspection.check_noise,
    sigma_halved: inspection.check_calibration,
    scale_squared: inspection.check_noise,
    not_clipped: inspection.check_bound,
    clipped_by_coordinate: inspection.check_bound,
    sum_clipped: inspection.check_bound,
    bound_from_data: inspection.check_calibration,
    lower_bound_twice: inspection.check_bound,
    replacing_costs_too_little: inspection.check_calibration,
    exact_count: inspection.check_noise,
    epsilon_twice: inspection.check_calibration,
    float_noise: inspection.check_noise,
    float_noise_on_the_lattice: inspection.check_noise,
    seeded_source: inspection.check_single,
    shared_noise: inspection.check_noise,
    noise_truncated: inspection.check_tails,
    divided_by_the_rows: inspection.check_calibration,
    noise_cut_at_five_sigma: inspection.check_tails,
    large_noise_cut: inspection.check_tails,
    noise_clipped: inspection.check_tails,
    geometric_table_cut: inspection.check_tails,
    coins_of_64_bits: inspection.check_tails,
    acceptance_without_the_square: inspection.check_noise,
    never_negative: inspection.check_noise,
    sigma_three_percent_less: inspection.check_noise,
    two_numbers_share_noise: inspection.check_noise,
    noise_drawn_for_two_releases: inspection.check_single,
    laplace_count_without_noise: inspection.check_noise,
    laplace_count_cut: inspection.check_tails,
    replaced_as_added: inspection.check_calibration,
    count_left_out: inspection.check_calibration,
    one_row_per_unit: inspection.check_calibration,
    clipped_before_rounding: inspection.check_bound,
    all_parties_honest: inspection.check_calibration,
    half_the_price: inspection.check_ledger,
    never_charged: inspection.check_ledger,
}
DOCUMENTED = {"rows": np.eye(4), "canary": np.full(4, 20.0), **PROMISE}
"""The audit of docs/privacy.md."""


@pytest.mark.parametrize(
    ("mutate", "checkers"),
    [
        pytest.param(
            mutate, checkers, id=f"{number} {mutate.__name__} ({source or 'folklore'})"
        )
        for number, mutate, source, checkers in MUTANTS
    ],
)
def test_a_mutant_is_killed(monkeypatch, mutate, checkers):
    mutate(monkeypatch)
    survived = [checker.__name__ for checker in checkers if survives(checker)]

    assert not survived


def survives(checker):
    """Whether a checker is content; a release that is refused harms nobody."""
    try:
        return checker()
    except PrivacyError:
        return False


@pytest.mark.parametrize("mutate", BY_AUDIT, ids=lambda mutate: mutate.__name__)
def test_the_audit_finds_a_mutant_inside_of_its_scope(monkeypatch, mutate):
    subject = inspection.Subject(PHI, **DOCUMENTED, n_releases=20_000)
    mutate(monkeypatch)
    fault, _ = BY_AUDIT[mutate](subject)
    assert fault is not None


@pytest.mark.full
@pytest.mark.parametrize("mutate", [row[1] for row in MUTANTS])
def test_the_documented_audit_finds_what_is_inside_of_its_scope(monkeypatch, mutate):
    mutate(monkeypatch)
    survived = survives(lambda: audit.audit(PHI, **DOCUMENTED).passed)
    assert survived == (mutate not in BY_AUDIT)


def test_all_mutants_are_there():
    assert {number for number, *_ in MUTANTS} >= set(range(1, 32))
    assert {mutate for _, mutate, *_ in MUTANTS} >= set(BY_AUDIT)
