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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from typing_extensions import override

from sketchlearn.decoders.atoms import Clusters
from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import require_positive_int
from sketchlearn.features.differentiable import TensorMap, differentiable
from sketchlearn.privacy import PrivateSketch
from sketchlearn.scaling import Scaling
from sketchlearn.sketch import Sketch

__all__ = [
    "InnerOptimiser",
    "Schedule",
    "UnrolledDecoder",
    "descend",
    "hungarian_loss",
    "kmeans_loss",
    "unrolled_centroids",
]

InnerOptimiser = Literal["adam", "sgd"]
Schedule = Literal["constant", "cosine"]

_BETAS = (0.9, 0.999)
_TINY = 1e-16


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
    return descend(
        lambda centroids: _sketch_loss(target, features, centroids),
        initial,
        rate=rate,
        n_steps=n_steps,
        optimiser=optimiser,
        backward_steps=backward_steps,
    )


def descend(
    objective: Callable[[Tensor], Tensor],
    initial: Tensor,
    *,
    rate: float | Tensor,
    n_steps: int,
    optimiser: InnerOptimiser = "adam",
    schedule: Schedule = "constant",
    backward_steps: int | None = None,
) -> Tensor:
    r"""Where some steps of descent end, as a function that has gradients itself.

    Parameters
    ----------
    objective : callable
        From a point to values, of which the sum is lowered.
    initial : tensor
        The first point.
    rate : float or scalar tensor
        Size of a step.
    n_steps : int
        Number of steps.
    optimiser : {"adam", "sgd"}
        What a step is.
    schedule : {"constant", "cosine"}
        With ``"cosine"``, step i of n has the rate times
        :math:`\tfrac12(1 + \cos\tfrac{\pi (i - 1)}{n})`.
    backward_steps : int, optional
        How many of the last steps a gradient flows through: all by default, which may
        explode; 0 to only decode.

    Examples
    --------
    >>> found = descend(torch.square, torch.tensor(1.0), rate=0.25, n_steps=2,
    ...     optimiser="sgd", backward_steps=0)
    >>> found.item()
    0.25
    """
    _require_optimiser(optimiser)
    tracked = n_steps if backward_steps is None else min(backward_steps, n_steps)
    point, memory = initial, (torch.zeros_like(initial), torch.zeros_like(initial))
    for step in range(1, n_steps + 1):
        is_tracked = step > n_steps - tracked
        slope = _slope(objective, point, is_tracked)
        if optimiser == "sgd":
            move = slope
        else:
            move, memory = _adam(slope, memory, step)
        turn = math.pi * (step - 1) / n_steps
        share = 0.5 * (1 + math.cos(turn)) if schedule == "cosine" else 1.0
        point = point - share * rate * move
        if not is_tracked:
            point = point.detach()
    return point


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
    objective: Callable[[Tensor], Tensor], point: Tensor, create_graph: bool
) -> Tensor:
    with torch.enable_grad():
        if not point.requires_grad:
            point = point.detach().requires_grad_()
        loss = objective(point).sum()
        (slope,) = torch.autograd.grad(loss, point, create_graph=create_graph)
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
