"""The price of one release, and the unit and relation of which it speaks.

A promise is about one unit (a row, or a group of rows) and one relation between
neighbours (a unit added or removed, or replaced). What prices are together is the
concern of :mod:`sketchlearn.privacy.accountant`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any, Literal, final, get_args

from sketchlearn.errors import PrivacyError, quote
from sketchlearn.privacy.mechanisms import MU_LIMIT, is_number, require_budget
from sketchlearn.sketching.lineage import MOST_LISTED, Lineage

__all__ = [
    "Charge",
    "CountMode",
    "Neighbours",
    "recorded_runs",
    "require_modes",
    "require_unit",
]

Neighbours = Literal["add_remove", "replace"]
CountMode = Literal["joint", "laplace", "public"]

_NEIGHBOURS, _COUNT_MODES = get_args(Neighbours), get_args(CountMode)

MOST_ROWS_PER_UNIT = 2**20
"""Whoever has more rows than this is no unit of a dataset, but a mistake."""


@final
@dataclass(frozen=True)
class Charge:
    """The price of one release.

    Parameters
    ----------
    release_id : str
        128 random bits in hexadecimal. Charges with the same id all count.
    mu2 : float
        (sensitivity / noise)², the price of its Gaussian part.
    pure_epsilon : float
        The price of its Laplace part, if any.
    feature_map : str
        Fingerprint of the map.
    lineage : tuple of str
        Passes over rows inside the sketch, or the digest of a long list of them.
    neighbours : {"add_remove", "replace"}
        The relation of which the price speaks.
    rows_per_unit : int
        Rows of one unit, of which the price speaks.
    count_mode : {"joint", "laplace", "public"}
        Whether the number of rows has noise for as many rows as a unit has, or was
        told.
    epsilon, delta : float, optional
        What was promised with the release, for messages.
    """

    release_id: str
    mu2: float
    pure_epsilon: float = 0.0
    feature_map: str = ""
    lineage: tuple[str, ...] = ()
    neighbours: Neighbours = "add_remove"
    rows_per_unit: int = 1
    count_mode: CountMode = "joint"
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        for name, most in (("mu2", MU_LIMIT**2), ("pure_epsilon", MU_LIMIT)):
            value = getattr(self, name)
            if type(value) is not float:
                value = _as_float(name, value)
                object.__setattr__(self, name, value)
            if not 0 <= value <= most:
                raise PrivacyError(f"a charge of {name}={value!r} makes no sense.")
        if self.mu2 == 0 and self.pure_epsilon == 0:
            raise PrivacyError("a charge must cost something.")
        runs = self.lineage if type(self.lineage) is tuple else (None,)
        if {*map(type, (self.release_id, self.feature_map, *runs))} != {str}:
            raise PrivacyError(
                "release_id, feature_map and what is in the tuple lineage are texts."
            )
        require_modes(self.neighbours, self.count_mode, self.rows_per_unit)
        if type(self.rows_per_unit) is not int:
            object.__setattr__(self, "rows_per_unit", int(self.rows_per_unit))
        if self.epsilon is not None or self.delta is not None:
            require_budget(self.epsilon, self.delta)


def recorded_runs(lineage: Lineage | None) -> tuple[str, ...]:
    """What a ledger keeps: all runs and parts, or the digest of a long list of them."""
    texts = tuple(() if lineage is None else lineage.unsigned)
    if len(texts) <= MOST_LISTED:
        return texts
    return (f"sha256:{hashlib.sha256(','.join(texts).encode()).hexdigest()}",)


def require_modes(neighbours: str, count: str, rows_per_unit: int) -> None:
    """Refuse a release whose parts do not fit together."""
    texts = isinstance(neighbours, str) and isinstance(count, str)
    if not texts or neighbours not in _NEIGHBOURS or count not in _COUNT_MODES:
        raise PrivacyError(
            f"neighbours must be one of {_NEIGHBOURS} and count one of "
            f"{_COUNT_MODES}; got {neighbours!r} and {count!r}."
        )
    if count == "public" and neighbours == "add_remove":
        raise PrivacyError(
            'with neighbours="add_remove" the number of rows is itself private. Use '
            'count="joint" (default), or neighbours="replace" if N is public.'
        )
    require_unit(neighbours, rows_per_unit)
    if count == "public" and rows_per_unit > 1:
        raise PrivacyError(
            "somebody with several rows may be replaced by somebody with fewer, so "
            'that the number of rows tells who is there. Use count="joint" with '
            "rows_per_unit > 1."
        )


def require_unit(neighbours: Any, rows_per_unit: Any) -> None:
    """Refuse a relation that is not known, or a unit of no whole number of rows."""
    if not isinstance(neighbours, str) or neighbours not in _NEIGHBOURS:
        raise PrivacyError(
            f"neighbours must be one of {_NEIGHBOURS}; got {neighbours!r}."
        )
    if (
        not is_number(rows_per_unit)
        or not 1 <= rows_per_unit <= MOST_ROWS_PER_UNIT
        or rows_per_unit % 1
    ):
        raise PrivacyError(
            "rows_per_unit must be a whole number of at least 1; got "
            f"{rows_per_unit!r}."
        )


def _as_float(name: str, value: Any) -> float:
    try:
        number = float(value) if is_number(value) else nan
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise PrivacyError(
            f"{name}={quote(value)} makes no sense: it must be a finite number."
        )
    return number
