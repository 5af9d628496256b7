r"""CL-OMPR: clusters from a sketch, one atom at a time, with replacement.

Greedy search for the atoms that explain the sketch (Keriven et al., "Compressive
k-means", 2017; "Sketching for large-scale learning of mixture models", 2018),

.. math::
    \min_{\alpha \ge 0,\,\mu,\,S}
    \Big\lVert z - \sum_{l=1}^{k} \alpha_l\, a(\mu_l, S_l) \Big\rVert^2 .

Each of k rounds (2k with replacement) adds the atom that correlates best with the
residual, drops the least useful one if there are more than k, finds the weights by
non-negative least squares, and improves everything together by L-BFGS. The field fits
points, which biases the centers of spread clusters; a variance that all clusters share
costs one number more and removes that bias where clusters are round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.baselines.pursuit import (
    AtomKind,
    ClOmprTuning,
    Pursued,
    Pursuit,
)
from sketchlearn.decoders.clusters.atomic_sketch import FittedAtoms, read_atomic
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CLOMPRDecoder"]


@final
@dataclass(frozen=True, eq=False)
class CLOMPRDecoder(AbstractDecoder[FittedAtoms]):
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
        Box of the centers in the units of the rows, numbers or vectors; by default the
        range declared by the scaling of the feature map.
    max_iter : int
        L-BFGS steps in each round; ten times as many in the last one.
    seed : int
        Same seed, same result.
    tuning : ClOmprTuning
        Hand-tuned numbers.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=1, sketch_size=40, seed=1)
    >>> sketch = sl.sketch_rows([[-2.0], [3.0], [3.0], [3.0]], phi)
    >>> decoder = CLOMPRDecoder(2, atoms="dirac", bounds=(-5, 5))
    >>> found = decoder.decode(sketch).params
    >>> found.centers.round(3).tolist(), found.weights.round(3).tolist()
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
    tuning: ClOmprTuning = ClOmprTuning()

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_starts", "n_restarts", "max_iter"):
            require_positive_int(name, getattr(self, name))
        if self.atoms not in get_args(AtomKind):
            raise FeatureMapError(
                f"atoms must be one of {', '.join(get_args(AtomKind))}; got "
                f"{self.atoms!r}."
            )

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[FittedAtoms]:
        part = read_atomic(sketch)
        low, high = part.box(self.bounds)
        rng = np.random.default_rng(self.seed)
        search = Pursuit(part, low, high, self.atoms, self.tuning)
        rounds = 2 * self.n_clusters if self.replacement else self.n_clusters
        found: list[tuple[Pursued, OptimizeResult]] = []
        while len(found) < self.n_restarts:
            found.append(self._run(search, rounds, rng))
            if search.is_explained(found[-1][1]):
                break
        state, result = min(found, key=lambda pair: float(pair[1].fun))
        params = part.fitted(state.centers, state.weights, state.variances)
        return Decoding(
            params,
            residual=float(np.sqrt(2 * result.fun)),
            n_iter=rounds * len(found),
            converged=bool(result.success),
        )

    def _run(
        self, search: Pursuit, rounds: int, rng: np.random.Generator
    ) -> tuple[Pursued, OptimizeResult]:
        state = search.start()
        for _ in range(rounds):
            state = search.add(state, self.n_starts, rng)
            if len(state.weights) > self.n_clusters:
                state = search.drop_weakest(state)
            state = search.weigh(state)
            state, _ = search.improve(state, self.max_iter, self.tuning.tolerance)
        return search.improve(state, 10 * self.max_iter, self.tuning.last_tolerance)
