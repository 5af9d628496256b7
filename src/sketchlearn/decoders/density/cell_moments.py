r"""What cells with second moments say: share, mean and covariance of the rows in each.

Every cell is a piece of the rows that is known like a Gaussian. Points can be drawn
that have these moments in every cell, and points drawn from elsewhere (from a mixture,
say) can be weighted until they have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sketchlearn.decoders.density.cells import CellStatistics, nearest
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.errors import TooNoisy
from sketchlearn.features.cells import CellFeatures

__all__ = ["CellMoments"]

_RIDGE = 0.05
"""Keeps a tilt from following the noise of a few points."""

_VISIBLE = 0.5
"""Share of the rows in cells that noise leaves visible, at least."""

_NEWTON_STEPS = 3
_FLAT = 1e-12


@final
@dataclass(frozen=True, eq=False)
class CellMoments:
    """Moments of the rows in each cell, in the coordinates z of a map.

    Parameters
    ----------
    anchors : array of shape (A, r)
        Of all cells.
    shares : array of shape (A,)
        Of the rows in each cell; 0 where there are none.
    means : array of shape (A, r)
    covariances : array of shape (A, r, r)
    n_crossed : int
        Of how many first coordinates the covariances were sketched; the others have
        the correlations that cells have on average.
    """

    anchors: NDArray[np.float64]
    shares: NDArray[np.float64]
    means: NDArray[np.float64]
    covariances: NDArray[np.float64]
    n_crossed: int

    @classmethod
    def read(
        cls,
        part: CellFeatures,
        values: NDArray[np.float64],
        moments: Moments,
        *,
        noise: float = 0.0,
    ) -> CellMoments:
        """From the values of a sketch, with ``noise`` the deviation of each."""
        r, s = part.basis.shape[1], part.n_crossed or 0
        cells = CellStatistics.read(part, values, moments, noise=noise)
        shares, means = cells.shares, cells.means
        table, seen = values.reshape(len(shares), -1), shares > 0
        if noise and table[seen, 0].sum() < _VISIBLE:
            raise TooNoisy(
                "the noise of this release is larger than most cells, whose shares and "
                "moments cannot be seen. Release with a larger epsilon, clip the map "
                "closer, or sketch one round (rounds=1)."
            )
        safe = np.where(seen, np.maximum(table[:, 0], 1e-12), 1.0)[:, None]
        second = np.zeros((len(table), r, r))
        second[:, range(r), range(r)] = table[:, 1 + r : 1 + 2 * r] / safe
        a, b = np.tril_indices(s, -1)
        second[:, a, b] = second[:, b, a] = table[:, 1 + 2 * r :] / safe
        within = second - means[:, :, None] * means[:, None, :]
        pooled = np.diag(shares @ np.einsum("jaa->ja", within))
        if moments.n_directions == len(moments.mean):  # exact: what means leave of them
            pooled = _positive(cells.second - (shares[:, None] * means).T @ means)
        covariances = _completed(within, pooled, s)
        if noise:  # believe a cell as far as its share is larger than the noise
            trust = (shares / (shares + 10 * noise))[:, None, None]
            covariances = pooled + trust * (covariances - pooled)
        covariances[~seen] = 0.0
        anchors = part.anchors.astype(np.float64)
        return cls(anchors, shares, means, _positive(covariances), s)

    def locate(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Cell of each point."""
        return nearest(points, self.anchors)

    def draw(self, n_points: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """About ``n_points`` points, with the moments of every cell."""
        ends = np.floor(n_points * np.cumsum(self.shares) + rng.random()).astype(int)
        counts = np.diff(ends, prepend=0)
        pieces = []
        for cell in np.flatnonzero(counts):
            values, vectors = np.linalg.eigh(self.covariances[cell])
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            unit = _standard(rng.standard_normal((counts[cell], len(root))))
            pieces.append(self.means[cell] + unit @ root.T)
        return np.concatenate(pieces)

    def weigh(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights, nearest to equal ones, that give points the moments of the cells.

        Points in cells too thin to be tilted only get the right share; a cell without
        points is left out.
        """
        weights, cells = np.zeros(len(points)), self.locate(points)
        for cell in np.flatnonzero(self.shares).tolist():
            inside = np.flatnonzero(cells == cell)
            if not len(inside):
                continue
            excess = self._excess(points[inside], cell)
            enough = len(inside) > 1.5 * excess.shape[1]
            tilt = _tilt(excess) if enough else np.full(len(inside), 1 / len(inside))
            weights[inside] = self.shares[cell] * tilt
        total = float(weights.sum())
        return weights / total if total else np.full(len(points), 1 / len(points))

    def _excess(self, points: NDArray[np.float64], cell: int) -> NDArray[np.float64]:
        """Statistics of points that should be zero on average in a cell.

        In coordinates that are uncorrelated in the cell, as far as that is known.
        """
        s, covariance = self.n_crossed, self.covariances[cell]
        away = points - self.means[cell]
        values, vectors = np.linalg.eigh(covariance[:s, :s])
        variances = np.concatenate([values, np.diag(covariance)[s:]])
        kept = variances > _FLAT * max(float(variances.max()), 1e-300)
        turned = np.concatenate([away[:, :s] @ vectors, away[:, s:]], axis=1)
        unit = turned[:, kept] / np.sqrt(variances[kept])
        a, b = np.tril_indices(int(kept[:s].sum()), -1)
        squares, products = (unit**2 - 1) / 2**0.5, unit[:, a] * unit[:, b]
        return np.concatenate([unit, squares, products], axis=1)


def _completed(
    within: NDArray[np.float64], pooled: NDArray[np.float64], n_crossed: int
) -> NDArray[np.float64]:
    """Covariances of cells, with pooled correlations where none were sketched."""
    spread = np.sqrt(np.maximum(np.einsum("jaa->ja", within), 0.0))
    common = np.sqrt(np.maximum(np.diag(pooled), 1e-300))
    correlations = pooled / common / common[:, None]
    result = correlations * spread[:, :, None] * spread[:, None, :]
    result[:, :n_crossed, :n_crossed] = within[:, :n_crossed, :n_crossed]
    return np.asarray(result)


def _positive(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest positive semi-definite matrices."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    scaled = vectors * np.maximum(values, 0.0)[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))


def _standard(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Random points with mean zero and, if they are many, covariance one."""
    unit = unit - unit.mean(axis=0)
    n, r = unit.shape
    if n <= 2 * r:
        return unit
    values, vectors = np.linalg.eigh(unit.T @ unit / n)
    return np.asarray(unit @ (vectors / np.sqrt(values)) @ vectors.T)


def _tilt(excess: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Weights :math:`\propto e^{\lambda^\top t}` that bring the mean of t to zero.

    A few damped Newton steps on the convex :math:`\log \sum e^{\lambda^\top t}`.
    """
    n, size = excess.shape
    slope, level, weights = np.zeros(size), np.log(n), np.full(n, 1 / n)
    for _ in range(_NEWTON_STEPS):
        mean = weights @ excess
        away = excess - mean
        curvature = (away * weights[:, None]).T @ away
        ridge = _RIDGE + 1e-9 * float(np.trace(curvature))
        curvature += ridge * np.eye(size)
        step = np.linalg.solve(curvature, mean)
        for scale in (1.0, 0.5, 0.25, 0.125):
            exponent = excess @ (slope - scale * step)
            lower = float(logsumexp(exponent))
            if lower < level:
                break
        else:
            break
        slope, level = slope - scale * step, lower
        weights = np.exp(exponent - lower)
    return weights
