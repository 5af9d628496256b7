r"""Inspection of this installation's own release: what it draws, states and charges.

Each check looks at one part of the way from rows to a released sketch, and says what is
wrong, or what it would have found. What a check needs to know (the formula of δ, the
factor of a replaced row, the probabilities of the sampler) is written down here once
more, so that an error in the library is not repeated by its inspector.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from math import exp, expm1, isqrt, sqrt
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import BudgetExceeded, PrivacyWarning, SketchlearnError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.forced_draws import forced_count_fault, forced_fault
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.noise import VECTOR_LIMIT, RandomBytes
from sketchlearn.privacy.observed_noise import count_fault, noise_fault, smallest_found
from sketchlearn.privacy.planned import PlannedRelease, plan_release
from sketchlearn.privacy.release import release, release_by_label
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CHECKS", "Subject", "sketch_of"]

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"count": "laplace"},
    {"rows_per_unit": 3},
    {"neighbours": "replace"},
    {"neighbours": "replace", "count": "public"},
)
"""The ways to release that are inspected."""

AMONG = (3, 2)
"""Parties whose shares are inspected, and how many of them are honest."""

ONE_BY_ONE = 200
"""Releases of each way that are drawn as users draw them, each with a ledger."""

MOST_NUMBERS = 400_000
"""Of one way, that are drawn at once: of wide maps there are fewer releases."""

FORCED = (1, 2, 4, 5, 6, 8, 12, 20, 30)
"""Multiples of σ beyond which the sampler is led by a third of σ, on both sides."""

_Finding = tuple[str | None, str]
"""What is wrong, or None; and what would have been found."""

_DELTA_SLACK = 1 + 1e-5
"""What rounding here may add to δ."""


@final
@dataclass(frozen=True)
class Subject:
    """What is inspected: releases of a map, of rows that are no secret."""

    feature_map: AbstractFeatureMap
    rows: NDArray[np.floating]
    canary: NDArray[np.floating]
    epsilon: float
    delta: float
    n_releases: int

    @cached_property
    def sketch(self) -> Sketch:
        """The exact sketch of the rows."""
        return sketch_of(self.feature_map, self.rows)

    @property
    def promise(self) -> dict[str, Any]:
        """ε and δ, by name."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    @property
    def ways(self) -> list[dict[str, Any]]:
        """The ways to release that this promise allows."""
        laplace = 1e-4 <= self.epsilon <= 9  # else its ledger cannot have room
        return [way for way in WAYS if laplace or way.get("count") != "laplace"]

    def plan(self, sketch: Sketch | None = None, **way: Any) -> PlannedRelease:
        """A release that is calibrated and not drawn."""
        with _quiet():
            return plan_release(sketch or self.sketch, **self.promise, **way)

    def release(self, **way: Any) -> tuple[PrivateSketch, Ledger]:
        """A release as users draw it, and the ledger that paid for it."""
        terms = {**self.promise, **{key: way[key] for key in way if key != "count"}}
        if way.get("count") == "laplace":
            terms |= {"epsilon": 5 * self.epsilon, "pure_epsilon": self.epsilon / 5}
        book = Ledger.ephemeral(**terms)
        with _quiet():
            return release(self.sketch, ledger=book, **self.promise, **way), book


def sketch_of(feature_map: AbstractFeatureMap, rows: NDArray[np.floating]) -> Sketch:
    """The exact sketch of rows in memory."""
    return LocalRows(open_rows(rows, progress=False)).sketch(feature_map)


def check_bound(subject: Subject) -> _Finding:
    """Rows alone are within the bound, and together they are the sum of themselves."""
    steps, accepted, longest = subject.sketch.features.norm_steps, [], 0
    total = [0] * subject.sketch.size
    for row in _searched_rows(subject.rows, subject.canary):
        try:
            alone = sketch_of(subject.feature_map, row[None]).total.to_ints()
        except SketchlearnError:  # a row that is refused moves nothing
            continue
        accepted.append(row)
        total = [a + b for a, b in zip(total, alone, strict=True)]
        longest = max(longest, sum(value * value for value in alone))
    together = sketch_of(subject.feature_map, np.array(accepted)).total.to_ints()
    same = together == total
    fault = None if same else "the sum of rows is not the sum of what each is alone"
    if longest > steps**2:
        fault = "a row moves the sum by more than the norm bound"
    part = isqrt(longest) / max(steps, 1)
    power = f"{len(accepted)} rows were tried, the longest at {part:.4f} of the bound"
    return fault, power


def check_calibration(subject: Subject) -> _Finding:
    """The noise that is stated is enough, in every way, and the same for all rows."""
    power = f"finds a delta 0.001% too large in {len(subject.ways)} ways to release"
    for way in subject.ways:
        for fault in _misstatements(subject, way):
            return f"{fault}, {_said(way)}", power
    return None, power


def check_ledger(subject: Subject) -> _Finding:
    """A release is charged what it states, once, and refused beyond the cap."""
    power = "finds any charge but that of the statement"
    for way in subject.ways:
        private, book = subject.release(**way)
        stated = replace(private.statement, lineage=None)
        if not _is_paid(private.statement, book):
            return f"another charge than stated, {_said(way)}", power
        if stated != subject.plan(**way).statement:
            return f"another statement than planned, {_said(way)}", power
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path, promise = Path(folder) / "audit.ledger", subject.promise
        private = release(subject.sketch, ledger=Ledger(path, **promise), **promise)
        try:
            release(subject.sketch, ledger=path, **promise)
            return "a release beyond the cap was granted", power
        except BudgetExceeded:
            paid = _is_paid(private.statement, Ledger.open(path))
    return None if paid else "another charge in the file", power


def check_single(subject: Subject) -> _Finding:
    """Releases drawn as users draw them, one by one and by label."""
    power = _finds(ONE_BY_ONE * (subject.sketch.size + 1))
    for way in subject.ways:
        drawn = [subject.release(**way)[0] for _ in range(ONE_BY_ONE)]
        fault = _fault_of(drawn, subject.plan(**way))
        if fault is not None:
            return f"{fault}, {_said(way)}", power
    plan, noise = subject.plan(), []
    for _ in range(ONE_BY_ONE):
        terms = {"ledger": Ledger.ephemeral(**subject.promise), **subject.promise}
        with _quiet():
            both = release_by_label({0: subject.sketch}, labels=[0, 1], **terms)
        noise.append(_noise(both[0].total, plan) + both[1].total.to_ints())
    fault = noise_fault(noise, _sigma(plan))
    return fault and f"{fault}, by label", power


def check_noise(subject: Subject) -> _Finding:
    """Many draws of every way, and of the share of a party."""
    width = subject.sketch.size + 1
    n = min(subject.n_releases, max(MOST_NUMBERS // width, ONE_BY_ONE))
    power = _finds(n * width)
    for way in subject.ways:
        plan = subject.plan(**way)
        fault = _fault_of(plan.draw(os.urandom, n), plan)
        if fault is not None:
            return f"{fault}, {_said(way)}", power
    share = subject.plan(among=AMONG)
    noise = [_draw(share, os.urandom) for _ in range(ONE_BY_ONE)]
    fault = noise_fault(noise, _sigma(share))
    return fault and f"{fault}, in the share of a party", power


def check_tails(subject: Subject) -> _Finding:
    """The samplers are led to far values, and give them as often as they must."""
    power = f"finds any law that is off by 2**-39, up to {FORCED[-1]} sigma"
    phi = clipped(MomentFeatures(1, order="mean"), norm_bound=1.0)
    one = partial(plan_release, sketch_of(phi, np.zeros((1, 1))))
    plans = [subject.plan(), subject.plan(among=AMONG)]
    with _quiet():
        plans.append(one(epsilon=1.0, delta=1e-5, **WAYS[-1]))
        plans.append(one(epsilon=1e-6, delta=1e-30, **WAYS[-1]))
        count = one(epsilon=1.0, delta=1e-5, count="laplace")
    rate = Fraction(count.statement.count_epsilon)

    def counted(random_bytes: RandomBytes) -> int:
        return (count.draw_count(random_bytes) or 0) - count.sketch.count

    # Beyond the limit, bytes are known for one number only: that of the last plan.
    plans = [p for p in plans if _sigma(p) <= VECTOR_LIMIT or p is plans[-1]]
    for third in (sign * (3 * k + 1) for k in FORCED for sign in (1, -1)):
        faults = [
            forced_fault(_sigma(plan), partial(_draw, plan), third * _sigma(plan) // 3)
            for plan in plans
        ]
        faults.append(forced_count_fault(rate, counted, round(third / rate / 3)))
        for fault in filter(None, faults):
            return f"{fault}: {third / 3:.1f} sigma", power
    return None, power


CHECKS: dict[str, Callable[[Subject], _Finding]] = {
    "bound of a row": check_bound,
    "calibration": check_calibration,
    "ledger": check_ledger,
    "single releases": check_single,
    "noise": check_noise,
    "far tails": check_tails,
}


def _misstatements(subject: Subject, way: dict[str, Any]) -> Iterator[str]:
    """Everything that is wrong with the statement of a way to release."""
    statement = subject.plan(**way).statement
    epsilon = subject.epsilon - statement.count_epsilon
    moved = _largest_move(subject.feature_map, statement)
    if _delta(moved / statement.sigma_int, epsilon) > subject.delta * _DELTA_SLACK:
        yield "too little noise for the promise"
    if statement.mu2 < (moved / statement.sigma_int) ** 2 * (1 - 1e-12):
        yield "a price below that of the noise"
    asked = {"neighbours": "add_remove", "rows_per_unit": 1, "count": "joint", **way}
    said = (statement.neighbours, statement.rows_per_unit, statement.count_mode)
    if said != tuple(asked.values()) or statement.seeded:
        yield "a statement of something else than was asked for"
    more = np.concatenate([subject.rows, subject.canary[None]])
    for rows in (subject.rows[:1], more):
        plan = subject.plan(sketch_of(subject.feature_map, rows), **way)
        if plan.statement != statement:
            yield "noise that depends on the rows"
    honest = sqrt(AMONG[1]) * _sigma(subject.plan(among=AMONG, **way))
    if _delta(moved / honest, epsilon) > subject.delta * _DELTA_SLACK:
        yield "too little noise in the shares of honest parties"


def _delta(mu: float, epsilon: float) -> float:
    """The δ of Gaussian noise at ε (Balle and Wang, ICML 2018, Theorem 8)."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return -exp(first) * expm1(second - first)


def _largest_move(phi: AbstractFeatureMap, statement: PrivacyStatement) -> float:
    """Largest change of the released numbers by one unit, in lattice steps."""
    bound = Fraction(phi.norm_bound or 0) * Fraction(2) ** phi.frac_bits
    factor = 2 if statement.neighbours == "replace" else 1
    count = statement.count_weight if statement.count_mode == "joint" else 0
    return statement.rows_per_unit * sqrt(float((factor * bound) ** 2 + count**2))


def _is_paid(statement: PrivacyStatement, book: Ledger) -> bool:
    """Whether the ledger has one charge, that of the statement."""
    paid = [((item.release_id,), item.mu2, item.pure_epsilon) for item in book.charges]
    return paid == [(statement.lineage, statement.mu2, statement.count_epsilon)]


def _fault_of(drawn: list[PrivateSketch], plan: PlannedRelease) -> str | None:
    """What is wrong with the noise of releases, their counts among it."""
    fault = noise_fault([_noise(one.total, plan) for one in drawn], _sigma(plan))
    if fault is not None or plan.statement.count_mode != "laplace":
        return fault
    counts = [(one.noisy_count or 0) - plan.sketch.count for one in drawn]
    return count_fault(np.array(counts), plan.statement.count_epsilon)


def _sigma(plan: PlannedRelease) -> int:
    """The noise that this plan draws itself."""
    return plan.statement.sigma_int if plan.shares is None else plan.shares.sigma


def _draw(plan: PlannedRelease, random_bytes: RandomBytes) -> list[int]:
    """The noise of one draw."""
    if plan.shares is not None:
        return _noise(plan.draw_share(random_bytes), plan)
    return _noise(plan.draw(random_bytes)[0].total, plan)


def _noise(total: Int128Array, plan: PlannedRelease) -> list[int]:
    """What was added to the exact numbers of a plan."""
    exact = plan.sketch.total.to_ints()
    if plan.statement.count_mode == "joint":
        exact.append(plan.sketch.count * plan.statement.count_weight)
    return [a - b for a, b in zip(total.to_ints(), exact, strict=True)]


def _searched_rows(
    rows: NDArray[np.floating], canary: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Rows that may be longer than they should: scaled, extreme, and in fractions."""
    rng, width = np.random.default_rng(0), len(canary)
    known = np.concatenate([rows[:8], canary[None]]).astype(np.float64)
    scaled = [known * 2.0**k for k in (-8, -1, 0, 1, 5, 9, 16, 40)]
    values = [0.0, 1.0, -1.0, 0.5 + 2.0**-20, 1.5 + 2.0**-20, 100.0]
    random = [rng.normal(size=(40, width)) * scale for scale in (0.1, 1.0, 30.0)]
    both = np.concatenate([*scaled, *random])
    mixed = rng.choice(values, (60, width))
    alike = rng.choice(values, (200, 1)) * (
        rng.random((200, width)) < rng.random((200, 1))
    )
    return np.concatenate([both, -both, mixed, alike])


def _finds(numbers: int) -> str:
    return f"finds noise {smallest_found(numbers):.1%} too small in {numbers:,} numbers"


def _said(way: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in way.items()) or "by default"


def _quiet() -> warnings.catch_warnings[None]:
    """The rows are no secret: a large δ needs no warning."""
    return warnings.catch_warnings(action="ignore", category=PrivacyWarning)
