r"""Densities from the cells of a partition: counts and means of the rows in each.

On their own, cells become one component each, in closed form. A mixture that was found
elsewhere (from Fourier features, say) can be held against them: points drawn from it
are weighted and moved until every cell has its share and its mean, and the mixture is
fitted to these points again. Where it explains the cells, it knows what they cannot:
how rows lie inside a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density_model import Density, outside_variance
from sketchlearn.decoders.low_rank import Moments
from sketchlearn.features.subspace import CellFeatures, SubspaceFourierFeatures

__all__ = ["CellStatistics", "basis_of", "centre_of", "lift_of"]

_POINTS = 8192
_FEWEST = 1e-4
"""Components with a smaller share are dropped from a matched mixture."""

_NARROWEST = 1e-4
"""Least variance of a matched component, as a share of the mean variance."""


def basis_of(part: CellFeatures | SubspaceFourierFeatures) -> NDArray[np.float64]:
    """B for rows in their own units, shape (d, r)."""
    basis = part.basis.astype(np.float64)
    return basis if part.scaling is None else basis * part.scaling.factor[:, None]


def lift_of(part: CellFeatures | SubspaceFourierFeatures) -> NDArray[np.float64]:
    """How z of a planned map comes back to rows: shape (d, r)."""
    return np.asarray(np.linalg.pinv(basis_of(part)).T)


def centre_of(part: CellFeatures | SubspaceFourierFeatures) -> NDArray[np.float64]:
    """Where z is zero, as a row."""
    if part.scaling is None:
        return part.centre
    return part.centre / part.scaling.factor + part.scaling.shift


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
        away = table[seen, 1:] / shares[:, None] - means[seen]
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
        r"""A mixture of one covariance that explains the cells, and how well.

        Its components start at those of ``density``. Their common covariance is what
        their means leave of the second moment, :math:`S - \sum_j \alpha_j
        \mu_j\mu_j^\top`. The misfit is the share of rows in the wrong cell, plus the
        squared error of the means of the cells over the variance inside components;
        the iterate with the smallest is returned.
        """
        basis, centre = basis_of(self.part), centre_of(self.part)
        weights = density.weights
        means = (density.component_means - centre) @ basis
        half = max(1, _POINTS // (2 * len(weights)))
        unit = rng.standard_normal((len(weights), half, means.shape[1]))
        unit = np.concatenate([unit, -unit], axis=1)
        best, least = self.density(), np.inf
        for _ in range(n_iter):
            root = self._root(weights, means)
            points = means[:, None] + unit @ root.T
            moved, shares, misfit = self._match(points, weights, root)
            if misfit < least:
                roots = np.tile(root, (len(weights), 1, 1))
                best, least = self._as_density(weights, means, roots), misfit
            weights = shares.sum(axis=1)
            kept = weights > _FEWEST
            means = np.einsum("jp,jpa->ja", shares[kept], moved[kept])
            means /= weights[kept, None]
            weights, unit = weights[kept] / weights[kept].sum(), unit[kept]
        return best, least

    def _match(
        self,
        points: NDArray[np.float64],
        weights: NDArray[np.float64],
        root: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Points moved to the means of their cells, their new shares, and the misfit.

        A cell that no point falls in is left out.
        """
        size, half, r = points.shape
        flat, share = points.reshape(-1, r), np.repeat(weights / half, half)
        anchors = self.part.anchors.astype(np.float64)
        cells = (flat @ anchors.T - (anchors**2).sum(axis=1) / 2).argmax(axis=1)
        found = np.bincount(cells, share, len(anchors))
        safe = np.maximum(found, 1e-300)
        sums = [np.bincount(cells, share * flat[:, a], len(anchors)) for a in range(r)]
        gaps = self.means - np.stack(sums, axis=1) / safe[:, None]
        gaps[found == 0] = 0.0
        wrong = np.abs(found - self.shares).sum() / 2
        error = self.shares @ (gaps**2).sum(axis=1) / max((root**2).sum(), 1e-300)
        moved = flat + gaps[cells]
        factor = (self.shares / safe)[cells]
        return (
            moved.reshape(points.shape),
            (share * factor).reshape(size, half),
            float(wrong + error),
        )

    def _root(
        self, weights: NDArray[np.float64], means: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Root of the covariance that all components share."""
        within = self.second - (weights[:, None] * means).T @ means
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
