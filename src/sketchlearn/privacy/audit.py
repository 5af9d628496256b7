r"""Audit: play the privacy game, and inspect this installation's own release.

Two datasets differ by one row, the canary. Each is released many times, and
:mod:`sketchlearn.privacy.game` tries to tell which releases hold the canary. A lower
bound on ε above the promise shows it broken; below, nothing is proven, but the game has
found nothing. A game sees coarse faults only: what is known of our own release is
inspected part by part (:mod:`sketchlearn.privacy.inspection`). A verdict "broken" holds
with confidence :math:`1 - 10^{-6}`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import PrivacyError, PrivacyWarning, SketchlearnError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.game import play
from sketchlearn.privacy.inspection import CHECKS, Subject, sketch_of
from sketchlearn.privacy.mechanisms import require_budget
from sketchlearn.privacy.planned import plan_release

__all__ = [
    "AuditReport",
    "Releaser",
    "audit",
    "audit_installation",
    "released_totals",
]
__public__ = ["AuditReport", "audit"]

Releaser = Callable[[NDArray[np.floating], int], NDArray[np.float64]]
"""``releaser(rows, n)``: n releases of these rows, one per row of the result."""

FEWEST_RELEASES = 1000
"""With fewer, the bounds say nothing even if there is no noise at all: at 500 in each
half, none can be more than log(500 / 19.1) = 3.3."""


@final
@dataclass(frozen=True)
class Check:
    """One part of an audit: what is wrong, if anything, and what would be found."""

    name: str
    fault: str | None
    power: str

    def __str__(self) -> str:
        found = "no fault" if self.fault is None else f"BROKEN: {self.fault}"
        return f"{self.name}: {found}; {self.power}"


@final
@dataclass(frozen=True)
class AuditReport:
    """What was found.

    Parameters
    ----------
    epsilon, delta : float
        The promise under test.
    epsilon_any : float
        Lower bound on the true ε, whatever the noise.
    epsilon_gaussian : float
        Lower bound on the true ε if the noise is Gaussian; 0 if it is said not to be.
    statistic : str
        What told the datasets apart best.
    n_releases : int
        Releases of each dataset.
    checks : tuple
        The inspection of our own release, part by part: ``name``, ``fault`` (None if
        nothing was found) and ``power``, what would have been found. None of them for
        a releaser of yours, of which the game alone is played.
    """

    epsilon: float
    delta: float
    epsilon_any: float
    epsilon_gaussian: float
    statistic: str
    n_releases: int
    checks: tuple[Check, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no lower bound exceeds the promise, and no check found a fault."""
        won = max(self.epsilon_any, self.epsilon_gaussian) > self.epsilon
        return not won and all(check.fault is None for check in self.checks)

    def __str__(self) -> str:
        verdict = "no violation found" if self.passed else "PROMISE BROKEN"
        shown = max(self.epsilon_any, self.epsilon_gaussian) > 0
        by = f", by the {self.statistic}" if shown else ""
        return (
            f"{verdict}: promised epsilon={self.epsilon:g} at delta={self.delta:g}; "
            f"lower bounds from {self.n_releases:,} releases of each dataset: "
            f"{self.epsilon_any:.2f} (any noise), {self.epsilon_gaussian:.2f} "
            f"(Gaussian noise){by}" + "".join(f"\n  {check}" for check in self.checks)
        )


def audit(
    releaser: Releaser | AbstractFeatureMap,
    *,
    rows: NDArray[np.floating],
    canary: NDArray[np.floating],
    epsilon: float,
    delta: float,
    n_releases: int = 20_000,
    gaussian: bool = True,
) -> AuditReport:
    """Look for a promise that is not kept, of this library or of your own mechanism.

    Of a feature map, this library's release is inspected (bound of a row, calibration,
    ledger, noise, far tails of the sampler), and then the game is played; of a function
    the game alone, which finds coarse faults. docs/privacy.md lists what each finds.

    Parameters
    ----------
    releaser : callable or AbstractFeatureMap
        ``releaser(rows, n)`` gives n releases as the rows of an array, all that the
        analyst sees of each; or a feature map, to audit this library's own release.
    rows : array of shape (n, d)
        The dataset without the canary: a handful of rows is best.
    canary : array of shape (d,)
        The row that is added. Choose one that moves the total as far as a row can;
        with longer features than the bound allows, it also tests the clipping.
    epsilon, delta : float
        The promise.
    n_releases : int
        Releases of each dataset, at least 1,000; more make the bounds sharper. The
        default takes some ten seconds and finds noise that is 3 % too small.
    gaussian : bool
        Whether the noise is Gaussian, which allows much sharper bounds. Say False for
        a mechanism of your own with other noise.

    Returns
    -------
    AuditReport

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> phi = sl.clipped(sl.MomentFeatures(4, order="mean"), norm_bound=1.0)
    >>> report = sl.audit(phi, rows=np.eye(4), canary=np.full(4, 20.0),
    ...                   epsilon=1.0, delta=1e-5, n_releases=2000)
    >>> report.passed
    True
    """
    require_budget(epsilon, delta)
    if n_releases < FEWEST_RELEASES:
        raise PrivacyError(
            f"n_releases={n_releases} are too few to find anything: use at least "
            f"{FEWEST_RELEASES}."
        )
    checks: tuple[Check, ...] = ()
    if isinstance(releaser, AbstractFeatureMap):
        checks = _inspect(Subject(releaser, rows, canary, epsilon, delta, n_releases))
        releaser = released_totals(releaser, epsilon=epsilon, delta=delta)
    try:
        without = np.asarray(releaser(rows, n_releases), np.float64)
        added = np.concatenate([rows, canary[None]])
        with_canary = np.asarray(releaser(added, n_releases), np.float64)
        _require_tables(without, with_canary, n_releases)
        found = play(without, with_canary, delta, gaussian=gaussian)
    except SketchlearnError:
        if all(check.fault is None for check in checks):
            raise
        found = 0.0, 0.0, "checks below alone: the game could not be played"
    return AuditReport(epsilon, delta, *found, n_releases, checks)


def _inspect(subject: Subject) -> tuple[Check, ...]:
    """Make every check. One that cannot be made to the end has found a fault."""
    subject.plan()  # what cannot be released at all is refused, and not inspected
    sketch_of(subject.feature_map, subject.canary[None])
    found = []
    for name, check in CHECKS.items():
        try:
            fault, power = check(subject)
        except Exception as error:
            said = f": {error}" if isinstance(error, SketchlearnError) else ""
            fault, power = f"{type(error).__name__}{said}", "was not made to the end"
        found.append(Check(name, fault, power))
    return tuple(found)


def _require_tables(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], n_releases: int
) -> None:
    wide = without.ndim == 2 and without.shape[1] > 0
    if without.shape != with_canary.shape or not wide:
        raise PrivacyError("releaser(rows, n) must give n rows of equal length.")
    if len(without) != n_releases:
        raise PrivacyError(f"releaser(rows, n) gave other than n={n_releases} rows.")


def audit_installation(epsilon: float, delta: float, n_releases: int) -> AuditReport:
    """Audit our own release with a canary ten times as long as the bound allows."""
    phi = clipped(MomentFeatures(8, order="mean", reach=1024.0), norm_bound=1.0)
    return audit(
        phi,
        rows=np.eye(8)[:5],
        canary=np.full(8, 10.0 / 8**0.5),
        epsilon=epsilon,
        delta=delta,
        n_releases=n_releases,
    )


def released_totals(
    feature_map: AbstractFeatureMap, *, epsilon: float, delta: float
) -> Releaser:
    """Our own release as a releaser: what its one door draws, the count last."""

    def releaser(rows: NDArray[np.floating], n: int) -> NDArray[np.float64]:
        sketch = sketch_of(feature_map, rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            plan = plan_release(sketch, epsilon=epsilon, delta=delta)
        drawn = plan.draw(os.urandom, n)
        # Lattice steps beyond 2**53 are rounded here; the game does not mind.
        return np.array([one.total.to_ints() for one in drawn]).astype(np.float64)

    return releaser
