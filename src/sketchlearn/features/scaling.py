r"""Scaling: what happens to a row before its features are computed.

Every feature map begins with :math:`x' = (x - \text{shift}) \cdot \text{factor}`,
column by column. The constants belong to the map and to its fingerprint; they come
from bounds somebody declared or from rows somebody looked at, and ``origin`` says
which, because a plan made from data keeps a trace of that data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchlearn.errors import FeatureMapError
from sketchlearn.rows.pieces import WIDEST

__all__ = ["Origin", "Scaling"]
__public__ = ["Scaling"]

Origin = Literal["declared", "data"]


@final
@dataclass(frozen=True, eq=False)
class Scaling:
    r"""Shift and stretch each column: :math:`x' = (x - \text{shift})\,\text{factor}`.

    Parameters
    ----------
    shift, factor : float64 arrays of shape (n_features,)
        Finite; factors positive.
    origin : {"declared", "data"}
        Whether the constants were declared (bounds, public knowledge) or read from
        rows.

    Examples
    --------
    >>> scaling = Scaling.from_bounds([0.0, -4.0], [8.0, 4.0])
    >>> scaling(np.array([[0.0, 4.0]]))
    array([[-1.,  1.]])
    """

    shift: NDArray[np.float64]
    factor: NDArray[np.float64]
    origin: Origin = "declared"

    def __post_init__(self) -> None:
        shift = np.array(self.shift, np.float64) + 0.0  # -0.0 becomes 0.0
        factor = np.array(self.factor, np.float64)
        if shift.ndim != 1 or shift.shape != factor.shape or len(shift) == 0:
            raise FeatureMapError(
                "shift and factor must be vectors of one length; got shapes "
                f"{shift.shape} and {factor.shape}."
            )
        if not (np.isfinite(shift).all() and np.isfinite(factor).all()):
            raise FeatureMapError("shift and factor must be finite.")
        if not (factor > 0).all():
            raise FeatureMapError("every factor must be positive.")
        if self.origin not in ("declared", "data"):
            raise FeatureMapError(
                f"origin must be 'declared' or 'data'; got {self.origin!r}."
            )
        shift.flags.writeable = factor.flags.writeable = False
        object.__setattr__(self, "shift", shift)
        object.__setattr__(self, "factor", factor)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.shift)

    def __call__(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Scaled rows, float64 whatever the type of ``rows``."""
        scaled: NDArray[np.float64] = np.subtract(rows, self.shift, dtype=np.float64)
        scaled *= self.factor
        return scaled

    @staticmethod
    def identity(n_features: int) -> Scaling:
        """Leave every column as it is."""
        _require_possible(n_features)
        return Scaling(np.zeros(n_features), np.ones(n_features))

    @staticmethod
    def from_bounds(
        low: ArrayLike,
        high: ArrayLike,
        *,
        n_features: int | None = None,
        origin: Origin = "declared",
    ) -> Scaling:
        """Map ``[low, high]`` into ``[-1, 1]`` with power-of-two factors.

        The factor is the largest power of two that keeps the interval inside, and
        the shift is the middle rounded to a sixty-fourth of the width, so that
        scaling a float32 value is exact.

        Parameters
        ----------
        low, high : float or array of shape (n_features,)
            Smallest and largest value of each column; ``low == high`` is a constant.
        n_features : int, optional
            Length of the result when both bounds are plain numbers.
        origin : {"declared", "data"}
            Where the bounds come from.
        """
        ends = _numbers(low), _numbers(high)
        size = n_features if n_features is not None else max(end.size for end in ends)
        _require_possible(size)
        try:
            lower, upper = (np.broadcast_to(end, (size,)) for end in ends)
        except ValueError as error:
            raise FeatureMapError(
                f"bounds of shapes {ends[0].shape} and {ends[1].shape} do not fit "
                f"{size} features: pass two numbers or two vectors of that length."
            ) from error
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise FeatureMapError("bounds must be finite.")
        if (lower > upper).any():
            column = int(np.argmax(lower > upper))
            raise FeatureMapError(
                f"bounds are reversed for feature {column}: "
                f"low {lower[column]:g} > high {upper[column]:g}."
            )
        half = upper / 2 - lower / 2
        reach = np.where(half > 0, half, np.maximum(np.abs(lower), 1.0))
        mantissa, exponent = np.frexp(reach)
        step = np.ldexp(1.0, np.clip(exponent - (mantissa == 0.5), -1000, 1000))
        middle = lower / 2 + upper / 2
        shift = np.rint(middle / step * 32) / 32 * step
        # Rounding the middle may push an end of the interval out: widen then.
        over = np.maximum(upper - shift, shift - lower) > step
        step = np.where(over, 2 * step, step)
        return Scaling(shift, 1 / step, origin)

    @staticmethod
    def from_rows(rows: NDArray[np.floating]) -> Scaling:
        """Read the range of each column from ``rows``; its origin is ``"data"``."""
        return Scaling.from_bounds(rows.min(axis=0), rows.max(axis=0), origin="data")

    def describe(self) -> dict[str, Any]:
        """Plain values for a specification (see :meth:`from_description`)."""
        return {"shift": self.shift, "factor": self.factor, "origin": self.origin}

    @staticmethod
    def from_description(fields: Mapping[str, Any]) -> Scaling:
        """Rebuild from :meth:`describe`."""
        return Scaling(fields["shift"], fields["factor"], fields["origin"])


def _numbers(bound: ArrayLike) -> NDArray[np.float64]:
    """One of two bounds as numbers."""
    try:
        found = np.asarray(bound)
    except ValueError:  # vectors of different lengths
        found = np.array(None)
    if found.dtype.kind not in "biuf":
        raise FeatureMapError(
            "bounds must be two numbers, or two vectors of numbers with one entry per "
            f"feature; got {type(bound).__name__}."
        )
    return found.astype(np.float64)


def _require_possible(n_features: int) -> None:
    """Refuse more features than rows can have, before there is a number for each."""
    if n_features > WIDEST:
        raise FeatureMapError(
            f"rows of {n_features} features are planned for, and rows have at most "
            f"{WIDEST}. Select columns, or sketch items with sketch_items."
        )
