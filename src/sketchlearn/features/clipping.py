r"""Clipping: any feature map, with its norm bounded by a public constant.

Clipping is a feature map, since it must happen to each row before pooling; the bound
is part of the fingerprint. It is what makes a sketch releasable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.exact import Int128Array, lattice_sum
from sketchlearn.features.base import (
    AbstractFeatureMap,
    encode_description,
    row_blocks,
)
from sketchlearn.features.composition import build_part
from sketchlearn.scaling import Scaling

__all__ = ["ClippedFeatures", "clip_rows", "clipped"]

_LARGE = 1e280
_CACHED_ROWS = 64


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

    The norm of a row's *integer* features never exceeds

    .. math:: S_q 2^k = 2^k S (1 + (m+8) 2^{-52}) + \sqrt m / 2 .
    """

    kind: ClassVar[str] = "clipped"

    def __init__(
        self,
        inner: AbstractFeatureMap | dict[str, Any],
        *,
        norm_bound: float,
        stored: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.inner = build_part(inner, 0, stored)
        if isinstance(self.inner, ClippedFeatures):
            raise FeatureMapError("this map is clipped already; clip the inner map.")
        if isinstance(norm_bound, bool) or not 0 < norm_bound < float("inf"):
            raise FeatureMapError(
                f"norm_bound must be a positive finite number; got {norm_bound!r}."
            )
        super().__init__(
            n_features=self.inner.n_features,
            sketch_size=self.inner.sketch_size,
            scaling=None,
            value_bound=norm_bound,
            norm_bound=norm_bound,
        )

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return tuple(f"0.{name}" for name in self.inner.stored_weights)

    @property
    @override
    def scalings(self) -> tuple[Scaling, ...]:
        return self.inner.scalings

    @property
    @override
    def origin(self) -> str:
        return self.inner.origin

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
    ) -> NDArray[np.floating]:
        return clip_rows(self.inner.evaluate(rows, first_row), self.value_bound)

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        total = np.zeros(self.sketch_size, np.int64)
        for start, block, count in row_blocks(rows):
            features = self.inner.evaluate(block, first_row + start)[:count]
            for part in range(0, count, _CACHED_ROWS):
                short = clip_rows(
                    features[part : part + _CACHED_ROWS], self.value_bound
                )
                total += lattice_sum(short, self.frac_bits)
        return Int128Array.from_int64(total)


def clip_rows(features: NDArray[np.floating], bound: float) -> NDArray[np.float64]:
    """Shorten each row to the L2 norm ``bound``, in float64 and without overflow."""
    rows: NDArray[np.float64] = features.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        squares = np.vecdot(rows, rows)
    if not (squares < _LARGE).all() or not _LARGE**-0.5 < bound < _LARGE**0.5:
        return _clip_extreme_rows(rows, bound)
    rows *= (bound / np.sqrt(np.maximum(squares, bound**2)))[:, None]
    return rows


def _clip_extreme_rows(
    features: NDArray[np.float64], bound: float
) -> NDArray[np.float64]:
    """The same for rows whose squares overflow, or bounds whose square underflows."""
    largest = np.abs(features).max(axis=1, keepdims=True)
    # Powers of two bring every row and the bound near unit size: exact, and nothing
    # overflows when squared.
    exponents, (unit_bound, power) = np.frexp(largest)[1], np.frexp(bound)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        unit = np.ldexp(features, -exponents)
        norms = np.sqrt(np.vecdot(unit, unit))[:, None]
        # norm > bound, compared as mantissas and exponents
        gap = exponents - power
        longer = np.ldexp(norms, np.minimum(gap, 64)) > unit_bound
        short = np.ldexp(unit * (unit_bound / norms), power)
    return np.where(longer & (largest > 0), short, features)
