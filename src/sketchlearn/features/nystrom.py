r"""Nyström features of a Gaussian kernel: landmark rows instead of frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import ceil_log2, exp, floor_log2
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_bound
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    sum_features,
)
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import NUMBER, Field
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling

__all__ = ["NystromFeatures"]
__public__ = ["NystromFeatures"]

_KERNEL_BITS = 22
"""Values of the kernel are rounded to ``2**-22``."""

_INVERSE_ROOT_BITS = 26
"""And entries of the inverse root to ``2**-26``."""

_REACH_BITS = 8
"""Rows may lie ``2**8`` scales away from the middle of the landmarks, or twice as far
as the landmarks themselves."""


@final
class NystromFeatures(AbstractFeatureMap):
    r"""Gaussian-kernel features through landmark rows.

    .. math::
        \varphi(x) = K^{-1/2}\, k(L, x), \qquad
        k(l, x) = e^{-\lVert x - l\rVert^2 / 2 s^2}, \quad K = k(L, L) + \epsilon I,

    for :math:`m` landmarks :math:`L` (Chatalic et al., AISTATS 2022). The norm is
    about one at most, but rounding does not guarantee it: clip the map to release it.

    Parameters
    ----------
    landmarks : array of shape (sketch_size, n_features)
        In the units of the rows. Landmarks taken from the data are raw rows: they
        stay in the map, and such a map is not private.
    scale : float
        Length scale of the kernel, in the units of the scaled rows.
    shift : float
        :math:`\epsilon`, for stability.
    root : array of shape (sketch_size, sketch_size), optional
        :math:`K^{-1/2}`. Computed here unless given; its last bits depend on the
        machine, so parties share the map's file rather than its landmarks.
    scaling : Scaling, optional
        Applied to rows and landmarks first.

    Notes
    -----
    Rows and landmarks are taken from the middle of the landmarks' range and rounded to
    whole numbers of up to 24 bits, fewer for many features, of which 8 are left of the
    scale (more if landmarks need them): farther rows are refused. Squared distances are
    exact; kernel values are rounded to :math:`2^{-22}` and entries of the root to
    :math:`2^{-26}`, or less for the large ones of an ill-conditioned kernel.

    Examples
    --------
    >>> phi = NystromFeatures([[0.0], [1.0]], scale=1.0)
    >>> bool(abs(np.linalg.norm(phi(np.array([[0.0]]))) - 1) < 1e-5)
    True
    """

    kind: ClassVar[str] = "nystrom"
    fields: ClassVar[Mapping[str, Field]] = {"scale": NUMBER, "shift": NUMBER}
    stored: ClassVar[tuple[str, ...]] = ("landmarks", "root")

    def __init__(
        self,
        landmarks: ArrayLike,
        *,
        scale: float = 1.0,
        shift: float = 1e-6,
        root: ArrayLike | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        marks = np.array(landmarks, np.float64)
        if marks.ndim != 2 or not marks.size or not np.isfinite(marks).all():
            raise FeatureMapError(
                "landmarks must be a finite array of shape (sketch_size, n_features); "
                f"got shape {marks.shape}."
            )
        require_bound("scale", scale)
        require_bound("shift", shift)
        size, width = marks.shape
        super().__init__(
            n_features=width,
            sketch_size=size,
            scaling=scaling,
            value_bound=1024.0,
            norm_bound=None,
        )
        self.landmarks, self.scale, self.shift = marks, float(scale), float(shift)
        scaled = marks if scaling is None else scaling(marks)
        if root is None:
            self.require_affordable({"landmarks": (size, width)})
            root = _inverse_root(scaled / self.scale, self.shift)
        given = _require_root(root, size)
        # Sums of a column stay below 2**40, whatever the condition of the kernel.
        most = float(np.abs(given).max()) or 1.0
        self._root_bits = min(
            _INVERSE_ROOT_BITS, 40 - ceil_log2(size) - ceil_log2(most)
        )
        whole = np.rint(np.ldexp(given, self._root_bits)) + 0.0
        self.root = np.ldexp(whole, -self._root_bits)
        # Sums of squares of whole numbers below 2**b stay below 2**51.
        limit_bits = min(24, (51 - ceil_log2(width)) // 2)
        middle = scaled.min(axis=0) / 2 + scaled.max(axis=0) / 2
        farthest = float(np.abs(scaled - middle).max()) / self.scale
        reach_bits = max(_REACH_BITS, ceil_log2(farthest) + 1 if farthest else 0)
        bits = limit_bits - reach_bits - floor_log2(self.scale)
        self._lattice = RowLattice(_around(scaling, middle), bits, 2.0**limit_bits)
        points, _ = self._lattice.round(marks)
        self._points = WholeMatrix(np.ascontiguousarray(points.T))
        self._squares = np.square(points).sum(axis=1)
        self._roots = WholeMatrix(whole)

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        m, d = given.stored_shape("landmarks")
        root = given.shapes.get("root", (m, m))
        if root != (m, m):
            raise FeatureMapError(
                f"root must be a square matrix of size {m}; got shape {root}."
            )
        numbers = 10 * m * d + 10 * m * m
        work = 50 * (m * d + m * m) + (0 if "root" in given.shapes else m**3 // 2)
        return Cost(d or None, m or None, numbers, work)

    @classmethod
    @override
    def origin_of(cls, description: Mapping[str, Any]) -> str:
        return "data"  # landmarks are rows

    @override
    def describe(self) -> dict[str, Any]:
        return {"scale": self.scale, "shift": self.shift}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"landmarks": self.landmarks, "root": self.root}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x, largest = self._lattice.round(rows, first_row)
        own = np.square(x).sum(axis=1)[:, None]
        distances = own + self._squares - 2 * self._points.product(x, largest)
        unit = 2.0**-self._lattice.bits / self.scale
        kernel = np.rint(2.0**_KERNEL_BITS * exp(distances * (-0.5 * unit * unit)))
        sums = self._roots.product(kernel, 2.0**_KERNEL_BITS)
        step, unit = 2.0**self.frac_bits, 2.0 ** -(_KERNEL_BITS + self._root_bits)
        features: NDArray[np.float64] = np.rint(sums * (unit * step)) / step
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        return sum_features(self, rows, first_row)


def _around(scaling: Scaling | None, middle: NDArray[np.float64]) -> Scaling:
    """The scaling, with the origin moved to ``middle`` (in scaled units)."""
    if scaling is None:
        return Scaling(middle, np.ones(len(middle)))
    shift = scaling.shift + middle / scaling.factor
    return Scaling(shift, scaling.factor, scaling.origin)


def _require_root(root: ArrayLike, size: int) -> NDArray[np.float64]:
    given = np.array(root, np.float64)
    if given.shape != (size, size) or not np.isfinite(given).all():
        raise FeatureMapError(
            f"root must be a finite square matrix of size {size}; got shape "
            f"{given.shape}."
        )
    return given


def _inverse_root(units: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """The inverse square root of the Gaussian kernel matrix of some points."""
    squares = (units**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * units @ units.T, 0.0)
    kernel = np.exp(-distances / 2) + shift * np.eye(len(units))
    values, vectors = np.linalg.eigh(kernel)
    scaled = vectors / np.sqrt(np.maximum(values, shift))
    return np.asarray(scaled @ vectors.T, np.float64)
