r"""Clipping: any feature map, with its norm bounded by a public constant.

Clipping is a feature map, since it must happen to each row before pooling; the bound
is part of the fingerprint. It is what makes a sketch releasable.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, sqrt
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError, RowRangeError
from sketchlearn.features.arguments import require_bound
from sketchlearn.features.base import AbstractFeatureMap, sum_features
from sketchlearn.features.build import build_member
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.description import encode_description
from sketchlearn.features.fields import NUMBER, TABLE, Field
from sketchlearn.features.parts import Clip, Part
from sketchlearn.features.registry import is_of_package

__all__ = ["ClippedFeatures", "clip_rows", "clipped"]
__public__ = ["clipped"]

_NORM_BITS = 26
"""Norms are at most ``2**26`` steps, so that their squares are exact in float64."""


def clipped(feature_map: AbstractFeatureMap, *, norm_bound: float) -> ClippedFeatures:
    r"""The same map with its feature vectors shortened to ``norm_bound``.

    .. math:: \varphi'(x) = \varphi(x)\,\min(1, S / \lVert\varphi(x)\rVert)

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Any map that is not clipped yet.
    norm_bound : float
        S, a constant fixed before the data is looked at.

    Examples
    --------
    >>> from sketchlearn import FourierFeatures
    >>> phi = clipped(FourierFeatures(2, 8), norm_bound=1.0)
    >>> round(float(np.linalg.norm(phi(np.zeros((1, 2))))), 12)
    1.0
    """
    return ClippedFeatures(feature_map, norm_bound=norm_bound)


@final
class ClippedFeatures(AbstractFeatureMap):
    r"""A map followed by L2 clipping; made by :func:`clipped`.

    The features are whole multiples of a step between :math:`2^{-26} S` and
    :math:`2^{-25} S`, shrunk until the exact norm of these whole numbers is within the
    bound: :math:`\lVert\varphi'(x)\rVert \le S` is a fact about the numbers that are
    summed, whatever the inner map does. A map that is not of this library is compared
    while it is used: features of some rows of every block must be the same where each
    of these rows comes alone.
    """

    kind: ClassVar[str] = "clipped"
    fields: ClassVar[Mapping[str, Field]] = {"inner": TABLE, "norm_bound": NUMBER}
    stored: ClassVar[None] = None

    def __init__(
        self,
        inner: AbstractFeatureMap | dict[str, Any],
        *,
        norm_bound: float,
        stored: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        inner = build_member(inner, 0, stored)
        self.inner = inner.with_columns(None)
        self.version = self.inner.version
        if isinstance(self.inner, ClippedFeatures):
            raise FeatureMapError("this map is clipped already; clip the inner map.")
        norm_bound = require_bound("norm_bound", norm_bound)
        super().__init__(
            n_features=self.inner.n_features,
            sketch_size=self.inner.sketch_size,
            scaling=None,
            value_bound=norm_bound,
            norm_bound=norm_bound,
        )
        self.columns = inner.columns
        inside = [type(part.feature_map) for part in self.inner.parts()]
        self._is_foreign = not all(map(is_of_package, inside))

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        inner = given.members[0]
        m = inner.sketch_size or 0
        return Cost(inner.n_features, inner.sketch_size, 10 * m, 100 * m)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return tuple(f"0.{name}" for name in self.inner.stored_weights)

    @override
    def parts(self) -> tuple[Part[AbstractFeatureMap], ...]:
        clip = Clip(slice(0, self.sketch_size), self.value_bound)
        return tuple(part.clipped(clip) for part in self.inner.parts())

    @property
    @override
    def widest(self) -> int:
        return self.inner.widest

    @override
    def describe(self) -> dict[str, Any]:
        inner = encode_description(self.inner.description)
        return {"inner": inner, "norm_bound": self.norm_bound}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {f"0.{name}": array for name, array in self.inner.weights().items()}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        if self._is_foreign:
            return self._compared(rows, first_row)
        features = self.inner.evaluate(rows, first_row)
        return clip_rows(features, self.value_bound, first_row)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)

    def _compared(
        self, rows: NDArray[np.floating], first_row: int
    ) -> NDArray[np.float64]:
        """Clipped features of a block, if they are those of its rows alone."""
        extremes = rows.max(axis=1).argmax(), rows.min(axis=1).argmin()
        any_row = (first_row // 7 + len(rows) // 2) % len(rows)  # another in each block
        chosen = {any_row, *map(int, extremes)}
        copies = {i: rows[i : i + 1].copy() for i in chosen}  # rows may be overwritten
        together = clip_rows(self._inner(rows, first_row), self.value_bound, first_row)
        # Each alone, and in another place.
        alone = np.concatenate([self._inner(row, 0).copy() for row in copies.values()])
        same = clip_rows(alone, self.value_bound) == together[list(copies)]
        if not same.all():
            row = list(copies)[int(same.all(axis=1).argmin())]
            raise FeatureMapError(
                f"{type(self.inner).__name__} gives row {first_row + row} other "
                "features alone than beside other rows, so that its sketches have no "
                "bound for a row and cannot forget. Nothing was added. Compute the "
                "features of a row from that row only (no statistics of the batch, "
                "nothing kept from call to call); see docs/extending.md."
            )
        return together

    def _inner(self, rows: NDArray[np.floating], first_row: int) -> NDArray[np.float64]:
        """Features by a map of a user, after checking that there is one of each row."""
        n_rows = len(rows)
        features = np.asarray(self.inner.evaluate(rows, first_row), np.float64)
        if features.shape != (n_rows, self.sketch_size):
            raise FeatureMapError(
                f"{type(self.inner).__name__}.evaluate gave an array of shape "
                f"{features.shape} for {n_rows} rows; it must be ({n_rows}, "
                f"{self.sketch_size}), a vector for each row."
            )
        return features


def clip_rows(
    features: NDArray[np.float64], bound: float, first_row: int = 0
) -> NDArray[np.float64]:
    r"""Rows rounded and shortened so that no norm exceeds ``bound``, by whole numbers.

    With :math:`2^{-b}` the step, :math:`b = 26 - \lceil\log_2 S\rceil`, and
    :math:`L = \lfloor 2^b S\rfloor`, a row v becomes :math:`2^{-b}
    \operatorname{rint}(2^b v)` if it is short, and otherwise :math:`2^{-b}
    \operatorname{rint}(r\,u)`: u is the row in units of so few bits that
    :math:`n = \lVert\operatorname{rint} u\rVert^2` is a whole number below
    :math:`2^{52}`, and :math:`r = L / \sqrt n`, corrected once by the norm of
    :math:`\operatorname{rint}(r\,u)`. As long as the exact norm of the result exceeds
    L, r shrinks by the excess and by what rounding may add, :math:`(\sqrt m + 4)\,
    2^{-26}`.

    Each row depends on itself alone, and on no order of summation: all squares that
    are summed are whole numbers that a float64 holds. What is not a finite number has
    no norm, and is refused.

    Examples
    --------
    >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(6)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    bits = _NORM_BITS - ceil_log2(bound)
    limit = float(floor(np.ldexp(bound, bits)))
    # Rows in units of so few bits that the sum of their squares is exact.
    width = features.shape[1]
    coarse = (52 - (width - 1).bit_length()) // 2
    largest = np.maximum(features.max(axis=1), -features.min(axis=1))[:, None]
    if not (known := np.isfinite(largest)).all():
        raise RowRangeError(
            f"row {first_row + int(known.argmin())} has a feature that is no finite "
            "number and cannot be clipped. Nothing was added."
        )
    exponents = np.frexp(largest)[1]
    scaled = _times_two_to(features, coarse - exponents)
    norms = _norms(np.rint(scaled))
    # A unit is worth two to this many steps, or as many as the bound leaves room for.
    gap = np.minimum(exponents - coarse + bits, 64)
    longer = np.ldexp(norms, gap) > limit
    room = limit / np.maximum(norms, 1.0)
    if longer.any():
        room *= limit / np.maximum(_norms(np.rint(scaled * room)), 1.0)
    room = np.where(longer, room, np.ldexp(1.0, gap))
    result = np.rint(scaled * room)
    # Rounding adds less than half the root of the width to a norm.
    margin = 1 - (sqrt(width) + 4) * 2.0**-_NORM_BITS
    while (over := (_norms(result, squared=True) > limit * limit)[:, 0]).any():
        room[over] *= limit / _norms(result[over]) * margin
        result[over] = np.rint(scaled[over] * room[over])
    return _times_two_to(result, np.array(-bits))


def _times_two_to(
    rows: NDArray[np.float64], exponents: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Rows times powers of two; multiplying is faster where the powers are numbers."""
    scaled: NDArray[np.float64]
    if (np.abs(exponents) < 1000).all():
        scaled = rows * np.ldexp(1.0, exponents)
    else:
        scaled = np.ldexp(rows, exponents)
    return scaled


def _norms(rows: NDArray[np.float64], *, squared: bool = False) -> NDArray[np.float64]:
    """Norms of rows of whole numbers; their squares are exact below ``2**53``."""
    squares: NDArray[np.float64] = np.vecdot(rows, rows)[:, None]
    norms: NDArray[np.float64] = squares if squared else np.sqrt(squares)
    return norms
