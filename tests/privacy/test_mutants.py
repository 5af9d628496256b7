"""Sixteen privacy bugs of real libraries, each put into ours, are each found.

A checker is a short form of the tests of this folder: it says whether what it looks at
is right. All of them pass on the code as it is; a mutant is killed when those named
with it (the ones meant to find it) all fail.
"""

import importlib
import os
from dataclasses import replace
from fractions import Fraction
from math import isqrt, sqrt
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
from sketchlearn.privacy import planned as planning
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon
from sketchlearn.privacy.noise import discrete_gaussian

audit = importlib.import_module("sketchlearn.privacy.audit")  # not the function
releases = importlib.import_module("sketchlearn.privacy.release")

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
WIDE = clipped(MomentFeatures(999, order="mean"), norm_bound=1.0)
GAME = clipped(MomentFeatures(16, order="mean"), norm_bound=1.0)
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
    return audit.audit(
        GAME, rows=rows, canary=canary, n_releases=10_000, **PROMISE
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


CHECKERS = [
    check_calibration,
    check_fresh,
    check_game_difference,
    check_game_equal,
    check_game_front,
    check_game_long,
    check_lattice,
    check_ledger,
    check_no_leak,
    check_public_plan,
    check_sensitivity,
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

    for module in (planning, releases, audit):
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
]


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


def test_all_sixteen_mutants_are_there():
    assert {number for number, *_ in MUTANTS} == set(range(1, 17))
