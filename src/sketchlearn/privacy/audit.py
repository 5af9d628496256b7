r"""Audit: play the privacy game and see whether a release keeps its promise.

Two datasets differ by one row, the canary. Each is released many times; half of the
releases choose, among several statistics, the threshold that tells the datasets apart
best, and the other half measure how well it does. With confidence :math:`1 - 10^{-6}`

.. math::
    \epsilon \ge \log\frac{\mathrm{TPR} - \delta}{\mathrm{FPR}}, \qquad
    \mu \ge \Phi^{-1}(\mathrm{TPR}) - \Phi^{-1}(\mathrm{FPR}),

the second for Gaussian noise only, and much sharper. A lower bound above the promise
shows it broken, with that confidence; below, nothing is proven, but the game has found
nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2, norm

from sketchlearn.errors import PrivacyError, PrivacyWarning
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon, require_budget
from sketchlearn.privacy.release import plan_release, release
from sketchlearn.sketching.sketch import sketch_rows

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

CONFIDENCE = 1e-8
"""Chance of error of each bound; fewer than a hundred are computed in one audit."""

FEWEST = 1000
"""With fewer releases the bounds say nothing, even if there is no noise at all."""

_SINGLE = 200
"""Releases that are drawn one by one, as users draw them."""


@final
@dataclass(frozen=True)
class AuditReport:
    """What the game found.

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
    """

    epsilon: float
    delta: float
    epsilon_any: float
    epsilon_gaussian: float
    statistic: str
    n_releases: int

    @property
    def passed(self) -> bool:
        """Whether no lower bound exceeds the promise."""
        return max(self.epsilon_any, self.epsilon_gaussian) <= self.epsilon

    def __str__(self) -> str:
        verdict = "no violation found" if self.passed else "PROMISE BROKEN"
        return (
            f"{verdict}: promised epsilon={self.epsilon:g} at delta={self.delta:g}; "
            f"lower bounds from {self.n_releases:,} releases of each dataset: "
            f"{self.epsilon_any:.2f} (any noise), {self.epsilon_gaussian:.2f} "
            f"(Gaussian noise), by the {self.statistic}"
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
    """Play the game against a release mechanism.

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
        Releases of each dataset, at least 1,000; more make the bounds sharper.
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
    if n_releases < FEWEST:
        raise PrivacyError(
            f"n_releases={n_releases} are too few to find anything: use at least "
            f"{FEWEST}."
        )
    if isinstance(releaser, AbstractFeatureMap):
        fault = _fault_of_single_releases(releaser, rows, epsilon, delta)
        if fault is not None:
            return AuditReport(epsilon, delta, inf, inf, fault, _SINGLE)
        releaser = released_totals(releaser, epsilon=epsilon, delta=delta)
    without = np.asarray(releaser(rows, n_releases), np.float64)
    added = np.concatenate([rows, canary[None]])
    with_canary = np.asarray(releaser(added, n_releases), np.float64)
    _require_tables(without, with_canary, n_releases)
    best = (-inf, -inf, "nothing")
    for name, low, high in _statistics(without, with_canary):
        any_noise, normal = _bounds(low, high, delta)
        found = (any_noise, normal if gaussian else 0.0, name)
        best = max(best, found, key=lambda item: max(item[0], item[1]))
    bounds = [max(0.0, float(value)) for value in best[:2]]
    return AuditReport(epsilon, delta, bounds[0], bounds[1], best[2], n_releases)


def _require_tables(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], n_releases: int
) -> None:
    wide = without.ndim == 2 and without.shape[1] > 0
    if without.shape != with_canary.shape or not wide:
        raise PrivacyError("releaser(rows, n) must give n rows of equal length.")
    if len(without) != n_releases:
        raise PrivacyError(f"releaser(rows, n) gave other than n={n_releases} rows.")


def _fault_of_single_releases(
    feature_map: AbstractFeatureMap,
    rows: NDArray[np.floating],
    epsilon: float,
    delta: float,
) -> str | None:
    """What is wrong with releases as users draw them, one by one; None if nothing."""
    sketch = sketch_rows(rows, feature_map, progress=False)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for _ in range(_SINGLE):
            book = Ledger.ephemeral(epsilon=epsilon, delta=delta)
            drawn.append(release(sketch, epsilon=epsilon, delta=delta, ledger=book))
    statement = drawn[0].statement
    exact = [*sketch.total.to_ints(), sketch.count * statement.count_weight]
    noise = np.array(
        [
            [float(a - b) for a, b in zip(one.total.to_ints(), exact, strict=True)]
            for one in drawn
        ]
    )
    squares = ((noise / statement.sigma_int) ** 2).sum()
    if len(np.unique(noise, axis=0)) < _SINGLE:
        return "noise that repeats from release to release"
    if chi2.sf(squares, noise.size) > 1 - CONFIDENCE:
        return "spread of the noise of single releases"
    return None


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
        sketch = sketch_rows(rows, feature_map, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            plan = plan_release(sketch, epsilon=epsilon, delta=delta)
        drawn = plan.draw(os.urandom, n)
        # Lattice steps beyond 2**53 are rounded here; the game does not mind.
        return np.array([one.total.to_ints() for one in drawn]).astype(np.float64)

    return releaser


def _statistics(
    without: NDArray[np.float64], with_canary: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Numbers that may tell the datasets apart, computed on both."""
    half = len(without) // 2
    a, b = ((~np.isfinite(table)).sum(axis=1) for table in (without, with_canary))
    yield "numbers that are not finite", a.astype(np.float64), b.astype(np.float64)
    without, with_canary = np.nan_to_num(without), np.nan_to_num(with_canary)
    direction = with_canary[:half].mean(axis=0) - without[:half].mean(axis=0)
    yield "projection on the canary", without @ direction, with_canary @ direction
    spread = without[:half].std(axis=0)
    floor = 1e-9 * np.abs(direction).max()  # without noise, any weights will do
    sharp = direction / np.maximum(spread, max(floor, 1e-150)) ** 2
    yield "weighted projection", without @ sharp, with_canary @ sharp
    yield "last coordinate", without[:, -1], with_canary[:, -1]
    both = (without, with_canary)
    if without.shape[1] > 1:
        a, b = (table[:, 0] - table[:, 1] for table in both)
        yield "difference of two coordinates", a, b
        a, b = (np.log(table.var(axis=1) + 1e-300) for table in both)
        yield "spread of the coordinates", a, b
        centred = without[:half] / np.maximum(spread, max(floor, 1e-150))
        calmest = np.linalg.eigh(np.cov(centred, rowvar=False))[1][:, 0]
        calmest /= np.maximum(spread, max(floor, 1e-150))
        yield "least noisy direction", without @ calmest, with_canary @ calmest
    middle = without[:half].mean(axis=0)
    a, b = (np.abs(table - middle).max(axis=1) for table in both)
    yield "largest deviation", a, b


def _bounds(
    low: NDArray[np.float64], high: NDArray[np.float64], delta: float
) -> tuple[float, float]:
    """Lower bounds on ε from a statistic under both datasets, both directions."""
    half = len(low) // 2
    results = [(-np.inf, -np.inf)]
    for sign in (1.0, -1.0):
        for a, b in ((sign * low, sign * high), (sign * high, sign * low)):
            for cut in _cuts(a[:half], b[:half], delta):
                fpr = _upper(int((a[half:] > cut).sum()), len(a) - half)
                tpr = _lower(int((b[half:] > cut).sum()), len(b) - half)
                any_noise = log((tpr - delta) / fpr) if tpr > delta else -np.inf
                mu = float(norm.ppf(tpr) - norm.ppf(fpr))
                gaussian = gaussian_epsilon(mu, delta) if mu > 0 else 0.0
                results.append((any_noise, gaussian))
    return max(r[0] for r in results), max(r[1] for r in results)


def _cuts(a: NDArray[np.float64], b: NDArray[np.float64], delta: float) -> list[float]:
    """Two thresholds chosen on the first half: best ratio, and best separation."""
    levels = np.quantile(np.concatenate([a, b]), np.linspace(0.001, 0.999, 400))
    fpr = 1 - np.searchsorted(np.sort(a), levels, side="right") / len(a)
    tpr = 1 - np.searchsorted(np.sort(b), levels, side="right") / len(b)
    slack = 5 / sqrt(len(a))
    ratio = np.log(np.maximum(tpr - slack - delta, 1e-12) / (fpr + slack**2))
    return [float(levels[ratio.argmax()]), float(levels[(tpr - fpr).argmax()])]


def _upper(hits: int, n: int) -> float:
    return 1.0 if hits == n else float(beta.ppf(1 - CONFIDENCE, hits + 1, n - hits))


def _lower(hits: int, n: int) -> float:
    return 0.0 if hits == 0 else float(beta.ppf(CONFIDENCE, hits, n - hits + 1))
