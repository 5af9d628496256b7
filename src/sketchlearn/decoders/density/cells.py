r"""Densities from the cells of a partition: counts and means of the rows in each.

On their own, cells become one component each, in closed form. A mixture that was found
elsewhere (from Fourier features, say) can be held against them: points drawn from it
are weighted until every cell has its share and its mean, and the mixture is fitted to
these points again. Where it explains the cells, it knows what they cannot: how rows
lie inside a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.mixture import Density, outside_variance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.cells import CellFeatures

__all__ = ["CellStatistics", "basis_of", "centre_of", "lift_of", "nearest"]

_POINTS = 8192
_FEWEST = 1e-4
"""Components with a smaller share are dropped from a matched mixture."""

_LARGEST = 2**22
"""Distances that are kept at a time."""

_STEEP = 3.0
"""Largest logarithm of a weight that moves the mean of a cell."""

_RIDGE = 0.01
"""Share of a component's covariance that the points of a cell have at least."""

_NARROWEST = 1e-4
"""Least variance of a matched component, as a share of the mean variance."""


def basis_of(part: CellFeatures) -> NDArray[np.float64]:
    """B for rows in their own units, shape (d, r)."""
    basis = part.basis.astype(np.float64)
    return basis if part.scaling is None else basis * part.scaling.factor[:, None]


def lift_of(part: CellFeatures) -> NDArray[np.float64]:
    """How z of a planned map comes back to rows: shape (d, r)."""
    return np.asarray(np.linalg.pinv(basis_of(part)).T)


def centre_of(part: CellFeatures) -> NDArray[np.float64]:
    """Where z is zero, as a row."""
    if part.scaling is None:
        return part.centre
    return part.centre / part.scaling.factor + part.scaling.shift


def nearest(
    points: NDArray[np.float64], anchors: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Number of the anchor nearest to each point."""
    half_squares = (anchors**2).sum(axis=1) / 2
    size = max(1, _LARGEST // len(anchors))
    found = [
        (points[start : start + size] @ anchors.T - half_squares).argmax(axis=1)
        for start in range(0, len(points), size)
    ]
    return np.concatenate(found)


@final
@dataclass(frozen=True, eq=False)
class CellStatistics:
    """What a sketch of cells says, in the coordinates z of their map.

    Parameters
    ----------
    part : CellFeatures
    moments : Moments
        Of the rows.
    shares : array of shape (A,)
        Of the rows in each cell; 0 where there are none.
    means : array of shape (A, r)
        Of the rows in each cell, its anchor where there are none.
    second : array of shape (r, r)
        Mean of z zᵀ.
    """

    part: CellFeatures
    moments: Moments
    shares: NDArray[np.float64]
    means: NDArray[np.float64]
    second: NDArray[np.float64]

    @classmethod
    def read(
        cls,
        part: CellFeatures,
        values: NDArray[np.float64],
        moments: Moments,
        *,
        noise: float = 0.0,
    ) -> CellStatistics:
        """From the values of a sketch, with ``noise`` the deviation of each."""
        table = values.reshape(len(part.anchors), -1)
        seen = table[:, 0] > max(3 * noise, 0.0)
        if not seen.any():
            seen = table[:, 0] == table[:, 0].max()
        shares = np.maximum(table[seen, 0], 1e-12)
        basis = basis_of(part)
        middle = basis.T @ (moments.mean - centre_of(part))
        second = basis.T @ moments.covariance @ basis + np.outer(middle, middle)
        weights = np.zeros(len(table))
        weights[seen] = shares / shares.sum()
        means = part.anchors.astype(np.float64)
        sums = table[seen, 1 : 1 + means.shape[1]]  # second moments may follow
        away = sums / shares[:, None] - means[seen]
        if noise:  # believe a mean as far as its noise is smaller than the cell
            size = np.maximum(np.diag(second) - weights @ means**2, 0.0) + 1e-300
            away *= size / (size + (noise / shares[:, None]) ** 2)
        means[seen] += away
        return cls(part, moments, weights, means, second)

    def density(self) -> Density:
        """Every cell that holds rows, as wide as its distance to others."""
        seen = self.shares > 0
        weights, means = self.shares[seen], self.means[seen]
        within = np.maximum(np.diag(self.second) - weights @ means**2, 0.0)
        spread = np.sqrt(_room(means, weights)[:, None] * within)
        return self._as_density(weights, means, spread[..., None] * np.eye(len(within)))

    def matched(
        self, density: Density, *, rng: np.random.Generator, n_iter: int = 30
    ) -> tuple[Density, float]:
        """A mixture of one covariance that explains the cells, and how well.

        It starts at ``density``; weights, means and the common covariance are those of
        points drawn from it, weighted by :meth:`_match`, again and again. The misfit
        is the share of rows in the wrong cell, plus the squared error of the means of
        the cells over the variance of a component; the iterate with the smallest is
        returned, with the covariance that gives the rows their second moments.
        """
        basis, centre = basis_of(self.part), centre_of(self.part)
        some = density.weights > _FEWEST
        weights = density.weights[some] / density.weights[some].sum()
        means = (density.component_means[some] - centre) @ basis
        within = np.einsum("j,jab->ab", weights, density.component_covariances[some])
        root = self._root(basis.T @ within @ basis)
        half = max(1, _POINTS // (2 * len(weights)))
        unit = rng.standard_normal((len(weights), half, means.shape[1]))
        unit = np.concatenate([unit, -unit], axis=1)
        best, least = (weights, means), np.inf
        for _ in range(n_iter):
            points = means[:, None] + unit @ root.T
            shares, misfit = self._match(points, weights, root)
            if misfit < least:
                best, least = (weights, means), misfit
            weights = shares.sum(axis=1)
            kept = weights > _FEWEST
            shares, points, unit = shares[kept], points[kept], unit[kept]
            means = np.einsum("jp,jpa->ja", shares, points) / weights[kept, None]
            away = points - means[:, None]
            scatter = np.einsum("jp,jpa,jpb->ab", shares, away, away, optimize=True)
            root = self._root(scatter)
            weights = weights[kept] / weights[kept].sum()
        weights, means = best
        root = self._root(self.second - (weights[:, None] * means).T @ means)
        roots = np.tile(root, (len(weights), 1, 1))
        return self._as_density(weights, means, roots), least

    def _match(
        self,
        points: NDArray[np.float64],
        weights: NDArray[np.float64],
        root: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], float]:
        r"""Shares of points that give every cell its share and nearly its mean.

        In a cell with mean m where the points have mean :math:`\hat m` and covariance
        C, points x get a weight :math:`\propto e^{(x - \hat m)^\top C^{-1}
        (m - \hat m)}`: of all weights with that mean those closest to equal ones, to
        first order. A cell that no point falls in is left out. Also the misfit.
        """
        size, half, r = points.shape
        flat, share = points.reshape(-1, r), np.repeat(weights / half, half)
        cells = nearest(flat, self.part.anchors.astype(np.float64))
        order = np.argsort(cells, kind="stable")
        hit, first, which = np.unique(
            cells[order], return_index=True, return_inverse=True
        )
        local, heavy = flat[order], share[order]
        found = np.add.reduceat(heavy, first)
        middle = np.add.reduceat(heavy[:, None] * local, first) / found[:, None]
        away = local - middle[which]
        products = (heavy[:, None] * away)[:, :, None] * away[:, None]
        spread = np.add.reduceat(products.reshape(-1, r * r), first) / found[:, None]
        ridge = _RIDGE * root @ root.T
        gaps = self.means[hit] - middle
        slopes = np.linalg.solve(spread.reshape(-1, r, r) + ridge, gaps[:, :, None])
        tilt = np.exp(
            np.clip((away * slopes[which, :, 0]).sum(axis=1), -_STEEP, _STEEP)
        )
        tilted = np.add.reduceat(heavy * tilt, first)
        matched = np.empty(len(flat))
        matched[order] = heavy * tilt * (self.shares[hit] / tilted)[which]
        shares = np.zeros(len(self.shares))
        shares[hit] = found
        wrong = np.abs(shares - self.shares).sum() / 2
        error = self.shares[hit] @ (gaps**2).sum(axis=1) / (root**2).sum()
        return matched.reshape(size, half), float(wrong + error)

    def _root(self, within: NDArray[np.float64]) -> NDArray[np.float64]:
        """Root of a covariance that is nowhere too narrow."""
        values, vectors = np.linalg.eigh(within)
        least = _NARROWEST * np.trace(self.second) / len(values)
        root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, least))
        return root

    def _as_density(
        self,
        weights: NDArray[np.float64],
        means: NDArray[np.float64],
        factors: NDArray[np.float64],
    ) -> Density:
        moments, lift = self.moments, lift_of(self.part)
        middle = basis_of(self.part).T @ (moments.mean - centre_of(self.part))
        # Directions the cells do not see keep the mean of all rows.
        centre = moments.mean - lift @ middle
        outside = outside_variance(moments.covariance, lift)
        return Density(moments.count, weights, means, factors, lift, centre, outside)


def _room(
    means: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distance of each cell to the nearest other, 1 on average."""
    if len(means) < 2:
        return np.ones(len(means))
    squares = (means**2).sum(axis=1)
    gaps = np.maximum(squares[:, None] + squares - 2 * means @ means.T, 0.0)
    np.fill_diagonal(gaps, np.inf)
    nearest = gaps.min(axis=1)
    room = np.minimum(nearest, 4 * np.median(nearest)) + 1e-300
    return np.asarray(room / (weights @ room))
