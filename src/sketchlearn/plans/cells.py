r"""Where the cells of a second round should lie, from the moments of the first.

Anchors are the centers of rows guessed from the moments. For clusters, rows are seen in
their own units, as their distances are. For mixtures they are seen in principal
directions of features in given units, with every direction scaled by the fourth root of
its variance: halfway between the rows as they are, whose widest directions would take
all cells, and whitened rows, whose noise would.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.density.lloyd import place_anchors
from sketchlearn.decoders.density.moment_density import (
    pointing_up,
    principal_directions,
)
from sketchlearn.decoders.density.prior import copula_rows
from sketchlearn.features.anchors import FARTHEST
from sketchlearn.features.cells import CellFeatures
from sketchlearn.plans.first_round import FirstRound

__all__ = [
    "AbstractCellPlan",
    "ClusterCells",
    "ClusterCellTuning",
    "MixtureCells",
    "MixtureCellTuning",
]


class AbstractCellPlan(ABC):
    """Which cells a second round sketches."""

    @abstractmethod
    def numbers(self, n_features: int, most: int) -> int:
        """Numbers that enough cells hold, of which ``most`` are affordable."""

    @abstractmethod
    def place(self, known: FirstRound, seed: int) -> CellFeatures | None:
        """The cells; None if there is no room for two, or nothing varies."""


@final
@dataclass(frozen=True)
class ClusterCellTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    cells: int = 24
    """For each cluster, by default: the median of training tables is then 1.02 to 1.08
    times the inertia of Lloyd's for 20 to 100 clusters."""

    enough_cells: int = 6
    """For each cluster, where cells have many directions."""

    directions: int = 14
    """That cells have where there are few clusters."""

    most_directions: int = 64
    """That they have at most: the centers of k clusters differ in k - 1."""

    weak: float = 1e-3
    """Directions with less than this share of the largest variance get no cells."""

    guessed_rows: int = 4096
    """Guessed from the moments, to place cells among."""

    farthest: float = 7.9
    """Largest coordinate of a row in units of the cells: where bounds are wide, larger
    ones add to the norm of the features, and to the noise of a release."""


@final
@dataclass(frozen=True)
class ClusterCells(AbstractCellPlan):
    """Cells that hold counts and means, for k-means.

    Parameters
    ----------
    n_clusters : int
        k.
    tuning : ClusterCellTuning
    """

    n_clusters: int
    tuning: ClusterCellTuning = ClusterCellTuning()

    @override
    def numbers(self, n_features: int, most: int) -> int:
        cells = self.tuning.cells * self.n_clusters
        return cells * (1 + self._directions(n_features, most // cells - 1))

    def _directions(self, n_features: int, affordable: int) -> int:
        """How many directions cells have, of which some more are affordable."""
        tuning = self.tuning
        most = min(tuning.most_directions, self.n_clusters - 1, affordable)
        return min(n_features, max(tuning.directions, most))

    @override
    def place(self, known: FirstRound, seed: int) -> CellFeatures | None:
        tuning, moments = self.tuning, known.moments
        values, directions = principal_directions(moments, tuning.most_directions)
        directions = pointing_up(directions)
        strong = int((values > tuning.weak * values[:1]).sum())
        affordable = known.room // (tuning.enough_cells * self.n_clusters) - 1
        r = self._directions(moments.n_directions, affordable)
        r = min(r, strong, known.room // 4)
        if r < 1:
            return None
        ways = np.abs(known.scaled_basis(directions[:, :r]))
        farthest = ways.T @ (known.moment_map.reach + np.abs(known.scaled_center))
        least = float(farthest.max()) / tuning.farthest
        basis = directions[:, :r] / max(float(np.sqrt(values[0])), least)
        local = _guessed(known, basis, tuning.guessed_rows, seed)
        anchors = place_anchors(local, known.room // (1 + r), seed)
        return _cells(known, anchors, basis, None)


@final
@dataclass(frozen=True)
class MixtureCellTuning:
    """Numbers that were set by hand; benchmarks/tuning.py moves each of them."""

    cells: int = 4
    """For each component, by default."""

    directions: int = 14
    """That cells have room for by default."""

    fewest_cells: int = 8
    """Or three for each component, before cells get second moments."""

    weak: float = 1e-6
    """Directions with less than this share of the largest variance get no cells."""

    thin: float = 1e-4
    """Directions with a smaller share of the largest variance are scaled as if they had
    it: their squares would be lost to rounding otherwise."""

    guessed_rows: int = 4096
    """Guessed from the moments, to place cells among."""


@final
@dataclass(frozen=True, eq=False)
class MixtureCells(AbstractCellPlan):
    """Cells with as much of their second moments as there is room for.

    Parameters
    ----------
    n_components : int
        Components that the cells should tell apart.
    along_features : bool
        Coordinates are features rather than principal directions, without products.
    units : array of shape (d,), optional
        What counts as one in each feature; their deviations by default.
    tuning : MixtureCellTuning
    """

    n_components: int
    along_features: bool
    units: NDArray[np.float64] | None = None
    tuning: MixtureCellTuning = MixtureCellTuning()

    @override
    def numbers(self, n_features: int, most: int) -> int:
        r = min(self.tuning.directions, n_features)
        products = 0 if self.along_features else r * (r - 1) // 2
        cells = self.tuning.cells * self.n_components if self.n_components > 1 else 0
        return cells * (1 + 2 * r + products)

    @override
    def place(self, known: FirstRound, seed: int) -> CellFeatures | None:
        tuning, room = self.tuning, known.room
        units = self._units(known)
        values, vectors = self._axes(known, units)
        strong = int((values > max(tuning.weak * values[0], 1e-300)).sum())
        n_known = len(values) if self.along_features else known.moments.n_directions
        fewest = self.n_components + 1  # every feature, if cells tell components apart
        if not self.along_features:
            fewest = max(tuning.fewest_cells, 3 * self.n_components)
        most = min(max((room // fewest - 1) // 2, 1), (room // 2 - 1) // 2)
        r = min(strong, n_known, most)
        if r < 1:
            return None
        kept = np.maximum(values[:r], tuning.thin * values[0])
        basis = vectors[:, :r] * (values[0] * kept) ** -0.25 / units[:, None]
        crossed = 0 if self.along_features else self._affordable(r, room)
        local = _guessed(known, basis, tuning.guessed_rows, seed)
        n_cells = room // (1 + 2 * r + crossed * (crossed - 1) // 2)
        anchors = np.clip(place_anchors(local, n_cells, seed), -FARTHEST, FARTHEST)
        return _cells(known, anchors, basis, crossed)

    def _units(self, known: FirstRound) -> NDArray[np.float64]:
        units = self.units
        if units is None:
            units = np.sqrt(np.maximum(known.moments.structure.variances, 0.0))
        return np.where(units > 0, units, 1.0)

    def _axes(
        self, known: FirstRound, units: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Variances, largest first, and directions of features in these units."""
        scaled = known.moments.structure.scaled(1 / units)
        if not self.along_features:
            values, vectors = scaled.largest(len(units))
            return values, pointing_up(vectors)
        order = np.argsort(-scaled.variances, kind="stable")
        return scaled.variances[order], np.eye(len(units))[:, order]

    def _affordable(self, r: int, room: int) -> int:
        """Coordinates whose products are worth their place beside means and squares.

        All of them if that leaves more cells than components, otherwise as many as
        leave three cells for each: measured on training tables and synthetic mixtures.
        """
        fewest, size = self.tuning.fewest_cells, self.n_components
        whole = 1 + 2 * r + r * (r - 1) // 2
        if room // whole >= max(fewest, size + 4):
            return r
        cell_size = room // max(fewest, 3 * size)
        crossed = 1
        while crossed < r and 1 + 2 * r + crossed * (crossed + 1) // 2 <= cell_size:
            crossed += 1
        return crossed


def _guessed(
    known: FirstRound, basis: NDArray[np.float64], n_rows: int, seed: int
) -> NDArray[np.float64]:
    """Rows guessed from what is known, in the coordinates of cells."""
    rng = np.random.default_rng([seed, 2])
    rows = copula_rows(known.moments, known.low, known.high, n_rows=n_rows, rng=rng)
    return np.asarray((rows - known.moments.mean) @ basis)


def _cells(
    known: FirstRound,
    anchors: NDArray[np.float64],
    basis: NDArray[np.float64],
    n_crossed: int | None,
) -> CellFeatures:
    return CellFeatures(
        anchors,
        basis=known.scaled_basis(basis),
        centre=known.scaled_center,
        reach=known.moment_map.reach,
        origin=known.origin,
        n_crossed=n_crossed,
        scaling=known.moment_map.scaling,
    )
