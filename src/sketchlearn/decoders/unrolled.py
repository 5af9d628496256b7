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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from typing_extensions import override

from sketchlearn.decoders.atoms import Clusters
from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation, ActivationFeatures, activate
from sketchlearn.features.base import require_positive_int
from sketchlearn.features.differentiable import TensorMap, differentiable
from sketchlearn.networks import export_tensors, import_tensors, spec_from_dict
from sketchlearn.privacy import PrivateSketch
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch
from sketchlearn.weights import Weights

__all__ = [
    "CKMSpec",
    "InnerOptimiser",
    "IterativeCKM",
    "UnrolledDecoder",
    "draw_units",
    "hungarian_loss",
    "kmeans_loss",
    "unrolled_centroids",
]

InnerOptimiser = Literal["adam", "sgd"]

_BETAS = (0.9, 0.999)
_TINY = 1e-16
MAX_PADDED = 196
"""Features that rows of the paper's form are padded to."""

_MAX_RATE = 0.5
_LOGS = {"rate": -2.3, "initial_std": -2.3, "radius": 0.7, "spread": -0.7}
_START = {**_LOGS, "by_features": 0.0, "by_size": 0.0}


@final
@dataclass(frozen=True)
class UnrolledDecoder(AbstractDecoder[Clusters]):
    """Centroids by unrolled descent: the paper's Iterative CKM.

    Works in the scaled units of the feature map, for every map that
    :func:`~sketchlearn.features.differentiable.differentiable` knows. The clusters it
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
    >>> sorted(found.centres.round(2).ravel().tolist())
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
        _require_optimiser(self.optimiser)

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Clusters]:
        feature_map, target = sketch.feature_map, torch.tensor(sketch.mean)
        d = feature_map.n_features
        scaling = (*feature_map.scalings, Scaling.identity(d))[0]
        shift = torch.tensor(scaling.shift)
        factor = torch.tensor(scaling.factor)
        phi = differentiable(feature_map)

        def features(scaled: Tensor) -> Tensor:
            return phi(scaled / factor + shift)

        rng = np.random.default_rng(self.seed)
        shape = (self.n_starts, self.n_clusters, d)
        initial = torch.from_numpy(self.initial_std * rng.standard_normal(shape))
        found = unrolled_centroids(
            target.expand(self.n_starts, -1),
            features,
            initial=initial,
            rate=self.rate,
            n_steps=self.n_steps,
            optimiser=self.optimiser,
            backward_steps=0,
        )
        best, residual, improved = _best_start(initial, found, features, target)
        centres: NDArray[np.float64] = (best / factor + shift).numpy()
        weights = np.full(self.n_clusters, 1 / self.n_clusters)
        params = Clusters(centres, weights, np.zeros_like(centres))
        return Decoding(params, residual, n_iter=self.n_steps, converged=improved)


@final
@dataclass(frozen=True)
class CKMSpec:
    """What is fixed when an :class:`IterativeCKM` is trained by gradients."""

    activation: Activation = "fourier"
    """σ."""

    optimiser: InnerOptimiser = "adam"
    """What a step is."""

    n_steps: int = 100
    """Number of steps."""

    sketch_size: int = 0
    """0 learns a law of W, for any sizes. Another size learns W itself, as the paper
    does, for that size and up to 196 features: fewer are padded with zeros."""

    def n_units(self, sketch_size: int) -> int:
        """Columns of W for a sketch size."""
        return sketch_size // 2 if self.activation == "fourier" else sketch_size


@final
class IterativeCKM(nn.Module):
    r"""A learned law of linear units with the descent that goes with it.

    A unit of :math:`\varphi(x) = \sigma(W^\top x)` is a random direction times

    .. math:: R = \exp\big(r + a \log\tfrac{d}{32} + b \log\tfrac{m}{512} + s\,q\big)

    with q standard normal, so that six learned numbers (r, a, b, s, the rate and the
    spread of the start) serve any number d of features, any sketch size m and any k.

    Parameters
    ----------
    spec : CKMSpec
        Activation, optimiser and number of steps.
    seed : int
        Seed of W, for the paper's form.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> model = IterativeCKM(CKMSpec())
    >>> phi = model.feature_map(2, 40, seed=0)
    >>> sketch = sl.sketch_rows([[0.2, 0.1], [0.8, 0.5]], phi)
    >>> found = model.decoder(2).decode(sketch).params.centres
    >>> sorted(found.round(1).tolist())
    [[0.2, 0.1], [0.8, 0.5]]
    """

    def __init__(self, spec: CKMSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.numbers = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(start)) for name, start in _START.items()}
        )
        if spec.sketch_size:
            rng, n_units = np.random.default_rng(seed), spec.n_units(spec.sketch_size)
            drawn = draw_units(MAX_PADDED, n_units, rng)
            start = self._law(*drawn, torch.tensor(float(MAX_PADDED)))
            self.weight = nn.Parameter(start.detach().clone())

    def pace(self) -> tuple[Tensor, Tensor]:
        """Rate, capped where descent in [-1, 1] is lost, and spread of the start."""
        rate, std = (self.numbers[name].exp() for name in ("rate", "initial_std"))
        return rate.clamp_max(_MAX_RATE), std

    def matrix(
        self, directions: Tensor, positions: Tensor, n_features: Tensor
    ) -> Tensor:
        """W, shape (..., width, n_units), from what :func:`draw_units` drew.

        Directions have zeros beyond the ``n_features`` of a dataset.
        """
        if not self.spec.sketch_size:
            return self._law(directions, positions, n_features)
        row = torch.arange(directions.shape[-2])
        return self.weight[row] * (row < n_features[..., None])[..., None]

    def decode(
        self, target: Tensor, matrix: Tensor, start: Tensor, *, backward_steps: int = 0
    ) -> Tensor:
        """Centroids (..., k, width) for sketches; ``start`` is unit noise."""
        spec, (rate, std) = self.spec, self.pace()
        return unrolled_centroids(
            target,
            lambda rows: activate(rows @ matrix, spec.activation),
            initial=std * start,
            rate=rate,
            n_steps=spec.n_steps,
            optimiser=spec.optimiser,
            backward_steps=backward_steps,
        )

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
        matrix = self.matrix(*drawn, torch.tensor(float(n_features))).detach()
        return ActivationFeatures(
            matrix.numpy(), activation=self.spec.activation, scaling=scaling
        )

    def decoder(
        self, n_clusters: int, *, n_starts: int = 8, seed: int = 0
    ) -> UnrolledDecoder:
        """The decoder for sketches of :meth:`feature_map`."""
        rate, std = (value.item() for value in self.pace())
        return UnrolledDecoder(
            n_clusters,
            rate=rate,
            n_steps=self.spec.n_steps,
            optimiser=self.spec.optimiser,
            initial_std=std,
            n_starts=n_starts,
            seed=seed,
        )

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        tensors = export_tensors(self)
        return Weights("iterative-ckm", asdict(self.spec), tensors, card or {})

    @classmethod
    def from_weights(cls, weights: Weights) -> Self:
        """The model that weights of kind ``"iterative-ckm"`` belong to."""
        model = cls(spec_from_dict(CKMSpec, weights.spec))
        import_tensors(model, weights.tensors)
        return model.eval()

    def _law(self, directions: Tensor, positions: Tensor, n_features: Tensor) -> Tensor:
        law, n_units = self.numbers, directions.shape[-1]
        size = n_units * (2 if self.spec.activation == "fourier" else 1)
        common = law["radius"] + law["by_size"] * math.log(size / 512)
        common = common + law["by_features"] * (n_features / 32).log()
        logs = common[..., None] + law["spread"].exp() * positions
        matrix: Tensor = directions * logs.exp()[..., None, :]
        return matrix

    def _require_sizes(self, n_features: int, sketch_size: int) -> None:
        require_positive_int("n_features", n_features)
        size = self.spec.sketch_size
        if size and (n_features > MAX_PADDED or sketch_size != size):
            raise FeatureMapError(
                f"this model sketches up to {MAX_PADDED} features into {size} numbers; "
                f"got n_features={n_features} and sketch_size={sketch_size}."
            )
        if (
            require_positive_int("sketch_size", sketch_size) % 2
            and self.spec.activation == "fourier"
        ):
            raise FeatureMapError(
                f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
            )


def draw_units(
    n_features: int, n_units: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Unit vectors (n_features, n_units) and their normal places in a law (n_units)."""
    directions = rng.standard_normal((n_features, n_units), np.float32)
    directions /= np.linalg.norm(directions, axis=0)
    positions = rng.standard_normal(n_units, np.float32)
    return torch.from_numpy(directions), torch.from_numpy(positions)


def unrolled_centroids(
    target: Tensor,
    features: TensorMap,
    *,
    initial: Tensor,
    rate: float | Tensor,
    n_steps: int,
    optimiser: InnerOptimiser = "adam",
    backward_steps: int | None = None,
) -> Tensor:
    r"""Centroids after some steps of descent on :math:`\lVert\Phi(\theta) - z\rVert^2`.

    Parameters
    ----------
    target : tensor of shape (..., sketch_size)
        Sketches z.
    features : callable
        φ on tensors, ``(..., n_features)`` to ``(..., sketch_size)``: a module being
        trained, or :func:`~sketchlearn.features.differentiable.differentiable`.
    initial : tensor of shape (..., n_clusters, n_features)
        :math:`\theta_0`; write it as ``std * noise`` to learn its spread.
    rate : float or scalar tensor
        Size of a step.
    n_steps : int
        Number of steps.
    optimiser : {"adam", "sgd"}
        What a step is.
    backward_steps : int, optional
        How many of the last steps a gradient flows through: all by default, which may
        explode; 0 to only decode.

    Returns
    -------
    tensor of shape (..., n_clusters, n_features)

    References
    ----------
    Paper, eqs. kmeans-iter and adam_unrolled_0 to adam_unrolled_3.

    Examples
    --------
    One step towards the mean 2, with slope :math:`2\,(\bar\theta - z)/k = -2`:

    >>> unrolled_centroids(
    ...     torch.tensor([2.0]), lambda rows: rows, initial=torch.zeros(2, 1),
    ...     rate=0.5, n_steps=1, optimiser="sgd", backward_steps=0,
    ... ).tolist()
    [[1.0], [1.0]]
    """
    _require_optimiser(optimiser)
    tracked = n_steps if backward_steps is None else min(backward_steps, n_steps)
    centroids, memory = initial, (torch.zeros_like(initial), torch.zeros_like(initial))
    for step in range(1, n_steps + 1):
        is_tracked = step > n_steps - tracked
        slope = _slope(target, features, centroids, is_tracked)
        if optimiser == "sgd":
            move = slope
        else:
            move, memory = _adam(slope, memory, step)
        centroids = centroids - rate * move
        if not is_tracked:
            centroids = centroids.detach()
    return centroids


def kmeans_loss(rows: Tensor, centroids: Tensor) -> Tensor:
    r"""Mean squared distance of rows to their closest centroid (paper, eq. kmeans).

    Parameters
    ----------
    rows : tensor of shape (..., n, n_features)
    centroids : tensor of shape (..., n_clusters, n_features)

    Returns
    -------
    tensor of shape (...)

    Examples
    --------
    >>> rows = torch.tensor([[0.0], [1.0], [5.0]])
    >>> kmeans_loss(rows, torch.tensor([[0.0], [4.0]])).item()
    0.6666666865348816
    """
    return _squared_distances(rows, centroids).amin(dim=-1).mean(dim=-1)


def hungarian_loss(centroids: Tensor, reference: Tensor) -> Tensor:
    r"""Mean squared distance of centroids to their partners in a reference set.

    .. math:: \min_\pi \frac1k \sum_l \lVert \theta_l - \theta^*_{\pi(l)} \rVert^2

    over all pairings π (the Hungarian algorithm); the gradient is that of the best
    pairing.

    Parameters
    ----------
    centroids, reference : tensors of shape (..., n_clusters, n_features)

    Returns
    -------
    tensor of shape (...)

    Examples
    --------
    >>> left, right = torch.tensor([[0.0], [3.0]]), torch.tensor([[3.0], [1.0]])
    >>> hungarian_loss(left, right).item()
    0.5
    """
    distances = _squared_distances(centroids, reference)
    costs = distances.detach().cpu().double().numpy()
    k = costs.shape[-1]
    pairs = [linear_sum_assignment(cost)[1] for cost in costs.reshape(-1, k, k)]
    partner = torch.tensor(np.array(pairs), device=distances.device)
    partner = partner.reshape(*distances.shape[:-1], 1)
    return distances.gather(-1, partner).squeeze(-1).mean(dim=-1)


def _squared_distances(left: Tensor, right: Tensor) -> Tensor:
    return (left[..., :, None, :] - right[..., None, :, :]).square().sum(dim=-1)


def _sketch_loss(target: Tensor, features: TensorMap, centroids: Tensor) -> Tensor:
    return (features(centroids).mean(dim=-2) - target).square().sum(dim=-1)


def _slope(
    target: Tensor, features: TensorMap, centroids: Tensor, create_graph: bool
) -> Tensor:
    with torch.enable_grad():
        if not centroids.requires_grad:
            centroids = centroids.detach().requires_grad_()
        loss = _sketch_loss(target, features, centroids).sum()
        (slope,) = torch.autograd.grad(loss, centroids, create_graph=create_graph)
    return slope


def _adam(
    slope: Tensor, memory: tuple[Tensor, Tensor], step: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The move of Adam for a unit rate, and its memory (m, v) after the step."""
    (beta1, beta2), (first, second) = _BETAS, memory
    first = beta1 * first + (1 - beta1) * slope
    second = beta2 * second + (1 - beta2) * slope.square()
    # Inside the root, so that the root of a zero slope still has a derivative.
    size = (second / (1 - beta2**step) + _TINY).sqrt()
    return first / (1 - beta1**step) / size, (first, second)


def _best_start(
    initial: Tensor, found: Tensor, features: TensorMap, target: Tensor
) -> tuple[Tensor, float, bool]:
    """The best centroids, their relative residual, and whether descent helped.

    A descent that blew up counts as one that did not move.
    """
    before = _sketch_loss(target, features, initial)
    after = _sketch_loss(target, features, found).nan_to_num(float("inf"))
    improved = after < before
    losses = torch.where(improved, after, before)
    best = int(losses.argmin())
    kept = found[best] if improved[best] else initial[best]
    size = max(float(target.norm()), 1e-300)
    return kept, float(losses[best].sqrt()) / size, bool(improved[best])


def _require_optimiser(name: str) -> None:
    if name not in get_args(InnerOptimiser):
        raise FeatureMapError(
            f"optimiser must be one of {', '.join(get_args(InnerOptimiser))}; got "
            f"{name!r}."
        )
