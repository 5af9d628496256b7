r"""The attacker of the privacy game: from releases to lower bounds on what they cost.

Half of the releases choose the threshold of a statistic, the other half measure how
well it tells two datasets apart. With confidence :math:`1 - 10^{-6}`

.. math::
    \epsilon \ge \log\frac{\mathrm{TPR} - \delta}{\mathrm{FPR}}, \qquad
    \mu \ge \Phi^{-1}(\mathrm{TPR}) - \Phi^{-1}(\mathrm{FPR}),

the second for Gaussian noise only, and much sharper. Where releases come from is not
known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from sketchlearn.privacy.mechanisms import gaussian_epsilon

__all__ = ["CHANCE_OF_ERROR", "play"]

CHANCE_OF_ERROR = 5e-9
"""Of each bound; 128 are computed in one audit (8 statistics, 2 signs, 2 directions, 2
thresholds, 2 rates), so that all of them hold with confidence 1 - 1e-6."""


def play(
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    delta: float,
    *,
    gaussian: bool,
) -> tuple[float, float, str]:
    """Lower bounds on ε for any noise and for Gaussian noise, and what gave them."""
    best = (-inf, -inf, "nothing")
    for name, low, high in _statistics(without, with_canary):
        any_noise, normal = _bounds(low, high, delta)
        found = (any_noise, normal if gaussian else 0.0, name)
        best = max(best, found, key=lambda item: max(item[0], item[1]))
    return max(0.0, float(best[0])), max(0.0, float(best[1])), best[2]


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
    results = [(-inf, -inf)]
    for sign in (1.0, -1.0):
        for a, b in ((sign * low, sign * high), (sign * high, sign * low)):
            for cut in _cuts(a[:half], b[:half], delta):
                fpr = _upper(int((a[half:] > cut).sum()), len(a) - half)
                tpr = _lower(int((b[half:] > cut).sum()), len(b) - half)
                any_noise = log((tpr - delta) / fpr) if tpr > delta else -inf
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
    if hits == n:
        return 1.0
    return float(beta.ppf(1 - CHANCE_OF_ERROR, hits + 1, n - hits))


def _lower(hits: int, n: int) -> float:
    if hits == 0:
        return 0.0
    return float(beta.ppf(CHANCE_OF_ERROR, hits, n - hits + 1))
