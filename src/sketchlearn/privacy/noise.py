r"""Exact integer noise from the operating system's randomness.

Discrete Gaussian and discrete Laplace samples by rejection (Canonne, Kamath and
Steinke 2020). A coin with probability :math:`e^{-x}` is decided by comparing 64 random
bits with a float64 value of :math:`e^{-x}` and, where the two are too close for a
float to know, by more bits and decimal arithmetic: the distribution is exact, not
approximate. No seed, no generator, and no random byte that outlives a call.
"""

from __future__ import annotations

import decimal
import os
from collections.abc import Callable
from math import exp

import numpy as np
from numpy.typing import NDArray

__all__ = ["VECTOR_LIMIT", "RandomBytes", "discrete_gaussian", "discrete_laplace"]

RandomBytes = Callable[[int], bytes]

VECTOR_LIMIT = 2**56
"""Largest sigma of the vectorised sampler; beyond, samples are drawn one by one. Up to
it, draws of 63 sigma and more stay within int64; larger ones, of which there is one in
1e889, are made smaller."""

WINDOW = 2.0**-32
"""Coins closer to their threshold than this are decided exactly. The float64 values of
draw and threshold are off by less than 2**-48, so that it has 16 bits to spare."""

_TABLED = 44
"""Steps of the table of geometric draws: floor(e**-44 * 2**64) is 1, the next 0."""


def discrete_gaussian(
    sigma: int, size: int, *, random_bytes: RandomBytes = os.urandom
) -> list[int]:
    r"""Independent integers with :math:`P(n) \propto e^{-n^2 / 2\sigma^2}`.

    Parameters
    ----------
    sigma : int
        At least 1.
    size : int
        How many.
    random_bytes : callable
        Source of random bytes; the operating system's unless a test says otherwise.
    """
    if sigma <= VECTOR_LIMIT:
        return [int(n) for n in _gaussian_vector(sigma, size, random_bytes)]
    return [_gaussian_scalar(sigma, random_bytes) for _ in range(size)]


def discrete_laplace(
    numerator: int, denominator: int, *, random_bytes: RandomBytes = os.urandom
) -> int:
    r"""One integer with :math:`P(k) \propto e^{-\epsilon |k|}`, ε a fraction."""
    s, t = numerator, denominator
    while True:
        u = _below(t, random_bytes)
        if not _coin(u, t, random_bytes):
            continue
        v = 0
        while _coin(1, 1, random_bytes):
            v += 1
        y = (u + t * v) // s
        negative = random_bytes(1)[0] & 1
        if not (negative and y == 0):
            return -y if negative else y


def _gaussian_scalar(sigma: int, random_bytes: RandomBytes) -> int:
    t = sigma + 1
    while True:
        y = discrete_laplace(1, t, random_bytes=random_bytes)
        distance = (abs(y) * t - sigma * sigma) ** 2
        if _coin(distance, 2 * sigma * sigma * t * t, random_bytes):
            return y


def _gaussian_vector(
    sigma: int, size: int, random_bytes: RandomBytes
) -> NDArray[np.int64]:
    kept: list[NDArray[np.int64]] = []
    missing = size
    while missing > 0:
        candidates = _laplace_vector(sigma + 1, 2 * missing + 16, random_bytes)
        accepted = _accept_gaussian(candidates, sigma, random_bytes)
        kept.append(accepted[:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept) if kept else np.empty(0, np.int64)


def _laplace_vector(t: int, size: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Discrete Laplace samples of scale ``t``: what is left of ``size`` tries."""
    u = _words(size, random_bytes) & np.uint64((1 << (t - 1).bit_length()) - 1)
    u = u[u < np.uint64(t)].astype(np.int64)
    coins = _words(len(u), random_bytes)
    keep = _coins(u / t, coins, lambda i: (int(u[i]), t), random_bytes)
    u = u[keep]
    v = _geometric(_words(len(u), random_bytes), random_bytes)
    negative = (_words(len(u), random_bytes) & np.uint64(1)).astype(bool)
    magnitude: NDArray[np.int64] = u + t * np.minimum(v, 2**62 // t)
    valid = ~(negative & (magnitude == 0))
    signed = np.where(negative, -magnitude, magnitude)
    return np.asarray(signed[valid], np.int64)


def _accept_gaussian(
    candidates: NDArray[np.int64], sigma: int, random_bytes: RandomBytes
) -> NDArray[np.int64]:
    t = sigma + 1
    # sigma**2 / t = sigma - 1 + 1/t exactly: the difference below loses nothing.
    distance = (np.abs(candidates) - (sigma - 1)) - 1.0 / t
    exponents = (distance / sigma) ** 2 / 2

    def exact(i: int) -> tuple[int, int]:
        numerator = (abs(int(candidates[i])) * t - sigma * sigma) ** 2
        return numerator, 2 * sigma * sigma * t * t

    coins = _words(len(candidates), random_bytes)
    return candidates[_coins(exponents, coins, exact, random_bytes)]


def _coins(
    exponents: NDArray[np.float64],
    bits: NDArray[np.uint64],
    exact: Callable[[int], tuple[int, int]],
    random_bytes: RandomBytes,
) -> NDArray[np.bool_]:
    """Heads with probability exp(-exponent); ``bits`` are the first 64 of each."""
    draws, probabilities = bits * 2.0**-64, np.exp(-exponents)
    heads = draws < probabilities
    for i in np.flatnonzero(np.abs(draws - probabilities) < WINDOW):
        heads[i] = _decide(int(bits[i]), *exact(int(i)), random_bytes)
    return heads


def _geometric(
    bits: NDArray[np.uint64], random_bytes: RandomBytes
) -> NDArray[np.int64]:
    """Number of heads of a coin with probability 1/e before the first tail."""
    # P(v >= k) = e**-k: count the thresholds above the draw.
    found = len(_THRESHOLDS) - np.searchsorted(_THRESHOLDS, bits, side="right")
    unsure = (bits == 0) | np.isin(bits, _THRESHOLDS)
    for i in np.flatnonzero(unsure):
        found[i] = _exact_geometric(int(bits[i]), random_bytes)
    return found


def _exact_geometric(word: int, random_bytes: RandomBytes) -> int:
    """The same for one draw whose first 64 bits lie on a threshold."""
    digits = 64
    while True:
        word, digits = (word << 64) | _word(random_bytes), digits + 64
        with decimal.localcontext() as context:
            context.prec = 40 + digits
            draw = decimal.Decimal(word) / (decimal.Decimal(2) ** digits)
            if draw == 0:
                continue
            steps = int((-draw.ln()).to_integral_value(decimal.ROUND_FLOOR))
            width = decimal.Decimal(2) ** -(digits - 8)
            edges = [
                abs(draw - (-decimal.Decimal(k)).exp()) for k in (steps, steps + 1)
            ]
            if min(edges) > width:
                return steps


def _coin(numerator: int, denominator: int, random_bytes: RandomBytes) -> bool:
    """One coin with probability exp(-numerator/denominator), exactly."""
    return _decide(_word(random_bytes), numerator, denominator, random_bytes)


def _decide(
    word: int, numerator: int, denominator: int, random_bytes: RandomBytes
) -> bool:
    """Whether a uniform draw that starts with ``word`` is below exp(-n/d)."""
    if numerator == 0:
        return True
    if numerator < 700 * denominator:
        probability, draw = exp(-(numerator / denominator)), word * 2.0**-64
        if abs(draw - probability) > WINDOW:
            return draw < probability
    digits = 64
    while True:
        with decimal.localcontext() as context:
            context.prec = 30 + digits
            ratio = -decimal.Decimal(numerator) / decimal.Decimal(denominator)
            threshold = ratio.exp() * decimal.Decimal(2) ** digits
            if abs(threshold - word) > 2:
                return word < threshold
        word, digits = (word << 64) | _word(random_bytes), digits + 64


def _below(limit: int, random_bytes: RandomBytes) -> int:
    """A uniform integer in [0, limit)."""
    bits = (limit - 1).bit_length()
    n_bytes = (bits + 7) // 8
    while True:
        value = int.from_bytes(random_bytes(n_bytes), "little") & ((1 << bits) - 1)
        if value < limit:
            return value


def _word(random_bytes: RandomBytes) -> int:
    return int.from_bytes(random_bytes(8), "little")


def _words(size: int, random_bytes: RandomBytes) -> NDArray[np.uint64]:
    return np.frombuffer(random_bytes(8 * size), "<u8")


def _thresholds() -> NDArray[np.uint64]:
    """floor(e**-k * 2**64) for k = 44..1, increasing."""
    with decimal.localcontext() as context:
        context.prec = 60
        values = [
            int((-decimal.Decimal(k)).exp() * decimal.Decimal(2) ** 64)
            for k in range(_TABLED, 0, -1)
        ]
    return np.array(values, np.uint64)


_THRESHOLDS = _thresholds()
