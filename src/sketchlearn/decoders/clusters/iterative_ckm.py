r"""Iterative CKM as one model: a learned law of linear units and its descent.

What is learned is how to draw the matrix W of :math:`\varphi(x) = \sigma(W^\top x)` (or
W itself, as the paper does) and how to descend. The steps themselves are those of
:mod:`sketchlearn.decoders.clusters.descent`; how the numbers are learned is not known
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.clusters.atomic_sketch import FittedAtoms
from sketchlearn.decoders.clusters.ckm_descent import (
    CKMFit,
    CKMObjective,
    CKMSpec,
    CKMTuning,
    damp,
    fit_frame,
)
from sketchlearn.decoders.clusters.ckm_units import (
    FIRST_VALUES,
    MAX_PADDED,
    MatrixLaw,
    draw_units,
)
from sketchlearn.decoders.clusters.descent import descend
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.scaling import Scaling
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import frozen_tensors, spec_from_dict
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CKMDecoder", "IterativeCKM"]

Array: TypeAlias = NDArray[np.float64]

_LEARNED, _WEIGHT = "numbers.", "weight"

_MOST_LEARNED = 20.0
"""Largest magnitude of a learned number: none overflows for any sizes."""


@final
@dataclass(frozen=True, eq=False)
class IterativeCKM(AbstractLearned):
    r"""A learned law of linear units with the descent that goes with it.

    The first units are the axes, as far as four fifths of all go, with one learned
    radius: they know means and variances. Another is a random direction times

    .. math:: R = \exp\big(r + a \log\tfrac{d}{32} + b \log\tfrac{m}{512} + s\,q\big)

    with q standard normal, so that a few learned numbers serve any number d of
    features, any sketch size m and any k.

    Decoding first fits one Gaussian :math:`\mathcal N(\mu, \mathrm{diag}\,\tau^2)` to
    the sketch, then descends in centroids :math:`\theta_l = \mu + \tau u_l` and common
    variances v, from random u of a learned spread, on

    .. math::
        \Big\lVert e^{-\frac12 (W \circ W)^\top v}\,\frac1k \sum_l \varphi(\theta_l)
        - z \Big\rVert^2 + \frac{\lambda}{kd} \sum_l \lVert u_l \rVert^2 ,

    where :math:`\lambda` is a law of d and m like R, times the variance that features
    have under the one Gaussian, on average over them: rows of small spread are pulled
    as little as they move the sketch. With ``atoms="point"``, v and :math:`\mu` are
    zero and :math:`\tau` is one: the paper's objective, with a pull unless
    ``is_pulled`` is false.

    Parameters
    ----------
    spec : CKMSpec
        Activation, atoms, optimiser and number of steps.
    tensors : mapping of arrays
        The learned numbers, and W for the paper's form, as in a weights file. Kept as
        read-only float32 copies.
    tuning : CKMTuning
        Hand-tuned numbers, those of training.

    References
    ----------
    Paper, section 4.2 (Iterative CKM) and eqs. kmeans-iter and comp-kmeans2.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> model = IterativeCKM.initial(CKMSpec())
    >>> phi = model.feature_map(2, 80, seed=0)
    >>> sketch = sl.sketch_rows([[0.2, 0.1], [0.8, 0.5]], phi)
    >>> found = model.decoder(2).decode(sketch).params.centers
    >>> sorted(found.round(1).tolist())
    [[0.2, 0.1], [0.8, 0.5]]
    """

    weights_kind: ClassVar = "iterative-ckm"

    spec: CKMSpec
    tensors: Mapping[str, NDArray[np.float32]]
    tuning: CKMTuning = CKMTuning()

    def __post_init__(self) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            _LEARNED + name: () for name in FIRST_VALUES
        }
        if self.spec.sketch_size:
            n_units = self.spec.n_units(self.spec.sketch_size)
            shapes[_WEIGHT] = (MAX_PADDED, n_units)
        kept = frozen_tensors(self.tensors, shapes.items())
        object.__setattr__(self, "tensors", kept)
        if max(map(abs, self.learned.values())) > _MOST_LEARNED:
            raise FeatureMapError(
                "learned numbers of Iterative CKM are logarithms and slopes of them, "
                f"at most {_MOST_LEARNED:g} in magnitude; these are larger."
            )

    @classmethod
    def initial(cls, spec: CKMSpec, seed: int = 0) -> Self:
        """A model to train from; the seed is that of W, for the paper's form."""
        tensors = {
            _LEARNED + name: np.array(start) for name, start in FIRST_VALUES.items()
        }
        if spec.sketch_size:
            tensors[_WEIGHT] = MatrixLaw().draw(
                spec.n_units(spec.sketch_size), np.random.default_rng(seed)
            )
        return cls(spec, tensors)

    @cached_property
    def learned(self) -> dict[str, float]:
        """The learned numbers by name."""
        return {name: float(self.tensors[_LEARNED + name]) for name in FIRST_VALUES}

    def matrix(
        self, directions: NDArray[np.float32], positions: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """W, shape (n_features, n_units), from what :func:`draw_units` drew."""
        d, n_units = directions.shape
        if self.spec.sketch_size:
            return self.tensors[_WEIGHT][:d, :n_units]
        law = self.learned
        radii = np.exp(math.exp(law["spread"]) * positions.astype(np.float64))
        common = self._by_sizes("radius", n_units, d)
        matrix = directions.astype(np.float64) * radii * common
        n_axes = min(d, int(self.tuning.axes_share * n_units))
        matrix[:, :n_axes] = math.exp(law["axis"]) * np.eye(d, n_axes)
        return matrix.astype(np.float32)

    def fit(self, target: Array, matrix: Array, start: Array) -> CKMFit:
        """Descend for a sketch (size,) from ``start``, unit noise (..., k, d)."""
        spec, learned = self.spec, self.learned
        k, d = start.shape[-2:]
        center, unit = fit_frame(spec, target, matrix, self.tuning)
        pull = 0.0
        if spec.is_pulled:
            damping = damp(unit[0] ** 2, np.square(matrix))
            scatter = 1 - float(np.square(damping).mean())
            pull = scatter * self._by_sizes("pull", matrix.shape[1], d) / (k * d)
        objective = CKMObjective(
            spec, target, matrix, center, unit, pull, tuning=self.tuning
        )
        spread = np.full_like(start[..., :1, :], learned["atom"])
        point = descend(
            objective.slope,
            np.concatenate([math.exp(learned["initial_std"]) * start, spread], axis=-2),
            rate=self._rate(k, len(target)),
            n_steps=spec.n_steps,
            optimiser=spec.optimiser,
            schedule=spec.schedule,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            return objective.fit_at(point)

    def feature_map(
        self,
        n_features: int,
        sketch_size: int,
        seed: int = 0,
        *,
        scaling: Scaling | None = None,
    ) -> ActivationFeatures:
        """The map to sketch with; same seed, same map.

        ``scaling`` brings rows into [-1, 1], by default from features in [0, 1].
        """
        self._require_sizes(n_features, sketch_size)
        scaling = scaling or Scaling.from_bounds(0.0, 1.0, n_features=n_features)
        rng, n_units = np.random.default_rng(seed), self.spec.n_units(sketch_size)
        drawn = draw_units(n_features, n_units, rng)
        return ActivationFeatures(
            self.matrix(*drawn), activation=self.spec.activation, scaling=scaling
        )

    def decoder(
        self, n_clusters: int, *, n_starts: int = 8, seed: int = 0
    ) -> CKMDecoder:
        """The decoder for sketches of :meth:`feature_map`."""
        return CKMDecoder(self, n_clusters, n_starts=n_starts, seed=seed)

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        return Weights(self.weights_kind, asdict(self.spec), self.tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        return cls(spec_from_dict(CKMSpec, weights.spec), weights.tensors)

    def _rate(self, n_clusters: int, size: int) -> float:
        """Of a plain step, for k times the mean over features of squared distances."""
        rate = math.exp(self.learned["rate"])
        if self.spec.optimiser == "sgd":
            return rate * n_clusters / size
        return min(rate, self.tuning.max_rate)

    def _by_sizes(self, name: str, n_units: int, n_features: int) -> float:
        """A positive number that depends on the sizes: the radius or the pull."""
        prefix = "" if name == "radius" else f"{name}_"
        law = self.learned
        size = n_units * (2 if self.spec.activation == "fourier" else 1)
        by_size = law[f"{prefix}by_size"] * math.log(size / 512)
        by_features = law[f"{prefix}by_features"] * math.log(n_features / 32)
        return math.exp(law[name] + by_size + by_features)

    def _require_sizes(self, n_features: int, sketch_size: int) -> None:
        require_positive_int("n_features", n_features)
        size = self.spec.sketch_size
        if size and (n_features > MAX_PADDED or sketch_size > size):
            raise FeatureMapError(
                f"this model sketches up to {MAX_PADDED} features into up to {size} "
                f"numbers; got n_features={n_features} and sketch_size={sketch_size}."
            )
        if (
            require_positive_int("sketch_size", sketch_size) % 2
            and self.spec.activation == "fourier"
        ):
            raise FeatureMapError(
                f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
            )


@final
@dataclass(frozen=True, eq=False)
class CKMDecoder(AbstractDecoder[FittedAtoms]):
    """Clusters of equal weight by the descent of an :class:`IterativeCKM`.

    Parameters
    ----------
    model : IterativeCKM
        Whose :meth:`~IterativeCKM.feature_map` made the sketch.
    n_clusters : int
        k.
    n_starts : int
        Random starts, run side by side; the one of least objective is kept.
    seed : int
        Same seed, same result.
    """

    model: IterativeCKM
    n_clusters: int
    n_starts: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_starts"):
            require_positive_int(name, getattr(self, name))

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[FittedAtoms]:
        units, spec = _require_units(sketch.feature_map, self.model), self.model.spec
        d, k = units.n_features, self.n_clusters
        rng = np.random.default_rng(self.seed)
        noise = rng.standard_normal((self.n_starts, k, d), np.float32)
        fit = self.model.fit(
            sketch.mean, units.matrix.astype(np.float64), noise.astype(np.float64)
        )
        best = int(np.nan_to_num(fit.objective, nan=np.inf).argmin())
        scaling = units.scaling or Scaling.identity(d)
        centers = fit.centroids[best] / scaling.factor + scaling.shift
        variances = fit.variances[best] / scaling.factor**2
        params = FittedAtoms(centers, np.full(k, 1 / k), np.tile(variances, (k, 1)))
        size = max(float(np.linalg.norm(sketch.mean)), 1e-30)
        residual = float(np.sqrt(fit.misfit[best])) / size
        is_finite = bool(np.isfinite(fit.objective[best]))
        return Decoding(params, residual, n_iter=spec.n_steps, converged=is_finite)


def _require_units(
    feature_map: AbstractFeatureMap, model: IterativeCKM
) -> ActivationFeatures:
    spec = model.spec
    for part in feature_map.find(ActivationFeatures):
        units = part.feature_map
        if units is feature_map and units.activation == spec.activation:
            return units
    raise FeatureMapError(
        f"this decoder reads sketches of {spec.activation!r} units; got a map of kind "
        f"{feature_map.kind!r}. Sketch with the model's feature_map()."
    )
