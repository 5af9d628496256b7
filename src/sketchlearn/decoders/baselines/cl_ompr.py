r"""CL-OMPR: clusters from a sketch, one atom at a time, with replacement.

Greedy search for the atoms that explain the sketch (Keriven et al., "Compressive
k-means", 2017; "Sketching for large-scale learning of mixture models", 2018),

.. math::
    \min_{\alpha \ge 0,\,\mu,\,S}
    \Big\lVert z - \sum_{l=1}^{k} \alpha_l\, a(\mu_l, S_l) \Big\rVert^2 .

Each of k rounds (2k with replacement) adds the atom that correlates best with the
residual, drops the least useful one if there are more than k, finds the weights by
non-negative least squares, and improves everything together by L-BFGS. The field fits
points, which biases the centres of spread clusters; a variance that all clusters share
costs one number more and removes that bias where clusters are round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize, nnls
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.clusters.atoms import AtomicSketch, Clusters, read_atomic
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AtomKind", "CLOMPRDecoder"]

AtomKind = Literal["dirac", "gaussian", "diagonal"]

_SMALLEST_SPREAD = 1e-3
_NOISE_MARGIN = 1.5


@final
@dataclass(frozen=True, eq=False)
class CLOMPRDecoder(AbstractDecoder[Clusters]):
    r"""Clusters by orthogonal matching pursuit over a continuum of atoms.

    Parameters
    ----------
    n_clusters : int
        k.
    atoms : {"gaussian", "dirac", "diagonal"}
        ``"dirac"`` fits points (the field's compressive k-means), ``"gaussian"`` round
        clusters of one common, free variance, and ``"diagonal"`` a Gaussian mixture
        with variances of its own for each cluster and feature.
    replacement : bool
        Run 2k rounds and drop an atom in each of the last k (CL-OMPR), rather than k
        rounds (CL-OMP).
    n_starts : int
        Random starts of the search for a new atom; the best is kept.
    n_restarts : int
        Whole searches at most; the one of least residual is kept. None is added to one
        that explains the sketch up to its sampling (and privacy) noise.
    bounds : (low, high), optional
        Box of the centres in the units of the rows, numbers or vectors; by default the
        range declared by the scaling of the feature map.
    max_iter : int
        L-BFGS steps in each round; ten times as many in the last one.
    seed : int
        Same seed, same result.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=1, sketch_size=40, seed=1)
    >>> sketch = sl.sketch_rows([[-2.0], [3.0], [3.0], [3.0]], phi)
    >>> decoder = CLOMPRDecoder(2, atoms="dirac", bounds=(-5, 5))
    >>> found = decoder.decode(sketch).params
    >>> found.centres.round(3).tolist(), found.weights.round(3).tolist()
    ([[3.0], [-2.0]], [0.75, 0.25])
    """

    n_clusters: int
    atoms: AtomKind = "gaussian"
    replacement: bool = True
    n_starts: int = 3
    n_restarts: int = 3
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    max_iter: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_starts", "n_restarts", "max_iter"):
            require_positive_int(name, getattr(self, name))
        if self.atoms not in get_args(AtomKind):
            raise FeatureMapError(
                f"atoms must be one of {', '.join(get_args(AtomKind))}; got "
                f"{self.atoms!r}."
            )

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Clusters]:
        part = read_atomic(sketch)
        low, high = part.box(self.bounds)
        rng = np.random.default_rng(self.seed)
        search = _Search(part, low, high, self.atoms)
        rounds = 2 * self.n_clusters if self.replacement else self.n_clusters
        found: list[tuple[_State, OptimizeResult]] = []
        while len(found) < self.n_restarts:
            found.append(self._run(search, rounds, rng))
            if search.is_explained(found[-1][1]):
                break
        state, result = min(found, key=lambda pair: float(pair[1].fun))
        params = part.clusters(state.centres, state.weights, state.variances)
        return Decoding(
            params,
            residual=float(np.sqrt(2 * result.fun)),
            n_iter=rounds * len(found),
            converged=bool(result.success),
        )

    def _run(
        self, search: _Search, rounds: int, rng: np.random.Generator
    ) -> tuple[_State, OptimizeResult]:
        state = search.start()
        for _ in range(rounds):
            state = search.add(state, self.n_starts, rng)
            if len(state.weights) > self.n_clusters:
                state = search.drop_weakest(state)
            state = search.weigh(state)
            state, _ = search.improve(state, self.max_iter, 1e-9)
        return search.improve(state, 10 * self.max_iter, 1e-14)


@final
@dataclass(frozen=True, eq=False)
class _State:
    """Clusters in scaled units; ``variances`` are full-sized whatever the kind."""

    centres: NDArray[np.float64]
    weights: NDArray[np.float64]
    variances: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class _Search:
    """The steps of the pursuit, on one sketch."""

    part: AtomicSketch
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    kind: AtomKind

    @property
    def size(self) -> float:
        """Norm of the sketch: losses are relative to its square."""
        return max(float(np.linalg.norm(self.part.target)), 1e-300)

    @property
    def variance_box(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smallest and largest variance of a cluster, by feature."""
        width = np.maximum(self.high - self.low, 1e-12)
        smallest = _SMALLEST_SPREAD if self.kind == "diagonal" else 0.0
        return (smallest * width) ** 2, (width / 2) ** 2

    def is_explained(self, result: OptimizeResult) -> bool:
        """Whether what is left of the sketch may well be noise."""
        noise = self.part.noise * len(self.part.target) ** 0.5 / self.size
        return bool(2 * result.fun <= (_NOISE_MARGIN * noise) ** 2)

    def start(self) -> _State:
        """No cluster at all."""
        empty = np.empty((0, len(self.low)))
        return _State(empty, np.empty(0), empty)

    def residual(self, state: _State) -> NDArray[np.float64]:
        """What the clusters leave unexplained of the sketch."""
        atoms, _ = self.part.atoms.linearise(state.centres, state.variances)
        return np.asarray(self.part.target - state.weights @ atoms)

    def add(self, state: _State, n_starts: int, rng: np.random.Generator) -> _State:
        """One more cluster, where its atom points most along the residual."""
        residual, spread = self.residual(state), self._first_variance(state)
        tries = [
            self._best_atom(residual, rng.uniform(self.low, self.high), spread)
            for _ in range(n_starts)
        ]
        _, centre, variance = min(tries, key=lambda found: found[0])
        return _State(
            centres=np.vstack([state.centres, centre]),
            weights=np.append(state.weights, 0.0),
            variances=np.vstack([state.variances, variance]),
        )

    def drop_weakest(self, state: _State) -> _State:
        """One cluster less: the one whose normalised atom is needed least."""
        atoms, _ = self.part.atoms.linearise(state.centres, state.variances)
        norms = np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1e-300)
        weights, _ = nnls((atoms / norms).T, self.part.target)
        keep = np.arange(len(weights)) != np.argmin(weights)
        return _State(state.centres[keep], state.weights[keep], state.variances[keep])

    def weigh(self, state: _State) -> _State:
        """The best non-negative weights of these clusters."""
        atoms, _ = self.part.atoms.linearise(state.centres, state.variances)
        weights, _ = nnls(atoms.T, self.part.target)
        return _State(state.centres, weights, state.variances)

    def improve(
        self, state: _State, max_iter: int, tolerance: float
    ) -> tuple[_State, OptimizeResult]:
        """Descend in centres, variances and weights together."""
        n, unit = len(state.weights), self.part.atoms.unit
        spreads = self._pack_variances(state.variances)
        first = np.concatenate(
            [state.centres.ravel() / unit, spreads / unit**2, state.weights]
        )

        def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            now = self._unpack(vector, n)
            atoms, pull = self.part.atoms.linearise(now.centres, now.variances)
            error = (now.weights @ atoms - self.part.target) / self.size**2
            by_centre, by_variance = pull(now.weights[:, None] * error)
            slope = [by_centre.ravel() * unit]
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
        centre: NDArray[np.float64],
        variance: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Climb the correlation of a normalised atom with the residual."""
        unit, d = self.part.atoms.unit, len(centre)
        along = residual / max(float(np.linalg.norm(residual)), 1e-300)
        free = self.kind == "diagonal"

        def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            spread = vector[d:] * unit**2 if free else variance
            atoms, pull = self.part.atoms.linearise(
                vector[None, :d] * unit, spread[None]
            )
            norm = max(float(np.linalg.norm(atoms)), 1e-300)
            value = float(atoms[0] @ along) / norm
            by_centre, by_variance = pull((value * atoms / norm - along) / norm)
            slope = [by_centre[0] * unit]
            slope += [by_variance[0] * unit**2] if free else []
            return -value, np.concatenate(slope)

        first = np.concatenate([centre / unit, variance[: d * free] / unit**2])
        low, high = self.variance_box
        lows = np.concatenate([self.low / unit, low[: d * free] / unit**2])
        highs = np.concatenate([self.high / unit, high[: d * free] / unit**2])
        box = list(zip(lows, highs, strict=True))
        found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=box)
        spread = found.x[d:] * unit**2 if free else variance
        return float(found.fun), found.x[:d] * unit, spread

    def _first_variance(self, state: _State) -> NDArray[np.float64]:
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

    def _unpack(self, vector: NDArray[np.float64], n: int) -> _State:
        d, unit = len(self.low), self.part.atoms.unit
        centres = vector[: n * d].reshape(n, d) * unit
        spreads = vector[n * d : len(vector) - n] * unit**2
        variances = np.zeros((n, d))
        if self.kind == "gaussian":
            variances += spreads
        elif self.kind == "diagonal":
            variances += spreads.reshape(n, d)
        return _State(centres, vector[len(vector) - n :], variances)

    def _bounds(self, n: int) -> list[tuple[float, float]]:
        unit, (small, large) = self.part.atoms.unit, self.variance_box
        box = list(zip(self.low / unit, self.high / unit, strict=True)) * n
        spreads = list(zip(small / unit**2, large / unit**2, strict=True))
        if self.kind == "gaussian":
            box += [(0.0, float(large.max()) / unit**2)]
        elif self.kind == "diagonal":
            box += spreads * n
        return box + [(0.0, np.inf)] * n
