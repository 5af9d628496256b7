r"""Elementary functions from + − × ÷ √ alone: the same bits on every machine.

IEEE arithmetic rounds these five operations in one way only, while the exponential of
one library differs from that of another in the last bits. Feature maps and the weights
drawn for them use the functions of this module, so that they are the same on every
CPU, operating system and version of NumPy. Each is accurate to a few units in the last
place; nothing here knows what it is used for.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "TURN",
    "ceil_log2",
    "cosine_table",
    "cosines_of_turns",
    "exp",
    "floor_log2",
    "gelu",
    "log",
    "sequential_sum",
    "sigmoid",
    "tanh",
]

Array = NDArray[np.float64]

_LN2_HIGH = float.fromhex("0x1.62E42FEFA3800p-1")
"""ln 2 in 42 bits: its products with exponents are exact."""

_LN2_LOW = float.fromhex("0x1.EF35793C76730p-45")
"""What is left of it."""

TURN = 6.283185307179586
"""2π, the nearest float64."""

_CDF_STEPS, _CDF_REACH = 1024, 8
"""Φ is tabled at multiples of 1/1024 up to 8, beyond which it is 1 to 15 digits. Part
of every sketch of a network with GELU."""


def _inverse_factorials(count: int) -> list[float]:
    values = [1.0]
    for n in range(1, count):
        values.append(values[-1] / n)
    return values


_EXP = _inverse_factorials(15)
"""Power series of the exponential: beyond, terms are below 2**-60."""

_LOG = [2.0 / (2 * n + 1) for n in range(13)]
"""The same of the logarithm."""


def floor_log2(value: float) -> int:
    """The largest n with ``2**n <= value``, for a positive number.

    Examples
    --------
    >>> floor_log2(8.0), floor_log2(7.9), floor_log2(0.3)
    (3, 2, -2)
    """
    return int(np.frexp(value)[1]) - 1


def ceil_log2(value: float) -> int:
    """The smallest n with ``2**n >= value``, for a positive number.

    Examples
    --------
    >>> ceil_log2(8.0), ceil_log2(8.1), ceil_log2(0.25)
    (3, 4, -2)
    """
    mantissa, exponent = np.frexp(value)
    return int(exponent) - int(mantissa == 0.5)


def exp(values: ArrayLike) -> Array:
    r""":math:`e^x`; 0 below about -745, infinity above 709.

    :math:`e^x = 2^k e^r` with :math:`|r| \le \tfrac12\ln 2` and a power series of r.

    Examples
    --------
    >>> exp([0.0, 1.0]).round(12).tolist()
    [1.0, 2.718281828459]
    """
    x = np.clip(np.asarray(values, np.float64), -800.0, 800.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    with np.errstate(over="ignore", under="ignore"):
        result: Array = np.ldexp(_polynomial(r, _EXP), k.astype(np.int32))
    return result


def log(values: ArrayLike) -> Array:
    r""":math:`\ln x` of positive numbers.

    :math:`x = 2^e m` with m near 1, :math:`\ln m = 2\operatorname{artanh}
    \frac{m-1}{m+1}` and a power series.

    Examples
    --------
    >>> log([1.0, 2.0]).tolist()
    [0.0, 0.6931471805599453]
    """
    m, e = np.frexp(np.asarray(values, np.float64))
    small = m < 0.7071067811865476
    m, e = np.where(small, 2 * m, m), e - small
    t = (m - 1) / (m + 1)
    result: Array = e * _LN2_HIGH + (t * _polynomial(t * t, _LOG) + e * _LN2_LOW)
    return result


def tanh(values: ArrayLike) -> Array:
    r""":math:`\tanh x`, within [-1, 1].

    Examples
    --------
    >>> tanh([0.0, 100.0]).tolist()
    [0.0, 1.0]
    """
    x = np.asarray(values, np.float64)
    size = np.abs(x)
    decay = exp(-2 * size)
    large = (1 - decay) / (1 + decay)
    # Near 0 the difference loses digits that the power series keeps.
    t = np.square(np.minimum(size, 0.03125))
    series = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925]
    small = size * _polynomial(t, series)
    result: Array = np.copysign(np.where(size < 0.03125, small, large), x)
    return result


def sigmoid(values: ArrayLike) -> Array:
    r""":math:`1 / (1 + e^{-x})`, within [0, 1].

    Examples
    --------
    >>> sigmoid([0.0]).tolist()
    [0.5]
    """
    x = np.asarray(values, np.float64)
    decay = exp(-np.abs(x))
    result: Array = np.where(x < 0, decay, 1.0) / (1 + decay)
    return result


def gelu(values: ArrayLike) -> Array:
    r""":math:`x\,\Phi(x)`, with Φ interpolated between multiples of 1/1024.

    Off by less than :math:`10^{-7}|x|`.

    Examples
    --------
    >>> gelu([0.0, 20.0, -20.0]).tolist()
    [0.0, 20.0, -0.0]
    """
    x = np.asarray(values, np.float64)
    table = _normal_distribution()
    place = np.clip(x, -_CDF_REACH, _CDF_REACH) * _CDF_STEPS
    below = np.minimum(np.floor(place), _CDF_REACH * _CDF_STEPS - 1)
    index = below.astype(np.int64) + _CDF_REACH * _CDF_STEPS
    low, high = table[index], table[index + 1]
    result: Array = x * (low + (place - below) * (high - low))
    return result


def cosines_of_turns(turns: Array) -> tuple[Array, Array]:
    r""":math:`\cos 2\pi t` and :math:`\sin 2\pi t` of any t.

    Examples
    --------
    >>> [values.tolist() for values in cosines_of_turns(np.array([0.0, 0.25, 0.5]))]
    [[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]
    """
    t = turns - np.rint(turns)
    quarters = np.rint(4 * t)
    angle = TURN * (t - quarters / 4)  # within an eighth of a turn
    square = angle * angle
    signed = [f * (-1) ** (n // 2) for n, f in enumerate(_inverse_factorials(20))]
    cosine = _polynomial(square, signed[0::2])
    sine = angle * _polynomial(square, signed[1::2])
    which = quarters.astype(np.int64) & 3
    zero = np.zeros_like(sine)
    cosines = np.choose(which, [cosine, zero - sine, zero - cosine, sine])
    sines = np.choose(which, [sine, cosine, zero - sine, zero - cosine])
    return cosines, sines


@cache
def cosine_table(grid_bits: int, value_bits: int) -> tuple[Array, Array]:
    r"""Cosines and sines of a grid of angles, as whole numbers.

    .. math:: \operatorname{round}\Big(2^v \cos\frac{2\pi g}{2^G}\Big),
        \qquad g = 0, \dots, 2^G - 1 ,

    correctly rounded, and likewise for the sine.

    Examples
    --------
    >>> cosine_table(2, 4)[0].tolist()
    [16.0, 0.0, -16.0, 0.0]
    """
    turns = np.arange(2**grid_bits) / 2.0**grid_bits
    both = [np.rint(2.0**value_bits * v) + 0.0 for v in cosines_of_turns(turns)]
    for values in both:
        values.flags.writeable = False
    return both[0], both[1]


def sequential_sum(terms: Iterable[Any]) -> Array:
    """Sum of some arrays, or over the first axis of one: one order, one result.

    Examples
    --------
    >>> sequential_sum(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    # Not the built-in sum, which compensates since Python 3.12.
    return np.asarray(reduce(operator.add, terms, 0.0), np.float64)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Horner's scheme, lowest coefficient first."""
    result = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result *= x
        result += coefficient
    return result


@cache
def _normal_distribution() -> Array:
    r"""Φ at multiples of 1/1024 in [-8, 8].

    :math:`\Phi(x) = \tfrac12 + \tfrac{e^{-x^2/2}}{\sqrt{2\pi}} \sum_n
    \frac{x^{2n+1}}{1 \cdot 3 \cdots (2n+1)}`, whose terms are positive for positive x.
    """
    x = np.arange(_CDF_REACH * _CDF_STEPS + 1) / _CDF_STEPS
    term, total = x.copy(), x.copy()
    for n in range(1, 160):
        term = term * (x * x) / (2 * n + 1)
        total = total + term
    upper = 0.5 + exp(-x * x / 2) / np.sqrt(TURN) * total
    upper = np.minimum(upper, 1.0)
    upper[-1] = 1.0
    return np.concatenate([(1 - upper)[:0:-1], upper])
