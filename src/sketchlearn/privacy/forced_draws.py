r"""Bytes that lead the sampler to one value: its coins are given, not tossed.

A value of 12 σ is drawn once in :math:`10^{33}` times, and a sampler that never gives
one looks like any other in all the draws that anybody can make. Fed with the right
bytes it must give it at once, as long as each coin on the way is below its probability:

.. math::
    |y| = u + t v, \quad t = \sigma + 1, \qquad e^{-u/t}, \quad e^{-v}, \quad
    \exp\Big(-\frac{(|y| - \sigma^2 / t)^2}{2\sigma^2}\Big) .

Their product is :math:`e^{-y^2/2\sigma^2}` times a constant. This module knows in which
order :mod:`sketchlearn.privacy.noise` asks for bytes, and nothing of releases.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Self, final

from sketchlearn.errors import PrivacyError
from sketchlearn.privacy.noise import VECTOR_LIMIT, RandomBytes

__all__ = ["Coins", "forced_bytes", "forced_count_fault", "forced_fault"]

MARGIN = Fraction(1, 2**40)
"""How near to its probability a coin is put, as a part of it."""

_Script = Generator[bytes, int, None]
"""Takes the number of bytes that is asked for, and gives the bytes."""


@final
@dataclass(frozen=True)
class Coins:
    """The uniform numbers from which the sampler makes one value.

    Parameters
    ----------
    offset : int
        u, below t.
    keep, steps, accept : Fraction
        In [0, 1): that of the coin of u, that of the geometric number v, and that of
        the acceptance.
    negative : bool
        The sign.
    """

    offset: int
    keep: Fraction
    steps: Fraction
    negative: bool
    accept: Fraction

    @classmethod
    def just_below(cls, sigma: int, value: int) -> Self:
        """Coins of a Gaussian value, each as large as it may be, but for a margin."""
        t, size = sigma + 1, abs(value)
        distance = Fraction((size * t - sigma * sigma) ** 2, 2 * (sigma * t) ** 2)
        return cls._of(t, size, value < 0, exp_minus(distance) * (1 - MARGIN))

    @classmethod
    def of_count(cls, rate: Fraction, value: int) -> Self:
        """Those of a discrete Laplace value: P(k) falls as exp(-rate |k|)."""
        s, t = rate.numerator, rate.denominator
        return cls._of(t, abs(value) * s + s // 2, value < 0, Fraction(0))

    @classmethod
    def _of(cls, t: int, size: int, negative: bool, accept: Fraction) -> Self:
        v, u = divmod(size, t)
        keep, steps = (
            exp_minus(x) * (1 - MARGIN) for x in (Fraction(u, t), Fraction(v))
        )
        return cls(u, keep, steps, negative, accept)

    def raised(self, name: str) -> Coins | None:
        """The same with a coin just above its probability; None if it cannot be."""
        above = getattr(self, name) * (1 + MARGIN) / (1 - MARGIN)
        return replace(self, **{name: above}) if 0 < above < 1 else None


def forced_fault(
    sigma: int, draw: Callable[[RandomBytes], list[int]], value: int
) -> str | None:
    """What is wrong with how often a sampler gives a value; None if nothing.

    ``draw(random_bytes)`` gives as many numbers as it likes. The value is to be told
    from those that :func:`forced_bytes` lets follow: negative, or above ``sigma``.
    """
    return _fault(
        lambda coins: draw(forced_bytes(sigma, coins)),
        Coins.just_below(sigma, value),
        lambda n: [value, *(i % (sigma + 1) for i in range(1, n))],
    )


def forced_count_fault(
    rate: Fraction, draw: Callable[[RandomBytes], int], value: int
) -> str | None:
    """The same of a discrete Laplace sampler of one number, its rate at most 1."""
    return _fault(
        lambda coins: [draw(_source(_script_of_one(coins)))],
        Coins.of_count(rate, value),
        lambda n: [value],
    )


def _fault(
    draw: Callable[[Coins], list[int]],
    below: Coins,
    expected: Callable[[int], list[int]],
) -> str | None:
    def drawn(coins: Coins) -> list[int]:
        try:
            return draw(coins)
        except PrivacyError:
            return []

    first = drawn(below)
    if not first or first != expected(len(first)):
        return "a value is never drawn, or too seldom"
    raised = [below.raised(name) for name in ("keep", "steps", "accept")]
    if any(drawn(coins)[:1] == first[:1] for coins in raised if coins is not None):
        return "a value is drawn too often"
    return None


def exp_minus(exponent: Fraction) -> Fraction:
    """exp(-exponent) to 80 digits."""
    with decimal.localcontext() as context:
        context.prec = 90
        ratio = decimal.Decimal(exponent.numerator) / exponent.denominator
        return Fraction((-ratio).exp())


def forced_bytes(sigma: int, coins: Coins) -> RandomBytes:
    """A source of bytes whose first try has these coins.

    Up to ``VECTOR_LIMIT`` the tries after it give 1, 2, 3, … (modulo t), so that all
    numbers of a draw are known; beyond, there is one number. Whoever asks for more
    bytes than that takes, gets an error.
    """
    if sigma <= VECTOR_LIMIT:
        return _source(_script_of_vectors(sigma + 1, coins))
    return _source(_script_of_one(coins))


def _source(script: _Script) -> RandomBytes:
    next(script)

    def random_bytes(size: int) -> bytes:
        try:
            return script.send(size)
        except StopIteration:
            raise PrivacyError(
                "the sampler asked for more random bytes than the forced value takes: "
                "it threw the value away."
            ) from None

    return random_bytes


def _script_of_vectors(t: int, coins: Coins) -> _Script:
    size = yield b""
    others = size // 8 - 1
    phases: list[tuple[Iterator[int], list[int]]] = [
        (iter([coins.offset]), [i % t for i in range(1, others + 1)]),
        (_words(coins.keep), [0] * others),
        (_words(coins.steps), [2**64 - 1] * others),
        (iter([int(coins.negative)]), [0] * others),
        (_words(coins.accept), [0] * others),
    ]
    for mine, rest in phases:
        first = [next(mine)] if size // 8 > others else []  # else it was refused before
        size = yield _pack(first + rest)
        while size == 8:  # one coin is too close to call, and gets more bits
            size = yield _pack([next(mine)])


def _script_of_one(coins: Coins) -> _Script:
    size = yield b""
    size = yield coins.offset.to_bytes(size, "little")
    size = yield _pack([next(_words(coins.keep))])
    toss = coins.steps
    while size == 8 and toss < 1:  # v heads of probability 1/e, and a tail
        size = yield _pack([next(_words(toss))])
        toss /= exp_minus(Fraction(1))
    if size == 1:
        size = yield bytes([coins.negative])
        for word in islice(_words(coins.accept), 64):  # enough for 70 sigma
            size = yield _pack([word])


def _words(number: Fraction) -> Iterator[int]:
    """The binary digits of a number in [0, 1), 64 at a time."""
    while True:
        number *= 2**64
        word = int(number)
        number -= word
        yield word


def _pack(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in words)
