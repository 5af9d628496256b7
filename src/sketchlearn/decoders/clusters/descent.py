r"""A fixed number of steps of descent, plain or by Adam.

.. math:: \theta_i = \theta_{i-1} - r_i\, H\big(\nabla C(\theta_{i-1})\big)

(paper, eqs. kmeans-iter and adam_unrolled_0 to 3). What is lowered is not known here;
:func:`adam` and :func:`rate_share` use arithmetic alone, so that they serve arrays and,
where the steps themselves are differentiated, tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError

__all__ = [
    "InnerOptimiser",
    "InnerSchedule",
    "adam",
    "descend",
    "rate_share",
    "require_optimiser",
]

InnerOptimiser = Literal["adam", "sgd"]
InnerSchedule = Literal["constant", "cosine"]

Array: TypeAlias = NDArray[np.float64]

_BETAS = (0.9, 0.999)
_ADAM_EPSILON = 1e-16


def descend(
    slope: Callable[[Array], Array],
    initial: Array,
    *,
    rate: float,
    n_steps: int,
    optimiser: InnerOptimiser = "adam",
    schedule: InnerSchedule = "constant",
) -> Array:
    r"""Where some steps of descent end; a descent that blows up ends at no number.

    Parameters
    ----------
    slope : callable
        From a point to the gradient of what is lowered.
    initial : array
        The first point.
    rate : float
        Size of a step.
    n_steps : int
        Number of steps.
    optimiser : {"adam", "sgd"}
        What a step is.
    schedule : {"constant", "cosine"}
        With ``"cosine"``, step i of n has the rate times
        :math:`\tfrac12(1 + \cos\tfrac{\pi (i - 1)}{n})`.

    Examples
    --------
    >>> found = descend(lambda x: 2 * x, np.array(1.0), rate=0.25, n_steps=2,
    ...     optimiser="sgd")
    >>> float(found)
    0.25
    """
    require_optimiser(optimiser)
    point, memory = initial, (0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, n_steps + 1):
            move = slope(point)
            if optimiser == "adam":
                move, memory = adam(move, memory, step)
            point = point - rate_share(step, n_steps, schedule) * rate * move
    return point


def adam(slope: Any, memory: tuple[Any, Any], step: int) -> tuple[Any, tuple[Any, Any]]:
    """The move of Adam for a unit rate, and its memory (m, v) after the step."""
    (beta1, beta2), (first, second) = _BETAS, memory
    first = beta1 * first + (1 - beta1) * slope
    second = beta2 * second + (1 - beta2) * slope * slope
    # Inside the root, so that the root of a zero slope still has a derivative.
    size = (second / (1 - beta2**step) + _ADAM_EPSILON) ** 0.5
    return first / (1 - beta1**step) / size, (first, second)


def rate_share(step: int, n_steps: int, schedule: InnerSchedule) -> float:
    """Share of the rate that a step has, the first being step 1."""
    turn = math.pi * (step - 1) / n_steps
    return 0.5 * (1 + math.cos(turn)) if schedule == "cosine" else 1.0


def require_optimiser(name: str) -> None:
    """Refuse what is no optimiser."""
    if name not in get_args(InnerOptimiser):
        raise FeatureMapError(
            f"optimiser must be one of {', '.join(get_args(InnerOptimiser))}; got "
            f"{name!r}."
        )
