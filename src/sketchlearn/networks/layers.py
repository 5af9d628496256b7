"""Layers: what networks are made of, as functions of NumPy arrays.

Each is a value with its weights, in evaluation mode; which of them make a network is
known to :mod:`sketchlearn.networks.forward`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

__all__ = [
    "NORM_EPS",
    "Affine",
    "Array",
    "Gelu",
    "Layer",
    "LayerNorm",
    "Relu",
    "Residual",
    "Scale",
    "Sigmoid",
    "Tanh",
    "Windows",
    "chain",
]

Array: TypeAlias = NDArray[np.float64]

NORM_EPS = 1e-5
"""Added to a variance under the root, in both kinds of norm: torch's default, and what
all weights were trained with."""


@final
@dataclass(frozen=True, eq=False)
class Affine:
    """x → W x + b."""

    weight: Array  # (n_out, n_in)
    bias: Array  # (n_out,)

    def __call__(self, x: Array) -> Array:
        """(..., n_in) → (..., n_out)."""
        result: Array = x @ self.weight.T + self.bias
        return result


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """x → gain x + shift, number by number: a batch norm of fixed statistics."""

    gain: Array
    shift: Array

    def __call__(self, x: Array) -> Array:
        """(..., n) → (..., n)."""
        return x * self.gain + self.shift


@final
@dataclass(frozen=True, eq=False)
class LayerNorm:
    """A vector with its mean taken off and its spread made one, then scaled."""

    gain: Array
    shift: Array
    eps: float = NORM_EPS

    def __call__(self, x: Array) -> Array:
        """(..., n) → (..., n)."""
        away = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(away).mean(axis=-1, keepdims=True)
        result: Array = away / np.sqrt(variance + self.eps) * self.gain + self.shift
        return result


@final
@dataclass(frozen=True)
class Relu:
    """x → max(x, 0)."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        return np.maximum(x, 0.0)


@final
@dataclass(frozen=True)
class Gelu:
    """x → x times the share of a standard normal law below x."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        result: Array = 0.5 * x * (1 + erf(x / sqrt(2)))
        return result


@final
@dataclass(frozen=True)
class Tanh:
    """The hyperbolic tangent."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        return np.tanh(x)


@final
@dataclass(frozen=True)
class Sigmoid:
    """x → 1 / (1 + exp(-x))."""

    def __call__(self, x: Array) -> Array:
        """Number by number."""
        result: Array = expit(x)
        return result


@final
@dataclass(frozen=True, eq=False)
class Residual:
    """Layers that add to what they are given: x → x + body(x)."""

    body: tuple[Layer, ...]

    def __call__(self, x: Array) -> Array:
        """(..., width) → (..., width)."""
        return x + chain(self.body, x)


@final
@dataclass(frozen=True, eq=False)
class Windows:
    """The same layers on each of ``count`` windows of the input, side by side."""

    body: tuple[Layer, ...]
    count: int

    def __call__(self, x: Array) -> Array:
        """(..., count * n_in) → (..., count * n_out)."""
        apart = x.reshape(*x.shape[:-1], self.count, x.shape[-1] // self.count)
        done = chain(self.body, apart)
        return done.reshape(*x.shape[:-1], self.count * done.shape[-1])


Layer: TypeAlias = (
    Affine | Scale | LayerNorm | Relu | Gelu | Tanh | Sigmoid | Residual | Windows
)


def chain(layers: tuple[Layer, ...], x: Array) -> Array:
    """One layer after the other."""
    for layer in layers:
        x = layer(x)
    return x
