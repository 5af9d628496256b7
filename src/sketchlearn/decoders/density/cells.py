r"""What a sketch of cells says: share, mean and spread of the rows in each of them.

Every cell is a piece of the rows that is known like a Gaussian. On their own the
pieces are a density. Points drawn from elsewhere, from a mixture say, can be weighted
until they have the share and the moments of every cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.mixture import Density, Mixture, outside_variance
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.features.cells import CellFeatures

__all__ = ["CellFrame", "CellTuning", "Cells"]

Array: TypeAlias = NDArray[np.float64]

_DISTANCES = 2**22
"""Distances that are kept in memory at a time."""

_CONSTANT = 1e-12
"""Coordinates with a smaller share of the largest variance of their cell do not vary
in it: no weights give points another spread there."""


@final
@dataclass(frozen=True)
class CellTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    noise_deviations: float = 3.0
    """A cell of a release is seen if its share is above so much noise."""

    visible: float = 0.5
    """Share of the rows in cells that are seen, at least, to say anything of them."""

    trusted_share: float = 10.0
    """Shares, in units of the noise, at which the spread of a cell of a release counts
    half and the spread of all cells the other half."""

    ridge: float = 0.05
    """Keeps weights from following the accidents of a few points."""

    newton_steps: int = 3
    """Towards weights that give points the moments of a cell."""

    points_per_moment: float = 1.5
    """Points a cell must have, for each of its moments, to be weighted by them."""

    widest_gap: float = 4.0
    """Squared distance to the nearest other cell, in units of the median, beyond which
    cells without second moments are taken to be no wider."""


@final
@dataclass(frozen=True, eq=False)
class CellFrame:
    """The coordinates z = Bᵀ(x - c) of a map of cells, for rows in their own units.

    Parameters
    ----------
    part : CellFeatures
    """

    part: CellFeatures

    @cached_property
    def basis(self) -> Array:
        """B, shape (d, r)."""
        basis, scaling = self.part.basis.astype(np.float64), self.part.scaling
        return basis if scaling is None else basis * scaling.factor[:, None]

    @cached_property
    def lift(self) -> Array:
        """How z comes back to rows: shape (d, r)."""
        return np.asarray(np.linalg.pinv(self.basis).T)

    @property
    def origin(self) -> Array:
        """c, as a row."""
        scaling = self.part.scaling
        if scaling is None:
            return self.part.centre
        return np.asarray(self.part.centre / scaling.factor + scaling.shift)

    @property
    def anchors(self) -> Array:
        """Of the cells, shape (A, r)."""
        return self.part.anchors.astype(np.float64)

    def of_rows(self, rows: Array) -> Array:
        """Z of some rows."""
        return np.asarray((rows - self.origin) @ self.basis)


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """Moments of the rows in each cell, in the coordinates z of its map.

    Parameters
    ----------
    frame : CellFrame
        Which cells they are.
    shares : array of shape (A,)
        Of the rows in each cell; 0 where there are none.
    means : array of shape (A, r)
        Of the rows in each cell, its anchor where there are none.
    spread : array of shape (A, r, r), or (A, r)
        Covariances of the rows in each cell; where only means were sketched, variances
        guessed from the distances between cells.
    second : array of shape (r, r)
        Mean of z zᵀ over all rows.
    tuning : CellTuning
    """

    frame: CellFrame
    shares: Array
    means: Array
    spread: Array
    second: Array
    tuning: CellTuning = CellTuning()

    @property
    def has_second_moments(self) -> bool:
        """Whether the spread was sketched and not guessed."""
        return self.spread.ndim == 3

    def density(self, moments: Moments) -> Density:
        """Every cell that holds rows as a component."""
        seen = self.shares > 0
        factors = self.spread[seen]
        if self.has_second_moments:
            values, vectors = np.linalg.eigh(factors)
            factors = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        else:
            factors = np.sqrt(factors)
        return self.lifted(
            Mixture(self.shares[seen], self.means[seen], factors), moments
        )

    def lifted(self, mixture: Mixture, moments: Moments) -> Density:
        """A mixture of z as a density of rows, whose moments are given.

        Directions without cells keep the mean of all rows and their mean variance.
        """
        lift = self.frame.lift
        center = moments.mean - lift @ self.frame.of_rows(moments.mean)
        outside = outside_variance(moments.structure, lift)
        return Density(moments.count, mixture, lift, center, outside)

    def locate(self, points: Array) -> NDArray[np.int64]:
        """Cell of each point."""
        anchors = self.frame.anchors
        half_squares = (anchors**2).sum(axis=1) / 2
        size = max(1, _DISTANCES // len(anchors))
        found = [
            (points[start : start + size] @ anchors.T - half_squares).argmax(axis=1)
            for start in range(0, len(points), size)
        ]
        return np.concatenate(found)

    def misplaced(
        self, located: NDArray[np.int64], weights: Array | None = None
    ) -> float:
        """Share of the rows that would have to change cells to lie as points do.

        Parameters
        ----------
        located : array of shape (n,)
            The cell of each point.
        weights : array of shape (n,), optional
            Of the points, of sum one; equal ones by default.
        """
        n, size = len(located), len(self.shares)
        given = np.full(n, 1 / n) if weights is None else weights
        placed = np.bincount(located, given, minlength=size)
        return float(np.abs(placed - self.shares).sum() / 2)

    def expected_misplaced(self, n_points: float, n_rows: float) -> float:
        r"""What :meth:`misplaced` is on average if points are drawn as rows were.

        With N rows and n points, the share p of a cell is off by a normal deviate of
        variance :math:`p\,(1/n + 1/N)`, whose magnitude is :math:`\sqrt{2/\pi}` of
        its deviation.
        """
        deviations = np.sqrt(self.shares * (1 / n_points + 1 / n_rows))
        return float(deviations.sum() / np.sqrt(2 * np.pi))

    def draw(self, n_points: int, rng: np.random.Generator) -> Array:
        """About ``n_points`` points, with the moments of every cell."""
        ends = np.floor(n_points * np.cumsum(self.shares) + rng.random()).astype(int)
        counts = np.diff(ends, prepend=0)
        pieces = []
        for cell in np.flatnonzero(counts):
            spread = self.spread[cell]
            if not self.has_second_moments:
                spread = np.diag(spread)
            values, vectors = np.linalg.eigh(spread)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            unit = _standard(rng.standard_normal((counts[cell], len(root))))
            pieces.append(self.means[cell] + unit @ root.T)
        return np.concatenate(pieces)

    def weigh(
        self,
        points: Array,
        located: NDArray[np.int64],
        given: Array | None = None,
    ) -> Array:
        """Weights, nearest to those given, that give points the moments of the cells.

        Points in cells with too few of them only get the right share; a cell without
        points is left out. By default points have equal weights. ``located`` is the
        cell of each.
        """
        base = np.ones(len(points)) if given is None else given
        weights, order = np.zeros(len(points)), np.argsort(located, kind="stable")
        hit, first = np.unique(located[order], return_index=True)
        for cell, inside in zip(hit, np.split(order, first[1:]), strict=True):
            own = base[inside] / max(float(base[inside].sum()), 1e-300)
            excess = self._excess(points[inside], int(cell))
            if len(inside) > self.tuning.points_per_moment * excess.shape[1]:
                own = _tilt(excess, own, self.tuning, self._newton_steps)
            weights[inside] = self.shares[cell] * own
        total = float(weights.sum())
        return weights / total if total else np.full(len(points), 1 / len(points))

    @property
    def _newton_steps(self) -> int:
        """Of a tilt: means alone are as good as there after one."""
        return self.tuning.newton_steps if self.has_second_moments else 1

    def _excess(self, points: Array, cell: int) -> Array:
        """Statistics of points that should be zero on average in a cell.

        In coordinates that are uncorrelated in the cell, as far as that is known: they
        themselves and, where they were sketched, their squares and products.
        """
        away, spread = points - self.means[cell], self.spread[cell]
        if not self.has_second_moments:
            kept = spread > _CONSTANT * max(float(spread.max()), 1e-300)
            return np.asarray(away[:, kept] / np.sqrt(spread[kept]))
        s = self.frame.part.n_crossed or 0
        values, vectors = np.linalg.eigh(spread[:s, :s])
        variances = np.concatenate([values, np.diag(spread)[s:]])
        kept = variances > _CONSTANT * max(float(variances.max()), 1e-300)
        turned = np.concatenate([away[:, :s] @ vectors, away[:, s:]], axis=1)
        unit = turned[:, kept] / np.sqrt(variances[kept])
        a, b = np.tril_indices(int(kept[:s].sum()), -1)
        squares, products = (unit**2 - 1) / 2**0.5, unit[:, a] * unit[:, b]
        return np.concatenate([unit, squares, products], axis=1)


def _standard(unit: Array) -> Array:
    """Random points with mean zero and, if they are many, covariance one."""
    unit = unit - unit.mean(axis=0)
    n, r = unit.shape
    if n <= 2 * r:
        return unit
    values, vectors = np.linalg.eigh(unit.T @ unit / n)
    return np.asarray(unit @ (vectors / np.sqrt(values)) @ vectors.T)


def _tilt(excess: Array, given: Array, tuning: CellTuning, n_steps: int) -> Array:
    r"""Weights :math:`\propto g\, e^{\lambda^\top t}` that bring the mean of t to zero.

    A few damped Newton steps on the convex :math:`\log \sum g\, e^{\lambda^\top t}`.
    """
    size = excess.shape[1]
    slope, level, weights = np.zeros(size), 0.0, given
    for _ in range(n_steps):
        mean = weights @ excess
        away = excess - mean
        curvature = (away * weights[:, None]).T @ away
        ridge = tuning.ridge + 1e-9 * float(np.trace(curvature))
        curvature += ridge * np.eye(size)
        step = np.linalg.solve(curvature, mean)
        for scale in (1.0, 0.5, 0.25, 0.125):
            exponent = excess @ (slope - scale * step)
            top = float(exponent.max())
            tilted = given * np.exp(exponent - top)
            lower = float(np.log(tilted.sum())) + top
            if lower < level:
                break
        else:
            break
        slope, level = slope - scale * step, lower
        weights = tilted / tilted.sum()
    return weights
