"""What a search without gradients may change: choices, numbers and weights.

How it searches is not known here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from numpy.typing import NDArray

from sketchlearn.errors import ConfigError

__all__ = ["SearchSpace", "Setting"]

Setting = float | str


@final
@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Settings searched beside the weights.

    Examples
    --------
    >>> space = SearchSpace(
    ...     choices={"activation": ["relu", "cos"]}, log_scalars={"rate": (1e-4, 1.0)}
    ... )
    >>> list(space.cells())
    [{'activation': 'relu'}, {'activation': 'cos'}]
    >>> round(space.scalars_at([0.0])["rate"], 6)
    0.01
    """

    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Alternatives by name; every combination is searched on its own."""

    log_scalars: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Positive numbers by name with the range to search, on a log scale."""

    weight_scale: float = 0.1
    """Typical size of a first change of a weight; 0 leaves the weights alone."""

    def __post_init__(self) -> None:
        for name, (low, high) in self.log_scalars.items():
            if not 0 < low < high < math.inf:
                raise ConfigError(
                    f"the range of {name!r} must be 0 < low < high; got {(low, high)}."
                )
        empty = [name for name, values in self.choices.items() if not values]
        if empty:
            raise ConfigError(f"choice {empty[0]!r} has no alternatives; give some.")
        if not self.weight_scale and not self.log_scalars:
            raise ConfigError(
                "there is nothing to search: set weight_scale above 0, or log_scalars."
            )

    def cells(self) -> Iterator[dict[str, Setting]]:
        """Every combination of the choices."""
        for values in itertools.product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))

    def scalars_at(self, point: Sequence[float] | NDArray[Any]) -> dict[str, Setting]:
        """Log-scalars at a point of [-1, 1] each; 0 is the geometric middle."""
        found: dict[str, Setting] = {}
        for position, (name, (low, high)) in zip(
            point, self.log_scalars.items(), strict=True
        ):
            share = (min(max(float(position), -1.0), 1.0) + 1) / 2
            found[name] = low * (high / low) ** share
        return found
