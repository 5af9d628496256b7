"""Poolings by the names that users and files call them."""

from __future__ import annotations

from sketchlearn.errors import PoolingError
from sketchlearn.sketching.pooling.base import AbstractPooling
from sketchlearn.sketching.pooling.extreme import ExtremePooling
from sketchlearn.sketching.pooling.linear import LinearPooling
from sketchlearn.sketching.pooling.transformed import LogSumExpPooling, PNormPooling

__all__ = ["get_pooling"]


def get_pooling(name: str) -> AbstractPooling:
    """Pooling by name.

    Parameters
    ----------
    name : str
        ``"mean"``, ``"sum"``, ``"max"``, ``"min"``, ``"p-norm:P"`` with a real
        P >= 1, ``"log-sum-exp"``, or ``"soft-min"``, which is minus the log-sum-exp of
        the negative features.

    Examples
    --------
    >>> get_pooling("p-norm:3").name
    'p-norm:3.0'
    """
    match name:
        case "mean" | "sum":
            return LinearPooling(name)
        case "max" | "min":
            return ExtremePooling(name)
        case "log-sum-exp":
            return LogSumExpPooling("log-sum-exp", 1.0)
        case "soft-min":
            return LogSumExpPooling("soft-min", -1.0)
    if isinstance(name, str) and name.startswith("p-norm:"):
        try:
            power = float(name.removeprefix("p-norm:"))
        except ValueError:
            power = 0.0
        if 1.0 <= power < float("inf"):
            return PNormPooling(power)
    raise PoolingError(
        f"unknown pooling {name!r}: use 'mean', 'sum', 'max', 'min', 'log-sum-exp', "
        "'soft-min' or 'p-norm:P' with P >= 1."
    )
