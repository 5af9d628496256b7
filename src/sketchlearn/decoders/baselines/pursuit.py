"""The steps of a matching pursuit over a continuum of atoms, on one sketch.

In which order they are taken is the business of
:mod:`sketchlearn.decoders.baselines.cl_ompr`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize, nnls

from sketchlearn.decoders.clusters.atomic_sketch import AtomicSketch

__all__ = ["AtomKind", "ClOmprTuning", "Pursuit", "Pursued"]

AtomKind = Literal["dirac", "gaussian", "diagonal"]


@final
@dataclass(frozen=True)
class ClOmprTuning:
    """Hand-tuned numbers of CL-OMPR.

    Checked by the inertia of synthetic mixtures and the length of the search, the cases
    of ``benchmarks/tuning.py``.
    """

    least_spread: float = 1e-3
    """Least deviation of a cluster with variances of its own, over the width of the
    box: a cluster of none would explain noise."""

    noise_margin: float = 1.5
    """A search that leaves so many times the noise of the sketch has explained it, and
    no other one is made."""

    tolerance: float = 1e-9
    """Fall of the loss, of the square of the sketch, at which a round ends.
    Checked by what is left of a sketch whose kernel is wider than the box."""

    last_tolerance: float = 1e-14
    """That of the last descent. Checked by the same."""


@final
@dataclass(frozen=True, eq=False)
class Pursued:
    """Clusters in scaled units; ``variances`` are full-sized whatever the kind."""

    centers: NDArray[np.float64]
    weights: NDArray[np.float64]
    variances: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Pursuit:
    """The steps of the pursuit, on one sketch."""

    part: AtomicSketch
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    kind: AtomKind
    tuning: ClOmprTuning

    @property
    def size(self) -> float:
        """Norm of the sketch: losses are relative to its square."""
        return max(float(np.linalg.norm(self.part.target)), 1e-300)

    @property
    def variance_box(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smallest and largest variance of a cluster, by feature."""
        width = np.maximum(self.high - self.low, 1e-12)
        smallest = self.tuning.least_spread if self.kind == "diagonal" else 0.0
        return (smallest * width) ** 2, (width / 2) ** 2

    def is_explained(self, result: OptimizeResult) -> bool:
        """Whether what is left of the sketch may well be noise."""
        noise = self.part.noise * len(self.part.target) ** 0.5 / self.size
        return bool(2 * result.fun <= (self.tuning.noise_margin * noise) ** 2)

    def start(self) -> Pursued:
        """No cluster at all."""
        empty = np.empty((0, len(self.low)))
        return Pursued(empty, np.empty(0), empty)

    def residual(self, state: Pursued) -> NDArray[np.float64]:
        """What the clusters leave unexplained of the sketch."""
        atoms, _ = self.part.atoms.linearise(state.centers, state.variances)
        return np.asarray(self.part.target - state.weights @ atoms)

    def add(self, state: Pursued, n_starts: int, rng: np.random.Generator) -> Pursued:
        """One more cluster, where its atom points most along the residual."""
        residual, spread = self.residual(state), self._first_variance(state)
        tries = [
            self._best_atom(residual, rng.uniform(self.low, self.high), spread)
            for _ in range(n_starts)
        ]
        _, center, variance = min(tries, key=lambda found: found[0])
        return Pursued(
            centers=np.vstack([state.centers, center]),
            weights=np.append(state.weights, 0.0),
            variances=np.vstack([state.variances, variance]),
        )

    def drop_weakest(self, state: Pursued) -> Pursued:
        """One cluster less: the one whose normalised atom is needed least."""
        atoms, _ = self.part.atoms.linearise(state.centers, state.variances)
        norms = np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1e-300)
        weights, _ = nnls((atoms / norms).T, self.part.target)
        keep = np.arange(len(weights)) != np.argmin(weights)
        return Pursued(state.centers[keep], state.weights[keep], state.variances[keep])

    def weigh(self, state: Pursued) -> Pursued:
        """The best non-negative weights of these clusters."""
        atoms, _ = self.part.atoms.linearise(state.centers, state.variances)
        weights, _ = nnls(atoms.T, self.part.target)
        return Pursued(state.centers, weights, state.variances)

    def improve(
        self, state: Pursued, max_iter: int, tolerance: float
    ) -> tuple[Pursued, OptimizeResult]:
        """Descend in centers, variances and weights together."""
        n, unit = len(state.weights), self.part.atoms.unit
        spreads = self._pack_variances(state.variances)
        first = np.concatenate(
            [state.centers.ravel() / unit, spreads / unit**2, state.weights]
        )

        def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            now = self._unpack(vector, n)
            atoms, pull = self.part.atoms.linearise(now.centers, now.variances)
            error = (now.weights @ atoms - self.part.target) / self.size**2
            by_center, by_variance = pull(now.weights[:, None] * error)
            slope = [by_center.ravel() * unit]
            slope += [self._sum_variances(by_variance) * unit**2, atoms @ error]
            value = 0.5 * float(error @ error) * self.size**2
            return value, np.concatenate(slope)

        result = minimize(
            loss,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(n),
            options={"maxiter": max_iter, "ftol": tolerance, "gtol": 1e-10},
        )
        return self._unpack(result.x, n), result

    def _best_atom(
        self,
        residual: NDArray[np.float64],
        center: NDArray[np.float64],
        variance: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Climb the correlation of a normalised atom with the residual."""
        unit, d = self.part.atoms.unit, len(center)
        along = residual / max(float(np.linalg.norm(residual)), 1e-300)
        free = self.kind == "diagonal"

        def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            spread = vector[d:] * unit**2 if free else variance
            atoms, pull = self.part.atoms.linearise(
                vector[None, :d] * unit, spread[None]
            )
            norm = max(float(np.linalg.norm(atoms)), 1e-300)
            value = float(atoms[0] @ along) / norm
            by_center, by_variance = pull((value * atoms / norm - along) / norm)
            slope = [by_center[0] * unit]
            slope += [by_variance[0] * unit**2] if free else []
            return -value, np.concatenate(slope)

        first = np.concatenate([center / unit, variance[: d * free] / unit**2])
        low, high = self.variance_box
        lows = np.concatenate([self.low / unit, low[: d * free] / unit**2])
        highs = np.concatenate([self.high / unit, high[: d * free] / unit**2])
        box = list(zip(lows, highs, strict=True))
        found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=box)
        spread = found.x[d:] * unit**2 if free else variance
        return float(found.fun), found.x[:d] * unit, spread

    def _first_variance(self, state: Pursued) -> NDArray[np.float64]:
        """Variance at which a new cluster starts, by feature."""
        common, (low, high) = self.part.atoms.unit**2, self.variance_box
        if self.kind == "diagonal":
            return np.asarray(np.clip(common, low, high))
        if self.kind == "dirac":
            common = 0.0
        elif len(state.variances):
            common = float(state.variances[0, 0])
        return np.full(len(self.low), min(common, float(high.max())))

    def _pack_variances(self, variances: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.kind == "diagonal":
            return variances.ravel()
        return variances[0, : self.kind == "gaussian"]

    def _sum_variances(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.kind == "diagonal":
            return slopes.ravel()
        return np.full(int(self.kind == "gaussian"), slopes.sum())

    def _unpack(self, vector: NDArray[np.float64], n: int) -> Pursued:
        d, unit = len(self.low), self.part.atoms.unit
        centers = vector[: n * d].reshape(n, d) * unit
        spreads = vector[n * d : len(vector) - n] * unit**2
        variances = np.zeros((n, d))
        if self.kind == "gaussian":
            variances += spreads
        elif self.kind == "diagonal":
            variances += spreads.reshape(n, d)
        return Pursued(centers, vector[len(vector) - n :], variances)

    def _bounds(self, n: int) -> list[tuple[float, float]]:
        unit, (small, large) = self.part.atoms.unit, self.variance_box
        box = list(zip(self.low / unit, self.high / unit, strict=True)) * n
        spreads = list(zip(small / unit**2, large / unit**2, strict=True))
        if self.kind == "gaussian":
            box += [(0.0, float(large.max()) / unit**2)]
        elif self.kind == "diagonal":
            box += spreads * n
        return box + [(0.0, np.inf)] * n
