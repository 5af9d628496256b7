r"""Networks in fixed point: what a trained network computes, the same everywhere.

Only sums depend on the order in which a machine takes them. So the inputs of every
sum are rounded to whole numbers first (activations to multiples of :math:`2^{-20}`,
weights to 18 bits), sums of whole numbers are exact, and everything between them is
one IEEE operation or table look-up for each number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.elementary import ceil_log2, gelu, sigmoid, tanh
from sketchlearn.arithmetic.products import LIMIT, WholeMatrix, largest_magnitude
from sketchlearn.errors import RowRangeError
from sketchlearn.networks.layers import (
    Affine,
    Gelu,
    LayerNorm,
    Relu,
    Residual,
    Scale,
    Sigmoid,
    Tanh,
    Windows,
)

__all__ = ["FixedPointNetwork"]

_LAYER_VALUE_BITS = 20
"""Activations are rounded to ``2**-20`` before they are summed."""

_LAYER_WEIGHT_BITS = 18
"""Weights are whole numbers of this many bits, with one power of two a layer."""

_Array = NDArray[np.float64]
_Step = Callable[[_Array], _Array]


@final
class FixedPointNetwork:
    """The layers of a frozen network as a function with one value for each row.

    Parameters
    ----------
    layers : tuple
        As :attr:`sketchlearn.networks.forward.FrozenNetwork.layers` gives them.

    Examples
    --------
    >>> layer = Affine(np.array([[2.0, 1.0]]), np.array([0.5]))
    >>> FixedPointNetwork((layer, Relu()))(np.array([[1.0, 0.25]]))
    array([[2.75]])
    """

    def __init__(self, layers: tuple[Any, ...]) -> None:
        self._steps = [_step(layer) for layer in layers]

    def __call__(self, inputs: _Array) -> _Array:
        """(n, n_inputs) → (n, n_outputs)."""
        for step in self._steps:
            inputs = step(inputs)
        return inputs


def _step(layer: Any) -> _Step:
    """What a layer computes; functions of the module, so that maps can be pickled."""
    match layer:
        case Affine():
            return _Product(layer)
        case Scale():
            return partial(_scaled, layer)
        case LayerNorm():
            return partial(_normalised, layer)
        case Residual():
            return partial(_added, FixedPointNetwork(layer.body))
        case Windows():
            return partial(_apart, FixedPointNetwork(layer.body), layer.count)
    return _LAYER_FUNCTIONS[type(layer)]


def _rectified(x: _Array) -> _Array:
    return np.maximum(x, 0.0)


def _scaled(layer: Scale, x: _Array) -> _Array:
    result: _Array = x * layer.gain + layer.shift
    return result


def _added(body: FixedPointNetwork, x: _Array) -> _Array:
    return x + body(x)


def _apart(body: FixedPointNetwork, count: int, x: _Array) -> _Array:
    return body(x.reshape(len(x) * count, -1)).reshape(len(x), -1)


_LAYER_FUNCTIONS: dict[type, _Step] = {
    Relu: _rectified,
    Gelu: gelu,
    Tanh: tanh,
    Sigmoid: sigmoid,
}


@final
class _Product:
    """An affine layer: one exact product of whole numbers."""

    def __init__(self, layer: Affine) -> None:
        weight = np.asarray(layer.weight, np.float64).T
        largest = float(np.abs(weight).max())
        bits = _LAYER_WEIGHT_BITS - ceil_log2(largest) if largest else 0
        self._matrix = WholeMatrix(np.rint(np.ldexp(weight, bits)) + 0.0)
        self._bias = np.asarray(layer.bias, np.float64)
        self._unit = -(_LAYER_VALUE_BITS + bits)

    def __call__(self, x: _Array) -> _Array:
        sums = self._matrix.product(np.rint(x * 2.0**_LAYER_VALUE_BITS))
        result: _Array = np.ldexp(sums, self._unit) + self._bias
        return result


def _normalised(layer: LayerNorm, x: _Array) -> _Array:
    """Mean and variance over a row out of whole numbers, the rest as it is.

    The mean is that of the activations in steps; what is left of them is rounded to so
    many bits of the largest that the sum of squares is exact.
    """
    width = x.shape[1]
    steps = np.rint(x * 2.0**_LAYER_VALUE_BITS)
    if not largest_magnitude(steps) * width <= LIMIT:
        raise RowRangeError(
            "some row drives this network beyond the range of its whole numbers. "
            "Nothing was added. Scale the rows: scaling=Scaling.from_bounds(low, high)."
        )
    mean = steps.sum(axis=1, keepdims=True) / (width * 2.0**_LAYER_VALUE_BITS)
    centred = x - mean
    bits = (52 - (width - 1).bit_length()) // 2
    largest = np.abs(centred).max(axis=1, keepdims=True)
    exponents = np.frexp(largest)[1]
    units = np.rint(np.ldexp(centred, bits - exponents))
    squares = np.square(units).sum(axis=1, keepdims=True)
    variance = np.ldexp(squares, 2 * (exponents - bits)) / width
    scale = 1.0 / np.sqrt(variance + layer.eps)
    result: _Array = centred * scale * layer.gain + layer.shift
    return result
