r"""Unrolled descent that can be differentiated through, and losses of its outcome.

The steps are those of :mod:`sketchlearn.decoders.clusters.descent`; here they are
functions of tensors that have gradients themselves, by the rate, the start and the
objective.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from sketchlearn.decoders.clusters.descent import (
    InnerOptimiser,
    InnerSchedule,
    adam,
    rate_share,
    require_optimiser,
)
from sketchlearn.meta.backend import Tensor, torch
from sketchlearn.meta.differentiable import TensorMap

__all__ = ["descend", "hungarian_loss", "kmeans_loss", "unrolled_centroids"]


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
        trained, or :func:`~sketchlearn.meta.differentiable.differentiable`.
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
    schedule: InnerSchedule = "constant",
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
    require_optimiser(optimiser)
    tracked = n_steps if backward_steps is None else min(backward_steps, n_steps)
    point, memory = initial, (0.0, 0.0)
    for step in range(1, n_steps + 1):
        is_tracked = step > n_steps - tracked
        slope = _slope(objective, point, is_tracked)
        if optimiser == "adam":
            slope, memory = adam(slope, memory, step)
        point = point - rate_share(step, n_steps, schedule) * rate * slope
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
