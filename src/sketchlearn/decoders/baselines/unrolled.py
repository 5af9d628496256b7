r"""Iterative CKM: centroids by a fixed number of descent steps on the sketch.

From random centroids :math:`\theta_0`, each step moves them so that the mean of their
own features comes closer to the sketch (paper, eqs. comp-kmeans2, kmeans-iter and
adam_unrolled_0 to 3),

.. math::
    \theta_i = \theta_{i-1} - H\big(\nabla \lVert \Phi(\theta_{i-1}) - z \rVert^2\big),
    \qquad \Phi(\theta) = \frac1k \sum_{l} \varphi(\theta_l),

with H a step of plain gradient descent or of Adam. The steps are themselves
differentiable, so that a feature map, the rate and the spread of the start can be
learned for what comes out at the end: the steps are the layers of a Query Network.
How they are learned is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.clusters.atomic_sketch import FittedAtoms
from sketchlearn.decoders.clusters.descent import (
    InnerOptimiser,
    descend,
    require_optimiser,
)
from sketchlearn.decoders.clusters.pullback import Linearised, Pullback, linearised
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["UnrolledDecoder"]

Array: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True)
class UnrolledDecoder(AbstractDecoder[FittedAtoms]):
    """Centroids by unrolled descent: the paper's Iterative CKM.

    Works in the scaled units of the feature map, for every map that
    :func:`~sketchlearn.decoders.clusters.pullback.linearised` knows. The clusters it
    returns are points of equal weight.

    Parameters
    ----------
    n_clusters : int
        k.
    rate : float
        Size of a step, learned together with the feature map.
    n_steps : int
        Number of steps.
    optimiser : {"adam", "sgd"}
        What a step is.
    initial_std : float
        Standard deviation of the initial centroids around the middle of the range.
    n_starts : int
        Random starts, run side by side; the one of least residual is kept.
    seed : int
        Same seed, same result.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=1, sketch_size=40, seed=0)
    >>> sketch = sl.sketch_rows([[-1.0], [1.0]], phi)
    >>> found = UnrolledDecoder(2, rate=0.05).decode(sketch).params
    >>> sorted(found.centers.round(2).ravel().tolist())
    [-1.0, 1.0]
    """

    n_clusters: int
    rate: float = 0.05
    n_steps: int = 200
    optimiser: InnerOptimiser = "adam"
    initial_std: float = 0.5
    n_starts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_steps", "n_starts"):
            require_positive_int(name, getattr(self, name))
        for name in ("rate", "initial_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise FeatureMapError(
                    f"{name} must be a positive number; got {getattr(self, name)!r}."
                )
        require_optimiser(self.optimiser)

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[FittedAtoms]:
        feature_map = sketch.feature_map
        d = feature_map.n_features
        scaling = (*feature_map.scalings, Scaling.identity(d))[0]
        misfit = _Misfit(linearised(feature_map), sketch.mean, scaling)
        rng = np.random.default_rng(self.seed)
        shape = (self.n_starts, self.n_clusters, d)
        initial = self.initial_std * rng.standard_normal(shape)
        found = descend(
            misfit.slope,
            initial,
            rate=self.rate,
            n_steps=self.n_steps,
            optimiser=self.optimiser,
        )
        best, residual, improved = _best_start(initial, found, misfit)
        centers = best / scaling.factor + scaling.shift
        weights = np.full(self.n_clusters, 1 / self.n_clusters)
        params = FittedAtoms(centers, weights, np.zeros_like(centers))
        return Decoding(params, residual, n_iter=self.n_steps, converged=improved)


@final
@dataclass(frozen=True, eq=False)
class _Misfit:
    """Squared distance of the sketch that centroids in scaled units would have."""

    phi: Linearised
    target: Array
    scaling: Scaling

    def __call__(self, centroids: Array) -> Array:
        """(n_starts, k, d) → (n_starts,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            away, _ = self._linearise(centroids)
            squared: Array = np.vecdot(away, away)
        return squared

    def slope(self, centroids: Array) -> Array:
        """Gradient by the centroids of each start, (n_starts, k, d)."""
        away, pull = self._linearise(centroids)
        n_clusters = centroids.shape[1]
        by = np.repeat(2 / n_clusters * away, n_clusters, axis=0)
        result: Array = pull(by).reshape(centroids.shape) / self.scaling.factor
        return result

    def _linearise(self, centroids: Array) -> tuple[Array, Pullback]:
        n_starts, n_clusters, d = centroids.shape
        rows = centroids.reshape(-1, d) / self.scaling.factor + self.scaling.shift
        values, pull = self.phi(rows)
        means = values.reshape(n_starts, n_clusters, -1).mean(axis=1)
        return means - self.target, pull


def _best_start(
    initial: Array, found: Array, misfit: _Misfit
) -> tuple[Array, float, bool]:
    """The best centroids, their relative residual, and whether descent helped.

    A descent that blew up counts as one that did not move.
    """
    before, after = misfit(initial), np.nan_to_num(misfit(found), nan=np.inf)
    improved = after < before
    losses = np.where(improved, after, before)
    best = int(losses.argmin())
    kept = found[best] if improved[best] else initial[best]
    size = max(float(np.linalg.norm(misfit.target)), 1e-300)
    return kept, float(np.sqrt(losses[best])) / size, bool(improved[best])
